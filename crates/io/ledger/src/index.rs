//! Index from subjects to records, so that proofs and searches need not read the whole ledger.
//!
//! `<data>/ledger.index` lists the records about each subject (`engine::subject`) among the first n
//! records; later records are scanned. A thread of the running ledger writes it after the commits.
//! The file names its ledger, its generation, the version of the rule and the leaf hash of its last
//! record. A file that does not fit or is damaged is not used and is made anew. It may be deleted at
//! any time, and no request fails because of it.
//!
//! The index is not trusted. Each record that it names is decoded and checked before it is shown, so
//! a forged index can hide records but not invent any. `ledger check` does not read it.

mod indexer;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bursar_engine::codec::decode;
use bursar_engine::{Reference, subject};
use bursar_journal::hash::{Hash, leaf_hash};
use bursar_journal::record::blob_refs;
use bursar_journal::tile::TILE_WIDTH;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use crate::store::sqlite::{count, number};
use crate::store::{self, Reader};

pub use indexer::{Error, Indexer, Pace, Progress};

/// Name of the file in a data directory.
pub const FILE_NAME: &str = "ledger.index";

const FORMAT: i64 = 1;

/// SQLite application id of the file: `BurI`.
const APPLICATION_ID: i64 = 0x4275_7249;

/// Maximum wait of a look-up for a commit to the index, before it scans instead.
const BUSY: Duration = Duration::from_millis(100);

const CHUNK: usize = 1_024;

/// Index of one generation of one ledger, for any number of threads.
#[derive(Clone, Debug)]
pub struct Index {
    path: PathBuf,
    ledger: String,
    generation: u64,
    /// Set by a look-up that finds a wrong file, so that it is made anew.
    is_wrong: Arc<AtomicBool>,
}

/// Records of a subject in the index.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Indexed {
    /// Record numbers in rising order, at most as many as requested.
    pub seqs: Vec<u64>,
    /// Number of indexed records; later ones have to be scanned.
    pub records: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Header {
    ledger: String,
    generation: u64,
    /// Version of the rule that lists subjects.
    rule: u32,
    /// First record that had its payload when the index was begun, if it is known.
    first: Option<u64>,
    records: u64,
    /// Leaf hash of the last indexed record, if it is known.
    leaf: Option<Hash>,
}

enum Unusable {
    /// The file is being written, or is missing.
    Now,
    /// The file is damaged, or belongs to another ledger.
    Wrong,
}

impl Index {
    /// Index in a data directory, of this generation of this ledger.
    pub fn of(data: &Path, ledger: &str, generation: u64) -> Self {
        Self {
            path: data.join(FILE_NAME),
            ledger: ledger.to_owned(),
            generation,
            is_wrong: Arc::default(),
        }
    }

    /// Indexed records about a subject from `from` on, at most `max`; none if the file cannot be
    /// used.
    pub fn about(
        &self,
        reader: &dyn Reader,
        subject: &Reference,
        from: u64,
        max: usize,
    ) -> Indexed {
        match self.look_up(reader, subject, from, max) {
            Ok(indexed) => indexed,
            Err(Unusable::Now) => Indexed::default(),
            Err(Unusable::Wrong) => {
                self.distrust();
                Indexed::default()
            }
        }
    }

    fn distrust(&self) {
        self.is_wrong.store(true, Ordering::Relaxed);
    }

    fn look_up(
        &self,
        reader: &dyn Reader,
        subject: &Reference,
        from: u64,
        max: usize,
    ) -> Result<Indexed, Unusable> {
        let is_file = |found: std::fs::Metadata| found.is_file() && 0 < found.len();
        if !std::fs::metadata(&self.path).is_ok_and(is_file) {
            return Err(Unusable::Now);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY)?;
        // One transaction, so that the rows belong to the header.
        let transaction = connection.transaction()?;
        let header = Header::read(&transaction)?.ok_or(Unusable::Wrong)?;
        if !header.fits(self, reader).map_err(|_| Unusable::Now)? || self.is_cut(&transaction)? {
            return Err(Unusable::Wrong);
        }
        let sql = "SELECT seq FROM about WHERE subject = ?1 AND ?2 <= seq ORDER BY seq LIMIT ?3";
        let mut select = transaction.prepare(sql)?;
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let rows = select.query_map(params![subject.to_string(), number(from)?, max], |row| {
            count(row, 0)
        })?;
        let seqs: Vec<u64> = rows.collect::<rusqlite::Result<_>>()?;
        let is_rising = seqs.windows(2).all(|pair| pair.first() < pair.last());
        let is_within = |seq: &u64| from <= *seq && *seq < header.records;
        if !is_rising || !seqs.iter().all(is_within) {
            return Err(Unusable::Wrong);
        }
        Ok(Indexed {
            seqs,
            records: header.records,
        })
    }

