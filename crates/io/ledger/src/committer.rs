//! The store's side of the pipeline: hash, append, sign (L1, step 7; L2; L11).

use bursar_journal::hash::{Hash, leaf_hashes};
use bursar_journal::tile::{Builder, FullTile};

use crate::store::{Append, Appended, Error, Store, Term};
use crate::writer::Batch;

/// Signs the root over the first `size` records. A note that is kept elsewhere too is durable
/// there before this returns: nobody sees a checkpoint that could be lost again (L11).
pub type Sign = Box<dyn FnMut(u64, Hash) -> Result<String, Error> + Send>;

/// What became of a batch.
#[derive(Debug)]
pub enum Commit {
    /// It is durable.
    Done,
    /// Another term leads; nothing was written.
    Refused,
    /// It may or may not be there.
    Unknown(Error),
    /// The store's files were taken away: what was written goes with the process.
    Away,
}

/// What was found after an unknown outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reopened {
    /// The batch is durable.
    Committed,
    /// Nothing of it is there.
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
    /// A committer that goes on from `builder`, whose size is the term's head; records below
    /// `signed` stand under a checkpoint.
    pub fn new(
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
    pub fn commit(&mut self, batch: &mut Batch) -> Commit {
        if batch.records.is_empty() {
            return Commit::Done;
        }
        let mut builder = self.builder.clone();
        let tiles = push_all(&mut builder, batch);
        let append = Append {
            records: std::mem::take(&mut batch.records),
            tiles,
        };
        match self.store.append(self.term, &append) {
            // Also after an error: opening the store again would destroy what is left of it.
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

    /// After an unknown outcome: looks what is there (L2). Rows are ours iff their bytes are.
    pub fn reopen(&mut self, batch: &Batch) -> Result<Reopened, Error> {
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

    /// Signs and keeps a checkpoint, if there are records that stand under none.
    pub fn checkpoint(&mut self) -> Result<Option<u64>, Error> {
        let size = self.builder.size();
        // A note over a store that is away would be taken for one of what stands there now.
        if size == self.signed || self.store.is_away() {
            return Ok(None);
        }
        let note = (self.sign)(size, self.builder.root())?;
        self.store.put_checkpoint(size, &note)?;
        self.signed = size;
        Ok(Some(size))
    }

    /// How many records are durable.
    pub fn head(&self) -> u64 {
        self.term.head
    }

    /// The tree over them.
    pub fn builder(&self) -> &Builder {
        &self.builder
    }

    /// The store itself, for what is not an append.
    pub fn store(&mut self) -> &mut dyn Store {
        self.store.as_mut()
    }
}

fn push_all(builder: &mut Builder, batch: &Batch) -> Vec<FullTile> {
    let mut tiles = Vec::new();
    let records: Vec<&[u8]> = batch
        .records
        .iter()
        .map(|record| record.bytes.as_slice())
        .collect();
    builder.extend(leaf_hashes(&records), &mut tiles);
    tiles
}
