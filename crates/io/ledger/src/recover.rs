//! Recovery of the state and the tree from the store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use bursar_engine::codec::{self, decode_events};
use bursar_engine::{Events, State};
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::hash::{Hash, leaf_hashes};
use bursar_journal::merkle::{prove_consistency, verify_consistency};
use bursar_journal::tile::{Builder, TILE_WIDTH, TileId, Tiles};
use bursar_units::causes::chain;
use bursar_units::{INTEGER_MAX, Instant};
use thiserror::Error;

use crate::store::sqlite::FILE_NAME;
use crate::store::{self, Kept, Reader};

const CHUNK: usize = 1_024;

/// Maximum number of chunks between two threads.
const CHUNKS_AHEAD: usize = 8;

type Payload = (u64, Vec<u8>);

/// Recovered ledger.
#[derive(Debug)]
pub struct Recovered {
    /// State after the last record.
    pub state: State,
    /// Tree over all records.
    pub builder: Builder,
}

/// Error of a recovery.
#[derive(Debug, Error)]
pub enum Error {
    /// The ledger could not be read.
    #[error("the ledger could not be read")]
    Read(#[from] store::Error),
    /// A record could not be folded.
    #[error("the ledger could not be folded")]
    Fold(#[from] codec::Error),
    /// A record was pruned, and no anchored snapshot covers it.
    #[error("record {seq} was pruned and no good snapshot covers it; restore a backup")]
    Pruned {
        /// Number of the record.
        seq: u64,
    },
    /// The fold of a record panicked (L2).
    #[error("record {seq} cannot be folded by this bursar: a defect; use another version")]
    Panicked {
        /// Number of the record.
        seq: u64,
    },
    /// The tree could not be rebuilt.
    #[error("the tree over the records could not be rebuilt: {0}")]
    Tree(String),
    /// The file with the newest checkpoint beside the key is damaged (L11).
    #[error(
        "{path} cannot be verified: {reason}; put the file back, or restore the newest backup as a new \
         generation with `bursar ledger restore`"
    )]
    Checkpoint {
        /// Path of the file.
        path: String,
        /// Cause.
        reason: String,
    },
    /// The journal does not extend the newest checkpoint (L11).
    #[error("{}", rollback_words(*records, *signed))]
    Rollback {
        /// Number of records.
        records: u64,
        /// Number of signed records.
        signed: u64,
    },
}

/// A full tile that is not in the store.
#[derive(Debug, Error)]
pub enum TileError {
    /// The tile could not be read.
    #[error(transparent)]
    Read(#[from] store::Error),
    /// The tile is missing.
    #[error("tile {0} is missing")]
    Missing(TileId),
}

/// Full tiles of a store.
pub struct StoredTiles<'a>(pub &'a dyn Reader);

impl Tiles for StoredTiles<'_> {
    type Error = TileError;

    fn tile(&self, id: TileId) -> Result<Vec<Hash>, TileError> {
        self.0.full_tile(id)?.ok_or(TileError::Missing(id))
    }
}

/// Folds the stored records onto `start`.
///
/// One thread reads and hashes, one decodes, and this one folds.
pub fn recover(
    reader: Box<dyn Reader>,
    start: State,
    progress: impl FnMut(u64, u64),
) -> Result<Recovered, Error> {
    let head = reader.head()?;
    // Only leaves outside full tiles are hashed again, and the fold reads those records anyway.
    let full = start.spine.head.min(head) / u64::from(TILE_WIDTH);
    let builder = Builder::resume(&StoredTiles(reader.as_ref()), full)
        .map_err(|error| Error::Tree(chain(&error)))?;
    let reader = &Mutex::new(reader);
    let from = start.spine.head;
    std::thread::scope(|scope| {
        let (send, read) = sync_channel(CHUNKS_AHEAD);
        let reading = spawn(scope, "recover", move || read_on(reader, builder, &send))?;
        let (send, decoded) = sync_channel(CHUNKS_AHEAD);
        let decoding = spawn(scope, "decode", move || {
            decode_on(reader, from, read, &send)
        })?;
        // If the fold fails, its channel closes and the other threads end.
        let state = fold(start, head, decoded, progress);
        let decoding = joined(decoding);
        let builder = joined(reading)?;
        decoding?;
        Ok(Recovered {
            state: state?,
            builder,
        })
    })
}

/// Checks that the tree extends the newest stored checkpoint (L11).
pub fn check_extends(
    reader: &dyn Reader,
    builder: &Builder,
    keys: &[VerifierKey],
) -> Result<u64, Error> {
    match reader.checkpoint(INTEGER_MAX)? {
        Some(note) => check_extends_note(reader, builder, keys, &note),
        None => Ok(0),
    }
}

