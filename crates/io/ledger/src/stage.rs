//! The two stages of a term that can fail, and everything that a failed commit implies (L2).
//!
//! ```text
//! EngineStage: build, close ──Batch──► StoreStage: commit, resolve ──Next──► driver: publish
//! ```
//! A stage decides which failure each waiting caller gets, when intake refuses, when it opens
//! again, and when the term is over. It returns the work that is left as data, [`Next`]. A driver
//! decides nothing: [`crate::pipeline`] sends the data through channels between three threads, and
//! [`crate::inline`] queues it in one place.

use std::sync::Arc;
use std::time::{Duration, Instant as Monotonic};

use bursar_units::Instant;

use crate::clock::Moment;
use crate::committer::{Commit, Committer, Reopened};
use crate::intake::{Failure, Intake};
use crate::log;
use crate::pipeline::Observe;
use crate::view::View;
use crate::writer::{Batch, Poison, SELF, Writer};

/// Below this many free bytes only control commands are accepted (L4).
const DISK_LOW_BYTES: u64 = 256 << 20;
/// Number of panics in a row, while the server decides its own commands, that end the process.
const POISONS_MAX: u32 = 3;

/// The engine's stage: it decides submissions and deadlines on the working state.
pub(crate) struct EngineStage {
    pub(crate) writer: Writer,
    pub(crate) intake: Arc<Intake>,
    pub(crate) view: Arc<View>,
    observe: Arc<dyn Observe>,
    /// Panics in a row while the server decided its own commands.
    poisons: u32,
}

/// The store's stage: it makes batches durable, one at a time.
pub(crate) struct StoreStage {
    pub(crate) committer: Committer,
    pub(crate) intake: Arc<Intake>,
    observe: Arc<dyn Observe>,
    /// The batch whose outcome is unknown. Its callers have their answer.
    pub(crate) unknown: Option<Batch>,
    /// The reason why the term is over, if it is: nothing is committed any more.
    pub(crate) ended: Option<Failure>,
    /// Whether the records of a store whose files are gone still wait for their rescue.
    needs_rescue: bool,
}

/// The work that a commit leaves to the driver.
#[must_use]
pub(crate) enum Next {
    /// The batch is durable: publish it. The store is free.
    Publish(Batch),
    /// The outcome is unknown: call [`StoreStage::resolve`], and again after a pause while it
    /// returns this.
    Resolve,
    /// The outcome is known: publish this batch, which may be empty, after all that are durable.
    /// Then call [`EngineStage::recover`]. Only then is the store free.
    Recover(Batch),
    /// The term is over: call [`EngineStage::end`].
    End(Failure),
}

impl EngineStage {
    pub(crate) fn new(
        writer: Writer,
        intake: Arc<Intake>,
        view: Arc<View>,
        observe: Arc<dyn Observe>,
    ) -> Self {
        Self {
            writer,
            intake,
            view,
            observe,
            poisons: 0,
        }
    }

    /// Decides waiting submissions, at most `most` commands, and due deadlines. After a poisoned
    /// command the driver waits until all durable batches are published, and calls
    /// [`Self::start_over`].
    pub(crate) fn build(&mut self, moment: &Moment, most: usize) -> Result<(), Box<Poison>> {
        let Err(poison) = self.writer.build(moment, &self.intake, most) else {
            self.poisons = 0;
            return Ok(());
        };
        self.observe.poisoned(&poison);
        let is_own = poison.by.as_str() == SELF;
        self.poisons = if is_own { self.poisons + 1 } else { 0 };
        if self.poisons == POISONS_MAX {
            // A due deadline comes again after each start: waiting does not help.
            tracing::error!(cause = poison.message, "{}", log::TICK_PANICKED);
            std::process::abort();
        }
        Err(Box::new(poison))
    }

    /// Returns to the committed state. Callers of the open batch get an unknown outcome.
    pub(crate) fn start_over(&mut self) {
        self.fail_batch(&Failure::OutcomeUnknown);
    }

    /// Returns to the committed state after an unknown outcome became known, and opens intake.
    pub(crate) fn recover(&mut self) {
        self.start_over();
        self.intake.open();
    }

    /// Fails the open batch, because the term is over.
    pub(crate) fn end(&mut self, failure: &Failure) {
        if !self.writer.batch().is_empty() {
            self.fail_batch(failure);
        }
    }

