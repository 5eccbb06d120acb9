//! The handle that everyone holds, and the three threads behind it (L1).
//!
//! ```text
//! engine thread ──Commit──► store thread ──Publish──► view thread
//!       ▲  one batch in flight  │                         │ answers, stream
//!       └────── free, reset ────┘◄──────── flushed ───────┘
//! ```
//! A batch closes when the store is free and something is in it: no linger timer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Monotonic};

use bursar_engine::invariants::Broken;
use bursar_engine::{Command, Reference};
use bursar_units::{Instant, Label};
use tokio::sync::oneshot;

use crate::clock::{Clock, Moment, TermClock};
use crate::committer::{Commit, Committer, Reopened};
use crate::inline::{Inline, Trouble};
use crate::intake::{Failure, Intake, Outcome, Submission};
use crate::log;
use crate::term::Begun;
use crate::view::View;
use crate::writer::{Batch, Evidence, Fact, Poison, SELF, Writer};

/// How often a checkpoint is signed at most, and the disk is looked at (L11, L4).
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// How long the engine sleeps at most, so that a clock that jumps is noticed.
const NAP_MAX: Duration = Duration::from_secs(1);
/// Below this many free bytes only control commands are taken (L4).
const DISK_LOW_BYTES: u64 = 256 << 20;
/// While the store is busy, so many commands are decided at a time …
const GATHERED: usize = 64;
/// … or those that came in so long: a renewal is answered without the store.
const GATHERING: Duration = Duration::from_millis(1);
/// How often in a row deciding what is due may panic before the process ends.
const POISONS_MAX: u32 = 3;
/// How long to wait before asking a store that is away again.
const STORE_RETRY: Duration = Duration::from_millis(200);

type StoreJob = Box<dyn FnOnce(&mut Committer) + Send>;

enum Job {
    Commit(Batch),
    Run(StoreJob),
    /// Answered when all before it is published.
    Flush(SyncSender<()>),
    /// The same, with a last checkpoint, and then no more.
    Stop(SyncSender<()>),
}

enum Publish {
    Batch(Batch),
    CatchUp(Vec<Fact>),
    Flush(SyncSender<()>),
}

/// What the store tells the engine.
#[derive(Default)]
struct Signal {
    free: bool,
    reset: Option<Failure>,
    /// Nothing will ever be committed again, for this reason.
    ended: Option<Failure>,
    stop: bool,
}

/// What is told to the outside, for logs.
pub trait Observe: Send + Sync {
    /// A command whose deciding panicked; it should be kept.
    fn poisoned(&self, poison: &Poison);

    /// The store failed; it is asked again until it comes back.
    fn store_failed(&self, error: &crate::store::Error);

    /// Another term leads: this process writes no more.
    fn not_leader(&self);

    /// The store's files were taken away: this process writes no more. Says where the records that
    /// were still open are now, or why they could not be written.
    fn store_away(&self, rescued: &Result<String, crate::store::Error>);

    /// A batch is durable: how many records, how long it took.
    fn committed(&self, records: usize, took: Duration);

    /// A checkpoint over that many records was signed.
    fn signed(&self, size: u64);

    /// The state breaks an invariant: a defect. The ledger goes on.
    fn invariant_broken(&self, broken: &Broken);
}

/// The ledger: cheap to clone, shared by every surface.
#[derive(Clone)]
pub struct Ledger {
    intake: Arc<Intake>,
    view: Arc<View>,
    evidence: Evidence,
    time: Arc<Time>,
    jobs: SyncSender<Job>,
}

/// The term's clock, shared.
struct Time {
    clock: Arc<dyn Clock>,
    term: Mutex<TermClock>,
}

/// The running threads; [`Running::stop`] ends them in order.
pub struct Running {
    intake: Arc<Intake>,
    signal: Arc<Mutex<Signal>>,
    threads: Vec<JoinHandle<()>>,
}

