//! The handle of the ledger, and the three threads behind it (L1).
//!
//! ```text
//! engine thread ──Commit──► store thread ──Publish──► view thread
//!       ▲  one batch in flight  │                         │ answers, stream
//!       └───── free, recover ───┘◄──────── flushed ───────┘
//! ```
//! A batch closes when the store is free and the batch is not empty: no linger timer. The threads
//! carry the data of `stage` from one owner to the next, and decide nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Monotonic};

use bursar_engine::invariants::Broken;
use bursar_engine::{Command, Reference};
use bursar_units::{Instant, Label};
use tokio::sync::oneshot;

use crate::clock::{Clock, SharedTermClock};
use crate::committer::Committer;
use crate::intake::{Failure, Intake, Outcome, Submission};
use crate::log;
use crate::stage::{EngineStage, Next, StoreStage};
use crate::term::Begun;
use crate::view::View;
use crate::writer::{Batch, Poison};

/// Pause between two checkpoints, and between two checks of the disk (L11, L4).
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// The longest sleep of the engine, so that it notices when the clock jumps.
const NAP_MAX: Duration = Duration::from_secs(1);
/// While the store is busy, the engine waits for this many commands: if it woke for each one, it
/// would take CPU time from the senders.
const GATHERED: usize = 64;
/// The longest wait for [`GATHERED`]: a renewal is answered without the store.
const GATHERING: Duration = Duration::from_millis(1);
/// Pause before a store that does not answer is asked again.
pub(crate) const STORE_RETRY: Duration = Duration::from_millis(200);

pub(crate) enum Job {
    Commit(Batch),
    Run(Box<dyn FnOnce(&mut Committer) + Send>),
    /// Answered when everything before it is published.
    Flush(SyncSender<()>),
    /// As `Flush`, with a last checkpoint; ends the store's thread.
    Stop(SyncSender<()>),
}

enum Publish {
    Batch(Batch),
    Flush(SyncSender<()>),
}

/// Messages of the store to the engine.
#[derive(Clone, Default)]
struct Signal {
    /// The store can take a batch.
    free: bool,
    /// See [`EngineStage::recover`].
    recover: bool,
    /// The term is over, for this reason.
    ended: Option<Failure>,
    /// The process stops.
    stop: bool,
}

/// Receiver of events for logs and metrics.
pub trait Observe: Send + Sync {
    /// Deciding a command panicked; the command should be kept.
    fn poisoned(&self, poison: &Poison);

    /// The store failed; it is asked again until it answers.
    fn store_failed(&self, error: &crate::store::Error);

    /// Another term leads: this process writes no more.
    fn not_leader(&self);

    /// The store's files are gone: this process writes no more. `rescued` is the path of a file
    /// with the records that were still open, or the error of writing it.
    fn store_away(&self, rescued: &Result<String, crate::store::Error>);

    /// A batch of so many records became durable in that time.
    fn committed(&self, records: usize, took: Duration);

    /// A checkpoint over that many records was signed.
    fn signed(&self, size: u64);

    /// The state breaks an invariant, which is a defect. The ledger goes on.
    fn invariant_broken(&self, broken: &Broken);
}

/// The ledger: cheap to clone, shared by every surface.
#[derive(Clone)]
pub struct Ledger {
    intake: Arc<Intake>,
    view: Arc<View>,
    pub(crate) time: Arc<SharedTermClock>,
    jobs: SyncSender<Job>,
}

/// The running threads; [`Running::stop`] ends them in order.
pub struct Running {
    intake: Arc<Intake>,
    signal: Shared,
    threads: Vec<JoinHandle<()>>,
}

impl Ledger {
    /// Starts the three threads of a term.
    pub fn start(
        begun: Begun,
        clock: Arc<dyn Clock>,
        observe: Arc<dyn Observe>,
    ) -> std::io::Result<(Self, Running)> {
        let (ledger, engine, store, jobs) = Self::assemble(begun, clock, observe);
        let signal = Shared::default();
        signal.lock().free = true;
        let (publish, published) = sync_channel(2);
        let engine = EngineThread {
            stage: engine,
            time: Arc::clone(&ledger.time),
            signal: signal.clone(),
            jobs: ledger.jobs.clone(),
        };
        let store = StoreThread {
            stage: store,
            jobs,
            publish,
            signal: signal.clone(),
            kept_at: Monotonic::now(),
        };
        let view = Arc::clone(&ledger.view);
        let threads = vec![
            spawn("engine", move || engine.run())?,
            spawn("store", move || store.run())?,
            spawn("view", move || publish_all(&view, &published))?,
        ];
        let running = Running {
            intake: Arc::clone(&ledger.intake),
            signal,
            threads,
        };
        Ok((ledger, running))
    }

