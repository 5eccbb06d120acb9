//! One process per data directory: a lock that the system releases when its holder dies.
//!
//! The lock avoids needless conflicts; the safety of the ledger comes from the epoch.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use rustix::event::{Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::durable::failed;
use crate::store::Error;

/// Name of the file in a data directory.
pub const FILE_NAME: &str = "lock";

/// Maximum number of bytes read from the file: digits of a pid.
const PID_BYTES_MAX: u64 = 20;

/// Attempts to take a lock whose holder is dead, [`PAUSE`] apart: two seconds in all. If a server is
/// killed while it starts a program, its child holds the lock until it executes the program.
const ATTEMPTS_MAX: u32 = 100;
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Lock on a data directory, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    /// Closing the file releases the lock.
    _file: File,
}

impl Lock {
    /// Takes the lock of a data directory; the error names the holder.
    pub fn take(data: &Path) -> Result<Self, Error> {
        if !data.is_dir() {
            return Err(Error::NoDirectory {
                path: data.display().to_string(),
            });
        }
        let path = data.join(FILE_NAME);
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = open.map_err(|source| failed("open", &path, source))?;
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => {
                    let pid = holder(&mut file);
                    attempts_left -= 1;
                    if attempts_left == 0 || !pid.as_deref().is_some_and(is_dead) {
                        return Err(Error::InUse {
                            path: data.display().to_string(),
                            pid: pid.unwrap_or_else(|| "unknown".to_owned()),
                        });
                    }
                    pause();
                }
                Err(errno) => return Err(failed("lock", &path, errno.into())),
            }
        }
        let noted = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        noted.map_err(|source| failed("write", &path, source))?;
        Ok(Self { _file: file })
    }
}

/// Pid that the holder has written; absent just before it does.
fn holder(file: &mut File) -> Option<String> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(PID_BYTES_MAX).read_to_string(&mut text).ok()?;
    let pid = text.trim();
    let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    is_pid.then(|| pid.to_owned())
}

fn is_dead(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

fn pause() {
    // An interrupted pause is only shorter.
    let _interrupted = poll(&mut [], Some(&PAUSE));
}
