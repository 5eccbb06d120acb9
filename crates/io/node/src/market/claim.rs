//! Ensures that a group has one agent: each claim is a locked file, named after the device and inode
//! of the group, in a directory that only this user can enter.
//!
//! A lock on the cgroup's own directory would not do: every user can open it, and so could keep a
//! limit from being managed or restored.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// The directory of claims, in one that is empty after a reboot.
const DIRECTORY: &str = "bursar-market";
/// Attempts to lock a claim that is released between opening and locking.
const TRIES_MAX: u32 = 8;

/// Excludes other agents of this user from a group until it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    /// `None` if there is no directory for claims: then nobody is excluded.
    locked: Option<(PathBuf, File)>,
}

impl Claim {
    /// Claims a group; `None` if another agent has it.
    pub(super) fn of(group: &Path) -> io::Result<Option<Self>> {
        let group = fs::metadata(group)?;
        let Some(directory) = directory() else {
            return Ok(Some(Self { locked: None }));
        };
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = directory.join(format!("{}-{}", group.dev(), group.ino()));
        for _ in 0..TRIES_MAX {
            let mut options = OpenOptions::new();
            let options = options.create(true).truncate(false).write(true).mode(0o600);
            let file = options.open(&path)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
                // The last holder may have removed the opened file.
                Ok(()) if file.metadata()?.nlink() == 0 => {}
                Ok(()) => {
                    let locked = Some((path, file));
                    return Ok(Some(Self { locked }));
                }
            }
        }
        Ok(None)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.locked {
            // Safe, because the file is still locked.
            let _gone = fs::remove_file(path);
        }
    }
}

/// A directory of this user that a reboot empties, if there is one.
fn directory() -> Option<PathBuf> {
    let user = geteuid();
    let above = if user.is_root() {
        PathBuf::from("/run")
    } else {
        PathBuf::from(format!("/run/user/{}", user.as_raw()))
    };
    above.is_dir().then(|| above.join(DIRECTORY))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::Claim;

    #[test]
    fn a_group_has_one_claim_at_a_time_and_leaves_no_file() {
        let group = tempfile::tempdir().unwrap();
        let first = Claim::of(group.path()).unwrap().unwrap();
        let (path, _) = first.locked.as_ref().unwrap();
        let path = path.clone();
        assert!(Claim::of(group.path()).unwrap().is_none());
        // A lock on the group itself excludes nobody.
        let directory = std::fs::File::open(group.path()).unwrap();
        directory.try_lock().unwrap();
        drop(first);
        assert!(!path.exists());
        let again = Claim::of(group.path()).unwrap();
        assert!(again.is_some());
        let other = tempfile::tempdir().unwrap();
        assert!(Claim::of(other.path()).unwrap().is_some());
    }
}
