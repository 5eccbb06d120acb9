//! SHA-256 values of bytes, leaves and inner nodes.
//!
//! Leaves and inner nodes are hashed with different first bytes (RFC 6962, section 2.1), so a record
//! cannot be taken for a node of the tree. The text of a hash is lower-case hexadecimal only.

mod lanes;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Bytes of one hash.
pub const HASH_BYTES: usize = 32;

/// A SHA-256 value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; HASH_BYTES]);

/// Error of a text that is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 lower-case hexadecimal digits")]
pub struct NotAHash;

/// SHA-256 of plain bytes: blobs, snapshots, the root of the empty tree.
pub fn sha256(bytes: &[u8]) -> Hash {
    Hash(Sha256::digest(bytes).into())
}

/// The leaf of a record: SHA-256 of 0x00 and the record's stored bytes.
pub fn leaf_hash(bytes: &[u8]) -> Hash {
    Hash(
        Sha256::new_with_prefix([0x00])
            .chain_update(bytes)
            .finalize()
            .into(),
    )
}

/// The parent of two nodes: SHA-256 of 0x01, the left and the right hash.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Hash(
        Sha256::new_with_prefix([0x01])
            .chain_update(left.0)
            .chain_update(right.0)
            .finalize()
            .into(),
    )
}

/// The leaves of many records, faster than one by one.
pub fn leaf_hashes(records: &[&[u8]]) -> Vec<Hash> {
    if lanes::pay(records.len()) {
        return lanes::sha256_each(0x00, records);
    }
    records.iter().map(|bytes| leaf_hash(bytes)).collect()
}

/// The parents of consecutive pairs of nodes.
pub(crate) fn node_hashes(nodes: &[Hash]) -> Vec<Hash> {
    let (pairs, _) = nodes.as_chunks();
    if lanes::pay(pairs.len()) {
        let pairs: Vec<Vec<u8>> = pairs
            .iter()
            .map(|[left, right]| [left.0, right.0].concat())
            .collect();
        let pairs: Vec<&[u8]> = pairs.iter().map(Vec::as_slice).collect();
        return lanes::sha256_each(0x01, &pairs);
    }
    let parents = pairs.iter().map(|[left, right]| node_hash(left, right));
    parents.collect()
}

impl Hash {
    /// The first four digits and an ellipsis, for people: `91d2…`.
    pub fn short(&self) -> String {
        self.to_string().chars().take(4).chain(['…']).collect()
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Hash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != HASH_BYTES || !rest.is_empty() {
            return Err(NotAHash);
        }
        let mut bytes = [0; HASH_BYTES];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

fn digit(character: u8) -> Result<u8, NotAHash> {
    match character {
        b'0'..=b'9' => Ok(character - b'0'),
        b'a'..=b'f' => Ok(character - b'a' + 10),
        _ => Err(NotAHash),
    }
}
