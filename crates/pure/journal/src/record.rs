//! The bounds of a record, what stands for a part that does not fit, and the framing of records in
//! an export of tiles.
//!
//! What a record says is the business of `engine::codec`; here it is bytes.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::hash::{Hash, sha256};

/// Bytes that a record may have: a C2SP entry states its size in two bytes (L9).
pub const RECORD_BYTES_MAX: usize = 65_535;

/// What stands in a record for a `cmd` or `ev` that did not fit: `{"blob":"<sha256>","size":n}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobRef {
    /// SHA-256 of the blob.
    #[serde(rename = "blob")]
    pub sha256: Hash,
    /// Bytes of the blob.
    pub size: u64,
}

/// A record that is too long; its `cmd` or `ev` should have become a blob.
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

    /// The reference that stands in a record for one of its parts, if one does.
    pub fn read(part: &RawValue) -> Option<Self> {
        // Serde would also read the two fields from an array, which is a list of events instead.
        let object = Some(part.get()).filter(|text| text.starts_with('{'))?;
        serde_json::from_str(object).ok()
    }
}

/// The blobs that a record names: in place of its `cmd`, of its `ev`, or of both (L9).
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

/// Adds a record to the bundle of an export: its size in two bytes, big end first, and its bytes.
pub fn write_entry(bundle: &mut Vec<u8>, record: &[u8]) -> Result<(), TooLong> {
    let size = u16::try_from(record.len()).map_err(|_| TooLong { size: record.len() })?;
    bundle.extend(size.to_be_bytes());
    bundle.extend(record);
    Ok(())
}
