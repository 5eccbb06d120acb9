//! The bounds of a record, what stands for a part that does not fit, and the framing of records in
//! an export of tiles.
//!
//! What a record says is the business of `engine::codec`; here it is bytes.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::hash::{Hash, sha256};
use crate::tile::TILE_WIDTH;

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

/// Why bytes are no record, or no bundle of records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A record is too long; its `cmd` or `ev` should have become a blob.
    #[error("a record of {size} bytes is over the limit of {RECORD_BYTES_MAX}")]
    TooLong {
        /// Bytes of the record.
        size: usize,
    },
    /// A bundle ends inside a record.
    #[error("the bundle ends inside its record {place}")]
    Cut {
        /// The place in the bundle, from 0.
        place: usize,
    },
    /// A bundle has more records than a tile has hashes.
    #[error("the bundle has more than {TILE_WIDTH} records")]
    TooMany,
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
pub fn write_entry(bundle: &mut Vec<u8>, record: &[u8]) -> Result<(), Error> {
    bundle.extend(entry_size(record)?.to_be_bytes());
    bundle.extend(record);
    Ok(())
}

/// The records of a bundle.
pub fn read_entries(bundle: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let mut records = Vec::new();
    let mut rest = bundle;
    while !rest.is_empty() {
        if records.len() == usize::from(TILE_WIDTH) {
            return Err(Error::TooMany);
        }
        let cut = Error::Cut {
            place: records.len(),
        };
        let (size, after) = rest.split_first_chunk::<2>().ok_or_else(|| cut.clone())?;
        let size = usize::from(u16::from_be_bytes(*size));
        let (record, after) = after.split_at_checked(size).ok_or(cut)?;
        records.push(record);
        rest = after;
    }
    Ok(records)
}

fn entry_size(record: &[u8]) -> Result<u16, Error> {
    u16::try_from(record.len()).map_err(|_| Error::TooLong { size: record.len() })
}
