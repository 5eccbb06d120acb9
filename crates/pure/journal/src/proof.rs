//! The proof file: records with the proof that they are in a signed ledger.
//!
//! One JSON object that `bursar audit proof` writes and `bursar audit verify` checks offline, with
//! only the pinned key. A file has exactly one spelling, that of [`Proof::to_text`]; any other is
//! refused, so nothing can be hidden in it. Each record has its signed leaf hash beside its text,
//! which distinguishes a changed text from a record that was never in the ledger.
//!
//! Deliberately absent: checks that the records are about `object`, and of their meaning. The engine,
//! which can decode them, adds those checks to the list.

use bursar_units::words::number;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, NOTE_BYTES_MAX, VerifierKey};
use crate::hash::{Hash, leaf_hash};
use crate::merkle::{VerifyError, verify_inclusion};
use crate::record::{BlobRef, RECORD_BYTES_MAX, blob_refs};

/// The only version of the file.
pub const PROOF_VERSION: u32 = 1;

/// Maximum size of a proof file, so that reading one cannot exhaust memory: about a hundred records
/// of maximum size with a blob of 256 KiB each.
pub const PROOF_BYTES_MAX: usize = 32 << 20;

/// Maximum number of records: one page of an object's history.
pub const PROOF_RECORDS_MAX: usize = 10_000;

/// Maximum number of keys: those of two rotations, and witnesses.
const KEYS_MAX: usize = 16;

/// Maximum size of `object`: a kind, a slash and a name of 253.
const OBJECT_BYTES_MAX: usize = 512;

/// Maximum number of hashes in an inclusion proof: the height of a tree.
const INCLUSION_MAX: usize = 64;

/// A proof file. Its fields are in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The version of the file, [`PROOF_VERSION`].
    pub v: u32,
    /// The claimed object of the records, `booking/job-1`; see above.
    pub object: String,
    /// The signed note.
    pub checkpoint: String,
    /// The keys that have signed it, for a reader without a key; they prove nothing by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<VerifierKey>,
    /// The records, in the order of the ledger.
    pub records: Vec<Proven>,
}

/// A record with the proof that it is in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proven {
    /// The record's number in the ledger.
    pub seq: u64,
    /// Its leaf hash in the ledger.
    pub leaf: Hash,
    /// The record, byte for byte.
    pub bytes: String,
    /// The blobs that it refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<String>,
    /// The inclusion proof, from the leaf up to the root.
    pub inclusion: Vec<Hash>,
}

/// The result of one check: a line of `bursar audit verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The check: `signed`, `included`, `blobs`.
    pub name: &'static str,
    /// Whether it passed.
    pub ok: bool,
    /// The numbers, or the difference.
    pub detail: String,
}

