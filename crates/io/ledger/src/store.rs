//! Where records are kept: one small trait, one contract (`tests/it/contract.rs`), several stores.
//!
//! A store promises that what [`Store::append`] answered `Done` survives any crash, that an
//! append is whole or absent, and that only the term that leads can append: the check of epoch
//! and head is part of the append itself, so safety needs neither clocks nor leases (L2). It
//! decides nothing else.

pub mod memory;
pub mod sqlite;

use bursar_engine::codec::Encoded;
use bursar_journal::hash::{Hash, leaf_hash};
use bursar_journal::merkle::Edge;
use bursar_journal::tile::{FullTile, TILE_WIDTH, TileId};
use thiserror::Error;

/// So many of the newest checkpoints are all kept.
pub const CHECKPOINTS_WHOLE: u16 = 256;

/// Of older checkpoints one is kept for each so many records: sixteen tiles.
pub const CHECKPOINT_SPAN: u64 = 4_096;

/// What one commit carries.
#[derive(Clone, Debug, Default)]
pub struct Append {
    /// Records, in order, from the expected head on.
    pub records: Vec<Encoded>,
    /// Tiles that these records fill.
    pub tiles: Vec<FullTile>,
}

/// What became of an append. An error is the third outcome: unknown (L2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Appended {
    /// It is durable.
    Done,
    /// Another term leads, or the head is not the expected one; nothing was written.
    Refused,
}

/// A period of leadership.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Term {
    /// Raised by one each time; an append under an older one is refused.
    pub epoch: u64,
    /// How many records there are.
    pub head: u64,
}

/// A record as it is kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// Its number.
    pub seq: u64,
    /// Its bytes; `None` where the payload was pruned (L13).
    pub bytes: Option<Vec<u8>>,
}

/// Why a store could not do what was asked. For an append it means: outcome unknown.
#[derive(Debug, Error)]
pub enum Error {
    /// The database said no.
    #[error("the store could not {operation}")]
    Database {
        /// What was tried.
        operation: &'static str,
        /// What it said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file could not be read or written.
    #[error("could not {operation} {path}")]
    File {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The store was written by a newer program.
    #[error("{path} has format {found}, this bursar reads up to {known}; use a newer bursar")]
    NewerFormat {
        /// Where.
        path: String,
        /// Its format.
        found: i64,
        /// The newest this program knows.
        known: i64,
    },
    /// The directory is not there.
    #[error("{path} does not exist; create it, or name another data directory")]
    NoDirectory {
        /// The directory.
        path: String,
    },
    /// The file may be read but not written.
    #[error("{path} cannot be written; give this user the right to, or name another directory")]
    ReadOnly {
        /// The file.
        path: String,
    },
    /// Others than the owner can write to the data directory.
    #[error(
        "others can write to {path} (mode {mode:o}), and could put another ledger there; run \
         `chmod go-w {path}`"
    )]
    Shared {
        /// The directory.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// The data directory is another user's.
    #[error(
        "{path} belongs to user {owner}, who could put another ledger there; run `chown` on it, or \
         name another directory"
    )]
    Foreign {
        /// The directory.
        path: String,
        /// Its owner.
        owner: u32,
    },
    /// Something else is where a file or directory of ours should be.
    #[error("{path} is not a {expected}; move away what is in its place")]
    WrongKind {
        /// The place.
        path: String,
        /// What should be there.
        expected: &'static str,
    },
    /// The disk is full. Nothing that was committed is lost.
    #[error("the disk that holds {path} is full; free some space, all that was committed is there")]
    Full {
        /// The file.
        path: String,
    },
    /// The file is something else.
    #[error(
        "{path} is not a ledger of bursar ({reason}); restore it from a backup, or move it away"
    )]
    NotALedger {
        /// The file.
        path: String,
        /// How one sees.
        reason: &'static str,
    },
    /// Records that do not follow one another, or do not begin at the head of the term.
    #[error("record {found} was given where record {expected} comes next")]
    OutOfOrder {
        /// The number that comes next.
        expected: u64,
        /// The number that was given.
        found: u64,
    },
    /// What was read is not what was written.
    #[error("{what} is damaged")]
    Damaged {
        /// What, and where.
        what: String,
    },
    /// Another process holds it.
    #[error("{path} is in use by process {pid}")]
    InUse {
        /// The data directory.
        path: String,
        /// Who holds it, if it said.
        pid: String,
    },
}

/// The writer's side. One thread owns it.
pub trait Store: Send {
    /// Begins a term: raises the epoch and says what is there.
    fn lead(&mut self) -> Result<Term, Error>;

    /// Appends durably iff `term` still leads and its head is the present one.
    fn append(&mut self, term: Term, append: &Append) -> Result<Appended, Error>;

    /// After an error: reopens, makes sure that what is there is durable, and says how many
    /// records there are. Must succeed before anything else is appended (L2).
    fn reopen(&mut self) -> Result<u64, Error>;

