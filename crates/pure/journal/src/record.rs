//! The size limit of a record, references to blobs, and the framing of records in an export of tiles.
//!
//! Here a record is bytes; `engine::codec` decodes it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::hash::{Hash, sha256};

/// Maximum size of a record: a C2SP entry states its size in two bytes (L9).
pub const RECORD_BYTES_MAX: usize = 65_535;

/// Replaces a `cmd` or `ev` that is too large for a record: `{"blob":"<sha256>","size":n}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobRef {
    /// SHA-256 of the blob.
    #[serde(rename = "blob")]
    pub sha256: Hash,
    /// Bytes of the blob.
    pub size: u64,
}

/// Error of a record that is too long: its `cmd` or `ev` should be a blob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a record of {size} bytes is over the limit of {RECORD_BYTES_MAX}")]
pub struct TooLong {
    /// Bytes of the record.
    pub size: usize,
}

impl BlobRef {
    /// The reference to some bytes.
    pub fn to(bytes: &[u8]) -> Self {
        Self {
            sha256: sha256(bytes),
            size: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        }
    }

    /// The reference in a part of a record, if the part is one.
    pub fn read(part: &RawValue) -> Option<Self> {
        // Serde would also accept an array of two fields, but an array is a list of events.
        let object = Some(part.get()).filter(|text| text.starts_with('{'))?;
        serde_json::from_str(object).ok()
    }
}

/// The blobs that a record refers to: for its `cmd`, its `ev`, or both (L9).
pub fn blob_refs(record: &[u8]) -> Result<Vec<BlobRef>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Parts<'a> {
        #[serde(borrow)]
        cmd: Option<&'a RawValue>,
        #[serde(borrow)]
        ev: Option<&'a RawValue>,
    }
    let parts: Parts<'_> = serde_json::from_slice(record)?;
    let parts = [parts.cmd, parts.ev].into_iter().flatten();
    Ok(parts.filter_map(BlobRef::read).collect())
}

/// Adds a record to the bundle of an export: its size in two bytes, big-endian, and its bytes.
pub fn write_entry(bundle: &mut Vec<u8>, record: &[u8]) -> Result<(), TooLong> {
    let size = u16::try_from(record.len()).map_err(|_| TooLong { size: record.len() })?;
    bundle.extend(size.to_be_bytes());
    bundle.extend(record);
    Ok(())
}
