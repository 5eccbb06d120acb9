//! Subjects of records, for proofs, searches and the verifier of a proof.
//!
//! Subjects come from the decoded record: a name that only occurs in its text, such as a tenant or
//! a class, is not a subject. [`subjects_of`] is the only rule, for indexes and for [`is_about`].

use bursar_plane::Reference;

use crate::codec::Record;
use crate::{Change, Command, spine};

/// Version of [`subjects_of`]. It rises when an old record gets other subjects, so that an index of
/// an earlier version is not used.
pub const VERSION: u32 = 1;

/// Whether a record is about an object.
pub fn is_about(record: &Record, object: &Reference) -> bool {
    subjects_of(record).any(|subject| subject == *object)
}

/// Subjects of a record, unordered and with repetitions: its number, the subjects of its events,
/// and the objects that its command declares.
pub fn subjects_of(record: &Record) -> impl Iterator<Item = Reference> {
    let changes: &[Change] = match &record.command {
        Command::Spine(spine::Command::Change { changes, .. }) => changes,
        _ => &[],
    };
    std::iter::once(Reference::Record(record.seq))
        .chain(record.events.iter().flat_map(crate::Event::subjects))
        .chain(changes.iter().map(Change::declared))
}
