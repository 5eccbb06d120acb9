//! Stores works outside the ledger under their salted hash, because they may hold secrets (L13).
//!
//! Because of the salt nobody can test a guess at a work against the hash in the ledger. A new work
//! is synced to disk before it is accepted; the same work is stored once.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bursar_journal::hash::{Hash, sha256};

use super::failed;
use crate::executor::{Error, Work};

#[derive(Debug)]
pub(super) struct Works {
    directory: PathBuf,
    salt: [u8; 32],
    /// Held by `keep` and `forget`, so that a work that was just kept is not forgotten.
    turn: Mutex<()>,
}

/// Minimum age of an unneeded work at its removal: the command that needs it may be in flight.
const UNNEEDED_TIME_MIN: Duration = Duration::from_mins(10);

impl Works {
    pub(super) fn open(executions: &Path) -> Result<Self, Error> {
        let directory = executions.join("works");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(failed("create", &directory))?;
        let file = executions.join("salt");
        let salt = salt(&file).map_err(failed("read", &file))?;
        Ok(Self {
            directory,
            salt,
            turn: Mutex::default(),
        })
    }

    pub(super) fn path(&self, digest: &Hash) -> PathBuf {
        self.directory.join(digest.to_string())
    }

    pub(super) fn digest(&self, work: &Work) -> Hash {
        let salted = [&self.salt[..], &json(work)].concat();
        sha256(&salted)
    }

    pub(super) fn keep(&self, work: &Work) -> Result<Hash, Error> {
        let digest = self.digest(work);
        let path = self.path(&digest);
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match renew(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                write(&path, &json(work)).map_err(failed("write", &path))?;
            }
            result => result.map_err(failed("write", &path))?,
        }
        Ok(digest)
    }

    pub(super) fn forget(&self, needed: &BTreeSet<Hash>) -> Result<(), Error> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let fail = |source| failed("list", &self.directory)(source);
        let now = SystemTime::now();
        for entry in fs::read_dir(&self.directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let kept = entry.metadata().and_then(|data| data.modified());
            let age = now.duration_since(kept.map_err(fail)?).unwrap_or_default();
            // A name that is not a hash is a temporary file of an interrupted write.
            let name = entry.file_name();
            let digest = name.to_string_lossy().parse();
            let is_needed = digest.is_ok_and(|digest| needed.contains(&digest));
            if UNNEEDED_TIME_MIN <= age && !is_needed {
                let path = entry.path();
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// Deterministic: fields in the order of the type, variables sorted by name. Strings and numbers
/// always serialize.
fn json(work: &Work) -> Vec<u8> {
    serde_json::to_vec(work).unwrap_or_default()
}

/// Updates the modification time of a stored work, from which `forget` computes its age.
fn renew(path: &Path) -> io::Result<()> {
    File::options()
        .append(true)
        .open(path)?
        .set_modified(SystemTime::now())
}

/// Writes a temporary file and renames it, so that a file under its final name is complete.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let written = create(&new)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_data()))
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// The salt of a ledger, generated once. After its loss old hashes match no work, so every work
/// counts as new.
fn salt(file: &Path) -> io::Result<[u8; 32]> {
    let known = fs::read(file).ok().and_then(|salt| salt.try_into().ok());
    if let Some(salt) = known {
        return Ok(salt);
    }
    let mut salt = [0; 32];
    getrandom::fill(&mut salt).map_err(io::Error::other)?;
    write(file, &salt)?;
    Ok(salt)
}
