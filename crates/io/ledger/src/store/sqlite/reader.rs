//! Read-only connections.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bursar_journal::hash::Hash;
use bursar_journal::tile::{TILE_WIDTH, TileId, tile_hashes};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use super::BUSY;
use super::failure::{LedgerFile, count, number};
use crate::durable::beside;
use crate::store::{Error, Kept, Reader};

/// Read access to a ledger file.
#[derive(Debug)]
pub struct SqliteReader {
    path: PathBuf,
    connection: Connection,
}

impl SqliteReader {
    /// Opens a ledger file beside a writer.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::with(path, "mode=ro")
    }

    /// Opens a ledger file without any change to it, because it may be evidence.
    ///
    /// A file without a write-ahead log is read as immutable. The index of a log is only read, or
    /// rebuilt in memory if it is missing.
    pub fn inspect(path: &Path) -> Result<Self, Error> {
        let log_size = std::fs::metadata(beside(path, "-wal")).map_or(0, |found| found.len());
        let options = match log_size {
            0 => "mode=ro&immutable=1",
            _ if beside(path, "-shm").exists() => "mode=ro&readonly_shm=1",
            _ => "mode=ro",
        };
        let reader = Self::with(path, options)?;
        LedgerFile(path).check_length(&reader.connection)?;
        Ok(reader)
    }

    fn with(path: &Path, options: &str) -> Result<Self, Error> {
        let file = LedgerFile(path);
        file.check_file()?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(address(path, options), flags)
            .map_err(file.failed("open"))?;
        connection.busy_timeout(BUSY).map_err(file.failed("open"))?;
        file.check_format(&connection)?;
        Ok(Self {
            path: path.to_owned(),
            connection,
        })
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Hashes in a row of tiles; empty if there is no row.
    fn tile_row(&self, level: u32, index: u64) -> Result<Vec<Hash>, Error> {
        let read = || {
            let sql = "SELECT bytes FROM tile WHERE level = ?1 AND idx = ?2";
            let mut select = self.connection.prepare_cached(sql)?;
            let key = params![level, number(index)?];
            select
                .query_row(key, |row| row.get::<_, Vec<u8>>(0))
                .optional()
        };
        match self.read(read)?.as_deref().map(tile_hashes) {
            None => Ok(Vec::new()),
            Some(Ok(hashes)) => Ok(hashes),
            Some(Err(_)) => {
                let what = format!("{}: tile {index} of level {level}", self.path.display());
                Err(Error::Damaged { what })
            }
        }
    }

    fn read<T>(&self, read: impl FnOnce() -> rusqlite::Result<T>) -> Result<T, Error> {
        read().map_err(LedgerFile(&self.path).failed("read"))
    }
}

impl Reader for SqliteReader {
    fn head(&self) -> Result<u64, Error> {
        self.read(|| head(&self.connection))
    }

    fn records(&self, from: u64, max: usize) -> Result<Vec<Kept>, Error> {
        let read = || {
            let sql = "SELECT seq, bytes FROM journal WHERE seq >= ?1 ORDER BY seq LIMIT ?2";
            let mut select = self.connection.prepare_cached(sql)?;
            let max = i64::try_from(max).unwrap_or(i64::MAX);
            let rows = select.query_map(params![number(from)?, max], |row| {
                Ok(Kept {
                    seq: count(row, 0)?,
                    bytes: row.get(1)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<Kept>>>()
        };
        let records = self.read(read)?;
        match records
            .iter()
            .zip(from..)
            .find(|(kept, seq)| kept.seq != *seq)
        {
            None => Ok(records),
            Some((_, seq)) => {
                let path = self.path.display();
                Err(Error::Damaged {
                    what: format!("{path}: record {seq} is missing, so it"),
                })
            }
        }
    }

    fn blob(&self, sha256: &Hash) -> Result<Option<Vec<u8>>, Error> {
        self.read(|| {
            let sql = "SELECT bytes FROM blob WHERE sha256 = ?1";
            let mut select = self.connection.prepare_cached(sql)?;
            select.query_row([sha256.0], |row| row.get(0)).optional()
        })
    }

    fn full_tile(&self, id: TileId) -> Result<Option<Vec<Hash>>, Error> {
        let hashes = self.tile_row(id.level(), id.index())?;
        Ok((hashes.len() == usize::from(TILE_WIDTH)).then_some(hashes))
    }

    fn leaves(&self, index: u64) -> Result<Vec<Hash>, Error> {
        self.tile_row(0, index)
    }

    fn checkpoint(&self, size: u64) -> Result<Option<String>, Error> {
        self.read(|| {
            let sql = "SELECT note FROM checkpoint WHERE size <= ?1 ORDER BY size DESC LIMIT 1";
            let mut select = self.connection.prepare_cached(sql)?;
            select
                .query_row([number(size)?], |row| row.get(0))
                .optional()
        })
    }

    fn checkpoints(&self) -> Result<Vec<(u64, String)>, Error> {
        self.read(|| {
            let mut select = self
                .connection
                .prepare("SELECT size, note FROM checkpoint ORDER BY size")?;
            let rows = select.query_map([], |row| Ok((count(row, 0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<_>>()
        })
    }

    fn anchors(&self) -> Result<Vec<u64>, Error> {
        self.read(|| {
            let sql = "SELECT DISTINCT head FROM anchor ORDER BY head";
            let mut select = self.connection.prepare(sql)?;
            let rows = select.query_map([], |row| count(row, 0))?;
            rows.collect::<rusqlite::Result<_>>()
        })
    }

    fn anchor(&self, head: u64) -> Result<Option<(u64, String)>, Error> {
        self.read(|| {
            let newest = "SELECT max(head) FROM anchor WHERE head <= ?1";
            let newest: Option<i64> =
                self.connection
                    .query_row(newest, [number(head)?], |row| row.get(0))?;
            let Some(newest) = newest else {
                return Ok(None);
            };
            let sql = "SELECT lines, head FROM anchor WHERE head = ?1 ORDER BY part";
            let mut select = self.connection.prepare(sql)?;
            let mut rows = select.query([newest])?;
            let (mut lines, mut head) = (String::new(), 0);
            while let Some(row) = rows.next()? {
                lines.push_str(row.get_ref(0)?.as_str()?);
                head = count(row, 1)?;
            }
            Ok(Some((head, lines)))
        })
    }

    fn exported(&self) -> Result<u64, Error> {
        let sql = "SELECT exported FROM meta";
        self.read(|| self.connection.query_row(sql, [], |row| count(row, 0)))
    }
}

pub(super) fn head(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("SELECT head FROM meta", [], |row| count(row, 0))
}

/// SQLite URI of a file with options: `file:/a%20b?mode=ro`.
fn address(path: &Path, options: &str) -> String {
    let mut address = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                address.push(char::from(*byte));
            }
            // Writing to a `String` cannot fail.
            _ => drop(write!(address, "%{byte:02X}")),
        }
    }
    address.push('?');
    address.push_str(options);
    address
}
