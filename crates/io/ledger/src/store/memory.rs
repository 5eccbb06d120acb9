//! Store in memory, for scenarios, tests and the simulator.
//!
//! Handles share their content, so a crash is simulated by dropping a handle and opening another.
//! [`MemoryStore::inject`] makes the next append fail in one of the ways of a real store (L2), and
//! [`MemoryStore::set_free_bytes`] simulates a full disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bursar_journal::hash::Hash;
use bursar_journal::tile::{TILE_WIDTH, TileId};

use super::{
    Append, Appended, CHECKPOINT_SPAN, CHECKPOINTS_WHOLE, Error, Kept, Reader, Store, Term,
    head_after, in_full_tiles, loose_leaves,
};

/// Handle of a store in memory. Clones share its content.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    shared: Arc<Mutex<Shared>>,
}

/// Failure of an append.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// An error; nothing was written.
    Error,
    /// An error; everything was written.
    CommitThenError,
    /// A refusal: no row changed.
    Refuse,
    /// An error while the write is in progress. [`MemoryStore::land`] completes the write; reopening
    /// the store ends it, like closing a connection.
    Hang,
}

#[derive(Debug, Default)]
struct Shared {
    epoch: u64,
    records: Vec<Option<Vec<u8>>>,
    /// Blobs, each with the last record that names it.
    blobs: BTreeMap<Hash, (u64, Vec<u8>)>,
    tiles: BTreeMap<TileId, Vec<Hash>>,
    /// Number of the first leaf outside full tiles at the last checkpoint, and these leaves.
    loose: (u64, Vec<Hash>),
    checkpoints: BTreeMap<u64, String>,
    anchors: BTreeMap<u64, String>,
    exported: u64,
    faults: VecDeque<Fault>,
    under_way: Option<(Term, Append)>,
    free_bytes: Option<u64>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault. Each append consumes one.
    pub fn inject(&self, fault: Fault) {
        self.shared().faults.push_back(fault);
    }

    /// Completes the write of a hanging append, if its term still leads.
    pub fn land(&self) -> Appended {
        let mut shared = self.shared();
        match shared.under_way.take() {
            Some((term, append)) => shared.commit(term, &append).unwrap_or(Appended::Refused),
            None => Appended::Refused,
        }
    }

    /// Sets the free space. With none, every write fails and writes nothing.
    pub fn set_free_bytes(&self, free_bytes: Option<u64>) {
        self.shared().free_bytes = free_bytes;
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // Each change is whole, even if a thread panicked.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> Result<MutexGuard<'_, Shared>, Error> {
        let shared = self.shared();
        if shared.free_bytes == Some(0) {
            return Err(Error::Full {
                path: "memory".to_owned(),
            });
        }
        Ok(shared)
    }
}

impl Shared {
    fn head(&self) -> u64 {
        u64::try_from(self.records.len()).unwrap_or(u64::MAX)
    }

    fn commit(&mut self, term: Term, append: &Append) -> Result<Appended, Error> {
        head_after(term, append)?;
        if term.epoch != self.epoch || term.head != self.head() {
            return Ok(Appended::Refused);
        }
        for record in &append.records {
            for blob in &record.blobs {
                self.blobs
                    .insert(blob.sha256, (record.seq, blob.bytes.clone()));
            }
            self.records.push(Some(record.bytes.clone()));
        }
        for tile in &append.tiles {
            self.tiles.insert(tile.id, tile.hashes.clone());
        }
        Ok(Appended::Done)
    }

    fn thin_checkpoints(&mut self) {
        let mut older = self
            .checkpoints
            .keys()
            .rev()
            .skip(usize::from(CHECKPOINTS_WHOLE) - 1);
        let (Some(newer), Some(oldest)) = (older.next().copied(), older.next().copied()) else {
            return;
        };
        if newer / CHECKPOINT_SPAN == oldest / CHECKPOINT_SPAN {
            self.checkpoints.remove(&oldest);
        }
    }
}

impl Store for MemoryStore {
    fn lead(&mut self) -> Result<Term, Error> {
        let mut shared = self.writing()?;
        shared.epoch += 1;
        Ok(Term {
            epoch: shared.epoch,
            head: shared.head(),
        })
    }

