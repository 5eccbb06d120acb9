//! The seed's saga, read off an execution: its steps, and what is undone when it does not complete.
//!
//! ```text
//! validate ─► allocate ─► queue ─► create ─► monitor ─► finish
//! ```
//! Steps are not stored. Each begins when the one before it is done, and the ledger knows those
//! moments: submitted, granted, started, stopped, ended. Compensations run in reverse.

use bursar_booking::execution::{Cause, Progress, Verdict};
use bursar_booking::{Bookings, Standing};
use bursar_units::{BookingId, Instant, Millis, vocabulary};

/// The way of an execution so far.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Saga {
    /// All six steps, in order.
    pub steps: Vec<Step>,
    /// What is undone, in the order in which it is; empty for one that completed or goes well.
    pub compensations: Vec<Step>,
}

/// One step, or one compensation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    /// Its name, as the seed has it.
    pub name: &'static str,
    /// How far it is.
    pub state: StepState,
    /// When it began; `None` if it did not.
    pub began: Option<Instant>,
    /// How long it took, or has taken so far.
    pub took: Option<Millis>,
}

vocabulary! {
    /// How far a step is.
    pub enum StepState {
        /// Its turn has not come.
        Pending = "pending",
        /// It is being done.
        Active = "active",
        /// It is done.
        Done = "done",
        /// It could not be done.
        Failed = "failed",
        /// Its turn will not come.
        Skipped = "skipped",
    }
}

/// The moments of an execution that the ledger knows.
struct Moments {
    submitted: Instant,
    granted: Option<Instant>,
    started: Option<Instant>,
    stopping: Option<(Instant, Cause)>,
    ended: Option<(Instant, Verdict)>,
}

/// The saga of an execution; `None` for a plain booking and for an unknown id.
pub fn saga(bookings: &Bookings, now: Instant, id: &BookingId) -> Option<Saga> {
    bookings.order(id)?;
    let moments = moments(bookings, id)?;
    Some(Saga {
        steps: moments.steps(now),
        compensations: moments.compensations(now),
    })
}

fn moments(bookings: &Bookings, id: &BookingId) -> Option<Moments> {
    Some(match bookings.standing(id)? {
        Standing::Queued { since, .. } => Moments {
            submitted: since,
            granted: None,
            started: None,
            stopping: None,
            ended: None,
        },
        Standing::Granted(granted) => {
            let Progress {
                started, stopping, ..
            } = granted.progress()?;
            Moments {
                submitted: granted.queued_at,
                granted: Some(granted.granted_at),
                started: started.map(|(at, _)| at),
                stopping: *stopping,
                ended: None,
            }
        }
        Standing::Ended(ended) => {
            let course = ended.course()?;
            Moments {
                submitted: ended.queued_at(),
                granted: ended.granted().map(|(at, _)| at),
                started: course.started.map(|(at, _)| at),
                stopping: course.stopping,
                ended: Some((ended.ended_at(), course.verdict)),
            }
        }
    })
}

impl Moments {
    fn steps(&self, now: Instant) -> Vec<Step> {
        let ended = self.ended.map(|(at, _)| at);
        let stopping = self.stopping.map(|(at, _)| at);
        let completed = self.completed();
        let watched_until = self.started.and(stopping.or(ended));
        let created_until = self.started.or(stopping.or(ended));
        let bounds = [
            ("validate", Some(self.submitted), Some(self.submitted), true),
            ("allocate", Some(self.submitted), Some(self.submitted), true),
            (
                "queue",
                Some(self.submitted),
                self.granted.or(ended),
                self.granted.is_some(),
            ),
            (
                "create",
                self.granted,
                self.granted.and(created_until),
                self.started.is_some(),
            ),
            ("monitor", self.started, watched_until, completed),
            ("finish", self.finishes(), ended, completed),
        ];
        bounds
            .into_iter()
            .map(|(name, began, over, went_well)| {
                let state = match (began, over) {
                    (None, _) if self.ended.is_some() || self.stopping.is_some() => {
                        StepState::Skipped
                    }
                    (None, _) => StepState::Pending,
                    (Some(_), None) => StepState::Active,
                    (Some(_), Some(_)) if went_well => StepState::Done,
                    (Some(_), Some(_)) => StepState::Failed,
                };
                step(name, state, began, over, now)
            })
            .collect()
    }

    /// Only what completed is finished; all else is compensated for.
    fn finishes(&self) -> Option<Instant> {
        let (at, _) = self.ended?;
        self.completed().then_some(at)
    }

    fn completed(&self) -> bool {
        matches!(self.ended, Some((_, Verdict::Completed)))
    }

    fn compensations(&self, now: Instant) -> Vec<Step> {
        let began = self
            .stopping
            .or(self.ended.map(|(at, _)| (at, Cause::Cancelled)));
        let Some((began, _)) = began.filter(|_| !self.completed()) else {
            return Vec::new();
        };
        let over = self.ended.map(|(at, _)| at);
        let state = |applies: bool| match (applies, over) {
            (false, _) => StepState::Skipped,
            (true, None) => StepState::Active,
            (true, Some(_)) => StepState::Done,
        };
        let was_granted = self.granted.is_some();
        let release = match (was_granted, over) {
            (true, None) => StepState::Pending,
            _ => state(was_granted),
        };
        [
            ("delete-process", state(was_granted), began),
            ("leave-queue", state(!was_granted), began),
            ("release", release, over.unwrap_or(began)),
        ]
        .into_iter()
        .map(|(name, state, began)| match state {
            StepState::Skipped | StepState::Pending => step(name, state, None, None, now),
            _ => step(name, state, Some(began), over, now),
        })
        .collect()
    }
}

fn step(
    name: &'static str,
    state: StepState,
    began: Option<Instant>,
    over: Option<Instant>,
    now: Instant,
) -> Step {
    let took = began.map(|began| over.unwrap_or(now).since(began));
    Step {
        name,
        state,
        began,
        took,
    }
}
