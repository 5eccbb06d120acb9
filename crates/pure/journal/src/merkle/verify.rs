//! Verifies proofs with hashes only (RFC 9162, sections 2.1.3.2 and 2.1.4.2).
//!
//! These functions accept any numbers and hashes; an invalid proof is an [`Error`], never a panic.

use crate::hash::{Hash, node_hash, sha256};

/// Error of an invalid proof.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The leaf cannot be in a tree of that size.
    #[error("record {index} is not among the first {size}")]
    Outside {
        /// The leaf.
        index: u64,
        /// Leaves of the tree.
        size: u64,
    },
    /// The old tree is larger than the new one.
    #[error("a ledger of {old_size} records cannot have grown into one of {new_size}")]
    Order {
        /// Leaves of the old tree.
        old_size: u64,
        /// Leaves of the new tree.
        new_size: u64,
    },
    /// The proof has too few or too many hashes for these sizes.
    #[error("a proof of {hashes} hashes has the wrong length")]
    Length {
        /// Hashes in the proof.
        hashes: usize,
    },
    /// The proof leads to a different root.
    #[error("the proof leads to root {computed}, not to {stated}")]
    Root {
        /// The root that the proof leads to.
        computed: Hash,
        /// The expected root.
        stated: Hash,
    },
}

/// Checks that `leaf` is the leaf `index` of the tree of `size` leaves with this root.
pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    size: u64,
    root: &Hash,
    proof: &[Hash],
) -> Result<(), Error> {
    same(inclusion_root(leaf, index, size, proof)?, root)
}

/// The root that an inclusion proof leads to.
pub fn inclusion_root(leaf: &Hash, index: u64, size: u64, proof: &[Hash]) -> Result<Hash, Error> {
    if size <= index {
        return Err(Error::Outside { index, size });
    }
    let length = Error::Length {
        hashes: proof.len(),
    };
    // The index of the node on its layer, and of the last node of that layer.
    let (mut place, mut last) = (index, size - 1);
    let mut node = *leaf;
    for sibling in proof {
        if last == 0 {
            return Err(length);
        }
        if place & 1 == 1 || place == last {
            node = node_hash(sibling, &node);
            // A last node without a sibling rises unhashed until it is a right child.
            let rise = place.trailing_zeros();
            (place, last) = (place >> rise, last >> rise);
        } else {
            node = node_hash(&node, sibling);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    if last == 0 { Ok(node) } else { Err(length) }
}

/// Checks that the tree of `old_size` leaves is the beginning of the tree of `new_size`.
///
/// Every tree continues the empty one. For equal sizes the proof must be empty.
pub fn verify_consistency(
    old_size: u64,
    old_root: &Hash,
    new_size: u64,
    new_root: &Hash,
    proof: &[Hash],
) -> Result<(), Error> {
    if new_size < old_size {
        return Err(Error::Order { old_size, new_size });
    }
    if old_size == 0 || old_size == new_size {
        if !proof.is_empty() {
            return Err(Error::Length {
                hashes: proof.len(),
            });
        }
        let known = if old_size == 0 {
            sha256(&[])
        } else {
            *new_root
        };
        return same(known, old_root);
    }
    let (old_computed, new_computed) = consistency_roots(old_size, old_root, new_size, proof)?;
    same(old_computed, old_root)?;
    same(new_computed, new_root)
}

/// The two roots that a consistency proof leads to, for 0 < `old_size` < `new_size`.
fn consistency_roots(
    old_size: u64,
    old_root: &Hash,
    new_size: u64,
    proof: &[Hash],
) -> Result<(Hash, Hash), Error> {
    let length = Error::Length {
        hashes: proof.len(),
    };
    // A perfect old tree is itself the first node, so the proof omits it.
    let (first, rest) = if old_size.is_power_of_two() {
        (old_root, proof)
    } else {
        proof.split_first().ok_or_else(|| length.clone())?
    };
    let (mut place, mut last) = (old_size - 1, new_size - 1);
    let rise = place.trailing_ones();
    (place, last) = (place >> rise, last >> rise);
    let (mut old, mut new) = (*first, *first);
    for sibling in rest {
        if last == 0 {
            return Err(length);
        }
        if place & 1 == 1 || place == last {
            old = node_hash(sibling, &old);
            new = node_hash(sibling, &new);
            let rise = place.trailing_zeros();
            (place, last) = (place >> rise, last >> rise);
        } else {
            new = node_hash(&new, sibling);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    if last == 0 {
        Ok((old, new))
    } else {
        Err(length)
    }
}

fn same(computed: Hash, stated: &Hash) -> Result<(), Error> {
    if computed == *stated {
        Ok(())
    } else {
        Err(Error::Root {
            computed,
            stated: *stated,
        })
    }
}
