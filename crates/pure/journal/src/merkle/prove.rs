//! Builds proofs from tiles: PATH and PROOF of RFC 6962, section 2.1.
//!
//! Both walk from the root towards a leaf (or towards the right edge of the old tree) and collect the
//! other half at each step. Each half is a range of leaves, that is, some perfect subtrees, whose
//! hashes are in tiles. A proof in a million records reads at most six tiles.
//!
//! Example, leaf 2 of 5: the other halves are 4..5, 0..2 and 3..4, so the proof is
//! [leaf 3, node 0..2, leaf 4], from the leaf upwards.

use std::collections::BTreeMap;

use crate::hash::{Hash, node_hash};
use crate::merkle::Edge;
use crate::tile::{TILE_HEIGHT, TileId, Tiles};

/// Error of building a proof.
#[derive(Debug, thiserror::Error)]
pub enum Error<E: std::error::Error + 'static> {
    /// The requested leaf is not in a tree of that size.
    #[error("record {index} is not among the first {size}")]
    Outside {
        /// The requested leaf.
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
    /// The reader of tiles failed.
    #[error("tile {id} could not be read")]
    Read {
        /// The tile.
        id: TileId,
        /// The cause.
        #[source]
        source: E,
    },
    /// A tile has fewer hashes than a tree of that size needs.
    #[error("tile {id} holds {held} hashes only")]
    Short {
        /// The tile, with the needed width.
        id: TileId,
        /// The number of its hashes.
        held: usize,
    },
}

/// The proof that the leaf `index` is in the tree of the first `size` leaves, from the leaf
/// upwards.
pub fn prove_inclusion<T>(tiles: &T, index: u64, size: u64) -> Result<Vec<Hash>, Error<T::Error>>
where
    T: Tiles,
    T::Error: std::error::Error + 'static,
{
    if size <= index {
        return Err(Error::Outside { index, size });
    }
    let mut reader = Reader {
        tiles,
        size,
        read: BTreeMap::new(),
    };
    let mut proof = Vec::new();
    let (mut start, mut end) = (0, size);
    while 1 < end - start {
        let middle = split(start, end);
        if index < middle {
            proof.push(reader.range(middle, end)?);
            end = middle;
        } else {
            proof.push(reader.range(start, middle)?);
            start = middle;
        }
    }
    proof.reverse();
    Ok(proof)
}

/// The proof that the tree of the first `old_size` leaves is the beginning of the tree of the first
/// `new_size`. It is empty if the old tree is empty or the sizes are equal.
pub fn prove_consistency<T>(
    tiles: &T,
    old_size: u64,
    new_size: u64,
) -> Result<Vec<Hash>, Error<T::Error>>
where
    T: Tiles,
    T::Error: std::error::Error + 'static,
{
    if new_size < old_size {
        return Err(Error::Order { old_size, new_size });
    }
    let mut proof = Vec::new();
    if old_size == 0 {
        return Ok(proof);
    }
    let mut reader = Reader {
        tiles,
        size: new_size,
        read: BTreeMap::new(),
    };
    let (mut start, mut end) = (0, new_size);
    while old_size < end {
        let middle = split(start, end);
        if old_size <= middle {
            proof.push(reader.range(middle, end)?);
            end = middle;
        } else {
            proof.push(reader.range(start, middle)?);
            start = middle;
        }
    }
    // If the walk never went right, the rest is the old tree, whose root is known.
    if start != 0 {
        proof.push(reader.range(start, end)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Reads nodes of the tree of the first `size` leaves, each tile once.
struct Reader<'a, T> {
    tiles: &'a T,
    size: u64,
    read: BTreeMap<TileId, Vec<Hash>>,
}

impl<T> Reader<'_, T>
where
    T: Tiles,
    T::Error: std::error::Error + 'static,
{
    /// The root over the leaves `start..end`, a half that [`split`] made.
    fn range(&mut self, start: u64, end: u64) -> Result<Hash, Error<T::Error>> {
        let mut at = start;
        let mut subtrees = Vec::new();
        while at < end {
            let height = at.trailing_zeros().min((end - at).ilog2());
            subtrees.push(self.node(height, at >> height)?);
            at += 1 << height;
        }
        let joined = subtrees
            .into_iter()
            .rev()
            .reduce(|right, left| node_hash(&left, &right));
        joined.ok_or(Error::Outside {
            index: start,
            size: self.size,
        })
    }

    /// The root of the `index`-th perfect subtree of a height.
    fn node(&mut self, height: u32, index: u64) -> Result<Hash, Error<T::Error>> {
        let outside = Error::Outside {
            index,
            size: self.size,
        };
        let inside = height % TILE_HEIGHT;
        let first = index << inside;
        let Some(id) = TileId::in_tree(height / TILE_HEIGHT, first >> TILE_HEIGHT, self.size)
        else {
            return Err(outside);
        };
        let skip = usize::try_from(first & ((1 << TILE_HEIGHT) - 1)).unwrap_or(usize::MAX);
        let tile = self.tile(id)?;
        Ok(tile
            .iter()
            .skip(skip)
            .take(1 << inside)
            .copied()
            .collect::<Edge>()
            .root())
    }

    fn tile(&mut self, id: TileId) -> Result<&[Hash], Error<T::Error>> {
        match self.read.entry(id) {
            std::collections::btree_map::Entry::Occupied(held) => Ok(held.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                let hashes = self
                    .tiles
                    .tile(id)
                    .map_err(|source| Error::Read { id, source })?;
                if hashes.len() < usize::from(id.width()) {
                    return Err(Error::Short {
                        id,
                        held: hashes.len(),
                    });
                }
                Ok(place.insert(hashes))
            }
        }
    }
}

/// The split of RFC 6962: after the largest power of two that is smaller than the number of leaves.
fn split(start: u64, end: u64) -> u64 {
    start + (1 << (end - start - 1).ilog2())
}