    /// Keeps a signed checkpoint, and the leaf hashes it covers that are in no full tile yet: they
    /// tell which record is damaged, where the root only tells that one is.
    ///
    /// Of checkpoints older than the newest [`CHECKPOINTS_WHOLE`] only the newest in each
    /// [`CHECKPOINT_SPAN`] records stays. Whatever any of them signed the later ones sign too, and
    /// an export still ends at most so many records after what was asked for.
    fn put_checkpoint(&mut self, size: u64, note: &str) -> Result<(), Error>;

    /// Keeps the lines of an anchored snapshot for ever (L12).
    fn put_anchor(&mut self, head: u64, lines: &str) -> Result<(), Error>;

    /// Blanks the payloads of records below `below` and forgets blobs only they name (L13).
    /// Leaf hashes stay, in the tiles: records whose tile is not full yet are left as they are.
    /// Returns how many were blanked.
    fn prune(&mut self, below: u64) -> Result<u64, Error>;

    /// Remembers that records below `below` were exported (L13).
    fn note_exported(&mut self, below: u64) -> Result<(), Error>;

    /// A reader of its own, for another thread. Sees committed records only.
    fn reader(&self) -> Result<Box<dyn Reader>, Error>;

    /// Bytes that can still be written, where the store knows (L4).
    fn free_bytes(&self) -> Option<u64>;

    /// Whether the files that are open are no longer the ones at their path: all that is written
    /// would be lost at the end of the process.
    fn is_away(&self) -> bool {
        false
    }

    /// Writes all that is still open of a store that is away into a new file beside its path, and
    /// says where. May be tried again until it succeeds; then the store takes nothing more.
    fn rescue(&mut self) -> Result<String, Error> {
        Err(Error::Database {
            operation: "write what is left",
            source: "it has no files".into(),
        })
    }
}

/// The readers' side.
pub trait Reader: Send {
    /// How many records there are.
    fn head(&self) -> Result<u64, Error>;

    /// Records from `from` on, in order, at most `max` of them.
    fn records(&self, from: u64, max: usize) -> Result<Vec<Kept>, Error>;

    /// A blob, if there is one of that name.
    fn blob(&self, sha256: &Hash) -> Result<Option<Vec<u8>>, Error>;

    /// The hashes of a full tile, if it is there.
    fn full_tile(&self, id: TileId) -> Result<Option<Vec<Hash>>, Error>;

    /// The leaf hashes that are kept of tile `index` of level 0: all of a full tile, otherwise as
    /// many as the last checkpoint covered.
    fn leaves(&self, index: u64) -> Result<Vec<Hash>, Error>;

    /// The newest checkpoint over at most `size` records.
    fn checkpoint(&self, size: u64) -> Result<Option<String>, Error>;

    /// All checkpoints' sizes and notes, oldest first.
    fn checkpoints(&self) -> Result<Vec<(u64, String)>, Error>;

    /// The heads of all anchored snapshots, oldest first.
    fn anchors(&self) -> Result<Vec<u64>, Error>;

    /// The lines of the newest anchored snapshot over at most `head` records.
    fn anchor(&self, head: u64) -> Result<Option<(u64, String)>, Error>;

    /// Below which record everything was exported.
    fn exported(&self) -> Result<u64, Error>;

    /// Where this is an excerpt of records, without tiles above the leaves: the edge of the tree
    /// before its first record.
    fn excerpt(&self) -> Option<Edge> {
        None
    }

    /// Where this is a file that has only one spelling: the first line that is not as it should
    /// be, in words.
    fn misspelling(&self) -> Result<Option<String>, Error> {
        Ok(None)
    }
}

/// How many records a note says that it signs, whoever signed it.
pub(crate) fn signed_size(note: &str) -> Option<u64> {
    note.lines().nth(1)?.parse().ok()
}

/// The first record that has its payload still; the head if none has. Payloads are blanked from the
/// first on, so those that are make a whole.
pub(crate) fn first_kept(reader: &dyn Reader) -> Result<u64, Error> {
    let (mut low, mut high) = (0, reader.head()?);
    while low < high {
        let middle = low + (high - low) / 2;
        match reader.records(middle, 1)?.first() {
            Some(Kept { bytes: None, .. }) => low = middle + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The head after an append, if its records follow one another from the head of the term on.
fn head_after(term: Term, append: &Append) -> Result<u64, Error> {
    append
        .records
        .iter()
        .try_fold(term.head, |expected, record| {
            if record.seq == expected {
                Ok(expected + 1)
            } else {
                Err(Error::OutOfOrder {
                    expected,
                    found: record.seq,
                })
            }
        })
}

/// The leaf hashes of the first `size` records that are in no full tile yet.
fn loose_leaves(reader: &dyn Reader, size: u64) -> Result<Vec<Hash>, Error> {
    let first = in_full_tiles(size);
    let max = usize::try_from(size - first).unwrap_or(usize::MAX);
    let kept = reader.records(first, max)?;
    Ok(kept
        .iter()
        .map_while(|kept| kept.bytes.as_deref().map(leaf_hash))
        .collect())
}

/// How many records have their leaf hash in a full tile, so that a proof needs them no longer.
fn in_full_tiles(head: u64) -> u64 {
    head - head % u64::from(TILE_WIDTH)
}