    /// True if the file ends before its last page. SQLite would read the rest as zeros.
    fn is_cut(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let pragma = |sql| connection.query_row(sql, [], |row| count(row, 0));
        let bytes = pragma("PRAGMA page_count")?.saturating_mul(pragma("PRAGMA page_size")?);
        Ok(!std::fs::metadata(&self.path).is_ok_and(|found| bytes <= found.len()))
    }
}

impl Header {
    /// Header of a file, if it is an index of our format.
    fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let pragma = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        if pragma("PRAGMA application_id")? != APPLICATION_ID
            || pragma("PRAGMA user_version")? != FORMAT
        {
            return Ok(None);
        }
        let sql = "SELECT ledger, generation, rule, first, records, leaf FROM header";
        let header = connection.query_row(sql, [], |row| {
            Ok(Self {
                ledger: row.get(0)?,
                generation: count(row, 1)?,
                rule: row.get(2)?,
                first: row
                    .get::<_, Option<i64>>(3)?
                    .and_then(|first| first.try_into().ok()),
                records: count(row, 4)?,
                leaf: row.get::<_, Option<[u8; 32]>>(5)?.map(Hash),
            })
        });
        header.map(Some)
    }

    /// True if the file belongs to this ledger in its present state.
    fn fits(&self, index: &Index, reader: &dyn Reader) -> Result<bool, store::Error> {
        Ok(self.ledger == index.ledger
            && self.generation == index.generation
            && self.rule == subject::VERSION
            && self.records <= reader.head()?
            && self.leaf == last_leaf(reader, self.records)?)
    }
}

impl From<rusqlite::Error> for Unusable {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // A lock, or an interrupted commit that only a writer can roll back.
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly,
            ) => Self::Now,
            _ => Self::Wrong,
        }
    }
}

/// Records about a subject in a range, in order, at most `max`, with their bytes. Records without a
/// payload are left out. The result is the same with and without an index.
pub fn search(
    reader: &dyn Reader,
    index: Option<&Index>,
    subject: &Reference,
    records: Range<u64>,
    max: usize,
) -> Result<Vec<(u64, Vec<u8>)>, store::Error> {
    search_part(reader, index, subject, records, max, u64::MAX).map(|found| found.records)
}

/// Part of a search, which ends early when it has read `read_max` records. Records that the index
/// excludes are not read.
pub fn search_part(
    reader: &dyn Reader,
    index: Option<&Index>,
    subject: &Reference,
    records: Range<u64>,
    max: usize,
    read_max: u64,
) -> Result<Found, store::Error> {
    let end = records.end;
    let mut search = Search {
        reader,
        subject,
        records,
        max,
        read_max,
        found: Vec::new(),
    };
    match (subject, index) {
        (Reference::Record(seq), _) => {
            search.look_at(*seq)?;
            if !search.is_over() {
                search.records.start = end;
            }
        }
        (_, Some(index)) => {
            search.follow(index)?;
            search.scan()?;
        }
        (_, None) => search.scan()?,
    }
    Ok(Found {
        records: search.found,
        next: search.records.start.min(end),
    })
}

/// Result of a part of a search.
#[derive(Debug)]
pub struct Found {
    /// Records, in order.
    pub records: Vec<(u64, Vec<u8>)>,
    /// Start of the next part; the end of the range if there is none.
    pub next: u64,
}

