//! Files that are complete or absent after a power failure: written to a temporary name, synced,
//! renamed, and the directory synced.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::store::Error;

/// Writes `parts`, one after the other, to a file with the permissions `mode`.
pub(crate) fn write(path: &Path, mode: u32, parts: &[&[u8]]) -> Result<(), Error> {
    let unfinished = beside(path, ".new");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let written = remove(&unfinished)
        .and_then(|()| options.open(&unfinished))
        .and_then(|mut file| {
            parts.iter().try_for_each(|part| file.write_all(part))?;
            file.sync_all()
        })
        .and_then(|()| rename(&unfinished, path));
    written.map_err(|source| failed("write", path, source))
}

/// Renames a synced file durably.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)?;
    File::open(directory(to))?.sync_all()
}

/// Removes a file if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(source),
        _ => Ok(()),
    }
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(crate) fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    parent.unwrap_or(Path::new("."))
}

/// Free bytes on the disk of a directory, if they are known.
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(directory).ok()?;
    space.f_bavail.checked_mul(space.f_frsize)
}

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
