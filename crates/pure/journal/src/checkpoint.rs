//! Checkpoints: the signed statement of how many records the ledger has and what its root is.
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
//! A note may carry several signatures: while keys rotate both sign, later witnesses may too.
//! Signatures by keys that the reader does not hold say nothing and are passed over; one by its
//! own key that is wrong condemns the note. The oracle of the tests is OpenSSL.

mod key;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use key::{Error as KeyError, KeyId, Name, SigningKey, VerifierKey};

use crate::hash::Hash;

/// Bytes that a note may have: four lines and hundreds of signatures.
pub const NOTE_BYTES_MAX: usize = 65_536;

/// How many records a ledger has, and their root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which ledger, and which generation of it.
    pub origin: Name,
    /// Records.
    pub size: u64,
    /// The root of the tree over them.
    pub root: Hash,
}

/// Why a note is not a checkpoint that a key has signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not a signed note at all.
    #[error("not a signed note: {reason}")]
    Note {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// None of the signatures is by this key.
    #[error("not signed by {}+{id}", name.short())]
    Unsigned {
        /// The name of the key.
        name: Name,
        /// The id of the key.
        id: KeyId,
    },
    /// A signature by this key does not belong to this text.
    #[error("the signature by {}+{id} is not of this text", name.short())]
    Signature {
        /// The name of the key.
        name: Name,
        /// The id of the key.
        id: KeyId,
    },
    /// The key has signed something that is not a checkpoint.
    #[error("not a checkpoint: {reason}")]
    Checkpoint {
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl Checkpoint {
    /// The note that states this checkpoint, with a signature by each of the keys.
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
        // Further lines would say something that this reader does not understand: it stops.
        let [origin, size, root, ""] = *text.split('\n').collect::<Vec<_>>() else {
            return Err("it has not exactly three lines");
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

/// The text of a note, with its last newline, and the lines of signatures.
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
        return Err(wrong("it does not end in a line of signature"));
    }
    Ok((text, signatures))
}

/// The name, the key id and the bytes of one signature.
fn read_signature(line: &str) -> Result<(&str, KeyId, Vec<u8>), Error> {
    let parts = || {
        let (name, encoded) = line.strip_prefix("— ")?.split_once(' ')?;
        let bytes = STANDARD.decode(encoded).ok()?;
        let (id, signature) = bytes.split_first_chunk()?;
        Some((name, KeyId(*id), signature.to_vec()))
    };
    parts().ok_or(Error::Note {
        reason: "a line of signature cannot be read",
    })
}

/// A number in its only spelling.
fn decimal(text: &str) -> Option<u64> {
    text.parse()
        .ok()
        .filter(|number: &u64| number.to_string() == text)
}
