//! What is run, kept outside the ledger under its salted hash, because it may hold secrets (L13).
//!
//! The salt makes the hash in the ledger useless to somebody who guesses at what was run. What is
//! accepted is forced to disk first, once for the same work.

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

/// The works of a ledger.
#[derive(Debug)]
pub(super) struct Works {
    directory: PathBuf,
    salt: [u8; 32],
    /// Held while something is kept or forgotten, so that nothing is forgotten that was just kept.
    turn: Mutex<()>,
}

/// How long a work stays that nobody needs: whoever has kept it may be about to say so.
const UNNEEDED_TIME_MIN: Duration = Duration::from_mins(10);

impl Works {
    pub(super) fn open(executions: &Path) -> Result<Self, Error> {
        let directory = executions.join("works");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(failed("make", &directory))?;
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
            // A name that is no hash is half of a work that was never kept.
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

/// Fields come in the order of the type and variables in the order of their names, so the same
/// work is always the same text. Strings and numbers cannot fail to be written.
fn json(work: &Work) -> Vec<u8> {
    serde_json::to_vec(work).unwrap_or_default()
}

/// Says of a work that is kept already that somebody has just asked for it.
fn renew(path: &Path) -> io::Result<()> {
    File::options()
        .append(true)
        .open(path)?
        .set_modified(SystemTime::now())
}

/// A file under its last name is whole, whatever happens.
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

/// The salt of a ledger, made once. Where it is lost the old hashes match nothing any more, which
/// only means that nothing is the same as before.
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
