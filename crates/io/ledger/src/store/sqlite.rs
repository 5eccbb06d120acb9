//! Embedded store: one SQLite file in write-ahead mode, synced at every commit.
//!
//! One thread owns the writing connection; readers open their own read-only connections. Another
//! thread copies the write-ahead log into the file beside the commits. The check of the term is the
//! first statement of an append, so a term that no longer leads changes nothing.
//!
//! A new file is written under another name and renamed, so an empty or cut `ledger.db` is always
//! damage and never a new ledger.

mod drain;
mod failure;
mod reader;

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar_journal::hash::Hash;
use bursar_journal::tile::{FullTile, TILE_WIDTH, tile_bytes};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

use super::{
    Append, Appended, CHECKPOINT_SPAN, CHECKPOINTS_WHOLE, Error, Kept, Reader, Store, Term,
    first_kept, head_after, in_full_tiles, loose_leaves,
};
use crate::durable::{self, beside, directory};
use drain::Drain;
use failure::LedgerFile;

pub(crate) use failure::{count, number};
pub use reader::SqliteReader;

/// Name of the file in a data directory.
pub const FILE_NAME: &str = "ledger.db";

/// Format that this program writes, and the newest that it reads.
const FORMAT: i64 = 1;

/// SQLite application id of the file: `Burs`.
const APPLICATION_ID: i64 = 0x4275_7273;

/// Name of the copy that is written when the ledger file of a running server was moved or removed.
pub(crate) const RESCUE: &str = "ledger.rescue";

const RESCUES_MAX: u32 = 100;

/// Maximum wait of a statement for a lock. Only a checkpoint beside a long read waits. Tests of that
/// wait are shorter.
const BUSY: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5_000 });

/// Maximum size of a part of an anchored snapshot, so that rows are bounded.
const PART_BYTES_MAX: usize = 1 << 20;

/// Pages larger than the default hold more records: a commit logs and syncs fewer pages.
const SCHEMA: &str = "
    PRAGMA page_size = 8192;
    BEGIN;
    CREATE TABLE journal (seq INTEGER PRIMARY KEY, bytes BLOB);
    CREATE TABLE blob (sha256 BLOB PRIMARY KEY, last INTEGER NOT NULL, bytes BLOB NOT NULL);
    CREATE INDEX blob_last ON blob (last);
    CREATE TABLE tile (
        level INTEGER, idx INTEGER, bytes BLOB NOT NULL, PRIMARY KEY (level, idx)
    ) WITHOUT ROWID;
    CREATE TABLE checkpoint (size INTEGER PRIMARY KEY, note TEXT NOT NULL);
    CREATE TABLE anchor (
        head INTEGER, part INTEGER, lines TEXT NOT NULL, PRIMARY KEY (head, part)
    ) WITHOUT ROWID;
    CREATE TABLE meta (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        epoch INTEGER NOT NULL, head INTEGER NOT NULL, exported INTEGER NOT NULL
    );
    INSERT INTO meta VALUES (1, 0, 0, 0);
    COMMIT;
    PRAGMA journal_mode = WAL;
";

/// Write access to a ledger file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    /// Dropped before the connection, which must be the last to close the file.
    drain: Option<Drain>,
    /// Absent only after a failed reopen and after a rescue.
    connection: Option<Connection>,
    /// Files that the connection has open, once it has written.
    open: Option<[Option<FileId>; 2]>,
}

pub(crate) type FileId = (u64, u64);

