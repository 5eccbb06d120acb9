//! The directory of one execution: the memory that outlives both the server and the shim.
//!
//! | what | means |
//! |---|---|
//! | a lock (`flock`) on the directory | a shim lives, or somebody settles what a dead one left |
//! | `spawned` | the program was or is about to be started, and never will be again; where its processes are, and what the ledger must know of it should a restore make it forget it (X5) |
//! | `grant` | the fence of the grant that all of this is about; another grant of the same id begins anew |
//! | `stop` | it shall end by a time since the machine began, or never begin |
//! | `status.json` | how it came out; nothing of it is left |
//! | `stdout`, `stderr` | what it wrote, if anything |
//!
//! `spawned` is written before the program starts, with room to spare, and becomes `status.json`
//! in place: a disk that fills up meanwhile does not take the result with it. Whoever wants the
//! program to end writes `stop` before looking for `spawned`, the shim writes `spawned` before
//! looking for `stop`: one of the two sees the other. Whoever cleans up leaves `status.json`, so
//! that a shim that comes late finds it. Nothing is forced to disk, which would take 6 to 8 ms of
//! every start: after a power failure no process is alive, and what is unreadable is lost; but
//! where the marker itself did not reach the disk, and the ledger has not heard of the start
//! either, the program may be started again.

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

/// So long is `spawned` at least, so that every status fits in its place.
const MARKER_SIZE_MIN: usize = 1024;
/// Before an id, so that no id is a name with a meaning: `..`, or a file of the kernel's.
const PREFIX: &str = "e-";

/// The directory of an execution.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    path: PathBuf,
}

/// The right to settle what became of an execution; whoever drops it gives it back.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "it is held, not used")] File);

/// What `spawned` says.
#[derive(Clone, Debug)]
pub(crate) enum Marker {
    /// Where the processes are.
    Spawned(Spawned),
    /// That they are gone, but the file has not got its last name yet.
    Ended(Status),
    /// Nothing any more.
    Unreadable,
}

/// The name of an execution in file systems.
pub(crate) fn name(id: &BookingId) -> String {
    format!("{PREFIX}{id}")
}

/// The id of a name; `None` for what is no execution.
pub(crate) fn id(name: &str) -> Option<BookingId> {
    BookingId::new(name.strip_prefix(PREFIX)?).ok()
}

impl Place {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the directory, if it is not there.
    pub(crate) fn make(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    }

    /// The fence of the grant that the directory is about; none in those of earlier versions.
    pub(crate) fn grant(&self) -> io::Result<Option<u64>> {
        let text = read(&self.file(GRANT))?;
        Ok(text.and_then(|text| String::from_utf8(text).ok()?.parse().ok()))
    }

    /// Says which grant the directory is about.
    pub(crate) fn set_grant(&self, fence: u64) -> io::Result<()> {
        self.replace(GRANT, GRANT_NEW, fence.to_string().as_bytes())
    }

