//! Stops an execution: SIGTERM first, SIGKILL after the grace period.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use bursar_units::BookingId;
use bursar_units::causes::chain;
use rustix::event::{Timespec, poll};
use rustix::process::Signal;
use tokio::time::Instant;

use super::look::{State, alive};
use super::{KILL_TIME, SHORT_PAUSE, Shared, failed};
use crate::executor::Error;
use crate::log;
use crate::place::Lock;
use crate::shim::{Ending, STOPPED};

impl Shared {
    /// Cancelling this leaves the stop request, but nobody sends SIGKILL after the grace period.
    pub(super) async fn end(&self, id: &BookingId, grace: Duration) -> Result<(), Error> {
        let directory = self.directory(id);
        // Written before the inspection: a shim that starts later finds it and starts nothing.
        let requested = directory
            .make()
            .and_then(|()| directory.request_stop(grace));
        // The grace period begins with the first request.
        let left = requested.as_ref().ok().and_then(|()| directory.stop());
        let grace = left.unwrap_or(grace).min(grace);
        let kill_at = Instant::now() + grace;
        let mut is_warned = false;
        let mut terminated = BTreeSet::new();
        loop {
            let marker = match self.inspect(id)? {
                State::Ended(_) => return Ok(()),
                State::Orphaned(remains) => {
                    return self.settle(id, &remains, Ending::Lost).await;
                }
                State::Fresh(remains) | State::Absent(remains) => {
                    // Without a request on disk a late shim could still start the program.
                    requested.map_err(failed("write to", directory.path()))?;
                    let ending = if self.is_populated(id, &remains)? {
                        Ending::Lost
                    } else {
                        Ending::NotStarted(STOPPED.to_owned())
                    };
                    return self.settle(id, &remains, ending).await;
                }
                State::Alive(marker) => marker,
            };
            let group = self.group(id, marker.as_ref());
            let fail = |source| failed("end the cgroup of", directory.path())(source);
            let now = Instant::now();
            if now < kill_at {
                // Each process gets one SIGTERM: some programs abort at the second.
                match group.signal(Signal::TERM, |pid| terminated.contains(&pid)) {
                    Ok(new) => terminated.extend(new),
                    // A process that gets no SIGTERM is still killed later.
                    Err(error) if !is_warned => {
                        tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_ASKED);
                        is_warned = true;
                    }
                    Err(_) => {}
                }
            } else if now < kill_at + KILL_TIME {
                group.kill().map_err(fail)?;
            } else {
                return Err(alive(id, &group));
            }
            self.shims.pause(id, SHORT_PAUSE).await;
        }
    }

    /// Kills the remaining processes within [`KILL_TIME`]; returns the lock, or `None` without a
    /// directory.
    pub(super) fn end_now(&self, id: &BookingId) -> Result<Option<Lock>, Error> {
        let directory = self.directory(id);
        let fail = |source| failed("end the cgroup of", directory.path())(source);
        for _ in 0..KILL_TIME.as_millis() / SHORT_PAUSE.as_millis() {
            match self.inspect(id)? {
                // Its shim may still hold the lock for a moment.
                State::Ended(_) => match directory.lock() {
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                    Err(error) => return Err(failed("lock", directory.path())(error)),
                    Ok(None) => {}
                    Ok(lock) => return Ok(lock),
                },
                State::Orphaned(remains) | State::Fresh(remains) | State::Absent(remains) => {
                    if remains.group.end().map_err(fail)? {
                        return Ok(remains.lock);
                    }
                }
                State::Alive(marker) => {
                    directory
                        .request_stop(Duration::ZERO)
                        .map_err(failed("write to", directory.path()))?;
                    self.group(id, marker.as_ref()).kill().map_err(fail)?;
                }
            }
            pause();
        }
        Err(alive(id, &self.group(id, None)))
    }
}

/// Blocks this thread for a moment, until a killed process is dead.
fn pause() {
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(SHORT_PAUSE.subsec_nanos()),
    };
    let _ = poll(&mut [], Some(&pause));
}