impl SqliteStore {
    /// Opens the ledger file, and creates it if it is missing. Its directory must exist.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = LedgerFile(path);
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => create(path)?,
            Err(source) => return Err(file.io_failed("open", source)),
        }
        let mut connection = connect(path)?;
        let drain = Drain::start(path, &mut connection)?;
        Ok(Self {
            path: path.to_owned(),
            drain: Some(drain),
            connection: Some(connection),
            open: None,
        })
    }

    /// Present ids of the ledger file and its write-ahead log; `None` for a missing file.
    fn files(&self) -> std::io::Result<[Option<FileId>; 2]> {
        Ok([file_id(&self.path)?, file_id(&beside(&self.path, "-wal"))?])
    }

    fn note_files(&mut self) -> Result<(), Error> {
        let files = self.files();
        self.open = Some(files.map_err(|source| LedgerFile(&self.path).io_failed("open", source))?);
        Ok(())
    }

    /// Free path beside the ledger file for a rescued copy.
    fn rescue_path(&self) -> PathBuf {
        let named = |number: u32| {
            let name = match number {
                0 => format!("{RESCUE}.db"),
                _ => format!("{RESCUE}.{number}.db"),
            };
            directory(&self.path).join(name)
        };
        let mut paths = (0..RESCUES_MAX).map(named);
        let free = paths.find(|path| !path.exists());
        free.unwrap_or_else(|| named(RESCUES_MAX))
    }

    /// Closes the file, which removes its write-ahead log.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        let failed = LedgerFile(&self.path).failed("close");
        self.drain = None;
        self.connection.take().map_or(Ok(()), |connection| {
            connection.close().map_err(|(_, error)| failed(error))
        })
    }

    /// Appends records of a copy, including pruned ones, to a ledger that no term leads.
    pub(crate) fn adopt(
        &mut self,
        records: &[Kept],
        blobs: &[(u64, Hash, Vec<u8>)],
        tiles: &[FullTile],
    ) -> Result<(), Error> {
        self.change("take over records", |transaction| {
            for kept in records {
                let sql = "INSERT INTO journal (seq, bytes) VALUES (?1, ?2)";
                transaction
                    .prepare_cached(sql)?
                    .execute(params![number(kept.seq)?, kept.bytes])?;
            }
            for (seq, sha256, bytes) in blobs {
                insert_blob(transaction, *seq, sha256, bytes)?;
            }
            insert_tiles(transaction, tiles)?;
            let added = i64::try_from(records.len()).unwrap_or(i64::MAX);
            transaction
                .execute("UPDATE meta SET head = head + ?1", [added])
                .map(drop)
        })
    }

    pub(crate) fn adopt_notes(&mut self, notes: &[(u64, String)]) -> Result<(), Error> {
        self.change("take over checkpoints", |transaction| {
            let sql = "INSERT OR REPLACE INTO checkpoint (size, note) VALUES (?1, ?2)";
            let mut insert = transaction.prepare(sql)?;
            notes.iter().try_for_each(|(size, note)| {
                insert.execute(params![number(*size)?, note]).map(drop)
            })
        })
    }

    fn change<T>(
        &mut self,
        operation: &'static str,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let file = LedgerFile(&self.path);
        let connection = self.connection.as_mut();
        let connection = connection.ok_or_else(|| file.closed(operation))?;
        let _entered = self.drain.as_ref().map(Drain::enter);
        let changed = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                let value = change(&transaction)?;
                transaction.commit().map(|()| value)
            });
        changed.map_err(file.failed(operation))
    }
}

impl Store for SqliteStore {
    fn lead(&mut self) -> Result<Term, Error> {
        let term = self.change("begin a term", |transaction| {
            let sql = "UPDATE meta SET epoch = epoch + 1 RETURNING epoch, head";
            transaction.query_row(sql, [], |row| {
                Ok(Term {
                    epoch: count(row, 0)?,
                    head: count(row, 1)?,
                })
            })
        })?;
        self.note_files()?;
        Ok(term)
    }

    fn append(&mut self, term: Term, append: &Append) -> Result<Appended, Error> {
        let head = head_after(term, append)?;
        self.change("append", |transaction| {
            let fence = "UPDATE meta SET head = ?3 WHERE epoch = ?1 AND head = ?2";
            let leads = transaction.prepare_cached(fence)?.execute(params![
                number(term.epoch)?,
                number(term.head)?,
                number(head)?
            ])?;
            if leads == 0 {
                return Ok(Appended::Refused);
            }
            insert(transaction, append)?;
            Ok(Appended::Done)
        })
    }

    fn reopen(&mut self) -> Result<u64, Error> {
        // Closing ends all operations of the old connections.
        self.drain = None;
        self.connection = None;
        let file = LedgerFile(&self.path);
        let mut connection = connect(&self.path)?;
        let is_busy: bool = connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
            .map_err(file.failed("make its records durable"))?;
        if is_busy {
            let source = "readers kept it busy".into();
            return Err(Error::Database {
                operation: "make its records durable",
                source,
            });
        }
        let head = reader::head(&connection).map_err(file.failed("read"))?;
        self.drain = Some(Drain::start(&self.path, &mut connection)?);
        self.connection = Some(connection);
        self.note_files()?;
        Ok(head)
    }

