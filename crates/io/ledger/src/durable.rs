//! Files that are whole or absent, whenever the power fails: written beside their place, synced,
//! renamed, and the directory synced.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::store::Error;

/// Writes a file of `parts`, one after the other, with these permissions.
pub(crate) fn write(path: &Path, mode: u32, parts: &[&[u8]]) -> Result<(), Error> {
    let beside = beside(path, ".new");
    let written = remove(&beside)
        .and_then(|()| {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&beside)
        })
        .and_then(|mut file| {
            parts.iter().try_for_each(|part| file.write_all(part))?;
            file.sync_all()
        })
        .and_then(|()| rename(&beside, path));
    written.map_err(|source| failed("write", path, source))
}

/// Moves a synced file into its place, for good.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)?;
    File::open(directory(to))?.sync_all()
}

/// Removes a file; it is no error that there is none.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(source),
        _ => Ok(()),
    }
}

/// The path with something at the end of its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The directory of a file.
pub(crate) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Bytes that can still be written to the disk of a directory, where the system says.
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(directory).ok()?;
    space.f_bavail.checked_mul(space.f_frsize)
}

/// The error for what the system said of a file.
pub(crate) fn failed(operation: &'static str, path: &Path, source: io::Error) -> Error {
    let path = path.display().to_string();
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            Error::ReadOnly { path }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full { path },
        _ => Error::File {
            operation,
            path,
            source,
        },
    }
}
