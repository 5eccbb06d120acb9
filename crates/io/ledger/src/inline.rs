//! The stages of a term in one place: for scenarios and the simulator, on virtual time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bursar_units::Instant;

use crate::clock::{Clock, SharedTermClock};
use crate::intake::Failure;
use crate::pipeline::{Job, Ledger, Observe, STORE_RETRY};
use crate::stage::{EngineStage, Next, StoreStage};
use crate::term::Begun;
use crate::writer::{Batch, Poison, Writer};

/// The stages of a term, with the batches between them.
///
/// A scenario calls [`Self::run`]. The simulator calls the turns of the stages one by one, so that
/// a crash fits between any two.
pub struct Stages {
    engine: EngineStage,
    store: StoreStage,
    time: Arc<SharedTermClock>,
    jobs: Receiver<Job>,
    in_flight: Option<Batch>,
    /// Durable and not yet published, oldest first.
    durable: VecDeque<Batch>,
    /// Whether the last durable batch is that of [`Next::Recover`].
    recovers: bool,
}

impl Ledger {
    /// The same ledger without threads, for scenarios and the simulator.
    pub fn inline(
        begun: Begun,
        clock: Arc<dyn Clock>,
        observe: Arc<dyn Observe>,
    ) -> (Self, Stages) {
        let (ledger, engine, store, jobs) = Self::assemble(begun, clock, observe);
        let stages = Stages {
            engine,
            store,
            time: Arc::clone(&ledger.time),
            jobs,
            in_flight: None,
            durable: VecDeque::new(),
            recovers: false,
        };
        (ledger, stages)
    }
}

impl Stages {
    /// Steps until it is dropped.
    pub async fn run(self) {
        self.run_with(|| None).await;
    }

    /// Steps until it is dropped. Before each step, `report` pushes the results of an executor that
    /// are due; it returns the instant of its next result.
    pub async fn run_with(mut self, mut report: impl FnMut() -> Option<Instant>) {
        loop {
            let next = self.settle(&mut report);
            let wait = match (self.is_unknown(), self.is_ended()) {
                (true, _) => Some(STORE_RETRY),
                (false, true) => None,
                (false, false) => {
                    let now = self.time.now();
                    let next = next.map(|at| Duration::from_millis(at.since(now).ms().max(1)));
                    self.engine.wait(now).into_iter().chain(next).min()
                }
            };
            tokio::select! {
                () = self.engine.intake.notified() => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }

    /// Steps until nothing moves, with a report before each step; so all results of an instant come
    /// before the commands that follow.
    pub fn settle(&mut self, report: &mut impl FnMut() -> Option<Instant>) -> Option<Instant> {
        loop {
            let before = self.head();
            let next = report();
            self.step();
            if self.head() == before {
                return next;
            }
        }
    }

    /// One turn of every stage. All durable batches are published when it returns.
    pub fn step(&mut self) {
        self.resolve();
        while self.publish() {}
        if self.build(usize::MAX).is_err() {
            self.engine.start_over();
        }
        if self.send() {
            self.commit();
            self.resolve();
        }
        while self.publish() {}
        // Every step is signed: virtual time may not advance until the next one.
        self.housekeep();
        while let Ok(job) = self.jobs.try_recv() {
            match job {
                Job::Run(run) => run(&mut self.store.committer),
                Job::Commit(mut batch) => batch.fail(&Failure::Unavailable),
                Job::Flush(done) | Job::Stop(done) => drop(done.send(())),
            }
        }
    }

    /// The engine's turn: at most `most` commands, and due deadlines.
    pub fn build(&mut self, most: usize) -> Result<(), Box<Poison>> {
        if self.is_ended() {
            return Ok(());
        }
        self.engine.build(&self.time.look(), most)
    }

    /// Hands the open batch to the store if the store is free; returns whether it did.
    pub fn send(&mut self) -> bool {
        if !self.is_free() {
            return false;
        }
        self.in_flight = self.engine.writer.close();
        self.in_flight.is_some()
    }

    /// The store's turn, if it has a batch.
    pub fn commit(&mut self) {
        if let Some(batch) = self.in_flight.take() {
            let next = self.store.commit(batch);
            self.take(next);
        }
    }

    /// Asks the store for an outcome that is unknown, if one is.
    pub fn resolve(&mut self) {
        if self.is_unknown() {
            let next = self.store.resolve();
            self.take(next);
        }
    }

    /// The view's turn; returns whether there was anything to publish.
    pub fn publish(&mut self) -> bool {
        let Some(batch) = self.durable.pop_front() else {
            return false;
        };
        self.engine.view.publish(batch);
        if self.recovers && self.durable.is_empty() {
            self.recovers = false;
            self.engine.recover();
        }
        true
    }

    /// Signs a checkpoint, and checks the free disk space.
    pub fn housekeep(&mut self) {
        if let Some(next) = self.store.housekeep() {
            self.take(next);
        }
    }

    /// Whether the store would take a batch.
    pub fn is_free(&self) -> bool {
        self.in_flight.is_none() && !self.is_unknown() && !self.is_ended() && !self.recovers
    }

    /// Whether the store has a batch and has not committed it.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether durable records are not published.
    pub fn is_behind(&self) -> bool {
        !self.durable.is_empty()
    }

    /// Whether the outcome of a batch is unknown.
    pub fn is_unknown(&self) -> bool {
        self.store.unknown.is_some()
    }

    /// Whether the term is over.
    pub fn is_ended(&self) -> bool {
        self.store.ended.is_some()
    }

    /// Number of durable records.
    pub fn head(&self) -> u64 {
        self.store.committer.head()
    }

    /// The writer of the engine's stage.
    pub fn writer(&self) -> &Writer {
        &self.engine.writer
    }

    fn take(&mut self, next: Next) {
        match next {
            Next::Publish(batch) => self.durable.push_back(batch),
            Next::Resolve => {}
            Next::Recover(batch) => {
                self.durable.push_back(batch);
                self.recovers = true;
            }
            Next::End(failure) => self.engine.end(&failure),
        }
    }
}
