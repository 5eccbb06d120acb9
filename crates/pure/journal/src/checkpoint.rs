//! Checkpoints: signed statements of the number of records of a ledger and of its root.
//!
//! The text is a C2SP signed note, so the tools of transparency logs can read it (L11):
//!
//! ```text
//! bursar/0198f3c2-0000-7000-8000-000000000000/1
//! 48230
//! X7xmRkwkzKsJT0ej0hXNpVd+6TzbUXrnwRsYnmMJkqA=
//!
//! — bursar/0198f3c2-0000-7000-8000-000000000000/1 fRwDqmJh…
//! ```
//!
//! A note may have several signatures: by both keys during a rotation, and by witnesses. Signatures by
//! unknown keys are ignored; an invalid one by the reader's key makes the note invalid. The oracle of
//! the tests is OpenSSL.

mod key;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use key::{Error as KeyError, KeyId, Name, SigningKey, VerifierKey};

use crate::hash::Hash;

/// Maximum size of a note: four lines and hundreds of signatures.
pub const NOTE_BYTES_MAX: usize = 65_536;

/// The number of records of a ledger, and their root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The ledger and its generation.
    pub origin: Name,
    /// Number of records.
    pub size: u64,
    /// The root of the tree over them.
    pub root: Hash,
}

/// Error of opening a note.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not a signed note.
    #[error("not a signed note: {reason}")]
    Note {
        /// The reason.
        reason: &'static str,
    },
    /// No signature is by this key.
    #[error("not signed by {}+{id}", name.short())]
    Unsigned {
        /// The name of the key.
        name: Name,
        /// The id of the key.
        id: KeyId,
    },
    /// A signature by this key is not valid for this text.
    #[error("the signature by {}+{id} is not of this text", name.short())]
    Signature {
        /// The name of the key.
        name: Name,
        /// The id of the key.
        id: KeyId,
    },
    /// The signed text is not a checkpoint.
    #[error("not a checkpoint: {reason}")]
    Checkpoint {
        /// The reason.
        reason: &'static str,
    },
}

impl Checkpoint {
    /// The note with this checkpoint and a signature by each key.
    pub fn sign<'a>(&self, keys: impl IntoIterator<Item = &'a SigningKey>) -> String {
        let text = format!(
            "{}\n{}\n{}\n",
            self.origin,
            self.size,
            STANDARD.encode(self.root.0)
        );
        let signatures = keys.into_iter().map(|key| {
            let signed = [&key.id().0, key.sign(text.as_bytes()).as_slice()].concat();
            format!("— {} {}\n", key.name(), STANDARD.encode(signed))
        });
        let signatures: String = signatures.collect();
        format!("{text}\n{signatures}")
    }

    /// The checkpoint in a note, if this key has signed it.
    pub fn open(note: &str, key: &VerifierKey) -> Result<Self, Error> {
        let (text, signatures) = take_apart(note)?;
        let mut signed = false;
        for line in signatures.lines() {
            let (name, id, signature) = read_signature(line)?;
            if name == key.name().as_str() && id == key.id() {
                if !key.verifies(text.as_bytes(), &signature) {
                    return Err(Error::Signature {
                        name: key.name().clone(),
                        id,
                    });
                }
                signed = true;
            }
        }
        if !signed {
            return Err(Error::Unsigned {
                name: key.name().clone(),
                id: key.id(),
            });
        }
        Self::parse(text).map_err(|reason| Error::Checkpoint { reason })
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        // Further lines may change the meaning, so they are refused.
        let [origin, size, root, ""] = *text.split('\n').collect::<Vec<_>>() else {
            return Err("it does not have exactly three lines");
        };
        let origin = origin
            .parse()
            .map_err(|_| "its first line is not an origin")?;
        let size = decimal(size).ok_or("its second line is not a size")?;
        let root = STANDARD
            .decode(root)
            .ok()
            .and_then(|bytes| bytes.try_into().ok());
        Ok(Self {
            origin,
            size,
            root: Hash(root.ok_or("its third line is not a root")?),
        })
    }
}

/// Splits a note into its text, with the last newline, and its signature lines.
fn take_apart(note: &str) -> Result<(&str, &str), Error> {
    let wrong = |reason| Error::Note { reason };
    if NOTE_BYTES_MAX < note.len() {
        return Err(wrong("it is too long"));
    }
    if note
        .chars()
        .any(|character| character < ' ' && character != '\n')
    {
        return Err(wrong("it holds control characters"));
    }
    let (before, signatures) = note
        .rsplit_once("\n\n")
        .ok_or_else(|| wrong("it has no blank line"))?;
    let text = note
        .get(..=before.len())
        .ok_or_else(|| wrong("it has no text"))?;
    if !signatures.ends_with('\n') {
        return Err(wrong("it does not end with a signature line"));
    }
    Ok((text, signatures))
}

fn read_signature(line: &str) -> Result<(&str, KeyId, Vec<u8>), Error> {
    let parts = || {
        let (name, encoded) = line.strip_prefix("— ")?.split_once(' ')?;
        let bytes = STANDARD.decode(encoded).ok()?;
        let (id, signature) = bytes.split_first_chunk()?;
        Some((name, KeyId(*id), signature.to_vec()))
    };
    parts().ok_or(Error::Note {
        reason: "a signature line cannot be read",
    })
}

/// Parses a number without sign or leading zeros.
fn decimal(text: &str) -> Option<u64> {
    text.parse()
        .ok()
        .filter(|number: &u64| number.to_string() == text)
}
