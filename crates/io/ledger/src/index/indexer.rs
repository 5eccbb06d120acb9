//! Writer of the index, which follows the committed head in chunks.
//!
//! SQLite keeps its files consistent after a kill or a power failure, so a file that fits has no
//! gaps. A commit to the index needs several syncs, so it waits for enough records.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bursar_engine::Reference;
use bursar_engine::codec::decode;
use bursar_engine::subject::{self, subjects_of};
use bursar_journal::hash::Hash;
use rusqlite::{CachedStatement, Connection, OpenFlags, Transaction, TransactionBehavior, params};

use super::{APPLICATION_ID, FORMAT, Header, Index, last_leaf};
use crate::durable;
use crate::store::sqlite::{FileId, file_id, number};
use crate::store::{self, Kept, Reader, first_kept};

/// Maximum wait of a commit for look-ups, which are short. A file that is locked for longer is
/// replaced.
const BUSY: Duration = Duration::from_secs(1);

/// Records read from the store at a time; they may be large.
const READ: u64 = 512;

const SCHEMA: &str = "
    CREATE TABLE about (
        subject TEXT, seq INTEGER, PRIMARY KEY (subject, seq)
    ) WITHOUT ROWID;
    CREATE TABLE header (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        ledger TEXT NOT NULL, generation INTEGER NOT NULL, rule INTEGER NOT NULL,
        first INTEGER, records INTEGER NOT NULL, leaf BLOB
    );
";

/// Size of one commit to the index.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Maximum number of records of a commit.
    pub records_max: u64,
    /// Number of subjects after which a commit takes no further record, because they are in memory.
    pub subjects_max: usize,
    /// Minimum number of waiting records: fewer are quicker to scan than to index.
    pub records_min: u64,
}

impl Pace {
    /// Pace of a running ledger.
    pub const RUNNING: Self = Self {
        records_max: 4_096,
        subjects_max: 65_536,
        records_min: 256,
    };
}

/// Progress of the index.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// Records are waiting to be indexed.
    Behind,
    /// Too few records are waiting for another commit.
    CaughtUp,
}

