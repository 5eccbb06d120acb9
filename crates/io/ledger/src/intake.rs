//! Two bounded lanes between the edge and the engine (L4).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_engine::{Answer, Command, Events, Lane, Refusal};
use bursar_units::{Instant, Label};
use thiserror::Error;
use tokio::sync::Notify;

use crate::writer::own_principal;

/// The most commands that may wait in one lane.
pub const LANE_LENGTH_MAX: usize = 16_384;
/// The most commands of one principal that may wait in one lane.
const PER_PRINCIPAL_MAX: usize = 1_024;

/// The decision on one command: everything that an answer needs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// The record of the decision, or the last one before it where it has none.
    pub record: u64,
    /// Time of the decision.
    pub time: Instant,
    /// The reply, or the refusal.
    pub result: Result<Answer, Refusal>,
    /// Events of its record, shared with the published fact; none where it has no record.
    pub events: Arc<Events>,
}

/// The reason why a submission got no decision.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Failure {
    /// The lane is full.
    #[error("intake is full")]
    Busy,
    /// This principal has too much waiting.
    #[error("too many requests of yours are waiting")]
    SlowDown,
    /// The disk is nearly full: only commands that free something are accepted.
    #[error("the disk is nearly full")]
    DiskLow,
    /// Another replica leads.
    #[error("another replica leads")]
    NotLeader,
    /// The store does not answer, or the process stops; nothing was admitted.
    #[error("the store is away")]
    Unavailable,
    /// The store's files were removed while they were open; nothing was admitted.
    #[error("the files of the store are gone")]
    StoreAway,
    /// The commands may or may not be recorded; repeating them is safe.
    #[error("the outcome is not known")]
    OutcomeUnknown,
    /// A defect; the command was kept for its analysis.
    #[error("a defect in deciding")]
    Internal,
}

/// Answers the caller; called once.
pub type Reply = Box<dyn FnOnce(Result<Vec<Outcome>, Failure>) + Send>;

/// Commands of one caller, decided in order, with one reply for all.
pub struct Submission {
    /// Principal.
    pub by: Label,
    /// Commands, in order.
    pub commands: Vec<Command>,
    /// Receiver of the answer.
    pub reply: Reply,
}

impl Submission {
    /// A submission takes the work lane if any of its commands does.
    fn lane(&self) -> Lane {
        let is_control = |command: &Command| command.lane() == Lane::Control;
        if self.commands.iter().all(is_control) {
            Lane::Control
        } else {
            Lane::Work
        }
    }

    /// Whether all commands are results of executors, which a batch takes first (L1).
    pub(crate) fn is_result(&self) -> bool {
        !self.commands.is_empty() && self.commands.iter().all(Command::is_result)
    }

    /// A command of the server itself; nobody gets an answer.
    pub fn own(command: Command) -> Self {
        Self {
            by: own_principal(),
            commands: vec![command],
            reply: Box::new(drop),
        }
    }
}

/// Submissions that wait for the engine, in two lanes.
#[derive(Default)]
pub struct Intake {
    lanes: Mutex<Lanes>,
    /// For an engine in a thread.
    woken: Condvar,
    /// For an engine in a task.
    notify: Notify,
}

#[derive(Default)]
struct Lanes {
    control: Queue,
    work: Queue,
    refuse: Option<Failure>,
    disk_low: bool,
    /// The engine is woken for another reason than a submission.
    nudged: bool,
    /// Number of waiting commands from which on the engine is woken.
    wake_at: usize,
}

#[derive(Default)]
struct Queue {
    submissions: VecDeque<Submission>,
    commands: usize,
    per_principal: BTreeMap<Label, usize>,
}

impl Intake {
    /// Puts a submission into its lane, or answers at once with the failure.
    pub fn push(&self, submission: Submission) {
        let mut lanes = self.lock();
        if let Err(failure) = lanes.admit(&submission) {
            drop(lanes);
            (submission.reply)(Err(failure));
            return;
        }
        let queue = lanes.lane_mut(&submission);
        queue.count_in(&submission);
        queue.submissions.push_back(submission);
        let wakes = lanes.commands() >= lanes.wake_at;
        drop(lanes);
        if wakes {
            self.woken.notify_one();
        }
        self.notify.notify_one();
    }

    /// Takes submissions of at most `max` commands together, control first. A larger submission is
    /// taken alone.
    pub fn take(&self, max: usize) -> Vec<Submission> {
        self.lock().take(max)
    }