    fn append(&mut self, term: Term, append: &Append) -> Result<Appended, Error> {
        let mut shared = self.writing()?;
        let failed = |what: &'static str| {
            Err(Error::Database {
                operation: "append",
                source: what.into(),
            })
        };
        match shared.faults.pop_front() {
            None => shared.commit(term, append),
            Some(Fault::Error) => failed("injected: nothing was written"),
            Some(Fault::CommitThenError) => {
                shared.commit(term, append)?;
                failed("injected: the answer was lost")
            }
            Some(Fault::Refuse) => Ok(Appended::Refused),
            Some(Fault::Hang) => {
                shared.under_way = Some((term, append.clone()));
                failed("injected: the write takes too long")
            }
        }
    }

    fn reopen(&mut self) -> Result<u64, Error> {
        let mut shared = self.writing()?;
        shared.under_way = None;
        Ok(shared.head())
    }

    fn put_checkpoint(&mut self, size: u64, note: &str) -> Result<(), Error> {
        let leaves = loose_leaves(self, size)?;
        let mut shared = self.writing()?;
        shared.checkpoints.insert(size, note.to_owned());
        shared.thin_checkpoints();
        shared.loose = (in_full_tiles(size), leaves);
        Ok(())
    }

    fn put_anchor(&mut self, head: u64, lines: &str) -> Result<(), Error> {
        self.writing()?.anchors.insert(head, lines.to_owned());
        Ok(())
    }

    fn prune(&mut self, below: u64) -> Result<u64, Error> {
        let mut shared = self.writing()?;
        let below = below.min(in_full_tiles(shared.head()));
        let count = usize::try_from(below).unwrap_or(usize::MAX);
        let blanked = shared
            .records
            .iter_mut()
            .take(count)
            .filter_map(Option::take)
            .count();
        shared.blobs.retain(|_, (last, _)| below <= *last);
        Ok(u64::try_from(blanked).unwrap_or(u64::MAX))
    }

    fn note_exported(&mut self, below: u64) -> Result<(), Error> {
        let mut shared = self.writing()?;
        shared.exported = shared.exported.max(below);
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader>, Error> {
        Ok(Box::new(self.clone()))
    }

    fn free_bytes(&self) -> Option<u64> {
        self.shared().free_bytes
    }
}

impl Reader for MemoryStore {
    fn head(&self) -> Result<u64, Error> {
        Ok(self.shared().head())
    }

    fn records(&self, from: u64, max: usize) -> Result<Vec<Kept>, Error> {
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        let shared = self.shared();
        let kept = shared.records.iter().skip(skipped).take(max).zip(from..);
        Ok(kept
            .map(|(bytes, seq)| Kept {
                seq,
                bytes: bytes.clone(),
            })
            .collect())
    }

    fn blob(&self, sha256: &Hash) -> Result<Option<Vec<u8>>, Error> {
        Ok(self
            .shared()
            .blobs
            .get(sha256)
            .map(|(_, bytes)| bytes.clone()))
    }

    fn full_tile(&self, id: TileId) -> Result<Option<Vec<Hash>>, Error> {
        Ok(self.shared().tiles.get(&id).cloned())
    }

    fn leaves(&self, index: u64) -> Result<Vec<Hash>, Error> {
        let shared = self.shared();
        let full = TileId::full(0, index).and_then(|id| shared.tiles.get(&id));
        let is_loose = index.checked_mul(u64::from(TILE_WIDTH)) == Some(shared.loose.0);
        let loose = is_loose.then_some(&shared.loose.1);
        Ok(full.or(loose).cloned().unwrap_or_default())
    }

    fn checkpoint(&self, size: u64) -> Result<Option<String>, Error> {
        Ok(self
            .shared()
            .checkpoints
            .range(..=size)
            .next_back()
            .map(|(_, note)| note.clone()))
    }

    fn checkpoints(&self) -> Result<Vec<(u64, String)>, Error> {
        Ok(self.shared().checkpoints.clone().into_iter().collect())
    }

    fn anchors(&self) -> Result<Vec<u64>, Error> {
        Ok(self.shared().anchors.keys().copied().collect())
    }

    fn anchor(&self, head: u64) -> Result<Option<(u64, String)>, Error> {
        let shared = self.shared();
        let newest = shared.anchors.range(..=head).next_back();
        Ok(newest.map(|(head, lines)| (*head, lines.clone())))
    }

    fn exported(&self) -> Result<u64, Error> {
        Ok(self.shared().exported)
    }
}