    fn put_checkpoint(&mut self, size: u64, note: &str) -> Result<(), Error> {
        let index = in_full_tiles(size) / u64::from(TILE_WIDTH);
        let leaves = tile_bytes(&loose_leaves(self.reader()?.as_ref(), size)?);
        self.change("keep a checkpoint", |transaction| {
            let sql = "INSERT OR REPLACE INTO checkpoint (size, note) VALUES (?1, ?2)";
            transaction
                .prepare_cached(sql)?
                .execute(params![number(size)?, note])?;
            thin_checkpoints(transaction)?;
            let sql = "INSERT INTO tile (level, idx, bytes) VALUES (0, ?1, ?2)
                ON CONFLICT (level, idx) DO UPDATE SET bytes = excluded.bytes
                WHERE length(bytes) < length(excluded.bytes)";
            if !leaves.is_empty() {
                transaction
                    .prepare_cached(sql)?
                    .execute(params![number(index)?, leaves])?;
            }
            Ok(())
        })
    }

    fn put_anchor(&mut self, head: u64, lines: &str) -> Result<(), Error> {
        self.change("keep an anchored snapshot", |transaction| {
            let head = number(head)?;
            transaction.execute("DELETE FROM anchor WHERE head = ?1", [head])?;
            let sql = "INSERT INTO anchor (head, part, lines) VALUES (?1, ?2, ?3)";
            let mut insert = transaction.prepare(sql)?;
            for (part, lines) in (0_i64..).zip(parts(lines)) {
                insert.execute(params![head, part, lines])?;
            }
            Ok(())
        })
    }

    fn prune(&mut self, below: u64) -> Result<u64, Error> {
        // Records that were pruned before are skipped.
        let from = number(first_kept(self.reader()?.as_ref())?).unwrap_or(i64::MAX);
        self.change("prune", |transaction| {
            let below = number(below.min(in_full_tiles(reader::head(transaction)?)))?;
            let blank = "UPDATE journal SET bytes = NULL
                WHERE ?1 <= seq AND seq < ?2 AND bytes IS NOT NULL";
            let blanked = transaction.execute(blank, [from, below])?;
            transaction.execute("DELETE FROM blob WHERE last < ?1", [below])?;
            Ok(u64::try_from(blanked).unwrap_or(u64::MAX))
        })
    }

    fn note_exported(&mut self, below: u64) -> Result<(), Error> {
        self.change("note an export", |transaction| {
            let sql = "UPDATE meta SET exported = max(exported, ?1)";
            transaction.execute(sql, [number(below)?]).map(drop)
        })
    }

    fn reader(&self) -> Result<Box<dyn Reader>, Error> {
        Ok(Box::new(SqliteReader::open(&self.path)?))
    }

    fn free_bytes(&self) -> Option<u64> {
        durable::free_bytes(directory(&self.path))
    }

    fn is_away(&self) -> bool {
        // An error of the file system is not evidence of absence.
        let there = self.files().ok();
        there.is_some_and(|there| self.open.is_some_and(|open| open != there))
    }

    fn rescue(&mut self) -> Result<String, Error> {
        self.drain = None;
        let path = self.rescue_path();
        let file = LedgerFile(&path);
        let connection = self
            .connection
            .as_ref()
            .ok_or_else(|| file.closed("rescue its records"))?;
        // The directory may have been removed with the files.
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory(&path));
        made.map_err(|source| file.io_failed("write", source))?;
        let shown = path.display().to_string();
        let written = connection
            .execute("VACUUM INTO ?1", [&shown])
            .map_err(file.failed("rescue its records"))
            .and_then(|_| {
                File::open(&path)
                    .and_then(|file| file.sync_all())
                    .and_then(|()| File::open(directory(&path))?.sync_all())
                    .map_err(|source| file.io_failed("write", source))
            });
        if let Err(error) = written {
            // A partial copy is removed; the rescue is tried again.
            let _left = durable::remove(&path);
            return Err(error);
        }
        // Closing would remove the log of a new file at the same path.
        std::mem::forget(self.connection.take());
        Ok(shown)
    }
}

/// Present id of the file at a path, if there is one. The file is not opened, because closing it
/// would release the locks of SQLite.
pub(crate) fn file_id(path: &Path) -> std::io::Result<Option<FileId>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
            _ => Err(error),
        },
    }
}

