//! The right edge: the roots of the perfect subtrees a tree consists of.
//!
//! A tree of n leaves is a row of perfect trees, one per set bit of n, the largest first. Thirteen
//! leaves (0b1101) are trees of 8, 4 and 1. A push adds a tree of 1 and joins equals: as many
//! times as n ends in ones. So a push costs one node hash on average and the whole state is at
//! most 53 hashes.

use serde::{Deserialize, Serialize};

use crate::hash::{Hash, node_hash, sha256};

/// Leaves that a tree can have: `seq` is an integer of JSON (L7).
const SIZE_MAX: u64 = (1 << 53) - 1;

/// All that is needed to append to a tree and to state its root.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "EdgeParts", try_from = "EdgeParts")]
pub struct Edge {
    size: u64,
    hashes: Vec<Hash>,
}

/// An [`Edge`] as it is stored, for instance in the head of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeParts {
    /// Leaves in the tree.
    pub size: u64,
    /// Roots of its perfect subtrees, the largest first: one per set bit of `size`.
    pub hashes: Vec<Hash>,
}

/// Parts that no tree has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an edge of {size} leaves cannot have {hashes} hashes")]
pub struct NotAnEdge {
    /// Leaves stated.
    pub size: u64,
    /// Hashes given.
    pub hashes: usize,
}

impl Edge {
    /// The edge of the empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves in the tree.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Roots of the perfect subtrees, the largest first.
    pub fn hashes(&self) -> &[Hash] {
        &self.hashes
    }

    /// The root of the tree; that of the empty one is SHA-256 of nothing.
    pub fn root(&self) -> Hash {
        let joined = self
            .hashes
            .iter()
            .rev()
            .copied()
            .reduce(|right, left| node_hash(&left, &right));
        joined.unwrap_or_else(|| sha256(&[]))
    }

    /// Appends a leaf hash.
    pub fn push(&mut self, leaf: Hash) {
        self.push_each(leaf, |_, _| ());
    }

    /// Appends a leaf hash and names every perfect subtree that it completes, with its height,
    /// from the leaf itself upwards. Tiles are cut from these without hashing anything twice.
    pub(crate) fn push_each(&mut self, leaf: Hash, mut completed: impl FnMut(u32, Hash)) {
        let mut node = leaf;
        completed(0, node);
        for height in 1..=self.size.trailing_ones() {
            let Some(left) = self.hashes.pop() else { break };
            node = node_hash(&left, &node);
            completed(height, node);
        }
        self.hashes.push(node);
        self.size += 1;
    }

    /// The edge of a tree whose perfect subtrees are known already.
    pub(crate) fn from_hashes(size: u64, hashes: Vec<Hash>) -> Self {
        debug_assert_eq!(usize::try_from(size.count_ones()), Ok(hashes.len()));
        Self { size, hashes }
    }
}

/// The root over some hashes as leaves, in order.
impl FromIterator<Hash> for Edge {
    fn from_iter<I: IntoIterator<Item = Hash>>(leaves: I) -> Self {
        let mut edge = Self::new();
        leaves.into_iter().for_each(|leaf| edge.push(leaf));
        edge
    }
}

impl From<Edge> for EdgeParts {
    fn from(edge: Edge) -> Self {
        Self {
            size: edge.size,
            hashes: edge.hashes,
        }
    }
}

impl TryFrom<EdgeParts> for Edge {
    type Error = NotAnEdge;

    fn try_from(parts: EdgeParts) -> Result<Self, NotAnEdge> {
        let fits = usize::try_from(parts.size.count_ones()) == Ok(parts.hashes.len());
        if parts.size <= SIZE_MAX && fits {
            return Ok(Self {
                size: parts.size,
                hashes: parts.hashes,
            });
        }
        Err(NotAnEdge {
            size: parts.size,
            hashes: parts.hashes.len(),
        })
    }
}
