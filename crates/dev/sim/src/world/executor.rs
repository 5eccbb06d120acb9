//! The executor of a simulated process: the machine of the world behind the trait of the program.
//!
//! Every call first waits while its process sleeps or stands still. A call of a process that has
//! crashed, or whose term the machine does not obey, never returns and has no effect (X6).

use std::collections::BTreeSet;
use std::future::{pending, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_booking::execution::{Exit, Isolation};
use bursar_booking::{Fence, Standing};
use bursar_journal::hash::{Hash, sha256};
use bursar_ledger::pipeline::Ledger;
use bursar_node::executor::{Begun, Doing, Error, Executor, Job, Left, Life, Output, Stream, Work};
use bursar_units::{BookingId, Millis};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::host::{Host, ProcessState};

/// The machine of a world, shared by the executors of all processes.
#[derive(Clone)]
pub(super) struct SharedHost {
    host: Arc<Mutex<Host>>,
    /// Wakes every call that waits for a process.
    changed: Arc<Notify>,
    /// The beginning of the world.
    beginning: Instant,
}

/// The time until which the calls of a process wait.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<AtomicU64>);

/// The executor of one process.
pub(super) struct SimExecutor {
    pub(super) host: SharedHost,
    pub(super) ledger: Ledger,
    pub(super) term: u64,
    pub(super) gate: Gate,
}

impl SharedHost {
    pub(super) fn new(host: Host, beginning: Instant) -> Self {
        Self {
            host: Arc::new(Mutex::new(host)),
            changed: Arc::default(),
            beginning,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Host> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes every call that waits for a process, because the machine has changed.
    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// The time of the world; only inside its runtime.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.beginning.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) async fn sleep_until(&self, at_ms: u64) {
        sleep_until(self.beginning + Duration::from_millis(at_ms)).await;
    }
}

impl Gate {
    const CLOSED: u64 = u64::MAX;

    pub(super) fn hold_until(&self, at_ms: u64) {
        self.0.store(at_ms, Ordering::Relaxed);
    }

    /// No call returns after this.
    pub(super) fn close(&self) {
        self.hold_until(Self::CLOSED);
    }

    fn opens_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl SimExecutor {
    /// Runs `act` on the machine as soon as the process is awake.
    async fn on_host<T>(&self, act: impl FnOnce(&mut Host, u64) -> T) -> T {
        loop {
            match self.gate.opens_ms() {
                Gate::CLOSED => pending().await,
                opens_ms if self.host.now_ms() < opens_ms => self.host.sleep_until(opens_ms).await,
                _ => break,
            }
        }
        if !self.host.lock().obeys(self.term) {
            pending::<()>().await;
        }
        act(&mut self.host.lock(), self.host.now_ms())
    }

    /// Resolves when `until` accepts the state of an id.
    async fn wait<T>(&self, id: &BookingId, until: impl Fn(&ProcessState) -> Option<T>) -> T {
        loop {
            let changed = self.host.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let state = self.host.lock().state(id, self.host.now_ms());
            match (until(&state), state) {
                // Only a process that is awake sees it.
                (Some(_), _) => {
                    let state = self.on_host(|host, now_ms| host.state(id, now_ms)).await;
                    if let Some(result) = until(&state) {
                        return result;
                    }
                }
                (None, ProcessState::Beginning(at_ms) | ProcessState::Running(at_ms)) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = self.host.sleep_until(at_ms) => {}
                    }
                }
                (None, ProcessState::Absent | ProcessState::Gone(_)) => changed.await,
            }
        }
    }

    /// The fence under which an execution holds its slot, as this process knows it.
    fn grant(&self, id: &BookingId) -> Option<Fence> {
        match self.ledger.view().read().bookings.standing(id) {
            Some(Standing::Granted(granted)) => Some(granted.fence),
            _ => None,
        }
    }
}

impl Executor for SimExecutor {
    fn digest(&self, work: &Work) -> Hash {
        sha256(work.command.as_bytes())
    }

    fn keep(&self, work: &Work) -> Result<Hash, Error> {
        Ok(self.digest(work))
    }

    fn start<'a>(&'a self, id: &'a BookingId, job: &'a Job) -> Doing<'a, Begun> {
        Box::pin(async move {
            let fence = Fence(job.fence);
            self.on_host(|host, now_ms| host.start(id, fence, now_ms))
                .await;
            let begun = |state: &ProcessState| match state {
                ProcessState::Absent => Some(Begun::Gone(Exit::Lost)),
                ProcessState::Beginning(_) => None,
                ProcessState::Running(_) => Some(Begun::Running(Isolation::Cgroup)),
                ProcessState::Gone(exit) => Some(Begun::Gone(exit.clone())),
            };
            self.wait(id, begun).await
        })
    }

    fn exit<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Exit> {
        let gone = |state: &ProcessState| match state {
            // Nothing is left of a process that ran: its exit cannot be known.
            ProcessState::Absent => Some(Exit::Lost),
            ProcessState::Beginning(_) | ProcessState::Running(_) => None,
            ProcessState::Gone(exit) => Some(exit.clone()),
        };
        Box::pin(self.wait(id, gone))
    }

    fn stop<'a>(&'a self, id: &'a BookingId, grace: Duration) -> Doing<'a, Result<(), Error>> {
        Box::pin(async move {
            let grant = self.grant(id);
            let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
            let stop = |host: &mut Host, now_ms| {
                let ends_ms = host.stop(id, grant, Millis::from_ms(grace_ms), now_ms);
                ends_ms.ok_or(now_ms + grace_ms)
            };
            let stopped = self.on_host(stop).await;
            self.host.wake();
            match stopped {
                Ok(ends_ms) => {
                    self.host.sleep_until(ends_ms).await;
                    Ok(())
                }
                Err(gives_up_ms) => {
                    self.host.sleep_until(gives_up_ms).await;
                    let (id, count) = (id.clone(), 1);
                    Err(Error::Alive { id, count })
                }
            }
        })
    }

    fn list(&self) -> Doing<'_, Result<Vec<BookingId>, Error>> {
        Box::pin(async { Ok(self.on_host(|host, _| host.ids().cloned().collect()).await) })
    }

    fn life<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Result<Life, Error>> {
        Box::pin(async move {
            let state = self.on_host(|host, now_ms| host.state(id, now_ms)).await;
            Ok(match state {
                ProcessState::Running(_) => Life::Running {
                    note: String::new(),
                    isolation: Isolation::Cgroup,
                    has_shim: true,
                },
                ProcessState::Absent | ProcessState::Beginning(_) | ProcessState::Gone(_) => {
                    Life::Nothing
                }
            })
        })
    }

    fn clean<'a>(&'a self, id: &'a BookingId, _: Left) -> Doing<'a, Result<(), Error>> {
        Box::pin(async move {
            let is_clean = self.on_host(|host, now_ms| host.clean(id, now_ms)).await;
            self.host.wake();
            let (id, count) = (id.clone(), 1);
            is_clean.then_some(()).ok_or(Error::Alive { id, count })
        })
    }

    fn forget(&self, _: BTreeSet<Hash>) -> Doing<'_, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }

    fn output(&self, _: &BookingId, _: Stream, _: u64) -> Result<Option<Output>, Error> {
        Ok(None)
    }
}
