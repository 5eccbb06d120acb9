//! Saga of an execution: its steps, and the compensations if it does not complete.
//!
//! ```text
//! validate ─► allocate ─► queue ─► create ─► monitor ─► finish
//! ```
//! Steps are not stored. Each begins when the one before it is done, and the ledger has those
//! times: submitted, granted, started, stopped, ended. Compensations run in reverse.

use bursar_booking::execution::{Cause, Progress, Verdict};
use bursar_booking::{Bookings, Standing};
use bursar_units::{BookingId, Instant, Millis, vocabulary};

/// Saga of an execution so far.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Saga {
    /// All six steps, in order.
    pub steps: Vec<Step>,
    /// Compensations, in order; empty unless the execution is being stopped or did not complete.
    pub compensations: Vec<Step>,
}

/// One step, or one compensation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    /// Name.
    pub name: &'static str,
    /// State.
    pub state: StepState,
    /// Begin; `None` if it has not begun.
    pub began: Option<Instant>,
    /// Duration, so far if it is active.
    pub took: Option<Millis>,
}

vocabulary! {
    /// State of a step.
    pub enum StepState {
        /// Not begun yet.
        Pending = "pending",
        /// Begun and not done.
        Active = "active",
        /// Done.
        Done = "done",
        /// Failed.
        Failed = "failed",
        /// Will not begin.
        Skipped = "skipped",
    }
}

/// Times of an execution that the ledger has.
struct Times {
    submitted: Instant,
    granted: Option<Instant>,
    started: Option<Instant>,
    stopping: Option<(Instant, Cause)>,
    ended: Option<(Instant, Verdict)>,
}

/// The saga of an execution; `None` for a plain booking and for an unknown id.
pub fn saga(bookings: &Bookings, now: Instant, id: &BookingId) -> Option<Saga> {
    bookings.order(id)?;
    let times = times(bookings, id)?;
    Some(Saga {
        steps: times.steps(now),
        compensations: times.compensations(now),
    })
}

fn times(bookings: &Bookings, id: &BookingId) -> Option<Times> {
    Some(match bookings.standing(id)? {
        Standing::Queued { since, .. } => Times {
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
            Times {
                submitted: granted.queued_at,
                granted: Some(granted.granted_at),
                started: started.map(|(at, _)| at),
                stopping: *stopping,
                ended: None,
            }
        }
        Standing::Ended(ended) => {
            let course = ended.course()?;
            Times {
                submitted: ended.queued_at(),
                granted: ended.granted().map(|(at, _)| at),
                started: course.started.map(|(at, _)| at),
                stopping: course.stopping,
                ended: Some((ended.ended_at(), course.verdict)),
            }
        }
    })
}

impl Times {
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

    /// Only a completed execution has this step; others have compensations.
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
