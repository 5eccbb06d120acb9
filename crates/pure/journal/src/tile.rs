//! Tiles: the hashes of the tree in pieces of 256, as in C2SP tlog-tiles.
//!
//! The tile n of level 0 lists the leaves n·256 to n·256 + 255; the tile n of level k + 1 lists the
//! roots of the tiles n·256 to n·256 + 255 of level k. A full tile never changes, so it is one row
//! of the store and one file that can be cached for ever. The [`Builder`] holds the partial tile of
//! each level in memory; it can be rebuilt from the full tiles and the leaves after them.
//!
//! Example, 70,000 leaves: level 0 has 273 full tiles and 112 leaves, level 1 one full tile and 17
//! hashes, level 2 one hash.

mod builder;
mod path;

pub use builder::{Builder, Over, ResumeError};
pub use path::{NotAPath, Path};

use crate::hash::{HASH_BYTES, Hash};

/// Layers of the tree in one tile.
pub const TILE_HEIGHT: u32 = 8;

/// Hashes in a full tile.
pub const TILE_WIDTH: u16 = 1 << TILE_HEIGHT;

/// Highest level of tlog-tiles: 2⁴⁸ leaves.
pub const LEVEL_MAX: u32 = 5;

/// Identity of a tile, with the number of its hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TileId {
    level: u32,
    index: u64,
    width: u16,
}

/// A tile that has become full, for the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullTile {
    /// Its identity.
    pub id: TileId,
    /// Its 256 hashes.
    pub hashes: Vec<Hash>,
}

/// A reader of tiles: the store, an export, a server.
pub trait Tiles {
    /// Error of a read.
    type Error;

    /// The hashes of a tile, at least the first [`TileId::width`] of them; more if the tile has
    /// grown since.
    fn tile(&self, id: TileId) -> Result<Vec<Hash>, Self::Error>;
}

/// Error of bytes that are not a whole number of hashes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a tile of {size} bytes is not 1 to 256 whole hashes of 32")]
pub struct NotATile {
    /// Bytes given.
    pub size: usize,
}

impl TileId {
    /// A full tile; `None` for a level or an index that no ledger reaches.
    pub fn full(level: u32, index: u64) -> Option<Self> {
        Self::new(level, index, TILE_WIDTH)
    }

    /// The tile in a tree of `size` leaves; `None` if that tree does not reach it.
    pub fn in_tree(level: u32, index: u64, size: u64) -> Option<Self> {
        let entries = size.checked_shr(level.checked_mul(TILE_HEIGHT)?)?;
        let left = entries.checked_sub(index.checked_mul(u64::from(TILE_WIDTH))?)?;
        let width = u16::try_from(left.min(u64::from(TILE_WIDTH))).ok()?;
        Self::new(level, index, width)
    }

    /// Its level; the leaves are level 0.
    pub fn level(self) -> u32 {
        self.level
    }

    /// Its index on the level.
    pub fn index(self) -> u64 {
        self.index
    }

    /// Number of its hashes, 1 to 256.
    pub fn width(self) -> u16 {
        self.width
    }

    /// Whether it is full and never changes again.
    pub fn is_full(self) -> bool {
        self.width == TILE_WIDTH
    }

    fn new(level: u32, index: u64, width: u16) -> Option<Self> {
        let reach = u64::MAX.checked_shr(level.checked_add(1)?.checked_mul(TILE_HEIGHT)?);
        let inside = index <= reach.unwrap_or(0) && level < u64::BITS / TILE_HEIGHT;
        ((1..=TILE_WIDTH).contains(&width) && inside).then_some(Self {
            level,
            index,
            width,
        })
    }
}

/// The stored and served form of a tile: its hashes, one after the other.
pub fn tile_bytes(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0).collect()
}

/// The hashes in the bytes of a tile.
pub fn tile_hashes(bytes: &[u8]) -> Result<Vec<Hash>, NotATile> {
    let (hashes, rest) = bytes.as_chunks::<HASH_BYTES>();
    if !rest.is_empty() || !(1..=usize::from(TILE_WIDTH)).contains(&hashes.len()) {
        return Err(NotATile { size: bytes.len() });
    }
    Ok(hashes.iter().copied().map(Hash).collect())
}
