//! The directory of one execution: state that outlives both the server and the shim.
//!
//! | entry | meaning |
//! |---|---|
//! | a lock (`flock`) on the directory | a shim is alive, or somebody ends what a dead one left |
//! | `spawned` | the marker: the program was or is about to be started, and never will be again; holds its cgroups, and the note that a restored ledger needs to adopt it (X5) |
//! | `grant` | the fence of the grant that the directory belongs to; another grant of the same id starts over |
//! | `stop` | the program must end by this time since boot, or never begin |
//! | `status.json` | the exit status; no process is left |
//! | `stdout`, `stderr` | the output, if any |
//!
//! `spawned` is written before the program starts, padded, and becomes `status.json` in place, so a
//! disk that fills up meanwhile does not lose the result. A stop request writes `stop` before it
//! looks for `spawned`; the shim writes `spawned` before it looks for `stop`: one of the two sees the
//! other. Cleaning leaves `status.json`, so that a late shim finds it. Nothing is synced to disk,
//! which would add 6 to 8 ms to every start: after a power failure no process is alive, and an
//! unreadable status means lost. If neither the marker nor the record of the start reached the disk,
//! the program may be started again.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bursar_units::BookingId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::shim::{Spawned, Status};

/// Minimum size of `spawned`, so that every status fits into it.
const MARKER_SIZE_MIN: usize = 1024;
/// Precedes an id, so that no id is a special name: `..`, or a file of the kernel.
const PREFIX: &str = "e-";

#[derive(Clone, Debug)]
pub(crate) struct ExecutionDirectory {
    path: PathBuf,
}

/// The exclusive right to conclude an execution, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "it is held, not used")] File);

/// The content of `spawned`.
#[derive(Clone, Debug)]
pub(crate) enum Marker {
    Spawned(Spawned),
    /// The processes are gone, but the file is not renamed yet.
    Ended(Status),
    Unreadable,
}

pub(crate) fn name(id: &BookingId) -> String {
    format!("{PREFIX}{id}")
}

/// The id of a name; `None` if it names no execution.
pub(crate) fn id(name: &str) -> Option<BookingId> {
    BookingId::new(name.strip_prefix(PREFIX)?).ok()
}

impl ExecutionDirectory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn make(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    }

    /// The fence of the grant that the directory belongs to; earlier versions wrote none.
    pub(crate) fn grant(&self) -> io::Result<Option<u64>> {
        let text = read(&self.file(GRANT))?;
        Ok(text.and_then(|text| String::from_utf8(text).ok()?.parse().ok()))
    }

    pub(crate) fn set_grant(&self, fence: u64) -> io::Result<()> {
        self.replace(GRANT, GRANT_NEW, fence.to_string().as_bytes())
    }

    /// Takes the lock; `None` if it is held, an error if the directory is gone.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        let directory = File::open(&self.path)?;
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
            // The last holder may have removed the directory before it released the lock.
            Ok(()) if is_removed(&directory)? => Err(ErrorKind::NotFound.into()),
            Ok(()) => Ok(Some(Lock(directory))),
        }
    }

    pub(crate) fn status(&self) -> io::Result<Option<Status>> {
        let json = read(&self.file(STATUS))?;
        // A power failure leaves an unreadable file of this name.
        Ok(json.map(|json| serde_json::from_slice(&json).unwrap_or(LOST)))
    }

    pub(crate) fn marker(&self) -> io::Result<Option<Marker>> {
        let json = read(&self.file(SPAWNED))?;
        Ok(json.map(|json| match serde_json::from_slice(&json) {
            Ok(spawned) => Marker::Spawned(spawned),
            Err(_) => serde_json::from_slice(&json).map_or(Marker::Unreadable, Marker::Ended),
        }))
    }

    pub(crate) fn is_spawned(&self) -> bool {
        self.file(SPAWNED).exists()
    }

    /// Whether there is output. Without a marker it is of an execution that was cleaned.
    pub(crate) fn has_output(&self) -> bool {
        self.file(STDOUT).exists() || self.file(STDERR).exists()
    }

    /// Creates the marker before the program is started; an error if there is one already.
    pub(crate) fn mark(&self, spawned: &Spawned) -> io::Result<File> {
        let mut json = serde_json::to_vec(spawned)?;
        json.resize(json.len().max(MARKER_SIZE_MIN), b' ');
        let mut file = File::create_new(self.file(SPAWNED))?;
        let written = file.write_all(&json);
        if written.is_err() {
            // Nothing was started, so no marker may stay.
            let _ = self.unmark();
        }
        written.map(|()| file)
    }

    /// Removes the marker of a program that was not started.
    pub(crate) fn unmark(&self) -> io::Result<()> {
        fs::remove_file(self.file(SPAWNED))
    }

    /// Turns the marker into the status.
    pub(crate) fn finish(&self, marker: &File, status: &Status) -> io::Result<()> {
        let mut json = serde_json::to_vec(status)?;
        let size = usize::try_from(marker.metadata()?.len()).unwrap_or(usize::MAX);
        if json.len() < size {
            json.resize(size, b' ');
        }
        marker.write_all_at(&json, 0)?;
        fs::rename(self.file(SPAWNED), self.file(STATUS))
    }

    /// Writes the status of a program that was not started or whose shim is gone.
    pub(crate) fn conclude(&self, status: &Status) -> io::Result<()> {
        self.replace(STATUS, STATUS_NEW, &serde_json::to_vec(status)?)
    }

    fn replace(&self, name: &str, new: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.file(new);
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, self.file(name)));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Requests that the program ends within `grace`, or never begins. A repeated request never
    /// extends the time.
    pub(crate) fn request_stop(&self, grace: Duration) -> io::Result<()> {
        // Two requests at once must not write the same temporary file.
        let _turn = STOP_REQUEST.lock().unwrap_or_else(PoisonError::into_inner);
        match self.stop() {
            Some(left) if left <= grace => Ok(()),
            _ => {
                let end = uptime()?.saturating_add(grace);
                self.replace(STOP, STOP_NEW, end.as_millis().to_string().as_bytes())
            }
        }
    }

    /// The time left until the program must end, if a stop was requested.
    pub(crate) fn stop(&self) -> Option<Duration> {
        let text = fs::read_to_string(self.file(STOP)).ok()?;
        let end = Duration::from_millis(text.parse().unwrap_or(0));
        Some(end.saturating_sub(uptime().unwrap_or(end)))
    }

    /// Removes everything but output and status. The caller holds the lock.
    pub(crate) fn clean(&self) -> io::Result<()> {
        if !self.file(STATUS).exists() {
            // A marker without a status reads, under this name, as lost.
            match fs::rename(self.file(SPAWNED), self.file(STATUS)) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.conclude(&LOST)?,
                result => result?,
            }
        }
        for name in [STATUS_NEW, STOP_NEW, STOP, SPAWNED, GRANT_NEW] {
            ignore_absence(fs::remove_file(self.file(name)))?;
        }
        Ok(())
    }

    /// Removes everything. The caller holds the lock.
    pub(crate) fn remove(&self) -> io::Result<()> {
        ignore_absence(fs::remove_dir_all(&self.path))
    }
}

