//! The pipeline in one place: a step builds, commits and publishes, on whatever time it is told.

use std::sync::Arc;

use crate::clock::Moment;
use crate::committer::{Commit, Committer, Reopened};
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
    pub fn step(&mut self, moment: &Moment) -> Result<(), Trouble> {
        self.resolve()?;
        let built = self.writer.build(moment, &self.intake, usize::MAX);
        if let Err(poison) = built {
            self.start_over(&Failure::OutcomeUnknown);
            return Err(Trouble::Poisoned(Box::new(poison)));
        }
        match self.writer.close() {
            Some(batch) => self.commit(batch),
            None => Ok(()),
        }
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
                self.step_down()
            }
            Commit::Unknown(_) | Commit::Away => {
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
            Ok(Reopened::Replaced) => self.step_down(),
            Ok(found) => {
                if found == Reopened::Committed {
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

    fn step_down(&mut self) -> Result<(), Trouble> {
        self.start_over(&Failure::NotLeader);
        self.intake.refuse(Some(&Failure::NotLeader));
        Err(Trouble::NotLeader)
    }

    fn start_over(&mut self, failure: &Failure) {
        let state = self.view.read().clone();
        self.writer.reset(state, failure);
    }
}
