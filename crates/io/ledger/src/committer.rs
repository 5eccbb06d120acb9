//! The store's side of the pipeline: hash, append, sign (L1, step 7; L2; L11).

use bursar_journal::hash::{Hash, leaf_hashes};
use bursar_journal::tile::{Builder, FullTile};

use crate::store::{Append, Appended, Error, Store, Term};
use crate::writer::Batch;

/// Signs the root over the first `size` records. A copy of the note elsewhere is durable before
/// this returns: nobody sees a checkpoint that could be lost again (L11).
pub type Sign = Box<dyn FnMut(u64, Hash) -> Result<String, Error> + Send>;

/// Result of an append.
pub(crate) enum Commit {
    Done,
    /// Another term leads; nothing was written.
    Refused,
    /// The batch may or may not be durable.
    Unknown(Error),
    /// The store's files were removed: records in them are lost when the process ends.
    Away,
}

/// State of a batch after an unknown outcome.
pub(crate) enum Reopened {
    Committed,
    Absent,
    /// Another term has written in its place: this one is over.
    Replaced,
}

/// The owner of the store.
pub struct Committer {
    store: Box<dyn Store>,
    term: Term,
    builder: Builder,
    sign: Sign,
    signed: u64,
}

impl Committer {
    /// `builder` has the size of the term's head; records below `signed` are under a checkpoint.
    pub(crate) fn new(
        store: Box<dyn Store>,
        term: Term,
        builder: Builder,
        sign: Sign,
        signed: u64,
    ) -> Self {
        Self {
            store,
            term,
            builder,
            sign,
            signed,
        }
    }

    /// Appends the batch's records durably. After `Unknown` nothing may be committed before
    /// [`Self::reopen`] succeeds.
    pub(crate) fn commit(&mut self, batch: &mut Batch) -> Commit {
        if batch.records.is_empty() {
            return Commit::Done;
        }
        let mut builder = self.builder.clone();
        let tiles = push_all(&mut builder, batch);
        let records = std::mem::take(&mut batch.records);
        let append = Append { records, tiles };
        match self.store.append(self.term, &append) {
            // Also after an error: opening the store again would destroy the open files.
            Ok(Appended::Done) | Err(_) if self.store.is_away() => Commit::Away,
            Ok(Appended::Done) => {
                self.builder = builder;
                self.term.head = self.builder.size();
                Commit::Done
            }
            Ok(Appended::Refused) => Commit::Refused,
            Err(error) => {
                batch.records = append.records;
                Commit::Unknown(error)
            }
        }
    }

    /// Resolves an unknown outcome (L2). Stored records are ours if and only if their bytes are.
    pub(crate) fn reopen(&mut self, batch: &Batch) -> Result<Reopened, Error> {
        let head = self.store.reopen()?;
        if head == self.term.head {
            return Ok(Reopened::Absent);
        }
        let reader = self.store.reader()?;
        let kept = reader.records(self.term.head, batch.records.len() + 1)?;
        let is_ours = kept.len() == batch.records.len()
            && kept.iter().zip(&batch.records).all(|(kept, ours)| {
                kept.seq == ours.seq && kept.bytes.as_ref() == Some(&ours.bytes)
            });
        if !is_ours {
            return Ok(Reopened::Replaced);
        }
        push_all(&mut self.builder, batch);
        self.term.head = head;
        Ok(Reopened::Committed)
    }

    /// Signs and stores a checkpoint if there are records under none; returns its size.
    pub fn checkpoint(&mut self) -> Result<Option<u64>, Error> {
        let size = self.builder.size();
        // A note of a removed store could be taken for one of the store that replaced it.
        if size == self.signed || self.store.is_away() {
            return Ok(None);
        }
        let note = (self.sign)(size, self.builder.root())?;
        self.store.put_checkpoint(size, &note)?;
        self.signed = size;
        Ok(Some(size))
    }

    /// Number of durable records.
    pub fn head(&self) -> u64 {
        self.term.head
    }

    /// The tree over the durable records.
    pub fn builder(&self) -> &Builder {
        &self.builder
    }

    /// The store, for operations other than appends.
    pub fn store(&mut self) -> &mut dyn Store {
        self.store.as_mut()
    }
}

fn push_all(builder: &mut Builder, batch: &Batch) -> Vec<FullTile> {
    let mut tiles = Vec::new();
    let records = batch.records.iter().map(|record| record.bytes.as_slice());
    builder.extend(leaf_hashes(&records.collect::<Vec<_>>()), &mut tiles);
    tiles
}
