//! From what is stored to a state and a tree: at every start, and whenever something is checked.

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

/// Records that are read, hashed and decoded at a time.
const CHUNK: usize = 1_024;

/// Chunks that one thread may be ahead of the next.
const CHUNKS_AHEAD: usize = 8;

/// A record's number and bytes.
type Payload = (u64, Vec<u8>);

/// What a start needs.
#[derive(Debug)]
pub struct Recovered {
    /// The state after the last record.
    pub state: State,
    /// The tree over all records.
    pub builder: Builder,
}

/// Why a stored ledger cannot be resumed.
#[derive(Debug, Error)]
pub enum Error {
    /// It could not be read.
    #[error("the ledger could not be read")]
    Read(#[from] store::Error),
    /// A record could not be folded.
    #[error("the ledger could not be folded")]
    Fold(#[from] codec::Error),
    /// A record whose payload was pruned, with no anchored snapshot to start after it.
    #[error("record {seq} was pruned and no good snapshot covers it; restore a backup")]
    Pruned {
        /// Which.
        seq: u64,
    },
    /// A record that this program panics on (L2).
    #[error("record {seq} cannot be folded by this bursar: a defect; use another version")]
    Panicked {
        /// Which.
        seq: u64,
    },
    /// The tree could not be rebuilt.
    #[error("the tree over the records could not be rebuilt: {0}")]
    Tree(String),
    /// The file that holds the newest checkpoint beside the key is damaged (L11).
    #[error(
        "{path} cannot be verified: {reason}; put the file back, or restore the newest backup as a new \
         generation with `bursar ledger restore`"
    )]
    Checkpoint {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The journal does not extend the newest checkpoint (L11).
    #[error("{}", rollback_words(*records, *signed))]
    Rollback {
        /// Records there are.
        records: u64,
        /// Records that were signed.
        signed: u64,
    },
}

/// A full tile that is not in the store.
#[derive(Debug, Error)]
pub enum TileError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] store::Error),
    /// It is not there.
    #[error("tile {0} is missing")]
    Missing(TileId),
}

/// The full tiles of a store.
pub struct StoredTiles<'a>(pub &'a dyn Reader);

impl Tiles for StoredTiles<'_> {
    type Error = TileError;

    fn tile(&self, id: TileId) -> Result<Vec<Hash>, TileError> {
        self.0.full_tile(id)?.ok_or(TileError::Missing(id))
    }
}

/// Folds what is stored on top of `start`, reporting how far it is.
///
/// One thread reads and hashes, one decodes, this one folds, each a few chunks ahead of the next.
pub fn recover(
    reader: Box<dyn Reader>,
    start: State,
    progress: impl FnMut(u64, u64),
) -> Result<Recovered, Error> {
    let head = reader.head()?;
    // Only leaves that are in no full tile are hashed again, and those the fold reads anyway.
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
        // The fold ends first where it fails, and the others then find nobody to send to.
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

/// Checks that the tree extends the newest checkpoint that was kept (L11).
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

/// Checks that the tree extends a checkpoint, and says how many records that covers.
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

/// Reads and hashes all records after those in `builder`.
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

/// Decodes records from `from` on.
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
    joined.map_err(|_| Error::Tree("reading panicked".to_owned()))?
}

/// A journal that is too short was rolled back; in one that is long enough something was changed.
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