pub(crate) const STDOUT: &str = "stdout";
pub(crate) const STDERR: &str = "stderr";
const SPAWNED: &str = "spawned";
const GRANT: &str = "grant";
const GRANT_NEW: &str = "grant.new";
const STOP: &str = "stop";
const STOP_NEW: &str = "stop.new";
const STATUS: &str = "status.json";
const STATUS_NEW: &str = "status.new";

/// Held while a stop request is written.
static STOP_REQUEST: Mutex<()> = Mutex::new(());

const LOST: Status = Status {
    exit: crate::shim::Ending::Lost,
    seen: None,
};

/// Whether an open directory was removed. Until then it has two links, or one on file systems
/// that do not count them.
fn is_removed(directory: &File) -> io::Result<bool> {
    Ok(directory.metadata()?.nlink() == 0)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Time since boot: the same for all processes, and independent of the wall clock.
fn uptime() -> io::Result<Duration> {
    let text = fs::read_to_string("/proc/uptime")?;
    let hundredths = text
        .split_whitespace()
        .next()
        .map(|word| word.replace('.', ""));
    let hundredths = hundredths.and_then(|digits| digits.parse::<u64>().ok());
    let hundredths = hundredths.ok_or_else(|| io::Error::other("no time in /proc/uptime"))?;
    Ok(Duration::from_millis(hundredths.saturating_mul(10)))
}

fn ignore_absence(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn an_open_directory_knows_that_it_was_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = ExecutionDirectory::new(scratch.path().join("a"));
        for _ in 0..2 {
            directory.make().unwrap();
            let opened = File::open(directory.path()).unwrap();
            assert!(!is_removed(&opened).unwrap());
            directory.remove().unwrap();
            assert!(is_removed(&opened).unwrap());
        }
        assert_eq!(directory.lock().unwrap_err().kind(), ErrorKind::NotFound);
    }

    /// Method: one thread reads the request all the time while another writes and removes it. Half a
    /// number would be a time in the past.
    #[test]
    fn a_reader_of_a_new_stop_request_sees_the_whole_grace_or_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let directory = ExecutionDirectory::new(directory.path().to_owned());
        std::thread::scope(|scope| {
            let shim = scope.spawn(|| {
                while !directory.file("over").exists() {
                    let left = directory.stop();
                    let is_whole = left.is_none_or(|left| left > Duration::from_mins(50));
                    assert!(is_whole, "{left:?}");
                }
            });
            for _ in 0..2_000 {
                directory.request_stop(Duration::from_hours(1)).unwrap();
                fs::remove_file(directory.file(STOP)).unwrap();
            }
            fs::write(directory.file("over"), "").unwrap();
            shim.join().unwrap();
        });
    }

    #[test]
    fn a_repeated_stop_request_never_extends_the_time() {
        let directory = tempfile::tempdir().unwrap();
        let directory = ExecutionDirectory::new(directory.path().to_owned());
        let requested = |grace| {
            directory.request_stop(grace).unwrap();
            fs::read_to_string(directory.file(STOP)).unwrap()
        };
        let first = requested(Duration::from_hours(1));
        assert_eq!(requested(Duration::from_hours(2)), first);
        assert!(directory.stop().unwrap() <= Duration::from_hours(1));
        assert_ne!(requested(Duration::ZERO), first);
        assert_eq!(directory.stop(), Some(Duration::ZERO));
    }
}