    /// Submits commands of one caller, decided in order; resolves when their batch is durable.
    pub async fn submit(&self, by: Label, commands: Vec<Command>) -> Result<Vec<Outcome>, Failure> {
        let (answer, answered) = oneshot::channel();
        let reply = Box::new(move |result| {
            // The caller may be gone.
            let _gone = answer.send(result);
        });
        self.intake.push(Submission {
            by,
            commands,
            reply,
        });
        answered.await.unwrap_or(Err(Failure::OutcomeUnknown))
    }

    /// Submits commands with a reply of the caller's own.
    pub fn push(&self, submission: Submission) {
        self.intake.push(submission);
    }

    /// Resolves when submissions may wait; for the one driver of a ledger without threads.
    pub async fn submitted(&self) {
        self.intake.notified().await;
    }

    /// The committed state.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The reason why everything is refused, if it is.
    pub fn refuses(&self) -> Option<Failure> {
        self.intake.refuses()
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        self.time.now()
    }

    /// Number of waiting commands in (control, work).
    pub fn waiting(&self) -> (usize, usize) {
        self.intake.waiting()
    }

    /// Time until which an object is known to be alive, if that is later than recorded (S7).
    pub fn alive_until(&self, object: &Reference) -> Option<Instant> {
        let evidence = self.view.evidence.lock();
        let evidence = evidence.unwrap_or_else(PoisonError::into_inner);
        evidence.get(object).copied()
    }

    /// Runs a job on the store's thread, between two batches.
    pub async fn on_store<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Committer) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, answered) = oneshot::channel();
        let sent = self.run_on_store(move |committer| {
            let _gone = answer.send(run(committer));
        });
        if !sent {
            return Err(Failure::Busy);
        }
        answered.await.map_err(|_| Failure::Unavailable)
    }

    /// Sends a job to the store's thread without waiting for it; returns whether it was sent.
    pub fn run_on_store(&self, run: impl FnOnce(&mut Committer) + Send + 'static) -> bool {
        let sent = self.jobs.try_send(Job::Run(Box::new(run))).is_ok();
        self.intake.nudge();
        sent
    }

    pub(crate) fn assemble(
        begun: Begun,
        clock: Arc<dyn Clock>,
        observe: Arc<dyn Observe>,
    ) -> (Self, EngineStage, StoreStage, Receiver<Job>) {
        let (jobs, receive) = sync_channel(64);
        let writer = begun.writer;
        let view = View::new(writer.working().clone(), writer.evidence());
        let ledger = Self {
            intake: Arc::default(),
            view: Arc::new(view),
            time: Arc::new(SharedTermClock::new(clock, begun.time)),
            jobs,
        };
        let (intake, view) = (Arc::clone(&ledger.intake), Arc::clone(&ledger.view));
        let store = StoreStage::new(begun.committer, Arc::clone(&intake), Arc::clone(&observe));
        let engine = EngineStage::new(writer, intake, view, observe);
        (ledger, engine, store, receive)
    }
}

impl Running {
    /// Stops intake, drains, signs a last checkpoint and ends the term.
    pub fn stop(self) {
        self.signal.lock().stop = true;
        self.intake.nudge();
        for thread in self.threads {
            // A panic has already ended the process, see `spawn`.
            let _ended = thread.join();
        }
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Signal>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Signal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread that the ledger needs: if it panics, the process ends, and the next start
/// continues from the durable records.
fn spawn(
    name: &'static str,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                tracing::error!(thread = name, "{}", log::THREAD_PANICKED);
                std::process::abort();
            }
        })
}

struct EngineThread {
    stage: EngineStage,
    time: Arc<SharedTermClock>,
    signal: Shared,
    jobs: SyncSender<Job>,
}