fn insert(transaction: &Transaction<'_>, append: &Append) -> rusqlite::Result<()> {
    let mut journal =
        transaction.prepare_cached("INSERT INTO journal (seq, bytes) VALUES (?1, ?2)")?;
    for record in &append.records {
        journal.execute(params![number(record.seq)?, record.bytes])?;
        for blob in &record.blobs {
            insert_blob(transaction, record.seq, &blob.sha256, &blob.bytes)?;
        }
    }
    insert_tiles(transaction, &append.tiles)
}

fn insert_blob(
    transaction: &Transaction<'_>,
    seq: u64,
    sha256: &Hash,
    bytes: &[u8],
) -> rusqlite::Result<()> {
    // A blob may be named again; it then belongs to the later record.
    let sql = "INSERT INTO blob (sha256, last, bytes) VALUES (?1, ?2, ?3)
        ON CONFLICT (sha256) DO UPDATE SET last = excluded.last";
    let mut insert = transaction.prepare_cached(sql)?;
    insert
        .execute(params![sha256.0, number(seq)?, bytes])
        .map(drop)
}

/// Deletes the checkpoint that is no longer among the newest, unless it is the last of its span.
fn thin_checkpoints(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let sql = "WITH oldest AS (
            SELECT size FROM checkpoint ORDER BY size DESC LIMIT 1 OFFSET ?1
        ) DELETE FROM checkpoint WHERE size = (SELECT size FROM oldest) AND size / ?2 = (
            SELECT min(size) FROM checkpoint WHERE size > (SELECT size FROM oldest)
        ) / ?2";
    let mut delete = transaction.prepare_cached(sql)?;
    let span = params![CHECKPOINTS_WHOLE, number(CHECKPOINT_SPAN)?];
    delete.execute(span).map(drop)
}

fn insert_tiles(transaction: &Transaction<'_>, tiles: &[FullTile]) -> rusqlite::Result<()> {
    for tile in tiles {
        // The full tile replaces the leaves that a checkpoint has stored in its row.
        let sql = "INSERT OR REPLACE INTO tile (level, idx, bytes) VALUES (?1, ?2, ?3)";
        let mut insert = transaction.prepare_cached(sql)?;
        let index = number(tile.id.index())?;
        insert.execute(params![tile.id.level(), index, tile_bytes(&tile.hashes)])?;
    }
    Ok(())
}

/// Copies a consistent state of a ledger file, also beside a writer.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let file = LedgerFile(to);
    let source = SqliteReader::open(from)?;
    let mut target = Connection::open(to).map_err(file.failed("copy"))?;
    let copied = Backup::new(source.connection(), &mut target).and_then(|backup| {
        // One step for all pages: between steps, writes would restart the copy again and again.
        backup.step(-1)
    });
    if copied.map_err(file.failed("copy"))? == StepResult::Done {
        return target
            .close()
            .map_err(|(_, error)| file.failed("copy")(error));
    }
    let source = "the ledger stayed locked".into();
    Err(Error::Database {
        operation: "copy",
        source,
    })
}

/// Creates an empty ledger file under another name, and renames it when it is complete.
fn create(path: &Path) -> Result<(), Error> {
    let directory = directory(path);
    if !directory.is_dir() {
        return Err(Error::NoDirectory {
            path: directory.display().to_string(),
        });
    }
    let unfinished = beside(path, ".new");
    let file = LedgerFile(path);
    // Created here and not by SQLite, whose error would not have the cause.
    let made = durable::remove(&unfinished).and_then(|()| File::create_new(&unfinished));
    made.map_err(|source| file.io_failed("create", source))?;
    let mark = format!(
        "{SCHEMA} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
    );
    let connection = Connection::open(&unfinished).map_err(file.failed("create"))?;
    connection
        .execute_batch(&mark)
        .map_err(file.failed("create"))?;
    connection
        .close()
        .map_err(|(_, error)| file.failed("create")(error))?;
    let moved = File::open(&unfinished)
        .and_then(|file| file.sync_all())
        .and_then(|()| durable::rename(&unfinished, path));
    moved.map_err(|source| file.io_failed("create", source))
}

/// Opens a writing connection to a ledger of a known format.
fn connect(path: &Path) -> Result<Connection, Error> {
    let file = LedgerFile(path);
    file.check_file()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(file.failed("open"))?;
    connection.busy_timeout(BUSY).map_err(file.failed("open"))?;
    file.check_format(&connection)?;
    file.check_length(&connection)?;
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(file.failed("open"))?;
    if mode != "wal" {
        let source = format!("its journal mode is {mode}, not wal").into();
        return Err(Error::Database {
            operation: "open its file for writing",
            source,
        });
    }
    connection
        .execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0")
        .map_err(file.failed("open"))?;
    file.check_head(&connection)?;
    Ok(connection)
}

