//! The right edge: the roots of the perfect subtrees of a tree.
//!
//! A tree of n leaves is a row of perfect trees, one per set bit of n, the largest first. Thirteen
//! leaves (0b1101) are trees of 8, 4 and 1. A new leaf is a tree of 1; then trees of equal size are
//! joined, as many times as n ends in ones. So a leaf costs one node hash on average, and the state is
//! at most 53 hashes. Many leaves are added height by height, because the nodes of one height do not
//! depend on each other.

use serde::{Deserialize, Serialize};

use crate::hash::{Hash, node_hash, node_hashes, sha256};

/// Maximum number of leaves: `seq` is an integer of JSON (L7).
const SIZE_MAX: u64 = (1 << 53) - 1;

/// The state for appending to a tree and computing its root.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "EdgeParts", try_from = "EdgeParts")]
pub struct Edge {
    size: u64,
    hashes: Vec<Hash>,
}

/// The stored form of an [`Edge`], for instance in the head of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeParts {
    /// Leaves in the tree.
    pub size: u64,
    /// Roots of its perfect subtrees, the largest first: one per set bit of `size`.
    pub hashes: Vec<Hash>,
}

/// Error of parts that no tree has.
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

    /// The root of the tree; that of the empty tree is SHA-256 of nothing.
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
        self.extend_each(vec![leaf], |_, _, _| ());
    }

    /// Appends leaf hashes and calls `completed` for every perfect subtree that they complete, one
    /// height after the other, with the height, the root, and the number of leaves up to its end.
    /// Tiles are cut from these without hashing anything twice.
    pub(crate) fn extend_each(
        &mut self,
        leaves: Vec<Hash>,
        mut completed: impl FnMut(u32, Hash, u64),
    ) {
        let size = self.size + u64::try_from(leaves.len()).unwrap_or(u64::MAX);
        let mut ends = Vec::new();
        let (mut nodes, mut height) = (leaves, 0);
        while !nodes.is_empty() {
            // Subtrees of this height that were complete before.
            let before = self.size >> height;
            for (number, node) in (before + 1..).zip(&nodes) {
                completed(height, *node, number << height);
            }
            if before % 2 == 1
                && let Some(left) = self.hashes.pop()
            {
                nodes.insert(0, left);
            }
            if nodes.len() % 2 == 1 {
                ends.extend(nodes.pop());
            }
            nodes = node_hashes(&nodes);
            height += 1;
        }
        self.hashes.extend(ends.into_iter().rev());
        self.size = size;
    }

    /// The edge of a tree with known perfect subtrees.
    pub(crate) fn from_hashes(size: u64, hashes: Vec<Hash>) -> Self {
        debug_assert_eq!(usize::try_from(size.count_ones()), Ok(hashes.len()));
        Self { size, hashes }
    }
}

/// The edge of a tree with these leaves.
impl FromIterator<Hash> for Edge {
    fn from_iter<I: IntoIterator<Item = Hash>>(leaves: I) -> Self {
        let mut edge = Self::new();
        edge.extend_each(leaves.into_iter().collect(), |_, _, _| ());
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