/// Checks that the tree extends a checkpoint, and returns the number of records that it covers.
pub(crate) fn check_extends_note(
    reader: &dyn Reader,
    builder: &Builder,
    keys: &[VerifierKey],
    note: &str,
) -> Result<u64, Error> {
    let rollback = || Error::Rollback {
        records: builder.size(),
        signed: store::signed_size(note).unwrap_or(0),
    };
    let opened = keys.iter().find_map(|key| Checkpoint::open(note, key).ok());
    let checkpoint = opened.ok_or_else(rollback)?;
    if checkpoint.size > builder.size() {
        return Err(rollback());
    }
    let stored = StoredTiles(reader);
    let proof = prove_consistency(&builder.over(&stored), checkpoint.size, builder.size())
        .map_err(|error| Error::Tree(chain(&error)))?;
    verify_consistency(
        checkpoint.size,
        &checkpoint.root,
        builder.size(),
        &builder.root(),
        &proof,
    )
    .map_err(|_| rollback())?;
    Ok(checkpoint.size)
}

fn read_on(
    reader: &Mutex<Box<dyn Reader>>,
    mut builder: Builder,
    send: &SyncSender<Vec<Payload>>,
) -> Result<Builder, Error> {
    let mut tiles = Vec::new();
    loop {
        let next = builder.size();
        let chunk = lock(reader).records(next, CHUNK)?;
        if chunk.is_empty() {
            return Ok(builder);
        }
        let payload = |(kept, seq): (Kept, u64)| match kept.bytes {
            _ if kept.seq != seq => {
                let what = format!("the journal: record {seq} is missing");
                Err(store::Error::Damaged { what }.into())
            }
            Some(bytes) => Ok((seq, bytes)),
            None => Err(Error::Pruned { seq }),
        };
        let payloads: Vec<Payload> = chunk
            .into_iter()
            .zip(next..)
            .map(payload)
            .collect::<Result<_, _>>()?;
        let bytes: Vec<&[u8]> = payloads.iter().map(|(_, bytes)| bytes.as_slice()).collect();
        builder.extend(leaf_hashes(&bytes), &mut tiles);
        tiles.clear();
        if send.send(payloads).is_err() {
            return Ok(builder);
        }
    }
}

fn decode_on(
    reader: &Mutex<Box<dyn Reader>>,
    from: u64,
    read: Receiver<Vec<Payload>>,
    send: &SyncSender<Vec<(Instant, Events)>>,
) -> Result<(), Error> {
    let blob = |sha256: &Hash| lock(reader).blob(sha256).ok().flatten();
    for chunk in read {
        let decoded = chunk
            .iter()
            .filter(|(seq, _)| from <= *seq)
            .map(|(seq, bytes)| decode_events(*seq, bytes, blob))
            .collect::<Result<_, _>>()?;
        if send.send(decoded).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn fold(
    mut state: State,
    head: u64,
    decoded: Receiver<Vec<(Instant, Events)>>,
    mut progress: impl FnMut(u64, u64),
) -> Result<State, Error> {
    for chunk in decoded {
        for (time, events) in chunk {
            let seq = state.spine.head;
            catch_unwind(AssertUnwindSafe(|| state.apply_record(time, &events)))
                .map_err(|_| Error::Panicked { seq })?;
        }
        progress(state.spine.head, head);
    }
    Ok(state)
}

fn lock(reader: &Mutex<Box<dyn Reader>>) -> MutexGuard<'_, Box<dyn Reader>> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> Result<T, Error> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<T, Error>>, Error> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let spawned = thread.spawn_scoped(scope, run);
    spawned.map_err(|error| Error::Tree(error.to_string()))
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, Error>>) -> Result<T, Error> {
    let joined = thread.join();
    joined.map_err(|_| Error::Tree("a thread of the recovery panicked".to_owned()))?
}

/// A journal that is too short was rolled back; a longer one was changed.
fn rollback_words(records: u64, signed: u64) -> String {
    let what = if records < signed {
        format!(
            "the ledger was rolled back: {FILE_NAME} holds {records} records, but {signed} were \
             signed or kept; put the newer file back, or"
        )
    } else {
        format!(
            "a record was changed: {FILE_NAME} holds {records}, but not those that were signed;"
        )
    };
    format!("{what} restore the newest backup as a new generation with `bursar ledger restore`")
}