/// A pipeline that runs as a task on virtual time.
pub struct InlineTask {
    inline: Inline,
    time: Arc<Time>,
    jobs: Receiver<Job>,
    observe: Arc<dyn Observe>,
}

impl Ledger {
    /// Starts the three threads of a term.
    pub fn start(
        begun: Begun,
        clock: Arc<dyn Clock>,
        observe: Arc<dyn Observe>,
    ) -> std::io::Result<(Self, Running)> {
        let Begun {
            writer,
            committer,
            time,
            ..
        } = begun;
        let (ledger, jobs, send) = Self::assemble(&writer, clock, time);
        let signal = Arc::new(Mutex::new(Signal {
            free: true,
            ..Signal::default()
        }));
        let (publish, published) = sync_channel(2);
        let engine = EngineThread {
            writer,
            intake: Arc::clone(&ledger.intake),
            view: Arc::clone(&ledger.view),
            time: Arc::clone(&ledger.time),
            signal: Arc::clone(&signal),
            jobs: send,
            observe: Arc::clone(&observe),
        };
        let store = StoreThread {
            committer,
            jobs,
            publish,
            intake: Arc::clone(&ledger.intake),
            signal: Arc::clone(&signal),
            observe,
            kept_at: Monotonic::now(),
            away: Away::No,
        };
        let view = Arc::clone(&ledger.view);
        let threads = vec![
            spawn("engine", move || engine.run())?,
            spawn("store", move || store.run())?,
            spawn("view", move || publish_all(&view, &published))?,
        ];
        let intake = Arc::clone(&ledger.intake);
        Ok((
            ledger,
            Running {
                intake,
                signal,
                threads,
            },
        ))
    }

    /// The same ledger, to be run as a task: for scenarios.
    pub fn inline(
        begun: Begun,
        clock: Arc<dyn Clock>,
        observe: Arc<dyn Observe>,
    ) -> (Self, InlineTask) {
        let Begun {
            writer,
            committer,
            time,
            ..
        } = begun;
        let (ledger, jobs, _) = Self::assemble(&writer, clock, time);
        let (intake, view) = (Arc::clone(&ledger.intake), Arc::clone(&ledger.view));
        let inline = Inline::new(intake, writer, committer, view);
        let time = Arc::clone(&ledger.time);
        (
            ledger,
            InlineTask {
                inline,
                time,
                jobs,
                observe,
            },
        )
    }

    /// Commands of one caller, decided in order; resolves when their batch is durable.
    pub async fn submit(&self, by: Label, commands: Vec<Command>) -> Result<Vec<Outcome>, Failure> {
        let (tell, told) = oneshot::channel();
        let reply = Box::new(move |result| {
            // A caller that went away needs no word.
            let _gone = tell.send(result);
        });
        self.intake.push(Submission {
            by,
            commands,
            reply,
        });
        told.await.unwrap_or(Err(Failure::OutcomeUnknown))
    }

    /// The same with a reply of one's own.
    pub fn push(&self, submission: Submission) {
        self.intake.push(submission);
    }

    /// What is committed.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Why nothing is taken now, if that is so.
    pub fn refuses(&self) -> Option<Failure> {
        self.intake.refuses()
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        self.time.now()
    }

    /// How many commands wait in (control, work).
    pub fn waiting(&self) -> (usize, usize) {
        self.intake.waiting()
    }

    /// Until when an object has shown life beyond what is recorded (S7).
    pub fn alive_until(&self, object: &Reference) -> Option<Instant> {
        self.evidence
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(object)
            .copied()
    }