    /// Refuses all further submissions, because the process stops.
    pub(crate) fn stop(&self) {
        self.intake.refuse(&Failure::Unavailable);
    }

    /// The time until the next deadline, at least a millisecond; `None` without a deadline.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let deadline = self.writer.working().next_deadline()?;
        Some(Duration::from_millis(deadline.since(now).ms().max(1)))
    }

    fn fail_batch(&mut self, failure: &Failure) {
        let state = self.view.read().clone();
        self.writer.reset(state, failure);
    }
}

impl StoreStage {
    pub(crate) fn new(
        committer: Committer,
        intake: Arc<Intake>,
        observe: Arc<dyn Observe>,
    ) -> Self {
        Self {
            committer,
            intake,
            observe,
            unknown: None,
            ended: None,
            needs_rescue: false,
        }
    }

    /// Makes a batch durable.
    pub(crate) fn commit(&mut self, mut batch: Batch) -> Next {
        if let Some(failure) = self.ended.clone() {
            batch.fail(&failure);
            return Next::End(failure);
        }
        let (started, records) = (Monotonic::now(), batch.records.len());
        match self.committer.commit(&mut batch) {
            Commit::Done => {
                self.observe.committed(records, started.elapsed());
                Next::Publish(batch)
            }
            Commit::Refused => {
                batch.fail(&Failure::NotLeader);
                self.step_down()
            }
            Commit::Away => {
                batch.fail(&Failure::OutcomeUnknown);
                self.lose_store()
            }
            Commit::Unknown(error) => {
                self.observe.store_failed(&error);
                batch.fail(&Failure::OutcomeUnknown);
                // Checked before the store is reopened, which closes the removed files.
                if self.committer.store().is_away() {
                    return self.lose_store();
                }
                self.intake.refuse(&Failure::Unavailable);
                self.unknown = Some(batch);
                Next::Resolve
            }
        }
    }

    /// Asks the store for the outcome of the batch whose outcome is unknown.
    pub(crate) fn resolve(&mut self) -> Next {
        let Some(batch) = self.unknown.take() else {
            return Next::Recover(Batch::default());
        };
        match self.committer.reopen(&batch) {
            Ok(Reopened::Committed) => Next::Recover(batch),
            Ok(Reopened::Absent) => Next::Recover(Batch::default()),
            Ok(Reopened::Replaced) => self.step_down(),
            Err(error) => {
                self.observe.store_failed(&error);
                self.unknown = Some(batch);
                Next::Resolve
            }
        }
    }

    /// Ends the term without an answer of the store, because the process stops.
    pub(crate) fn give_up(&mut self) -> Next {
        self.end(Failure::Unavailable)
    }

    /// Signs a checkpoint over new records, checks the free disk space, and notices when the files
    /// of the store are gone (L11, L4), which ends the term. A rescue that failed is tried again.
    pub(crate) fn housekeep(&mut self) -> Option<Next> {
        if self.ended.is_some() {
            if self.needs_rescue {
                self.rescue();
            }
            return None;
        }
        if self.unknown.is_none() {
            if self.committer.store().is_away() {
                return Some(self.lose_store());
            }
            match self.committer.checkpoint() {
                Ok(Some(size)) => self.observe.signed(size),
                Ok(None) => {}
                Err(error) => self.observe.store_failed(&error),
            }
        }
        let free = self.committer.store().free_bytes();
        self.intake
            .set_disk_low(free.is_some_and(|free| free < DISK_LOW_BYTES));
        None
    }

    fn step_down(&mut self) -> Next {
        self.observe.not_leader();
        self.end(Failure::NotLeader)
    }

    /// Ends the term because the files of the store are gone. The store is not opened again: that
    /// would destroy the records in the open files.
    fn lose_store(&mut self) -> Next {
        let next = self.end(Failure::StoreAway);
        self.rescue();
        next
    }

    /// Writes the records in the open files to a new file. Only the first failure is reported.
    fn rescue(&mut self) {
        let rescued = self.committer.store().rescue();
        if rescued.is_ok() || !self.needs_rescue {
            self.observe.store_away(&rescued);
        }
        self.needs_rescue = rescued.is_err();
    }

    fn end(&mut self, failure: Failure) -> Next {
        self.unknown = None;
        self.intake.refuse(&failure);
        self.ended = Some(failure.clone());
        Next::End(failure)
    }
}
