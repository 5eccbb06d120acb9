//! The pipeline in one place: a step builds, commits and publishes, on whatever time it is told.

use std::sync::Arc;

use bursar_units::Instant;

use crate::committer::{Commit, Committer};
use crate::intake::{Failure, Intake};
use crate::store::Error;
use crate::view::View;
use crate::writer::{Batch, Poison, Writer};

/// A pipeline that is stepped.
pub struct Inline {
    /// Where submissions come in.
    pub intake: Arc<Intake>,
    /// The engine.
    pub writer: Writer,
    /// The store.
    pub committer: Committer,
    /// What is committed.
    pub view: Arc<View>,
    /// A batch whose outcome is unknown, until the store says.
    unknown: Option<Batch>,
}

/// What a step could not do by itself.
#[derive(Debug)]
pub enum Trouble {
    /// Another term leads: stop.
    NotLeader,
    /// The store is away; step again later. Until then nothing is admitted.
    StoreAway(Error),
    /// A command was kept aside; the pipeline has started over from what is committed.
    Poisoned(Box<Poison>),
}

impl Inline {
    /// A pipeline of these parts.
    pub fn new(intake: Arc<Intake>, writer: Writer, committer: Committer, view: Arc<View>) -> Self {
        Self {
            intake,
            writer,
            committer,
            view,
            unknown: None,
        }
    }

    /// Takes what waits, lets time have its say, commits and publishes.
    pub fn step(&mut self, now: Instant) -> Result<(), Trouble> {
        self.resolve()?;
        let built = self.build(now);
        if let Err(poison) = built {
            self.start_over(&Failure::OutcomeUnknown);
            return Err(Trouble::Poisoned(Box::new(poison)));
        }
        match self.writer.close() {
            Some(batch) => self.commit(batch),
            None => Ok(()),
        }
    }

    fn build(&mut self, now: Instant) -> Result<(), Poison> {
        self.writer.open(now)?;
        let submissions = self.intake.take(self.writer.room());
        self.writer.take_all(submissions)
    }

    /// Commits a batch and publishes it, or deals with why not (L2).
    fn commit(&mut self, mut batch: Batch) -> Result<(), Trouble> {
        match self.committer.commit(&mut batch) {
            Commit::Done => {
                self.view.publish(batch);
                Ok(())
            }
            Commit::Refused => {
                batch.fail(&Failure::NotLeader);
                self.start_over(&Failure::NotLeader);
                self.intake.refuse(Some(&Failure::NotLeader));
                Err(Trouble::NotLeader)
            }
            Commit::Unknown(_) => {
                batch.fail_pending(&Failure::OutcomeUnknown);
                self.unknown = Some(batch);
                self.resolve()
            }
        }
    }

    /// After an unknown outcome: looks what is there, and goes on from that.
    fn resolve(&mut self) -> Result<(), Trouble> {
        let Some(batch) = self.unknown.take() else {
            return Ok(());
        };
        match self.committer.reopen(&batch) {
            Ok(committed) => {
                if committed {
                    self.view.catch_up(batch.facts);
                }
                self.start_over(&Failure::OutcomeUnknown);
                self.intake.refuse(None);
                Ok(())
            }
            Err(error) => {
                self.unknown = Some(batch);
                self.intake.refuse(Some(&Failure::Unavailable));
                Err(Trouble::StoreAway(error))
            }
        }
    }

    fn start_over(&mut self, failure: &Failure) {
        let state = self.view.read().clone();
        self.writer.reset(state, failure);
    }
}