    /// Runs something on the store's own thread, between two batches.
    pub async fn on_store<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Committer) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (tell, told) = oneshot::channel();
        let sent = self.run_on_store(move |committer| {
            let _gone = tell.send(run(committer));
        });
        if !sent {
            return Err(Failure::Busy);
        }
        told.await.map_err(|_| Failure::Unavailable)
    }

    /// The same for whoever does not wait; whether it was taken.
    pub fn run_on_store(&self, run: impl FnOnce(&mut Committer) + Send + 'static) -> bool {
        let sent = self.jobs.try_send(Job::Run(Box::new(run))).is_ok();
        self.intake.nudge();
        sent
    }

    fn assemble(
        writer: &Writer,
        clock: Arc<dyn Clock>,
        term: TermClock,
    ) -> (Self, Receiver<Job>, SyncSender<Job>) {
        let (jobs, receive) = sync_channel(64);
        let ledger = Self {
            intake: Arc::default(),
            view: Arc::new(View::new(writer.working().clone(), writer.evidence())),
            evidence: writer.evidence(),
            time: Arc::new(Time {
                clock,
                term: Mutex::new(term),
            }),
            jobs: jobs.clone(),
        };
        (ledger, receive, jobs)
    }
}

impl Running {
    /// Stops intake, drains, signs a last checkpoint and ends the term.
    pub fn stop(self) {
        self.signal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stop = true;
        self.intake.nudge();
        for thread in self.threads {
            // A panic in `apply` has already ended the process; nothing is left to do here.
            let _ended = thread.join();
        }
    }
}

impl Time {
    fn now(&self) -> Instant {
        self.term
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .now(self.clock.as_ref())
    }

    fn look(&self) -> Moment {
        self.term
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .look(self.clock.as_ref())
    }
}

impl InlineTask {
    /// Begins the term with its first records, and runs until dropped.
    pub async fn run(mut self) {
        loop {
            self.step();
            let deadline = self.inline.writer.next_deadline();
            let wait = deadline.map(|at| at.since(self.time.now()).ms().max(1));
            tokio::select! {
                () = self.inline.intake.notified() => {}
                () = sleep_ms(wait) => {}
            }
        }
    }

    /// Builds, commits and publishes once.
    pub fn step(&mut self) {
        match self.inline.step(&self.time.look()) {
            Ok(()) => {}
            Err(Trouble::NotLeader) => self.observe.not_leader(),
            Err(Trouble::StoreAway(error)) => self.observe.store_failed(&error),
            Err(Trouble::Poisoned(poison)) => self.observe.poisoned(&poison),
        }
        // A scenario has no second to wait for: every step is signed.
        if let Ok(Some(size)) = self.inline.committer.checkpoint() {
            self.observe.signed(size);
        }
        while let Ok(job) = self.jobs.try_recv() {
            match job {
                Job::Run(run) => run(&mut self.inline.committer),
                Job::Commit(batch) => batch.fail(&Failure::Unavailable),
                Job::Flush(done) | Job::Stop(done) => drop(done.send(())),
            }
        }
    }
}

async fn sleep_ms(wait: Option<u64>) {
    match wait {
        Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        None => std::future::pending().await,
    }
}

/// A thread without which there is no ledger: if it panics, the process ends, and the next start
/// goes on from what is durable.
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

/// The engine's copy of the signal.
struct Told {
    free: bool,
    reset: Option<Failure>,
    ended: Option<Failure>,
    stop: bool,
}

struct EngineThread {
    writer: Writer,
    intake: Arc<Intake>,
    view: Arc<View>,
    time: Arc<Time>,
    signal: Arc<Mutex<Signal>>,
    jobs: SyncSender<Job>,
    observe: Arc<dyn Observe>,
}

impl EngineThread {
    fn run(mut self) {
        let mut poisons = 0;
        loop {
            let Told {
                free,
                reset,
                ended,
                stop,
            } = self.read_signal();
            let has_batch = !self.writer.batch().is_empty();
            if let Some(failure) = reset.or(ended.clone().filter(|_| has_batch)) {
                self.start_over(&failure);
            }
            if stop {
                self.intake.refuse(Some(&Failure::Unavailable));
            } else if ended.is_none() {
                poisons = match self.build() {
                    Ok(()) => 0,
                    Err(poison) => self.set_aside(&poison, poisons),
                };
            }
            if free && self.send() {
                continue;
            }
            if stop && self.writer.batch().is_empty() {
                self.flush(Job::Stop);
                return;
            }
            let wants_more = ended.is_none() && !stop && !self.writer.batch().is_full();
            if !free && wants_more {
                self.intake.gather(GATHERED, GATHERING);
                continue;
            }
            let nap = if ended.is_some() { NAP_MAX } else { self.nap() };
            self.intake.wait(nap, wants_more);
        }
    }

