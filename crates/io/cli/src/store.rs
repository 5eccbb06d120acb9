//! Stores and exports as files: whatever a path names, opened for reading.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bursar_journal::checkpoint::VerifierKey;
use bursar_ledger::key::{self, Signer};
use bursar_ledger::maintain::Export;
use bursar_ledger::snapshots::{Loaded, Snapshots};
use bursar_ledger::store::Reader;
use bursar_ledger::store::sqlite::{FILE_NAME, SqliteReader};
use bursar_units::causes::chain;

use crate::failure::{Failure, Stop, exit};
use crate::session::Session;

/// How every `SQLite` file begins.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// A ledger that can be read.
pub(crate) struct Opened {
    /// As people call it.
    pub(crate) shown: String,
    /// The data directory, where the whole of it is meant.
    pub(crate) directory: Option<PathBuf>,
    /// The records.
    pub(crate) reader: Box<dyn Reader>,
    /// Bytes it takes.
    pub(crate) bytes: Option<u64>,
    /// Snapshots beside it.
    pub(crate) snapshots: Vec<Loaded>,
    /// The keys beside it.
    pub(crate) keys: Vec<VerifierKey>,
}

/// The data directory that is meant: the one named, or the default one.
pub(crate) fn data_directory(session: &Session, store: Option<&Path>) -> Result<PathBuf, Stop> {
    match store {
        Some(store) => Ok(session.path(store)),
        None => session.environment.data_home.clone().ok_or_else(|| {
            Failure::usage("there is no default data directory: name one with `--store DIR`").into()
        }),
    }
}

/// Opens a data directory, a store file or an export.
pub(crate) fn open(session: &Session, path: &Path) -> Result<Opened, Stop> {
    let found = session.path(path);
    let file = if found.is_dir() {
        found.join(FILE_NAME)
    } else {
        found.clone()
    };
    let shown = if found.is_dir() {
        session.environment.shown(&file)
    } else {
        path.display().to_string()
    };
    let bytes = std::fs::metadata(&file).map_err(|error| {
        Failure::file("read", &shown, &error)
            .hint("`--store` names a data directory, a store file or an export")
    })?;
    if !is_sqlite(&file).map_err(|error| Failure::file("read", &shown, &error))? {
        let export = Export::open(&file).map_err(|error| unreadable(&shown, &error))?;
        let Some(export) = export else {
            let message = format!("{shown} is neither a ledger nor an export");
            return Err(Failure::new(exit::UNVERIFIED, message)
                .hint("`bursar ledger restore BACKUP` starts from a good copy")
                .into());
        };
        return Ok(Opened {
            shown,
            directory: None,
            reader: Box::new(export),
            bytes: Some(bytes.len()),
            snapshots: Vec::new(),
            keys: Vec::new(),
        });
    }
    let reader = SqliteReader::open(&file).map_err(|error| unreadable(&shown, &error))?;
    // A store under its own name has its key and its newest checkpoint beside it; a copy has not.
    let is_in_place = file.file_name() == Some(OsStr::new(FILE_NAME));
    let beside = file.parent().filter(|_| is_in_place);
    let snapshots = beside
        .and_then(|data| Snapshots::of(data).load_all(&reader).ok())
        .map(|(good, _)| good);
    let signer = beside.and_then(|data| Signer::load(&data.join(key::FILE_NAME)).ok().flatten());
    Ok(Opened {
        shown,
        directory: beside.map(Path::to_owned),
        reader: Box::new(reader),
        bytes: Some(bytes.len()),
        snapshots: snapshots.unwrap_or_default(),
        keys: signer.map(|signer| signer.verifiers()).unwrap_or_default(),
    })
}

/// A file that a store or an export should be and is not.
pub(crate) fn unreadable(shown: &str, error: &dyn std::error::Error) -> Stop {
    let message = format!("{shown} cannot be read: {}", chain(error));
    Failure::new(exit::UNVERIFIED, message)
        .hint("`bursar ledger restore BACKUP` starts from a good copy")
        .into()
}

fn is_sqlite(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    std::fs::File::open(path)?
        .take(16)
        .read_to_end(&mut start)?;
    Ok(start == SQLITE_MAGIC)
}