/// Splits a text at character boundaries into parts of at most [`PART_BYTES_MAX`].
fn parts(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (part, rest) = text.split_at_checked(text.floor_char_boundary(PART_BYTES_MAX))?;
        text = rest;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_engine::codec::Encoded;

    use super::{Append, Appended, Error, SqliteStore, Store, Term};

    /// Method: a pragma forbids SQLite further pages, so every write that needs one fails as on a full
    /// disk; reopening removes the limit.
    #[test]
    fn a_full_disk_refuses_each_write_whole_until_there_is_space() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(super::FILE_NAME);
        let mut store = SqliteStore::open(&path).unwrap();
        let term = store.lead().unwrap();
        assert_eq!(store.append(term, &large(0)).unwrap(), Appended::Done);
        let term = Term { head: 1, ..term };
        let long = "x".repeat(100_000);
        for write in [
            |store: &mut SqliteStore, term, _: &str| store.append(term, &large(1)).map(drop),
            |store: &mut SqliteStore, _, text: &str| store.put_checkpoint(1, text),
            |store: &mut SqliteStore, _, text: &str| store.put_anchor(1, text),
        ] {
            let connection = store.connection.as_ref().unwrap();
            let limit = "PRAGMA max_page_count = 1";
            connection
                .query_row(limit, [], |row| row.get::<_, i64>(0))
                .unwrap();
            let error = write(&mut store, term, &long).unwrap_err();
            assert!(
                matches!(&error, Error::Full { path: named } if *named == path.to_str().unwrap())
            );
            let reader = store.reader().unwrap();
            assert_eq!(reader.head().unwrap(), 1);
            assert!(reader.checkpoints().unwrap().is_empty());
            assert!(reader.anchors().unwrap().is_empty());
            assert_eq!(store.reopen().unwrap(), 1);
        }
        assert_eq!(store.append(term, &large(1)).unwrap(), Appended::Done);
        store.put_checkpoint(1, &long).unwrap();
        store.put_anchor(1, &long).unwrap();
    }

    #[test]
    fn a_file_that_sqlite_cannot_write_is_reported_as_read_only() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(&directory.path().join(super::FILE_NAME)).unwrap();
        let connection = store.connection.as_ref().unwrap();
        connection.execute_batch("PRAGMA query_only = ON").unwrap();
        assert!(matches!(store.lead().unwrap_err(), Error::ReadOnly { .. }));
    }

    #[test]
    fn commits_are_synced_and_logged_ahead() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join(super::FILE_NAME)).unwrap();
        let connection = store.connection.as_ref().unwrap();
        let pragma = |sql| {
            connection
                .query_row(sql, [], |row| row.get::<_, i64>(0))
                .unwrap()
        };
        assert_eq!(pragma("PRAGMA synchronous"), 2, "full");
        assert_eq!(
            pragma("PRAGMA wal_autocheckpoint"),
            0,
            "never inside a commit"
        );
        let mode = connection.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0));
        assert_eq!(mode.unwrap(), "wal");
        assert!(store.free_bytes().is_some_and(|free| 0 < free));
    }

    /// Method: a reader holds an old state of the file open, so the log cannot be emptied.
    #[test]
    fn reopening_fails_until_the_log_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(super::FILE_NAME);
        let mut store = SqliteStore::open(&path).unwrap();
        let term = store.lead().unwrap();
        let reader = rusqlite::Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM meta").unwrap();
        store.append(term, &large(0)).unwrap();
        assert!(matches!(
            store.reopen().unwrap_err(),
            Error::Database { .. }
        ));
        assert!(
            store.append(term, &large(1)).is_err(),
            "nothing is appended before it succeeds"
        );
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!(store.reopen().unwrap(), 1);
        let log = std::fs::metadata(directory.path().join("ledger.db-wal")).unwrap();
        assert_eq!(log.len(), 0);
    }

    fn large(seq: u64) -> Append {
        let record = Encoded {
            seq,
            bytes: vec![b'x'; 60_000],
            blobs: Vec::new(),
        };
        Append {
            records: vec![record],
            tiles: Vec::new(),
        }
    }
}