/// Error of a step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ledger could not be read; the index is unchanged.
    #[error("the ledger could not be read")]
    Ledger(#[from] store::Error),
    /// The index could not be written; it is made anew.
    #[error("the index could not be written")]
    Index(#[from] rusqlite::Error),
    /// The file could not be removed or created.
    #[error("the file of the index could not be replaced")]
    File(#[from] std::io::Error),
}

/// Writer of an index.
#[derive(Debug)]
pub struct Indexer {
    index: Index,
    pace: Pace,
    open: Option<OpenIndex>,
}

#[derive(Debug)]
struct OpenIndex {
    connection: Connection,
    file: FileId,
    header: Header,
}

impl Indexer {
    /// Makes the writer of an index. There must be only one.
    pub fn new(index: Index, pace: Pace) -> Self {
        Self {
            index,
            pace,
            open: None,
        }
    }

    /// Indexes one chunk of the first `head` records. A missing, wrong or foreign file is made anew
    /// first.
    pub fn step(&mut self, reader: &dyn Reader, head: u64) -> Result<Progress, Error> {
        let stepped = self.try_step(reader, head);
        if let Err(Error::Index(_)) = stepped {
            self.open = None;
            self.index.distrust();
        }
        stepped
    }

    fn try_step(&mut self, reader: &dyn Reader, head: u64) -> Result<Progress, Error> {
        let is_wrong = self.index.is_wrong.load(Ordering::Relaxed);
        let open = self.open.take();
        let open = match open.filter(|open| open.is_ours(&self.index.path)) {
            _ if is_wrong => None,
            None => self.resume(reader)?,
            ours => ours,
        };
        let open = match open {
            Some(open) if !open.is_pruned(reader)? => Some(open),
            _ => None,
        };
        let mut open = match open {
            Some(open) => open,
            None => self.begin(reader)?,
        };
        let waiting = |open: &OpenIndex| head.saturating_sub(open.header.records);
        let extended = match waiting(&open) {
            few if few < self.pace.records_min => Ok(()),
            waiting => open.extend(reader, waiting, self.pace),
        };
        let waiting = waiting(&open);
        self.open = Some(open);
        extended?;
        if waiting < self.pace.records_min {
            return Ok(Progress::CaughtUp);
        }
        Ok(Progress::Behind)
    }

    fn resume(&self, reader: &dyn Reader) -> Result<Option<OpenIndex>, store::Error> {
        let path = &self.index.path;
        let Ok(Some(file)) = file_id(path) else {
            return Ok(None);
        };
        let open = || {
            let connection = connect(path)?;
            // Reading rolls back an interrupted commit. Nothing else is changed until the file is
            // known to be an index.
            let header = Header::read(&connection)?;
            let is_whole = !self.index.is_cut(&connection)?;
            let Some(header) = header.filter(|_| is_whole) else {
                return Ok(None);
            };
            prepare(&connection)?;
            Ok(Some(OpenIndex {
                connection,
                file,
                header,
            }))
        };
        let opened: rusqlite::Result<Option<OpenIndex>> = open();
        match opened {
            Ok(Some(open)) if open.header.fits(&self.index, reader)? => Ok(Some(open)),
            _ => Ok(None),
        }
    }

    /// Replaces the file by an empty index. Records without payloads are skipped.
    fn begin(&self, reader: &dyn Reader) -> Result<OpenIndex, Error> {
        let path = &self.index.path;
        let first = match first_kept(reader) {
            Err(store::Error::Damaged { .. }) => None,
            first => Some(first?),
        };
        let records = first.unwrap_or(0);
        let header = Header {
            ledger: self.index.ledger.clone(),
            generation: self.index.generation,
            rule: subject::VERSION,
            first,
            records,
            leaf: last_leaf(reader, records)?,
        };
        // SQLite drops a journal beside an empty file.
        durable::remove(path)?;
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let connection = connect(path)?;
        prepare(&connection)?;
        let mark =
            format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};");
        connection.execute_batch(&format!("BEGIN; {mark} {SCHEMA}"))?;
        let sql = "INSERT INTO header VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)";
        connection.execute(
            sql,
            params![
                header.ledger,
                number(header.generation)?,
                header.rule,
                header.first.map(number).transpose()?,
                number(header.records)?,
                header.leaf.map(|leaf| leaf.0),
            ],
        )?;
        connection.execute_batch("COMMIT")?;
        let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let file = file_id(path)?.ok_or_else(gone)?;
        self.index.is_wrong.store(false, Ordering::Relaxed);
        Ok(OpenIndex {
            connection,
            file,
            header,
        })
    }
}

impl OpenIndex {
    /// True if the path still leads to the open file and its content is ours.
    fn is_ours(&self, path: &Path) -> bool {
        file_id(path).is_ok_and(|file| file == Some(self.file))
            && Header::read(&self.connection)
                .is_ok_and(|header| header.as_ref() == Some(&self.header))
    }

    /// True if payloads were pruned since the start: their names must not stay in the index (L13).
    fn is_pruned(&self, reader: &dyn Reader) -> Result<bool, store::Error> {
        let first = self.header.first;
        let Some(first) = first.filter(|first| *first < self.header.records) else {
            return Ok(false);
        };
        match reader.records(first, 1) {
            Ok(kept) => Ok(kept.first().is_some_and(|kept| kept.bytes.is_none())),
            Err(store::Error::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Indexes as many waiting records as the pace allows, in one transaction.
    fn extend(&mut self, reader: &dyn Reader, waiting: u64, pace: Pace) -> Result<(), Error> {
        let until = self.header.records + waiting.min(pace.records_max);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let range = self.header.records..until;
        let records = note_all(reader, range, pace.subjects_max, &transaction)?;
        let header = Header {
            records,
            leaf: last_leaf(reader, records)?,
            ..self.header.clone()
        };
        let leaf = header.leaf.map(|leaf| leaf.0);
        transaction.execute(
            "UPDATE header SET records = ?1, leaf = ?2",
            params![number(records)?, leaf],
        )?;
        transaction.commit()?;
        self.header = header;
        Ok(())
    }
}

/// Inserts the subjects of the records of a range until there are `max`, and returns the end.
fn note_all(
    reader: &dyn Reader,
    records: Range<u64>,
    max: usize,
    transaction: &Transaction<'_>,
) -> Result<u64, Error> {
    let sql = "INSERT OR IGNORE INTO about (subject, seq) VALUES (?1, ?2)";
    let mut insert = transaction.prepare_cached(sql)?;
    let (mut next, mut noted) = (records.start, 0);
    while next < records.end {
        let end = records.end.min(next.saturating_add(READ));
        for kept in read(reader, next, end)? {
            noted += note(reader, &kept, &mut insert)?;
            if max <= noted {
                return Ok(kept.seq.saturating_add(1));
            }
        }
        next = end;
    }
    Ok(next)
}

/// Records of a range, without damaged ones: these would stop the index for ever.
fn read(reader: &dyn Reader, from: u64, until: u64) -> Result<Vec<Kept>, store::Error> {
    let max = usize::try_from(until - from).unwrap_or(usize::MAX);
    match reader.records(from, max) {
        Err(store::Error::Damaged { .. }) => {}
        kept => return kept,
    }
    let mut kept = Vec::new();
    for seq in from..until {
        match reader.records(seq, 1) {
            Err(store::Error::Damaged { .. }) => {}
            one => kept.extend(one?),
        }
    }
    Ok(kept)
}

/// Inserts the subjects of a record and returns their number. An undecodable record has none.
fn note(
    reader: &dyn Reader,
    kept: &Kept,
    insert: &mut CachedStatement<'_>,
) -> Result<usize, Error> {
    let Some(bytes) = &kept.bytes else {
        return Ok(0);
    };
    let failed = RefCell::new(None);
    let blob = |sha256: &Hash| match reader.blob(sha256) {
        Ok(blob) => blob,
        Err(error) => {
            failed.replace(Some(error));
            None
        }
    };
    let decoded = decode(kept.seq, bytes, blob);
    match failed.into_inner() {
        None | Some(store::Error::Damaged { .. }) => {}
        Some(error) => return Err(error.into()),
    }
    let seq = number(kept.seq)?;
    let mut noted = 0;
    for subject in decoded.iter().flat_map(subjects_of) {
        // A record is found by its number without an index.
        if !matches!(subject, Reference::Record(_)) {
            noted += insert.execute(params![subject.to_string(), seq])?;
        }
    }
    Ok(noted)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String =
        connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
    if mode != "delete" {
        return Err(rusqlite::Error::InvalidQuery);
    }
    // Without spills a chunk reaches the file only at its commit, so look-ups are not blocked.
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_spill = OFF")
}
