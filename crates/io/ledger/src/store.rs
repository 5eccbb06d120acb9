//! Stores of records: one trait, one contract (`tests/it/contract.rs`), several implementations.
//!
//! A store promises that an append answered with `Done` survives any crash, that an append is whole
//! or absent, and that only the leading term can append. The check of epoch and head is part of the
//! append itself, so safety needs neither clocks nor leases (L2). A store decides nothing else.

pub mod memory;
pub mod sqlite;

use bursar_engine::codec::Encoded;
use bursar_journal::hash::{Hash, leaf_hash};
use bursar_journal::merkle::Edge;
use bursar_journal::tile::{FullTile, TILE_WIDTH, TileId};
use thiserror::Error;

/// Number of newest checkpoints that are all kept.
pub const CHECKPOINTS_WHOLE: u16 = 256;

/// Of older checkpoints one is kept for this many records: sixteen tiles.
pub const CHECKPOINT_SPAN: u64 = 4_096;

/// Content of one commit.
#[derive(Clone, Debug, Default)]
pub struct Append {
    /// Records, in order, from the expected head on.
    pub records: Vec<Encoded>,
    /// Tiles that these records fill.
    pub tiles: Vec<FullTile>,
}

/// Outcome of an append. An error is the third outcome: unknown (L2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Appended {
    /// The append is durable.
    Done,
    /// Another term leads, or the head is not the expected one; nothing was written.
    Refused,
}

/// A period of leadership.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Term {
    /// Epoch, raised by one for each term; an append under an older one is refused.
    pub epoch: u64,
    /// Number of records.
    pub head: u64,
}

/// A stored record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// Number of the record.
    pub seq: u64,
    /// Payload; `None` if it was pruned (L13).
    pub bytes: Option<Vec<u8>>,
}

/// Error of a store. The outcome of an append that returns one is unknown.
#[derive(Debug, Error)]
pub enum Error {
    /// A database operation failed.
    #[error("the store could not {operation}")]
    Database {
        /// Name of the operation.
        operation: &'static str,
        /// Cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file could not be read or written.
    #[error("could not {operation} {path}")]
    File {
        /// Name of the operation.
        operation: &'static str,
        /// Path of the file.
        path: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The store was written by a newer program.
    #[error("{path} has format {found}, this bursar reads up to {known}; use a newer bursar")]
    NewerFormat {
        /// Path of the file.
        path: String,
        /// Format of the file.
        found: i64,
        /// Newest format that this program reads.
        known: i64,
    },
    /// The directory does not exist.
    #[error("{path} does not exist; create it, or name another data directory")]
    NoDirectory {
        /// Path of the directory.
        path: String,
    },
    /// The file can be read but not written.
    #[error("{path} cannot be written; give this user write permission, or name another directory")]
    ReadOnly {
        /// Path of the file.
        path: String,
    },
    /// Other users can write to the data directory.
    #[error(
        "others can write to {path} (mode {mode:o}), and could put another ledger there; run \
         `chmod go-w {path}`"
    )]
    Shared {
        /// Path of the directory.
        path: String,
        /// Permissions.
        mode: u32,
    },
    /// The data directory belongs to another user.
    #[error(
        "{path} belongs to user {owner}, who could put another ledger there; run `chown` on it, or \
         name another directory"
    )]
    Foreign {
        /// Path of the directory.
        path: String,
        /// User id of the owner.
        owner: u32,
    },
    /// A path that should be a file is not one, or one that should be a directory.
    #[error("{path} is not a {expected}; move away what is in its place")]
    WrongKind {
        /// The path.
        path: String,
        /// `file` or `directory`.
        expected: &'static str,
    },
    /// The disk is full. No committed record is lost.
    #[error("the disk of {path} is full; free some space; no committed record is lost")]
    Full {
        /// Path of the file.
        path: String,
    },
    /// The file is not a ledger.
    #[error(
        "{path} is not a ledger of bursar ({reason}); restore it from a backup, or move it away"
    )]
    NotALedger {
        /// Path of the file.
        path: String,
        /// Evidence.
        reason: &'static str,
    },
    /// Record numbers are not consecutive, or do not begin at the head of the term.
    #[error("record {found} was given where record {expected} comes next")]
    OutOfOrder {
        /// Expected number.
        expected: u64,
        /// Given number.
        found: u64,
    },
    /// Stored data is damaged.
    #[error("{what} is damaged")]
    Damaged {
        /// Damaged data and its location.
        what: String,
    },
    /// Another process holds the data directory.
    #[error("{path} is in use by process {pid}")]
    InUse {
        /// Path of the data directory.
        path: String,
        /// Pid of the holder, or `unknown`.
        pid: String,
    },
}

/// Write access to a store, owned by one thread.
pub trait Store: Send {
    /// Begins a term: raises the epoch and returns it with the present head.
    fn lead(&mut self) -> Result<Term, Error>;