    /// The lock, unless somebody has it; an error where there is no directory any more.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        let directory = File::open(&self.path)?;
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
            // Whoever had it may have removed the directory before giving it back.
            Ok(()) if is_removed(&directory)? => Err(ErrorKind::NotFound.into()),
            Ok(()) => Ok(Some(Lock(directory))),
        }
    }

    pub(crate) fn status(&self) -> io::Result<Option<Status>> {
        let json = read(&self.file(STATUS))?;
        // A file with this name that says nothing is what a power failure leaves.
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

    /// Whether there is output: of an execution that was started, and cleaned up after.
    pub(crate) fn has_output(&self) -> bool {
        self.file(STDOUT).exists() || self.file(STDERR).exists()
    }

    /// Says that the program is about to be started; an error if anybody ever said so.
    pub(crate) fn mark(&self, spawned: &Spawned) -> io::Result<File> {
        let mut json = serde_json::to_vec(spawned)?;
        json.resize(json.len().max(MARKER_SIZE_MIN), b' ');
        let mut file = File::create_new(self.file(SPAWNED))?;
        let written = file.write_all(&json);
        if written.is_err() {
            // Nothing was started, so nothing may say so.
            let _ = self.unmark();
        }
        written.map(|()| file)
    }

    /// Takes back that the program was about to be started.
    pub(crate) fn unmark(&self) -> io::Result<()> {
        fs::remove_file(self.file(SPAWNED))
    }

    /// Says how it came out, in the place of the marker.
    pub(crate) fn finish(&self, marker: &File, status: &Status) -> io::Result<()> {
        let mut json = serde_json::to_vec(status)?;
        let size = usize::try_from(marker.metadata()?.len()).unwrap_or(usize::MAX);
        if json.len() < size {
            json.resize(size, b' ');
        }
        marker.write_all_at(&json, 0)?;
        fs::rename(self.file(SPAWNED), self.file(STATUS))
    }

    /// Says how it came out where no program was started or its shim is gone.
    pub(crate) fn conclude(&self, status: &Status) -> io::Result<()> {
        self.replace(STATUS, STATUS_NEW, &serde_json::to_vec(status)?)
    }

    /// Writes a file that whoever looks sees whole or not at all.
    fn replace(&self, name: &str, new: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.file(new);
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, self.file(name)));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Asks the program to end within a time, or never to begin. Whoever asks again does not
    /// give it more time than it had.
    pub(crate) fn ask_to_stop(&self, grace: Duration) -> io::Result<()> {
        // Two who ask at once must not write the same new file.
        let _turn = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
        match self.stop() {
            Some(left) if left <= grace => Ok(()),
            _ => {
                let end = uptime()?.saturating_add(grace);
                self.replace(STOP, STOP_NEW, end.as_millis().to_string().as_bytes())
            }
        }
    }

    /// The time that is left for the program to end, if it shall.
    pub(crate) fn stop(&self) -> Option<Duration> {
        let text = fs::read_to_string(self.file(STOP)).ok()?;
        let end = Duration::from_millis(text.parse().unwrap_or(0));
        Some(end.saturating_sub(uptime().unwrap_or(end)))
    }

    /// Removes everything but output and how it came out. Whoever calls this holds the lock.
    pub(crate) fn clean(&self) -> io::Result<()> {
        if !self.file(STATUS).exists() {
            // A marker that does not say how it came out says, under this name, that it is lost.
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

    /// Removes everything. Whoever calls this holds the lock.
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

/// Held while somebody asks a program to end.
static ASKING: Mutex<()> = Mutex::new(());

/// The status of which nothing is known.
const LOST: Status = Status {
    exit: crate::shim::Ending::Lost,
    seen: None,
};

/// Whether a directory that is open has no name any more. It has two links until then, or one
/// where its file system does not count them.
fn is_removed(directory: &File) -> io::Result<bool> {
    Ok(directory.metadata()?.nlink() == 0)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// How long this machine has been up. Whoever sets its clock changes nothing about it, and every
/// process reads the same.
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
    fn a_directory_that_is_removed_while_it_is_open_is_known_to_be() {
        let scratch = tempfile::tempdir().unwrap();
        let place = Place::new(scratch.path().join("a"));
        for _ in 0..2 {
            place.make().unwrap();
            let directory = File::open(place.path()).unwrap();
            assert!(!is_removed(&directory).unwrap());
            place.remove().unwrap();
            assert!(is_removed(&directory).unwrap());
        }
        assert_eq!(place.lock().unwrap_err().kind(), ErrorKind::NotFound);
    }

    /// Method: a shim that looks all the time while it is asked again and again, for the first time
    /// each. Half a number would be a time that is over.
    #[test]
    fn whoever_looks_while_a_stop_is_asked_for_sees_the_whole_grace_or_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(directory.path().to_owned());
        std::thread::scope(|scope| {
            let shim = scope.spawn(|| {
                while !place.file("over").exists() {
                    let left = place.stop();
                    let is_whole = left.is_none_or(|left| left > Duration::from_mins(50));
                    assert!(is_whole, "{left:?}");
                }
            });
            for _ in 0..2_000 {
                place.ask_to_stop(Duration::from_hours(1)).unwrap();
                fs::remove_file(place.file(STOP)).unwrap();
            }
            fs::write(place.file("over"), "").unwrap();
            shim.join().unwrap();
        });
    }

    #[test]
    fn asking_again_never_gives_more_time() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(directory.path().to_owned());
        let asked = |grace| {
            place.ask_to_stop(grace).unwrap();
            fs::read_to_string(place.file(STOP)).unwrap()
        };
        let first = asked(Duration::from_hours(1));
        assert_eq!(asked(Duration::from_hours(2)), first);
        assert!(place.stop().unwrap() <= Duration::from_hours(1));
        assert_ne!(asked(Duration::ZERO), first);
        assert_eq!(place.stop(), Some(Duration::ZERO));
    }
}
