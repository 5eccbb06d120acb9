//! Two bounded lanes between the edge and the engine (L4).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_engine::{Answer, Command, Events, Lane, Refusal};
use bursar_units::{Instant, Label};
use thiserror::Error;
use tokio::sync::Notify;

/// The most commands that may wait in one lane.
pub const LANE_LENGTH_MAX: usize = 16_384;
/// The most commands of one principal that may wait.
pub const PER_PRINCIPAL_MAX: usize = 1_024;

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
    /// The store's files were taken away while they were open; nothing was admitted.
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
    /// Whether all commands are results of executors, which a batch takes first (L1).
    pub(crate) fn is_result(&self) -> bool {
        !self.commands.is_empty() && self.commands.iter().all(Command::is_result)
    }

    /// A command of the server itself; nobody gets an answer.
    pub fn own(command: Command) -> Self {
        #[expect(clippy::expect_used, reason = "a constant that is a label")]
        let by = Label::new(crate::writer::SELF).expect("the program's own name is a label");
        Self {
            by,
            commands: vec![command],
            reply: Box::new(drop),
        }
    }
}

/// The lanes.
#[derive(Default)]
pub struct Intake {
    lanes: Mutex<Lanes>,
    /// Wakes the engine's thread.
    woken: Condvar,
    /// Wakes an engine that runs in a task.
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

    /// Returns undecided submissions to the front of their lanes.
    pub fn put_back(&self, submissions: Vec<Submission>) {
        let mut lanes = self.lock();
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

    /// The reason why everything is refused, if it is.
    pub fn refuses(&self) -> Option<Failure> {
        self.lock().refuse.clone()
    }

    /// Refuses everything from now on, waiting submissions too. The end of a term is final: no
    /// other reason replaces it.
    pub fn refuse(&self, failure: &Failure) {
        let mut lanes = self.lock();
        if lanes.refuse.as_ref() == Some(failure) || lanes.is_final() {
            return;
        }
        lanes.refuse = Some(failure.clone());
        let turned_away = lanes.take(usize::MAX);
        drop(lanes);
        for submission in turned_away {
            (submission.reply)(Err(failure.clone()));
        }
        self.nudge();
    }

    /// Accepts submissions again, unless the term is over.
    pub fn open(&self) {
        let mut lanes = self.lock();
        if !lanes.is_final() {
            lanes.refuse = None;
        }
    }

    /// Sets whether only control commands are accepted, because the disk is nearly full.
    pub fn set_disk_low(&self, low: bool) {
        self.lock().disk_low = low;
    }

    /// Wakes the engine without a submission.
    pub fn nudge(&self) {
        self.lock().nudged = true;
        self.woken.notify_all();
        self.notify.notify_one();
    }

    /// Blocks until the engine is nudged or `timeout` is over; if it `wants_more`, also until
    /// something waits.
    pub fn wait(&self, timeout: Duration, wants_more: bool) {
        let lanes = self.lock();
        let idle = |lanes: &mut Lanes| !lanes.nudged && (!wants_more || lanes.is_empty());
        let waited = self.woken.wait_timeout_while(lanes, timeout, idle);
        let (mut lanes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        lanes.nudged = false;
    }

    /// Blocks until `enough` commands wait, the engine is nudged, or `timeout` is over. While the
    /// store is busy there is no hurry, and an engine that wakes for each command would take CPU
    /// time from the senders.
    pub fn gather(&self, enough: usize, timeout: Duration) {
        let mut lanes = self.lock();
        lanes.wake_at = enough;
        let few = |lanes: &mut Lanes| !lanes.nudged && lanes.commands() < enough;
        let waited = self.woken.wait_timeout_while(lanes, timeout, few);
        let (mut lanes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        lanes.wake_at = 0;
        lanes.nudged = false;
    }

    /// Resolves when something may wait; for an engine that runs in a task.
    pub async fn notified(&self) {
        self.notify.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lanes {
    fn admit(&self, submission: &Submission) -> Result<(), Failure> {
        if let Some(failure) = &self.refuse {
            return Err(failure.clone());
        }
        let lane = lane_of(submission);
        if self.disk_low && lane == Lane::Work {
            return Err(Failure::DiskLow);
        }
        let count = submission.commands.len();
        let queue = if lane == Lane::Control {
            &self.control
        } else {
            &self.work
        };
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
        match lane_of(submission) {
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

/// A submission takes the work lane if any of its commands does.
fn lane_of(submission: &Submission) -> Lane {
    if submission
        .commands
        .iter()
        .all(|command| command.lane() == Lane::Control)
    {
        Lane::Control
    } else {
        Lane::Work
    }
}