    fn read_signal(&self) -> Told {
        let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        Told {
            free: signal.free,
            reset: signal.reset.take(),
            ended: signal.ended.clone(),
            stop: signal.stop,
        }
    }

    /// Decides what waits, and what time itself asks for.
    fn build(&mut self) -> Result<(), Poison> {
        let moment = self.time.look();
        self.writer.build(&moment, &self.intake, usize::MAX)
    }

    /// Keeps a poisoned command and starts over from what is committed. Whatever time itself
    /// asks for comes again: if that is what panics, waiting does not help.
    fn set_aside(&mut self, poison: &Poison, poisons: u32) -> u32 {
        self.observe.poisoned(poison);
        let own = if poison.by.as_str() == SELF {
            poisons + 1
        } else {
            0
        };
        if own == POISONS_MAX {
            tracing::error!(cause = poison.message, "{}", log::TICK_PANICKED);
            std::process::abort();
        }
        self.flush(Job::Flush);
        self.start_over(&Failure::OutcomeUnknown);
        own
    }

    /// Hands the open batch to the store, which must be free.
    fn send(&mut self) -> bool {
        let Some(batch) = self.writer.close() else {
            return false;
        };
        self.signal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free = false;
        if let Err(unsent) = self.jobs.send(Job::Commit(batch))
            && let Job::Commit(batch) = unsent.0
        {
            batch.fail(&Failure::Unavailable);
        }
        true
    }

    /// Waits until everything that was sent is published, or has failed.
    fn flush(&self, job: impl FnOnce(SyncSender<()>) -> Job) {
        let (done, wait) = sync_channel(1);
        if self.jobs.send(job(done)).is_ok() {
            // An error means that the store's thread has ended, and with it all that was sent.
            let _ended = wait.recv();
        }
    }

    fn start_over(&mut self, failure: &Failure) {
        let state = self.view.read().clone();
        self.writer.reset(state, failure);
    }

    /// Until the next deadline; where a batch waits for the store, the store wakes us.
    fn nap(&self) -> Duration {
        let is_idle = self.writer.batch().is_empty();
        let deadline = self.writer.next_deadline().filter(|_| is_idle);
        let until = deadline.map(|at| Duration::from_millis(at.since(self.time.now()).ms().max(1)));
        until.unwrap_or(NAP_MAX).min(NAP_MAX)
    }
}

struct StoreThread {
    committer: Committer,
    jobs: Receiver<Job>,
    publish: SyncSender<Publish>,
    intake: Arc<Intake>,
    signal: Arc<Mutex<Signal>>,
    observe: Arc<dyn Observe>,
    kept_at: Monotonic,
    away: Away,
}

/// Whether the store's files were taken away.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Away {
    /// No.
    No,
    /// Yes, and what is left could not be written yet.
    Lost,
    /// Yes, and what was left is in a file.
    Rescued,
}

