//! One group has one agent: for each group that is claimed there is a locked file, named after its
//! number, in a directory that only this user can enter.
//!
//! The cgroup's own directory would be nearer, but everybody may open it, and whoever locked it
//! could keep a limit from being managed or put back.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Where claims are, below a directory that is gone after a restart of the machine.
const DIRECTORY: &str = "bursar-market";
/// How often a claim is tried that was let go between opening and locking it.
const TRIES_MAX: u32 = 8;

/// Keeps every other agent of this user away from a group for as long as it is there.
#[derive(Debug)]
pub(super) struct Claim {
    /// `None` where there is no place for it: then nobody is kept away.
    locked: Option<(PathBuf, File)>,
}

impl Claim {
    /// Claims the group of a directory; `None` where another agent has it.
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
                // Whoever had it may have removed the file that was opened before.
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
            // While it is locked it is ours; nobody misses it.
            let _gone = fs::remove_file(path);
        }
    }
}

/// A directory of this user that does not outlive the machine's start, if there is one.
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
        // Whoever locks the group itself keeps nobody away.
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
