//! Starts an execution through a shim, unless it has or had one already.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use bursar_booking::execution::{Exit, Isolation};
use bursar_units::BookingId;
use bursar_units::causes::chain;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::look::State;
use super::shims::wait;
use super::{KILL_TIME, SHORT_PAUSE, Shared, failed};
use crate::cgroup::{self, Limits, Plan, Setting};
use crate::executor::{Begun, Error, Job};
use crate::log;
use crate::place::{self, Marker};
use crate::shim::{self, Order, Report};

/// Number of attempts with shims that exit without a report: another process held the lock for a
/// moment, or the shim cannot run on this machine.
const LAUNCHES_MAX: u32 = 10;

const RUNS_ALREADY: &str = "a process of this id runs already, in a cgroup of this ledger";

impl Shared {
    /// Cancelling this leaves a shim that continues by itself; the next start finds it.
    pub(super) async fn begin(&self, id: &BookingId, job: &Job) -> Begun {
        let plan = self.plan(id, job);
        if self.options.require_isolation && plan.isolation() == Isolation::None {
            return never("this machine cannot isolate it: no writable cgroups".to_owned());
        }
        let mut launches = 0;
        while launches < LAUNCHES_MAX {
            if let Err(error) = self.forget_other_grant(id, job) {
                not_seen(id, &error).await;
                continue;
            }
            match self.inspect(id) {
                Ok(State::Ended(exit)) => return Begun::Gone(exit),
                Ok(State::Alive(Some(Marker::Spawned(spawned)))) => {
                    return Begun::Running(spawned.isolation());
                }
                Ok(State::Alive(_)) => sleep(SHORT_PAUSE).await,
                Ok(State::Orphaned(remains)) => {
                    return Begun::Gone(self.lost(id, remains).await);
                }
                Ok(State::Fresh(remains) | State::Absent(remains)) => {
                    match self.is_populated(id, &remains) {
                        Ok(false) => {}
                        // Its directory is missing or elsewhere, and it must not run twice. A
                        // restored ledger has adopted it before (X5).
                        Ok(true) => return never(RUNS_ALREADY.to_owned()),
                        Err(error) => {
                            not_seen(id, &error).await;
                            continue;
                        }
                    }
                    // The shim takes the lock itself.
                    drop(remains);
                    launches += 1;
                    if let Some(begun) = self.launch(id, job, &plan).await {
                        return begun;
                    }
                }
                // It may run, so no result is reported until that is known.
                Err(error) => not_seen(id, &error).await,
            }
        }
        never("its shim does not start it".to_owned())
    }

    /// Removes the directory of an earlier grant of the same id, which a restore has lost or the
    /// ledger has forgotten: its status and output belong to that grant. A live one stays.
    fn forget_other_grant(&self, id: &BookingId, job: &Job) -> Result<(), Error> {
        let directory = self.directory(id);
        let grant = directory
            .grant()
            .map_err(failed("read", directory.path()))?;
        if grant.is_none_or(|fence| fence == job.fence) {
            return Ok(());
        }
        let is_gone = match self.inspect(id)? {
            State::Ended(_) => true,
            State::Alive(_) => false,
            State::Orphaned(remains) | State::Fresh(remains) | State::Absent(remains) => {
                !self.is_populated(id, &remains)?
            }
        };
        let lock = directory.lock().map_err(failed("read", directory.path()))?;
        match lock.filter(|_| is_gone) {
            Some(_held) => directory
                .remove()
                .map_err(failed("remove", directory.path())),
            None => Ok(()),
        }
    }

    fn plan(&self, id: &BookingId, job: &Job) -> Plan {
        let limits = Limits {
            cpu_milli: job.cpu_milli,
            memory_bytes: job.memory_bytes,
            pids: job.pids,
        };
        cgroup::plan(&self.trees, &place::name(id), limits)
    }

    /// Starts a shim; `None` if it exited without a report.
    async fn launch(&self, id: &BookingId, job: &Job, plan: &Plan) -> Option<Begun> {
        let has_memory = plan.settings.iter().any(Setting::is_about_memory);
        let order = Order {
            booking: id.to_string(),
            fence: job.fence,
            note: job.note.clone(),
            directory: self.directory(id).path().to_owned(),
            work: self.works.path(&job.work),
            plan: plan.clone(),
            address_bytes: job.memory_bytes.filter(|_| !has_memory),
        };
        let (socket, child) = match self.spawn(id, &order) {
            Ok(spawned) => spawned,
            Err(error) => return Some(never(chain(&error))),
        };
        let gone = self.shims.adopt(id, child);
        match report(socket).await {
            Some(Report::Running) => Some(Begun::Running(plan.isolation())),
            Some(Report::NotStarted(reason)) => {
                wait(gone).await;
                Some(never(reason))
            }
            None => {
                wait(gone).await;
                None
            }
        }
    }

    fn spawn(
        &self,
        id: &BookingId,
        order: &Order,
    ) -> Result<(tokio::net::UnixStream, Child), Error> {
        let directory = self.directory(id);
        let made = directory
            .make()
            .and_then(|()| directory.set_grant(order.fence));
        made.map_err(failed("create", directory.path()))?;
        let spawned = self
            .presence
            .reader()
            .and_then(|presence| spawn(&self.options.shim, order, presence));
        spawned.map_err(failed("start", &self.options.shim))
    }
}

fn spawn(
    program: &std::path::Path,
    order: &Order,
    presence: OwnedFd,
) -> io::Result<(tokio::net::UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    shim::send(&ours, order)?;
    ours.set_nonblocking(true)?;
    let socket = tokio::net::UnixStream::from_std(ours)?;
    let child = Command::new(program)
        .args([shim::WORD, shim::RUN, &order.booking])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(presence))
        .stderr(Stdio::null())
        .kill_on_drop(false)
        .spawn()?;
    Ok((socket, child))
}

async fn report(mut socket: tokio::net::UnixStream) -> Option<Report> {
    let mut line = Vec::new();
    let mut part = [0; 256];
    while !line.ends_with(b"\n") {
        match socket.read(&mut part).await.ok()? {
            0 => break,
            size => line.extend_from_slice(part.get(..size).unwrap_or_default()),
        }
    }
    serde_json::from_slice(&line).ok()
}

async fn not_seen(id: &BookingId, error: &Error) {
    tracing::warn!(%id, error = chain(error), "{}", log::EXECUTION_NOT_SEEN);
    sleep(KILL_TIME).await;
}

fn never(reason: String) -> Begun {
    Begun::Gone(Exit::NotStarted(reason))
}