    /// Appends durably if and only if `term` still leads and its head is the present one.
    fn append(&mut self, term: Term, append: &Append) -> Result<Appended, Error>;

    /// Reopens the store after an error, makes its records durable and returns their number. Must
    /// succeed before the next append (L2).
    fn reopen(&mut self) -> Result<u64, Error>;

    /// Stores a signed checkpoint, with the covered leaf hashes outside full tiles: they identify a
    /// damaged record, while the root only shows that one is damaged.
    ///
    /// Of checkpoints older than the newest [`CHECKPOINTS_WHOLE`] only the newest in each
    /// [`CHECKPOINT_SPAN`] records stays. Later checkpoints sign the same records, and an export ends
    /// at most that many records after the requested end.
    fn put_checkpoint(&mut self, size: u64, note: &str) -> Result<(), Error>;

    /// Stores the lines of an anchored snapshot for ever (L12).
    fn put_anchor(&mut self, head: u64, lines: &str) -> Result<(), Error>;

    /// Deletes the payloads of records below `below` and the blobs that only they name (L13), and
    /// returns the number of deleted payloads. Leaf hashes stay in the tiles; records of a tile that
    /// is not full stay unchanged.
    fn prune(&mut self, below: u64) -> Result<u64, Error>;

    /// Stores that records below `below` were exported (L13).
    fn note_exported(&mut self, below: u64) -> Result<(), Error>;

    /// Makes a reader for another thread. It sees committed records only.
    fn reader(&self) -> Result<Box<dyn Reader>, Error>;

    /// Free space in bytes, if it is known (L4).
    fn free_bytes(&self) -> Option<u64>;

    /// True if the open files are no longer those at their path: all writes would be lost at the end
    /// of the process.
    fn is_away(&self) -> bool {
        false
    }

    /// Copies the open files of a store that is away to a new file beside its path, and returns the
    /// path. May be repeated until it succeeds; after that the store accepts no writes.
    fn rescue(&mut self) -> Result<String, Error> {
        Err(Error::Database {
            operation: "rescue its records",
            source: "it has no files".into(),
        })
    }
}

/// Read access to a store.
pub trait Reader: Send {
    /// Number of records.
    fn head(&self) -> Result<u64, Error>;

    /// Records from `from` on, in order, at most `max`.
    fn records(&self, from: u64, max: usize) -> Result<Vec<Kept>, Error>;

    /// Blob of a hash, if there is one.
    fn blob(&self, sha256: &Hash) -> Result<Option<Vec<u8>>, Error>;

    /// Hashes of a full tile, if it exists.
    fn full_tile(&self, id: TileId) -> Result<Option<Vec<Hash>>, Error>;

    /// Stored leaf hashes of tile `index` of level 0: all of a full tile, otherwise those that the
    /// last checkpoint covers.
    fn leaves(&self, index: u64) -> Result<Vec<Hash>, Error>;

    /// Newest checkpoint over at most `size` records.
    fn checkpoint(&self, size: u64) -> Result<Option<String>, Error>;

    /// Sizes and notes of all checkpoints, oldest first.
    fn checkpoints(&self) -> Result<Vec<(u64, String)>, Error>;

    /// Heads of all anchored snapshots, oldest first.
    fn anchors(&self) -> Result<Vec<u64>, Error>;

    /// Lines of the newest anchored snapshot over at most `head` records.
    fn anchor(&self, head: u64) -> Result<Option<(u64, String)>, Error>;

    /// First record that was not exported.
    fn exported(&self) -> Result<u64, Error>;

    /// Edge of the tree before the first record, for an excerpt without tiles above the leaves.
    fn excerpt(&self) -> Option<Edge> {
        None
    }

    /// Sentence about the first line that is not canonical, for a file with one canonical form.
    fn misspelling(&self) -> Result<Option<String>, Error> {
        Ok(None)
    }
}

/// Number of records that a note states, without a check of its signature.
pub(crate) fn signed_size(note: &str) -> Option<u64> {
    note.lines().nth(1)?.parse().ok()
}

/// First record that has its payload; the head if none has. Payloads are deleted from the first
/// record on, without gaps.
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

/// Head after an append, if its records are consecutive from the head of the term on.
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

/// Leaf hashes of the first `size` records that are in no full tile.
fn loose_leaves(reader: &dyn Reader, size: u64) -> Result<Vec<Hash>, Error> {
    let first = in_full_tiles(size);
    let max = usize::try_from(size - first).unwrap_or(usize::MAX);
    let kept = reader.records(first, max)?;
    Ok(kept
        .iter()
        .map_while(|kept| kept.bytes.as_deref().map(leaf_hash))
        .collect())
}

/// Number of records in full tiles, which proofs need no longer.
fn in_full_tiles(head: u64) -> u64 {
    head - head % u64::from(TILE_WIDTH)
}
