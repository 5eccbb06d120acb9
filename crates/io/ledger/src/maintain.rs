//! Maintenance of a ledger: exports, backups, restores and pruning (L11, L13).
//!
//! Reading goes through [`Reader`], so an export can be checked and restored like a store. No
//! function here writes to a ledger in use.

mod backup;
mod excerpt;
mod export;
mod restore;
mod tiles;

use bursar_engine::codec;
use bursar_journal::hash::Hash;
use bursar_journal::tile::TILE_WIDTH;
use bursar_units::{INTEGER_MAX, Instant};
use thiserror::Error;

use crate::store::{self, Kept, Reader};

pub use backup::backup;
pub use excerpt::Export;
pub use export::{Exported, export};
pub(crate) use restore::UNFINISHED;
pub use restore::{Restored, Tokens, restore};
pub use tiles::export_tiles;

/// Error of a maintenance operation.
#[derive(Debug, Error)]
pub enum Error {
    /// The ledger, or the copy, could not be read or written.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The output could not be written.
    #[error("the export could not be written")]
    Write(#[from] std::io::Error),
    /// A requested record was pruned and its hash is lost.
    #[error(
        "record {seq} was pruned and its hash is not kept; check the ledger with `bursar ledger check`"
    )]
    NoLeaf {
        /// Number of the record.
        seq: u64,
    },
    /// An export ends at a checkpoint, and there is none.
    #[error(
        "no checkpoint was signed yet, so nothing could be verified; export through the server, \
         which signs one"
    )]
    Unsigned,
    /// The output file exists.
    #[error("{path} exists already; name another file")]
    Exists {
        /// Path of the file.
        path: String,
    },
    /// No record of the copy is good.
    #[error("no record of the copy is good; name another copy")]
    NothingGood,
    /// The export does not begin at record 0, or its state cannot be folded.
    #[error(
        "the copy begins at record {first}, without the state before it; name one from record 0"
    )]
    NotWhole {
        /// Its first record.
        first: u64,
    },
    /// The key of the restored ledger could not be created.
    #[error("the key of the restored ledger could not be created")]
    Key(#[from] crate::key::Error),
    /// The record of the restore could not be made.
    #[error("the restore could not be recorded")]
    Record {
        /// Cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Bounds of pruning.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prunable {
    /// First record that may not be pruned.
    pub below_max: u64,
    /// Number of payloads that were pruned already, recorded or not.
    pub pruned: u64,
    /// Number of records under an anchored snapshot.
    pub anchored: u64,
    /// Number of signed records.
    pub signed: u64,
    /// Number of exported records.
    pub exported: u64,
}

/// Bound of pruning: records that are anchored, signed and exported, in whole tiles, so that leaf
/// hashes stay and a start can use the anchored snapshot (L13). `anchor` is the newest in the state.
pub fn prunable(
    reader: &dyn Reader,
    anchor: Option<(u64, Hash)>,
) -> Result<Prunable, store::Error> {
    let recorded = anchor.map_or(0, |(record, _)| record + 1);
    let anchored = reader
        .anchors()?
        .into_iter()
        .filter(|head| *head == recorded)
        .max();
    let anchored = anchored.unwrap_or(0);
    let newest = reader.checkpoint(INTEGER_MAX)?;
    let signed = newest
        .and_then(|note| store::signed_size(&note))
        .unwrap_or(0);
    let exported = reader.exported()?;
    let covered = anchored.min(signed).min(exported).min(reader.head()?);
    let below_max = covered - covered % u64::from(TILE_WIDTH);
    let pruned = store::first_kept(reader)?;
    Ok(Prunable {
        below_max,
        pruned,
        anchored,
        signed,
        exported,
    })
}

/// First record at or after a time, for `--before` and `--from`; the head if there is none. A
/// pruned or unreadable record counts as earlier.
pub fn first_at(reader: &dyn Reader, time: Instant) -> Result<u64, store::Error> {
    let (mut low, mut high) = (0, reader.head()?);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = reader
            .records(middle, 1)?
            .pop()
            .and_then(|kept| time_of(reader, kept));
        if found.is_some_and(|found| time <= found) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

pub(crate) fn time_of(reader: &dyn Reader, kept: Kept) -> Option<Instant> {
    let blob = |sha256: &Hash| reader.blob(sha256).ok().flatten();
    Some(codec::decode(kept.seq, &kept.bytes?, blob).ok()?.time)
}

/// Leaf hashes of pruned records, read a tile at a time.
#[derive(Default)]
struct KeptLeaves {
    tile: Option<(u64, Vec<Hash>)>,
}

impl KeptLeaves {
    fn get(&mut self, reader: &dyn Reader, seq: u64) -> Result<Hash, Error> {
        let index = seq / u64::from(TILE_WIDTH);
        let leaves = match self.tile.take() {
            Some((read, leaves)) if read == index => leaves,
            _ => reader.leaves(index)?,
        };
        let offset = usize::try_from(seq % u64::from(TILE_WIDTH)).unwrap_or(usize::MAX);
        let leaf = leaves.get(offset).copied().ok_or(Error::NoLeaf { seq });
        self.tile = Some((index, leaves));
        leaf
    }
}
