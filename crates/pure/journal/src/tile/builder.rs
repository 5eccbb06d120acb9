//! The growing end of the tree: the edge, and the tiles that are not full yet.

use crate::hash::Hash;
use crate::merkle::Edge;
use crate::tile::{FullTile, TILE_HEIGHT, TILE_WIDTH, TileId, Tiles};

/// Appends leaves and returns each tile that becomes full.
///
/// A leaf costs one node hash on average: the edge computes the entries of higher levels anyway. A
/// clone copies at most 256 hashes a level, in practice some 20 kB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Builder {
    edge: Edge,
    /// The partial tile of each level.
    partial: Vec<Vec<Hash>>,
}

/// The tiles of a store together with the partial ones of a [`Builder`].
#[derive(Debug)]
pub struct Over<'a, T> {
    builder: &'a Builder,
    stored: &'a T,
}

/// Error of rebuilding a builder from stored tiles.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError<E: std::error::Error + 'static> {
    /// The number of tiles is larger than a ledger can have.
    #[error("{full} full tiles are more than a ledger can have")]
    Count {
        /// The given number of full tiles of level 0.
        full: u64,
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
    /// A full tile does not have 256 hashes.
    #[error("tile {id} holds {held} hashes instead of {TILE_WIDTH}")]
    Width {
        /// The tile.
        id: TileId,
        /// The number of its hashes.
        held: usize,
    },
}

impl Builder {
    /// The builder of an empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rebuilds the builder after the first `full` tiles of level 0 from stored tiles, at most 255 a
    /// level. The caller pushes the leaves that follow, from `full` · 256 on.
    pub fn resume<T>(stored: &T, full: u64) -> Result<Self, ResumeError<T::Error>>
    where
        T: Tiles,
        T::Error: std::error::Error + 'static,
    {
        let size = full
            .checked_mul(u64::from(TILE_WIDTH))
            .ok_or(ResumeError::Count { full })?;
        if full == 0 {
            return Ok(Self::new());
        }
        let mut partial = vec![Vec::new()];
        let (mut level, mut entries) = (0, full);
        while 0 < entries {
            let first = entries - entries % u64::from(TILE_WIDTH);
            let roots = (first..entries).map(|index| tile_root(stored, level, index, full));
            partial.push(roots.collect::<Result<_, _>>()?);
            (level, entries) = (level + 1, entries / u64::from(TILE_WIDTH));
        }
        let subtrees = partial
            .iter()
            .rev()
            .flat_map(|hashes| hashes.iter().copied().collect::<Edge>().hashes().to_vec());
        Ok(Self {
            edge: Edge::from_hashes(size, subtrees.collect()),
            partial,
        })
    }

    /// Leaves in the tree.
    pub fn size(&self) -> u64 {
        self.edge.size()
    }

    /// The root of the tree.
    pub fn root(&self) -> Hash {
        self.edge.root()
    }

    /// The right edge of the tree, for a snapshot.
    pub fn edge(&self) -> &Edge {
        &self.edge
    }

    /// Appends a leaf hash and adds the tiles that it fills to `full`, lower levels first.
    pub fn push(&mut self, leaf: Hash, full: &mut Vec<FullTile>) {
        self.extend(vec![leaf], full);
    }

    /// Appends leaf hashes and adds the tiles that they fill to `full`, lower levels first.
    pub fn extend(&mut self, leaves: Vec<Hash>, full: &mut Vec<FullTile>) {
        let partial = &mut self.partial;
        self.edge.extend_each(leaves, |height, hash, size| {
            if height.is_multiple_of(TILE_HEIGHT) {
                full.extend(add(partial, height / TILE_HEIGHT, hash, size));
            }
        });
    }

    /// The hashes of a partial tile, if this tree has it with at least that width.
    pub fn partial(&self, id: TileId) -> Option<&[Hash]> {
        let at_edge = TileId::in_tree(id.level(), id.index(), self.size())?;
        let hashes = self.partial.get(usize::try_from(id.level()).ok()?)?;
        (!at_edge.is_full() && id.width() <= at_edge.width()).then_some(hashes)
    }

    /// A reader of every tile of this tree: full ones from a store, partial ones from here.
    pub fn over<'a, T: Tiles>(&'a self, stored: &'a T) -> Over<'a, T> {
        Over {
            builder: self,
            stored,
        }
    }
}

impl<T: Tiles> Tiles for Over<'_, T> {
    type Error = T::Error;

    fn tile(&self, id: TileId) -> Result<Vec<Hash>, T::Error> {
        match self.builder.partial(id) {
            Some(hashes) => Ok(hashes.to_vec()),
            None => self.stored.tile(id),
        }
    }
}

/// Adds a hash to a level, and returns the tile if it is now full. The hash is the root of a subtree
/// that ends at the leaf `size`.
fn add(partial: &mut Vec<Vec<Hash>>, level: u32, hash: Hash, size: u64) -> Option<FullTile> {
    let place = usize::try_from(level).ok()?;
    if partial.len() <= place {
        partial.resize(place + 1, Vec::new());
    }
    let hashes = partial.get_mut(place)?;
    hashes.push(hash);
    if hashes.len() < usize::from(TILE_WIDTH) {
        return None;
    }
    let index = (size >> ((level + 1) * TILE_HEIGHT)).checked_sub(1)?;
    Some(FullTile {
        id: TileId::full(level, index)?,
        hashes: std::mem::take(hashes),
    })
}

/// The root of a stored full tile: an entry of the next level.
fn tile_root<T>(
    stored: &T,
    level: u32,
    index: u64,
    full: u64,
) -> Result<Hash, ResumeError<T::Error>>
where
    T: Tiles,
    T::Error: std::error::Error + 'static,
{
    let id = TileId::full(level, index).ok_or(ResumeError::Count { full })?;
    let hashes = stored
        .tile(id)
        .map_err(|source| ResumeError::Read { id, source })?;
    if hashes.len() != usize::from(TILE_WIDTH) {
        return Err(ResumeError::Width {
            id,
            held: hashes.len(),
        });
    }
    Ok(Edge::from_iter(hashes).root())
}