    /// Returns undecided submissions to the front of their lanes. If everything is refused by now,
    /// they are refused too: nobody would take them again.
    pub fn put_back(&self, submissions: Vec<Submission>) {
        let mut lanes = self.lock();
        if let Some(failure) = lanes.refuse.clone() {
            drop(lanes);
            for submission in submissions {
                (submission.reply)(Err(failure.clone()));
            }
            return;
        }
        if !submissions.is_empty() {
            self.notify.notify_one();
        }
        for submission in submissions.into_iter().rev() {
            let queue = lanes.lane_mut(&submission);
            queue.count_in(&submission);
            queue.submissions.push_front(submission);
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Number of waiting commands in (control, work).
    pub fn waiting(&self) -> (usize, usize) {
        let lanes = self.lock();
        (lanes.control.commands, lanes.work.commands)
    }

    pub(crate) fn refuses(&self) -> Option<Failure> {
        self.lock().refuse.clone()
    }

    /// Refuses everything from now on, waiting submissions too. The end of a term is final: no
    /// other reason replaces it.
    pub(crate) fn refuse(&self, failure: &Failure) {
        let mut lanes = self.lock();
        if lanes.refuse.as_ref() == Some(failure) || lanes.is_final() {
            return;
        }
        lanes.refuse = Some(failure.clone());
        let refused = lanes.take(usize::MAX);
        drop(lanes);
        for submission in refused {
            (submission.reply)(Err(failure.clone()));
        }
        self.nudge();
    }

    /// Accepts submissions again, unless the term is over.
    pub(crate) fn open(&self) {
        let mut lanes = self.lock();
        if !lanes.is_final() {
            lanes.refuse = None;
        }
    }

    /// With little disk space, only control commands are accepted.
    pub(crate) fn set_disk_low(&self, low: bool) {
        self.lock().disk_low = low;
    }

    /// Wakes the engine without a submission.
    pub(crate) fn nudge(&self) {
        self.lock().nudged = true;
        self.woken.notify_all();
        self.notify.notify_one();
    }

    /// Blocks until a submission and `enough` commands wait, the engine is nudged, or `timeout` is
    /// over.
    pub(crate) fn wait(&self, enough: usize, timeout: Duration) {
        let mut lanes = self.lock();
        lanes.wake_at = enough;
        let few =
            |lanes: &mut Lanes| !lanes.nudged && (lanes.is_empty() || lanes.commands() < enough);
        let waited = self.woken.wait_timeout_while(lanes, timeout, few);
        let (mut lanes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        lanes.wake_at = 0;
        lanes.nudged = false;
    }

    /// Resolves when submissions may wait; for an engine in a task.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lanes {
    fn admit(&mut self, submission: &Submission) -> Result<(), Failure> {
        if let Some(failure) = &self.refuse {
            return Err(failure.clone());
        }
        if self.disk_low && submission.lane() == Lane::Work {
            return Err(Failure::DiskLow);
        }
        let count = submission.commands.len();
        let queue = self.lane_mut(submission);
        if queue.commands + count > LANE_LENGTH_MAX {
            return Err(Failure::Busy);
        }
        // A submission that is larger than the bound may still come alone.
        let present = queue.per_principal.get(&submission.by).copied();
        if present.is_some_and(|present| present + count > PER_PRINCIPAL_MAX) {
            return Err(Failure::SlowDown);
        }
        Ok(())
    }

    fn lane_mut(&mut self, submission: &Submission) -> &mut Queue {
        match submission.lane() {
            Lane::Control => &mut self.control,
            Lane::Work => &mut self.work,
        }
    }

    fn take(&mut self, max: usize) -> Vec<Submission> {
        let mut taken = Vec::new();
        let mut count = 0;
        for queue in [&mut self.control, &mut self.work] {
            while let Some(next) = queue.submissions.front() {
                let size = next.commands.len();
                if count > 0 && count + size > max {
                    break;
                }
                count += size;
                taken.extend(queue.pop());
            }
        }
        taken
    }

    fn is_final(&self) -> bool {
        matches!(self.refuse, Some(Failure::NotLeader | Failure::StoreAway))
    }

    fn commands(&self) -> usize {
        self.control.commands + self.work.commands
    }

    fn is_empty(&self) -> bool {
        self.control.submissions.is_empty() && self.work.submissions.is_empty()
    }
}

impl Queue {
    fn count_in(&mut self, submission: &Submission) {
        let count = submission.commands.len();
        self.commands += count;
        *self.per_principal.entry(submission.by.clone()).or_default() += count;
    }

    fn pop(&mut self) -> Option<Submission> {
        let submission = self.submissions.pop_front()?;
        let count = submission.commands.len();
        self.commands -= count;
        if let Some(present) = self.per_principal.get_mut(&submission.by) {
            *present -= count;
            if *present == 0 {
                self.per_principal.remove(&submission.by);
            }
        }
        Some(submission)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use bursar_engine::spine;

    use super::{Failure, Intake, Submission};
    use crate::writer::own_principal;

    #[test]
    fn a_submission_that_is_put_back_after_the_end_of_the_term_is_answered() {
        let intake = Intake::default();
        let (send, replies) = sync_channel(1);
        intake.push(Submission {
            by: own_principal(),
            commands: vec![spine::Command::tick(Vec::new()).into()],
            reply: Box::new(move |result| drop(send.send(result.err()))),
        });
        let taken = intake.take(usize::MAX);
        intake.refuse(&Failure::NotLeader);
        intake.put_back(taken);
        assert_eq!(replies.try_recv(), Ok(Some(Failure::NotLeader)));
        assert!(intake.is_empty());
    }
}
