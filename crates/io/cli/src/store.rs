//! Opens data directories, store files and exports for reading.

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

/// First bytes of every `SQLite` file.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// A ledger opened for reading.
pub(crate) struct Opened {
    /// Its path for messages.
    pub(crate) shown: String,
    /// The data directory, if this is the store file of one.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) reader: Box<dyn Reader>,
    /// Size of the file.
    pub(crate) bytes: Option<u64>,
    /// Valid snapshots in the data directory.
    pub(crate) snapshots: Vec<Loaded>,
    /// Keys in the data directory.
    pub(crate) keys: Vec<VerifierKey>,
}

/// The data directory that `--store` names, or the default one.
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
    // Only a store file of the usual name is in a data directory with keys and snapshots.
    let is_in_data_directory = file.file_name() == Some(OsStr::new(FILE_NAME));
    let beside = file.parent().filter(|_| is_in_data_directory);
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

/// Error of a store or export that cannot be read.
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
