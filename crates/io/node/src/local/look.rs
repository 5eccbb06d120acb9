//! What there is of an execution, and what becomes of it when nobody watches it any more.

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

/// What there is of an execution.
pub(super) enum Look {
    /// It has ended.
    Ended(Exit),
    /// A shim lives, and has got so far.
    Alive(Option<Marker>),
    /// It was started, and nobody watches it any more.
    Orphaned(Remains),
    /// It was never started.
    Fresh(Remains),
    /// There is not even a directory.
    Absent(Remains),
}

/// What a shim may have left. Whoever holds the lock settles it.
pub(super) struct Remains {
    pub(super) group: Group,
    /// Nobody else looks, or starts a shim, until it is dropped.
    pub(super) lock: Option<Lock>,
}

impl Shared {
    pub(super) fn look(&self, id: &BookingId) -> Result<Look, Error> {
        let path = self.place(id).path().to_owned();
        self.try_look(id).map_err(failed("look at", &path))
    }

    fn try_look(&self, id: &BookingId) -> io::Result<Look> {
        let place = self.place(id);
        // The lock comes first: when it is free, all that its last holder wrote is there to read.
        let lock = match place.lock() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let group = self.group(id, None);
                return Ok(Look::Absent(Remains { group, lock: None }));
            }
            result => result?,
        };
        if let Some(status) = place.status()? {
            return Ok(Look::Ended(status.into()));
        }
        let marker = place.marker()?;
        let Some(lock) = lock else {
            return Ok(Look::Alive(marker));
        };
        // Output without a marker is of one that has ended and was cleaned up after.
        let is_fresh = marker.is_none() && !place.has_output();
        let remains = Remains {
            group: self.group(id, marker.as_ref()),
            lock: Some(lock),
        };
        Ok(match marker {
            Some(Marker::Ended(status)) => Look::Ended(status.into()),
            _ if is_fresh => Look::Fresh(remains),
            _ => Look::Orphaned(remains),
        })
    }

    /// What lives of an execution: a shim, or processes that have none.
    pub(super) fn lives(&self, id: &BookingId) -> Result<Life, Error> {
        let remains = match self.look(id)? {
            Look::Ended(_) => return Ok(Life::Nothing),
            Look::Alive(marker) => return Ok(running(marker, true)),
            Look::Orphaned(remains) | Look::Fresh(remains) | Look::Absent(remains) => remains,
        };
        Ok(if self.is_populated(id, &remains)? {
            running(self.marker(id)?, false)
        } else {
            Life::Nothing
        })
    }

    /// Whether a process is in a cgroup of an execution.
    pub(super) fn is_populated(&self, id: &BookingId, remains: &Remains) -> Result<bool, Error> {
        let path = self.place(id).path().to_owned();
        let members = remains.group.members();
        Ok(!members
            .map_err(failed("read the cgroup of", &path))?
            .is_empty())
    }

    fn marker(&self, id: &BookingId) -> Result<Option<Marker>, Error> {
        let place = self.place(id);
        place.marker().map_err(failed("look at", place.path()))
    }

    /// The cgroups of an execution: those it was given, or else all that it may have been given.
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

    /// Resolves when nothing of an execution is left.
    pub(super) async fn ended(&self, id: &BookingId) -> Exit {
        // A shim that has not got to work yet when its execution is stopped changes nothing any
        // more, and may never move again.
        if let Ok(Look::Ended(exit)) = self.look(id) {
            return exit;
        }
        loop {
            self.shims.gone(id).await;
            match self.look(id) {
                Ok(Look::Ended(exit)) => return exit,
                Ok(Look::Orphaned(remains) | Look::Fresh(remains) | Look::Absent(remains)) => {
                    return self.lost(id, remains).await;
                }
                Ok(Look::Alive(_)) => sleep(LOOK_PAUSE).await,
                // What cannot be known is asked again: `lost` would free a slot.
                Err(error) => {
                    tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_SEEN);
                    sleep(KILL_TIME).await;
                }
            }
        }
    }

    /// Ends what is left, however long it takes: to say that it is gone would free its slot.
    pub(super) async fn lost(&self, id: &BookingId, remains: Remains) -> Exit {
        while let Err(error) = self.settle(id, &remains, Ending::Lost).await {
            tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_SETTLED);
            sleep(KILL_TIME).await;
        }
        Exit::Lost
    }

    /// Ends what is left within the time that a killed process may take, and writes down what
    /// became of it. That this cannot be written changes nothing: whoever looks again comes to
    /// the same end.
    pub(super) async fn settle(
        &self,
        id: &BookingId,
        remains: &Remains,
        exit: Ending,
    ) -> Result<(), Error> {
        let place = self.place(id);
        let until = Instant::now() + KILL_TIME;
        let fail = |source| failed("end the cgroup of", place.path())(source);
        while !remains.group.end().map_err(fail)? {
            if until <= Instant::now() {
                return Err(alive(id, &remains.group));
            }
            sleep(SHORT_PAUSE).await;
        }
        let written = match &remains.lock {
            Some(_) => place.conclude(&Status { exit, seen: None }),
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
        // Whether its limits are kept is not known.
        _ => (String::new(), Isolation::None),
    };
    Life::Running {
        note,
        isolation,
        has_shim,
    }
}

/// The error that says so.
pub(super) fn alive(id: &BookingId, group: &Group) -> Error {
    let count = group.members().map_or(0, |members| members.len());
    Error::Alive {
        id: id.clone(),
        // Where no cgroup shows it, the shim at least is still there.
        count: count.max(1),
    }
}
