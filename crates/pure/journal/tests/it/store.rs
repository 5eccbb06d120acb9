//! A ledger in memory for the other tests, which stores full tiles.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;

use bursar_journal::hash::{Hash, leaf_hash};
use bursar_journal::tile::{Builder, FullTile, TileId, Tiles, tile_bytes, tile_hashes};

/// Full tiles by level and index, as the bytes of a row.
#[derive(Default)]
pub(crate) struct Stored {
    rows: BTreeMap<(u32, u64), Vec<u8>>,
    pub(crate) reads: Cell<usize>,
}

/// The reader of a ledger without a full tile.
pub(crate) struct NoTiles;

impl Tiles for NoTiles {
    type Error = Infallible;

    fn tile(&self, _: TileId) -> Result<Vec<Hash>, Infallible> {
        Ok(Vec::new())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no such row")]
pub(crate) struct NoRow;

impl Stored {
    pub(crate) fn keep(&mut self, full: impl IntoIterator<Item = FullTile>) {
        for tile in full {
            assert!(tile.id.is_full());
            let row = (tile.id.level(), tile.id.index());
            assert!(
                self.rows.insert(row, tile_bytes(&tile.hashes)).is_none(),
                "{row:?} twice"
            );
        }
    }

    pub(crate) fn damage(&mut self, level: u32, index: u64, bytes: Vec<u8>) {
        self.rows.insert((level, index), bytes);
    }

    pub(crate) fn names(&self) -> Vec<(u32, u64)> {
        self.rows.keys().copied().collect()
    }
}

impl Tiles for Stored {
    type Error = NoRow;

    fn tile(&self, id: TileId) -> Result<Vec<Hash>, NoRow> {
        self.reads.set(self.reads.get() + 1);
        let row = self.rows.get(&(id.level(), id.index())).ok_or(NoRow)?;
        tile_hashes(row).map_err(|_| NoRow)
    }
}

/// The record with a number, and its leaf.
pub(crate) fn record(seq: u64) -> Vec<u8> {
    format!(r#"{{"v":1,"seq":{seq}}}"#).into_bytes()
}

pub(crate) fn leaf(seq: u64) -> Hash {
    leaf_hash(&record(seq))
}

/// A ledger of the first `size` records.
pub(crate) fn ledger(size: u64) -> (Builder, Stored) {
    let (mut builder, mut stored) = (Builder::new(), Stored::default());
    extend(&mut builder, &mut stored, size);
    (builder, stored)
}

/// Appends records until there are `size`.
pub(crate) fn extend(builder: &mut Builder, stored: &mut Stored, size: u64) {
    let mut full = Vec::new();
    for seq in builder.size()..size {
        builder.push(leaf(seq), &mut full);
    }
    stored.keep(full);
}
