//! Inspects an execution, and ends one whose shim is gone.

use std::io::{self, ErrorKind};

use bursar_booking::execution::{Exit, Isolation};
use bursar_units::BookingId;
use bursar_units::causes::chain;
use tokio::time::{Instant, sleep};

use super::{KILL_TIME, LOOK_PAUSE, SHORT_PAUSE, Shared, failed};
use crate::cgroup::Group;
use crate::executor::{Error, Life};
use crate::log;
use crate::place::{self, Lock, Marker};
use crate::shim::{Ending, Status};

/// The state of an execution, from its directory and its cgroups.
pub(super) enum State {
    Ended(Exit),
    /// Its shim is alive; with the marker if the shim has written it.
    Alive(Option<Marker>),
    /// It was started, and its shim is gone.
    Orphaned(Remains),
    /// It has a directory and was never started.
    Fresh(Remains),
    /// It has no directory.
    Absent(Remains),
}

/// Cgroups that a shim may have left. Only the holder of the lock ends them.
pub(super) struct Remains {
    pub(super) group: Group,
    /// Until it is dropped nobody else inspects the execution or starts a shim.
    pub(super) lock: Option<Lock>,
}

impl Shared {
    pub(super) fn inspect(&self, id: &BookingId) -> Result<State, Error> {
        let path = self.directory(id).path().to_owned();
        self.try_inspect(id).map_err(failed("read", &path))
    }

    fn try_inspect(&self, id: &BookingId) -> io::Result<State> {
        let directory = self.directory(id);
        // The lock comes first: once it is free, everything that its last holder wrote is readable.
        let lock = match directory.lock() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let group = self.group(id, None);
                return Ok(State::Absent(Remains { group, lock: None }));
            }
            result => result?,
        };
        if let Some(status) = directory.status()? {
            return Ok(State::Ended(status.into()));
        }
        let marker = directory.marker()?;
        let Some(lock) = lock else {
            return Ok(State::Alive(marker));
        };
        // Output without a marker belongs to an execution that has ended and was cleaned.
        let is_fresh = marker.is_none() && !directory.has_output();
        let remains = Remains {
            group: self.group(id, marker.as_ref()),
            lock: Some(lock),
        };
        Ok(match marker {
            Some(Marker::Ended(status)) => State::Ended(status.into()),
            _ if is_fresh => State::Fresh(remains),
            _ => State::Orphaned(remains),
        })
    }

    pub(super) fn lives(&self, id: &BookingId) -> Result<Life, Error> {
        let remains = match self.inspect(id)? {
            State::Ended(_) => return Ok(Life::Nothing),
            State::Alive(marker) => return Ok(running(marker, true)),
            State::Orphaned(remains) | State::Fresh(remains) | State::Absent(remains) => remains,
        };
        if !self.is_populated(id, &remains)? {
            return Ok(Life::Nothing);
        }
        let directory = self.directory(id);
        let marker = directory.marker();
        Ok(running(
            marker.map_err(failed("read", directory.path()))?,
            false,
        ))
    }

    pub(super) fn is_populated(&self, id: &BookingId, remains: &Remains) -> Result<bool, Error> {
        let path = self.directory(id).path().to_owned();
        let members = remains.group.members();
        Ok(!members
            .map_err(failed("read the cgroup of", &path))?
            .is_empty())
    }

    /// The cgroups of an execution: those in the marker, else all that it may have.
    pub(super) fn group(&self, id: &BookingId, marker: Option<&Marker>) -> Group {
        let name = place::name(id);
        match marker {
            Some(Marker::Spawned(spawned)) => {
                let group = spawned.group.clone();
                group.only(&self.options.ledger, &name)
            }
            _ => Group::everywhere(&self.trees, &name),
        }
    }

    /// Resolves when no process of the execution is left.
    pub(super) async fn ended(&self, id: &BookingId) -> Exit {
        // A shim that was stopped before it began may hang; it can change nothing any more.
        if let Ok(State::Ended(exit)) = self.inspect(id) {
            return exit;
        }
        loop {
            self.shims.gone(id).await;
            match self.inspect(id) {
                Ok(State::Ended(exit)) => return exit,
                Ok(State::Orphaned(remains) | State::Fresh(remains) | State::Absent(remains)) => {
                    return self.lost(id, remains).await;
                }
                Ok(State::Alive(_)) => sleep(LOOK_PAUSE).await,
                // Try again: `lost` would free a slot that may be in use.
                Err(error) => {
                    tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_SEEN);
                    sleep(KILL_TIME).await;
                }
            }
        }
    }

    /// Ends the remaining processes, however long it takes: reporting the end frees the slot.
    pub(super) async fn lost(&self, id: &BookingId, remains: Remains) -> Exit {
        while let Err(error) = self.settle(id, &remains, Ending::Lost).await {
            tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_SETTLED);
            sleep(KILL_TIME).await;
        }
        Exit::Lost
    }

    /// Ends the remaining processes within [`KILL_TIME`] and writes the status. A status that
    /// cannot be written is only logged: the next inspection comes to the same result.
    pub(super) async fn settle(
        &self,
        id: &BookingId,
        remains: &Remains,
        exit: Ending,
    ) -> Result<(), Error> {
        let directory = self.directory(id);
        let until = Instant::now() + KILL_TIME;
        let fail = |source| failed("end the cgroup of", directory.path())(source);
        while !remains.group.end().map_err(fail)? {
            if until <= Instant::now() {
                return Err(alive(id, &remains.group));
            }
            sleep(SHORT_PAUSE).await;
        }
        let written = match &remains.lock {
            Some(_) => directory.conclude(&Status { exit, seen: None }),
            None => Ok(()),
        };
        if let Err(error) = written {
            tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_STATUS_NOT_WRITTEN);
        }
        Ok(())
    }
}

fn running(marker: Option<Marker>, has_shim: bool) -> Life {
    let (note, isolation) = match marker {
        Some(Marker::Spawned(spawned)) => (spawned.note.clone(), spawned.isolation()),
        // It is not known whether its limits are enforced.
        _ => (String::new(), Isolation::None),
    };
    Life::Running {
        note,
        isolation,
        has_shim,
    }
}

pub(super) fn alive(id: &BookingId, group: &Group) -> Error {
    let count = group.members().map_or(0, |members| members.len());
    Error::Alive {
        id: id.clone(),
        // Without a cgroup the shim is still alive at least.
        count: count.max(1),
    }
}