/// Error of reading or writing a proof file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or a part of it is too large.
    #[error("the proof's {what} has {size}, the limit is {limit}")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The maximum.
        limit: usize,
    },
    /// The JSON cannot be read.
    #[error("the proof cannot be read")]
    Read {
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A newer program wrote it.
    #[error("proof version {version} needs a newer bursar, this one reads version {PROOF_VERSION}")]
    Version {
        /// Its version.
        version: u32,
    },
    /// It was reformatted, or changed where no check applies.
    #[error("the proof was reformatted or changed, get the original with `bursar audit proof`")]
    Spelling,
    /// The JSON cannot be written.
    #[error("the proof cannot be written")]
    Write {
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

impl Proof {
    /// Parses a proof file, with or without a newline at its end.
    pub fn parse(text: &str) -> Result<Self, Error> {
        limit("text", text.len(), PROOF_BYTES_MAX)?;
        let read = |source| Error::Read { source };
        // The version comes first: a newer file may have unknown fields.
        let Version { v: version } = serde_json::from_str(text).map_err(read)?;
        if version != PROOF_VERSION {
            return Err(Error::Version { version });
        }
        let proof: Self = serde_json::from_str(text).map_err(read)?;
        proof.check_limits()?;
        if proof.to_text()? == text.strip_suffix('\n').unwrap_or(text) {
            return Ok(proof);
        }
        Err(Error::Spelling)
    }

    /// The file, without a newline at its end.
    pub fn to_text(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|source| Error::Write { source })
    }

    /// Checks the signature, each record and each blob against the pinned key.
    ///
    /// The list is complete even if the first check fails; a check that could not be made has
    /// failed.
    pub fn verify(&self, key: &VerifierKey) -> Vec<Check> {
        let opened = Checkpoint::open(&self.checkpoint, key);
        let signed = match &opened {
            Ok(checkpoint) => Check::passed("signed", signed_detail(checkpoint, key)),
            Err(error) => Check::failed("signed", error.to_string()),
        };
        let included = match &opened {
            Ok(checkpoint) => self.included(checkpoint),
            Err(_) => Check::failed("included", "no signed root to compare with".to_owned()),
        };
        [Some(signed), Some(included), self.blobs()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn included(&self, checkpoint: &Checkpoint) -> Check {
        let ordered = self.records.iter().zip(self.records.iter().skip(1));
        if let Some((one, next)) = ordered.into_iter().find(|(one, next)| next.seq <= one.seq) {
            let (one, next) = (number(one.seq), number(next.seq));
            return Check::failed(
                "included",
                format!("record {next} stands after record {one}"),
            );
        }
        let mut wrong = self
            .records
            .iter()
            .filter_map(|record| record.difference(checkpoint));
        let Some(first) = wrong.next() else {
            return match (self.records.first(), self.records.last()) {
                (Some(first), Some(last)) => {
                    Check::passed("included", self.included_detail(first.seq, last.seq))
                }
                _ => Check::failed("included", "the proof holds no record".to_owned()),
            };
        };
        match wrong.count() {
            0 => Check::failed("included", first),
            more => Check::failed("included", format!("{first}, and {more} more")),
        }
    }

    fn included_detail(&self, first: u64, last: u64) -> String {
        let count = u64::try_from(self.records.len()).unwrap_or(u64::MAX);
        let (from, to) = (number(first), number(last));
        match last - first {
            0 => format!("record {from} is in that ledger"),
            gap if gap == count - 1 => format!("records {from} to {to} are in that ledger"),
            _ => format!(
                "{} records from {from} to {to} are in that ledger",
                number(count)
            ),
        }
    }

    /// The check of the blobs, if the proof has or needs any.
    fn blobs(&self) -> Option<Check> {
        let mut count = 0;
        for record in &self.records {
            match record.blobs_found() {
                Ok(found) => count += found,
                Err(detail) => return Some(Check::failed("blobs", detail)),
            }
        }
        let detail = if count == 1 {
            "1 blob is".to_owned()
        } else {
            format!("{} blobs are", number(count))
        };
        (0 < count).then(|| Check::passed("blobs", format!("{detail} as the records say")))
    }

    fn check_limits(&self) -> Result<(), Error> {
        limit("object", self.object.len(), OBJECT_BYTES_MAX)?;
        limit("checkpoint", self.checkpoint.len(), NOTE_BYTES_MAX)?;
        limit("list of keys", self.keys.len(), KEYS_MAX)?;
        limit("list of records", self.records.len(), PROOF_RECORDS_MAX)?;
        self.records.iter().try_for_each(|record| {
            limit("record", record.bytes.len(), RECORD_BYTES_MAX)?;
            limit("inclusion", record.inclusion.len(), INCLUSION_MAX)
        })
    }
}

impl Proven {
    /// The difference between the record and the signed ledger, if any.
    fn difference(&self, checkpoint: &Checkpoint) -> Option<String> {
        let seq = number(self.seq);
        let included = verify_inclusion(
            &self.leaf,
            self.seq,
            checkpoint.size,
            &checkpoint.root,
            &self.inclusion,
        );
        let computed = leaf_hash(self.bytes.as_bytes());
        match included {
            Ok(()) if computed == self.leaf => None,
            Ok(()) => Some(format!(
                "record {seq} hashes to {}, the signed ledger holds {}",
                computed.short(),
                self.leaf.short()
            )),
            Err(VerifyError::Root { computed, stated }) => Some(format!(
                "record {seq} leads to root {}, the signed root is {}",
                computed.short(),
                stated.short()
            )),
            Err(VerifyError::Outside { .. }) => Some(format!(
                "record {seq} is after the signed {}",
                number(checkpoint.size)
            )),
            Err(error) => Some(format!("record {seq}: {error}")),
        }
    }

    /// The number of blobs of the record, if exactly those are present.
    fn blobs_found(&self) -> Result<u64, String> {
        let seq = number(self.seq);
        let wanted = blob_refs(self.bytes.as_bytes())
            .map_err(|error| format!("record {seq} is not readable as JSON: {error}"))?;
        let held: Vec<BlobRef> = self
            .blobs
            .iter()
            .map(|blob| BlobRef::to(blob.as_bytes()))
            .collect();
        let describe =
            |blob: &BlobRef| format!("{} of {} bytes", blob.sha256.short(), number(blob.size));
        if let Some(missing) = wanted.iter().find(|blob| !held.contains(blob)) {
            return Err(format!(
                "record {seq} refers to blob {}, which is not here",
                describe(missing)
            ));
        }
        if let Some(stranger) = held.iter().find(|blob| !wanted.contains(blob)) {
            return Err(format!(
                "record {seq} does not refer to blob {}",
                describe(stranger)
            ));
        }
        Ok(u64::try_from(held.len()).unwrap_or(u64::MAX))
    }
}

impl Check {
    /// A check that passed.
    pub fn passed(name: &'static str, detail: String) -> Self {
        Self {
            name,
            ok: true,
            detail,
        }
    }

    /// A check that failed.
    pub fn failed(name: &'static str, detail: String) -> Self {
        Self {
            name,
            ok: false,
            detail,
        }
    }
}

/// The part of a file that is read before its version is known.
#[derive(Deserialize)]
struct Version {
    v: u32,
}

fn signed_detail(checkpoint: &Checkpoint, key: &VerifierKey) -> String {
    let (size, name, id) = (number(checkpoint.size), key.name().short(), key.id());
    if checkpoint.origin == *key.name() {
        return format!("checkpoint {size} by {name}+{id}");
    }
    format!(
        "checkpoint {size} of {} by {name}+{id}",
        checkpoint.origin.short()
    )
}

fn limit(what: &'static str, size: usize, limit: usize) -> Result<(), Error> {
    if size <= limit {
        Ok(())
    } else {
        Err(Error::TooLarge { what, size, limit })
    }
}