impl EngineThread {
    fn run(mut self) {
        loop {
            let mut shared = self.signal.lock();
            let signal = shared.clone();
            shared.recover = false;
            drop(shared);
            if signal.recover {
                self.stage.recover();
            }
            if let Some(failure) = &signal.ended {
                self.stage.end(failure);
            }
            let is_open = signal.ended.is_none() && !signal.stop;
            if signal.stop {
                self.stage.stop();
            } else if is_open && self.stage.build(&self.time.look(), usize::MAX).is_err() {
                flush(&self.jobs, Job::Flush);
                self.stage.start_over();
            }
            if signal.free && self.send() {
                continue;
            }
            let batch = self.stage.writer.batch();
            if signal.stop && batch.is_empty() {
                flush(&self.jobs, Job::Stop);
                return;
            }
            let wants_more = is_open && !batch.is_full();
            let (enough, nap) = match (wants_more, signal.free) {
                (true, true) => (0, self.nap()),
                (true, false) => (GATHERED, GATHERING),
                (false, _) if signal.ended.is_some() => (usize::MAX, NAP_MAX),
                (false, _) => (usize::MAX, self.nap()),
            };
            self.stage.intake.wait(enough, nap);
        }
    }

    /// Hands the open batch to the store, which must be free.
    fn send(&mut self) -> bool {
        let Some(batch) = self.stage.writer.close() else {
            return false;
        };
        self.signal.lock().free = false;
        if let Err(unsent) = self.jobs.send(Job::Commit(batch))
            && let Job::Commit(mut batch) = unsent.0
        {
            batch.fail(&Failure::Unavailable);
        }
        true
    }

    /// Time until the next deadline; while a batch waits for the store, the store wakes us.
    fn nap(&self) -> Duration {
        let is_idle = self.stage.writer.batch().is_empty();
        let wait = self.stage.wait(self.time.now()).filter(|_| is_idle);
        wait.map_or(NAP_MAX, |wait| wait.min(NAP_MAX))
    }
}

struct StoreThread {
    stage: StoreStage,
    jobs: Receiver<Job>,
    publish: SyncSender<Publish>,
    signal: Shared,
    kept_at: Monotonic,
}

impl StoreThread {
    fn run(mut self) {
        loop {
            let wait = HOUSEKEEPING.saturating_sub(self.kept_at.elapsed());
            match self.jobs.recv_timeout(wait) {
                Ok(Job::Commit(batch)) => self.commit(batch),
                Ok(Job::Run(run)) => run(&mut self.stage.committer),
                Ok(Job::Flush(done)) => drop(self.publish.send(Publish::Flush(done))),
                Ok(Job::Stop(done)) => {
                    self.housekeep();
                    drop(self.publish.send(Publish::Flush(done)));
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.kept_at.elapsed() >= HOUSEKEEPING {
                self.housekeep();
            }
        }
    }

    fn commit(&mut self, batch: Batch) {
        let mut next = self.stage.commit(batch);
        if matches!(next, Next::Resolve) {
            next = self.resolve();
        }
        self.take(next);
    }

    fn take(&mut self, next: Next) {
        match next {
            Next::Publish(batch) => {
                drop(self.publish.send(Publish::Batch(batch)));
                self.signal.lock().free = true;
            }
            Next::Recover(batch) => {
                drop(self.publish.send(Publish::Batch(batch)));
                flush(&self.publish, Publish::Flush);
                let mut signal = self.signal.lock();
                (signal.free, signal.recover) = (true, true);
            }
            Next::End(failure) => self.signal.lock().ended = Some(failure),
            Next::Resolve => {}
        }
        self.stage.intake.nudge();
    }

    /// Asks the store for the outcome until it answers or the process stops.
    fn resolve(&mut self) -> Next {
        loop {
            match self.stage.resolve() {
                Next::Resolve if self.signal.lock().stop => return self.stage.give_up(),
                Next::Resolve => {}
                next => return next,
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "the store's own thread has nothing else to do while the store is away"
            )]
            std::thread::sleep(STORE_RETRY);
        }
    }

    fn housekeep(&mut self) {
        self.kept_at = Monotonic::now();
        if let Some(next) = self.stage.housekeep() {
            self.take(next);
        }
    }
}

/// Waits until everything that was sent before is published, or has failed.
fn flush<T>(to: &SyncSender<T>, message: impl FnOnce(SyncSender<()>) -> T) {
    let (done, wait) = sync_channel(1);
    if to.send(message(done)).is_ok() {
        // An error means that the receiving thread has ended, with everything that was sent.
        let _ended = wait.recv();
    }
}

fn publish_all(view: &View, published: &Receiver<Publish>) {
    while let Ok(message) = published.recv() {
        match message {
            Publish::Batch(batch) => view.publish(batch),
            Publish::Flush(done) => {
                // The waiting thread may be gone.
                let _gone = done.send(());
            }
        }
    }
}
