//! The stages of a term in one place: for scenarios and the simulator, on virtual time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::clock::SharedTermClock;
use crate::intake::Failure;
use crate::pipeline::{Job, STORE_RETRY};
use crate::stage::{EngineStage, Next, StoreStage};
use crate::view::View;
use crate::writer::{Batch, Fact, Poison, Writer};

/// The stages of a term, with the batches between them.
///
/// A scenario calls [`Self::run`]. The simulator calls the turns of the stages one by one, so that
/// a crash fits between any two.
pub struct Stages {
    engine: EngineStage,
    store: StoreStage,
    view: Arc<View>,
    time: Arc<SharedTermClock>,
    jobs: Receiver<Job>,
    in_flight: Option<Batch>,
    /// Durable and not yet published, oldest first.
    durable: VecDeque<Durable>,
}

enum Durable {
    Batch(Batch),
    /// See [`Next::Recover`].
    Recovered(Vec<Fact>),
}

impl Stages {
    pub(crate) fn new(
        engine: EngineStage,
        store: StoreStage,
        view: Arc<View>,
        time: Arc<SharedTermClock>,
        jobs: Receiver<Job>,
    ) -> Self {
        Self {
            engine,
            store,
            view,
            time,
            jobs,
            in_flight: None,
            durable: VecDeque::new(),
        }
    }

    /// Steps until it is dropped.
    pub async fn run(mut self) {
        loop {
            self.step();
            let wait = if self.store.is_unknown() {
                Some(STORE_RETRY)
            } else {
                let ms = self.engine.wait_ms(self.time.now());
                ms.map(Duration::from_millis)
            };
            tokio::select! {
                () = self.engine.intake().notified() => {}
                () = sleep(wait) => {}
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
        // Virtual time has no second to wait for: every step is signed.
        self.store.housekeep();
        while let Ok(job) = self.jobs.try_recv() {
            match job {
                Job::Run(run) => run(self.store.committer()),
                Job::Commit(batch) => batch.fail(&Failure::Unavailable),
                Job::Flush(done) | Job::Stop(done) => drop(done.send(())),
            }
        }
    }

    /// The engine's turn: at most `most` commands, and due deadlines.
    pub fn build(&mut self, most: usize) -> Result<(), Box<Poison>> {
        if self.store.ended().is_some() {
            return Ok(());
        }
        self.engine.build(&self.time.look(), most)
    }

    /// Hands the open batch to the store if the store is free; returns whether it did.
    pub fn send(&mut self) -> bool {
        if !self.is_free() {
            return false;
        }
        self.in_flight = self.engine.close();
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
        if self.store.is_unknown() {
            let next = self.store.resolve();
            self.take(next);
        }
    }

    /// The view's turn; returns whether there was anything to publish.
    pub fn publish(&mut self) -> bool {
        match self.durable.pop_front() {
            None => return false,
            Some(Durable::Batch(batch)) => self.view.publish(batch),
            Some(Durable::Recovered(facts)) => {
                self.view.catch_up(facts);
                self.engine.recover();
            }
        }
        true
    }

    /// Signs a checkpoint, and looks at the disk.
    pub fn housekeep(&mut self) {
        self.store.housekeep();
    }

    /// Whether the store would take a batch.
    pub fn is_free(&self) -> bool {
        let recovers = |durable: &Durable| matches!(durable, Durable::Recovered(_));
        self.in_flight.is_none()
            && !self.is_unknown()
            && !self.is_ended()
            && !self.durable.back().is_some_and(recovers)
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
        self.store.is_unknown()
    }

    /// Whether the term is over.
    pub fn is_ended(&self) -> bool {
        self.store.ended().is_some()
    }

    /// Number of durable records.
    pub fn head(&mut self) -> u64 {
        self.store.committer().head()
    }

    /// The engine itself.
    pub fn writer(&self) -> &Writer {
        self.engine.writer()
    }

    fn take(&mut self, next: Next) {
        match next {
            Next::Publish(batch) => self.durable.push_back(Durable::Batch(batch)),
            Next::Resolve => {}
            Next::Recover(facts) => self.durable.push_back(Durable::Recovered(facts)),
            Next::End(failure) => self.engine.end(&failure),
        }
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