impl StoreThread {
    fn run(mut self) {
        loop {
            let wait = HOUSEKEEPING.saturating_sub(self.kept_at.elapsed());
            match self.jobs.recv_timeout(wait) {
                Ok(Job::Commit(batch)) => self.commit(batch),
                Ok(Job::Run(run)) => run(&mut self.committer),
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

    fn commit(&mut self, mut batch: Batch) {
        let (started, records) = (Monotonic::now(), batch.records.len());
        match self.committer.commit(&mut batch) {
            Commit::Done => {
                self.observe.committed(records, started.elapsed());
                drop(self.publish.send(Publish::Batch(batch)));
                self.tell(true, None);
            }
            Commit::Refused => {
                batch.fail(&Failure::NotLeader);
                self.step_down();
            }
            Commit::Unknown(error) => self.resolve(batch, &error),
            Commit::Away => {
                batch.fail(&Failure::OutcomeUnknown);
                self.lose_store();
            }
        }
    }

    /// The store's files are gone: what is left is written beside them, and nothing is taken any
    /// more. The store is not opened again: that would destroy what the open files still hold.
    fn lose_store(&mut self) {
        self.intake.refuse(Some(&Failure::StoreAway));
        self.end(&Failure::StoreAway);
        self.rescue();
    }

    /// Writes what is left of the store. What failed is tried again as long as the process lives,
    /// and said once.
    fn rescue(&mut self) {
        let rescued = self.committer.store().rescue();
        if rescued.is_ok() || self.away == Away::No {
            self.observe.store_away(&rescued);
        }
        self.away = if rescued.is_ok() {
            Away::Rescued
        } else {
            Away::Lost
        };
    }

    /// After an unknown outcome: everyone is told so, and the store is asked until it answers.
    fn resolve(&mut self, mut batch: Batch, error: &crate::store::Error) {
        self.observe.store_failed(error);
        batch.fail_pending(&Failure::OutcomeUnknown);
        // This is asked once: the reopening closes the files, and the answer is lost with them.
        if self.committer.store().is_away() {
            return self.lose_store();
        }
        self.intake.refuse(Some(&Failure::Unavailable));
        let found = loop {
            match self.committer.reopen(&batch) {
                Ok(found) => break found,
                Err(error) => self.observe.store_failed(&error),
            }
            if self.is_stopping() {
                return self.end(&Failure::Unavailable);
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "the store's own thread has nothing else to do while the store is away"
            )]
            std::thread::sleep(STORE_RETRY);
        };
        match found {
            Reopened::Replaced => return self.step_down(),
            Reopened::Committed => drop(self.publish.send(Publish::CatchUp(batch.facts))),
            Reopened::Absent => {}
        }
        let (done, wait) = sync_channel(1);
        if self.publish.send(Publish::Flush(done)).is_ok() {
            let _ended = wait.recv();
        }
        self.tell(true, Some(Failure::OutcomeUnknown));
        if !self.is_stopping() {
            self.intake.refuse(None);
        }
    }

    /// Another term leads: this one is over.
    fn step_down(&self) {
        self.observe.not_leader();
        self.intake.refuse(Some(&Failure::NotLeader));
        self.end(&Failure::NotLeader);
    }

    fn end(&self, failure: &Failure) {
        let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        signal.ended = Some(failure.clone());
        drop(signal);
        self.intake.nudge();
    }

    fn tell(&self, free: bool, reset: Option<Failure>) {
        let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        signal.free = free;
        if reset.is_some() {
            signal.reset = reset;
        }
        drop(signal);
        self.intake.nudge();
    }

    fn is_stopping(&self) -> bool {
        self.signal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stop
    }

    /// Once a second: a checkpoint over what is new, and a look at the disk.
    fn housekeep(&mut self) {
        self.kept_at = Monotonic::now();
        match self.away {
            Away::Rescued => return,
            Away::Lost => return self.rescue(),
            Away::No if self.committer.store().is_away() => return self.lose_store(),
            Away::No => {}
        }
        match self.committer.checkpoint() {
            Ok(Some(size)) => self.observe.signed(size),
            Ok(None) => {}
            Err(error) => self.observe.store_failed(&error),
        }
        let free = self.committer.store().free_bytes();
        self.intake
            .set_disk_low(free.is_some_and(|free| free < DISK_LOW_BYTES));
    }
}

fn publish_all(view: &View, published: &Receiver<Publish>) {
    while let Ok(message) = published.recv() {
        match message {
            Publish::Batch(batch) => view.publish(batch),
            Publish::CatchUp(facts) => view.catch_up(facts),
            Publish::Flush(done) => {
                // Whoever waited has gone on by itself.
                let _gone = done.send(());
            }
        }
    }
}
