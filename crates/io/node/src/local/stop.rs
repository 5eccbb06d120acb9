//! How an execution is ended: asked first, then made to.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use bursar_units::BookingId;
use bursar_units::causes::chain;
use rustix::event::{Timespec, poll};
use rustix::process::Signal;
use tokio::time::Instant;

use super::look::{Look, alive};
use super::{KILL_TIME, SHORT_PAUSE, Shared, failed};
use crate::executor::Error;
use crate::log;
use crate::place::Lock;
use crate::shim::Ending;

impl Shared {
    /// Cancelling this leaves the execution asked to end, but nobody to make it.
    pub(super) async fn end(&self, id: &BookingId, grace: Duration) -> Result<(), Error> {
        let place = self.place(id);
        // Written before anybody looks: a shim that comes later finds it and starts nothing.
        let asked = place.make().and_then(|()| place.ask_to_stop(grace));
        // Somebody may have asked before, and then the grace began there.
        let left = asked.as_ref().ok().and_then(|()| place.stop());
        let grace = left.unwrap_or(grace).min(grace);
        let kill_at = Instant::now() + grace;
        let mut is_told = false;
        let mut asked_already = BTreeSet::new();
        loop {
            let marker = match self.look(id)? {
                Look::Ended(_) => return Ok(()),
                Look::Orphaned(remains) => return self.settle(id, &remains, Ending::Lost).await,
                Look::Fresh(remains) | Look::Absent(remains) => {
                    // Only now does it matter that this could not be written.
                    asked.map_err(failed("write to", place.path()))?;
                    let ending = if self.is_populated(id, &remains)? {
                        Ending::Lost
                    } else {
                        never_started()
                    };
                    return self.settle(id, &remains, ending).await;
                }
                Look::Alive(marker) => marker,
            };
            let group = self.group(id, marker.as_ref());
            let fail = |source| failed("end the cgroup of", place.path())(source);
            let now = Instant::now();
            if now < kill_at {
                // Each is asked once, whoever is born later too: some take a second time for
                // impatience.
                match group.signal(Signal::TERM, |pid| asked_already.contains(&pid)) {
                    Ok(new) => asked_already.extend(new),
                    // Who cannot be asked is killed all the same.
                    Err(error) if !is_told => {
                        tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_ASKED);
                        is_told = true;
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

    /// Ends what is left of an execution at once, within the time that a killed process may take;
    /// the lock, unless there is no directory.
    pub(super) fn end_now(&self, id: &BookingId) -> Result<Option<Lock>, Error> {
        let place = self.place(id);
        let fail = |source| failed("end the cgroup of", place.path())(source);
        for _ in 0..KILL_TIME.as_millis() / SHORT_PAUSE.as_millis() {
            match self.look(id)? {
                // Its shim may still be about to leave.
                Look::Ended(_) => match place.lock() {
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                    Err(error) => return Err(failed("lock", place.path())(error)),
                    Ok(None) => {}
                    Ok(lock) => return Ok(lock),
                },
                Look::Orphaned(remains) | Look::Fresh(remains) | Look::Absent(remains) => {
                    if remains.group.end().map_err(fail)? {
                        return Ok(remains.lock);
                    }
                }
                Look::Alive(marker) => {
                    place
                        .ask_to_stop(Duration::ZERO)
                        .map_err(failed("write to", place.path()))?;
                    self.group(id, marker.as_ref()).kill().map_err(fail)?;
                }
            }
            pause();
        }
        Err(alive(id, &self.group(id, None)))
    }
}

fn never_started() -> Ending {
    Ending::NotStarted("stopped before it started".to_owned())
}

/// Blocks this thread for a moment: whoever cleans up waits for a killed process to die.
fn pause() {
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(SHORT_PAUSE.subsec_nanos()),
    };
    let _ = poll(&mut [], Some(&pause));
}
