//! What records are about: the one question that proofs, searches and the verifier of a proof ask.
//!
//! It is asked of the decoded record: a name that only occurs in the text, such as a tenant or a
//! class, does not make a record be about it. [`subjects_of`] is the only rule: an index of it and
//! [`is_about`] cannot disagree.

use bursar_plane::Reference;

use crate::codec::Record;
use crate::{Change, Command, spine};

/// Version of [`subjects_of`]. It rises whenever an old record gets other subjects, so that an index
/// which an earlier program wrote is not used.
pub const VERSION: u32 = 1;

/// Whether a record is about an object.
pub fn is_about(record: &Record, object: &Reference) -> bool {
    subjects_of(record).any(|subject| subject == *object)
}

/// Everything a record is about, in no particular order, some of it more than once: its number, the
/// subjects of its events, and the objects that it was asked to declare.
pub fn subjects_of(record: &Record) -> impl Iterator<Item = Reference> {
    let changes: &[Change] = match &record.command {
        Command::Spine(spine::Command::Change { changes, .. }) => changes,
        _ => &[],
    };
    std::iter::once(Reference::Record(record.seq))
        .chain(record.events.iter().flat_map(crate::Event::subjects))
        .chain(changes.iter().map(Change::declared))
}
