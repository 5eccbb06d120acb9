//! Checks and errors of a ledger file, with its path.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, Row};

use super::{APPLICATION_ID, FORMAT};
use crate::durable;
use crate::store::Error;

/// Adds the path of the file to the chain of an error.
#[derive(Debug, thiserror::Error)]
#[error("{path}")]
struct InFile {
    path: String,
    source: rusqlite::Error,
}

#[derive(Clone, Copy)]
pub(super) struct LedgerFile<'a>(pub(super) &'a Path);

impl LedgerFile<'_> {
    pub(super) fn failed(self, operation: &'static str) -> impl Fn(rusqlite::Error) -> Error {
        let path = self.0.display().to_string();
        move |source| {
            let path = path.clone();
            match source.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => Error::Full { path },
                Some(ErrorCode::ReadOnly) => Error::ReadOnly { path },
                Some(ErrorCode::NotADatabase) => Error::NotALedger {
                    path,
                    reason: "it has no SQLite header",
                },
                Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { what: path },
                _ => Error::Database {
                    operation,
                    source: Box::new(InFile { path, source }),
                },
            }
        }
    }

    pub(super) fn io_failed(self, operation: &'static str, source: std::io::Error) -> Error {
        durable::failed(operation, self.0, source)
    }

    /// Error of a store that could not be reopened.
    pub(super) fn closed(self, operation: &'static str) -> Error {
        let source = format!("{} could not be reopened before", self.0.display()).into();
        Error::Database { operation, source }
    }

    /// Refuses files that SQLite would treat as a new database.
    pub(super) fn check_file(self) -> Result<(), Error> {
        let found = std::fs::metadata(self.0).map_err(|source| self.io_failed("open", source))?;
        let reason = match found.len() {
            _ if !found.is_file() => "it is not a file",
            0 => "it is empty",
            _ => return Ok(()),
        };
        Err(Error::NotALedger {
            path: self.0.display().to_string(),
            reason,
        })
    }

    /// Refuses databases of other programs, and of newer versions.
    pub(super) fn check_format(self, connection: &Connection) -> Result<(), Error> {
        let pragma = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let path = self.0.display().to_string();
        if pragma("PRAGMA application_id").map_err(self.failed("open"))? != APPLICATION_ID {
            let reason = "another program made it";
            return Err(Error::NotALedger { path, reason });
        }
        let found = pragma("PRAGMA user_version").map_err(self.failed("open"))?;
        if FORMAT < found {
            return Err(Error::NewerFormat {
                path,
                found,
                known: FORMAT,
            });
        }
        Ok(())
    }

    /// Refuses a file that ends before its last page, because SQLite would read the rest as zeros.
    /// With a write-ahead log, missing pages may be in the log.
    pub(super) fn check_length(self, connection: &Connection) -> Result<(), Error> {
        let log = durable::beside(self.0, "-wal");
        if std::fs::metadata(log).is_ok_and(|log| 0 < log.len()) {
            return Ok(());
        }
        let pragma = |sql| connection.query_row(sql, [], |row| count(row, 0));
        let pages = pragma("PRAGMA page_count").map_err(self.failed("open"))?;
        let page_size = pragma("PRAGMA page_size").map_err(self.failed("open"))?;
        let found = std::fs::metadata(self.0).map_err(|source| self.io_failed("open", source))?;
        if pages.saturating_mul(page_size) <= found.len() {
            return Ok(());
        }
        let what = format!(
            "{}: it was cut after {} bytes, so it",
            self.0.display(),
            found.len()
        );
        Err(Error::Damaged { what })
    }

    /// Refuses a file without the last of the records that it counts.
    pub(super) fn check_head(self, connection: &Connection) -> Result<(), Error> {
        let sql = "SELECT head = (SELECT ifnull(max(seq) + 1, 0) FROM journal) FROM meta";
        let is_whole = connection.query_row(sql, [], |row| row.get(0));
        if is_whole.map_err(self.failed("open"))? {
            return Ok(());
        }
        let what = format!("{}: its last records are missing, so it", self.0.display());
        Err(Error::Damaged { what })
    }
}

pub(crate) fn number(value: u64) -> rusqlite::Result<i64> {
    i64::try_from(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

pub(crate) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}