struct Search<'a> {
    reader: &'a dyn Reader,
    subject: &'a Reference,
    /// Records that were not checked yet.
    records: Range<u64>,
    max: usize,
    /// Number of records that may still be read.
    read_max: u64,
    found: Vec<(u64, Vec<u8>)>,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.records.is_empty() || self.max <= self.found.len() || self.read_max == 0
    }

    fn follow(&mut self, index: &Index) -> Result<(), store::Error> {
        while !self.is_over() {
            let wanted = self.max - self.found.len();
            let indexed = index.about(self.reader, self.subject, self.records.start, wanted);
            for seq in &indexed.seqs {
                if self.is_over() {
                    return Ok(());
                }
                self.look_at(*seq)?;
            }
            if indexed.seqs.len() < wanted {
                self.records.start = self.records.start.max(indexed.records);
                return Ok(());
            }
        }
        Ok(())
    }

    fn scan(&mut self) -> Result<(), store::Error> {
        while !self.is_over() {
            let left = usize::try_from(self.records.end - self.records.start);
            let kept = self
                .reader
                .records(self.records.start, left.unwrap_or(CHUNK).min(CHUNK))?;
            if kept.is_empty() {
                return Ok(());
            }
            for kept in kept {
                self.ask(kept);
            }
        }
        Ok(())
    }

    /// Checks one record and skips those before it.
    fn look_at(&mut self, seq: u64) -> Result<(), store::Error> {
        if self.records.contains(&seq) && !self.is_over() {
            let kept = self.reader.records(seq, 1)?;
            for kept in kept {
                self.ask(kept);
            }
        } else {
            self.records.start = self.records.start.max(seq.saturating_add(1));
        }
        Ok(())
    }

    fn ask(&mut self, kept: store::Kept) {
        if self.is_over() {
            return;
        }
        self.records.start = kept.seq.saturating_add(1);
        self.read_max -= 1;
        if let Some(bytes) = kept.bytes
            && is_about(self.reader, self.subject, kept.seq, &bytes)
        {
            self.found.push((kept.seq, bytes));
        }
    }
}

/// True if a stored record is about a subject. Records that do not contain its name are not decoded.
fn is_about(reader: &dyn Reader, subject: &Reference, seq: u64, bytes: &[u8]) -> bool {
    let Some(name) = subject.name() else {
        return *subject == Reference::Record(seq);
    };
    // A record may have the namespace in another field, or the name after that of a meter, so only
    // the last part of the name and the closing quote are sought. A text can always be written as
    // JSON.
    let last = name.rsplit('/').next().unwrap_or(name);
    let quoted = serde_json::to_string(last).unwrap_or_default();
    let ending = quoted.get(1..).unwrap_or_default();
    let says = |bytes: &[u8]| {
        bytes
            .windows(ending.len())
            .any(|window| window == ending.as_bytes())
    };
    // The identity of a lease is made of the numbers of its record and of the GPU.
    let is_lease = matches!(subject, Reference::Lease(_));
    let refs = blob_refs(bytes).unwrap_or_default();
    if !is_lease && !says(bytes) && refs.is_empty() {
        return false;
    }
    let blob = |sha256: &Hash| reader.blob(sha256).ok().flatten();
    decode(seq, bytes, blob).is_ok_and(|record| subject::is_about(&record, subject))
}

/// Leaf hash of the last of the first `records` records, if it can be read.
fn last_leaf(reader: &dyn Reader, records: u64) -> Result<Option<Hash>, store::Error> {
    let Some(seq) = records.checked_sub(1) else {
        return Ok(None);
    };
    let kept = match reader.records(seq, 1) {
        Err(store::Error::Damaged { .. }) => return Ok(None),
        kept => kept?.pop(),
    };
    if let Some(bytes) = kept.and_then(|kept| kept.bytes) {
        return Ok(Some(leaf_hash(&bytes)));
    }
    let width = u64::from(TILE_WIDTH);
    let leaves = reader.leaves(seq / width)?;
    let offset = usize::try_from(seq % width).unwrap_or(usize::MAX);
    Ok(leaves.get(offset).copied())
}
