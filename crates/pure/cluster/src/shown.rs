//! A run in a reply, as the command left it, and replies.

use bursar_budget::{Claim, Class, EnvelopeId, RunUid, Take, Unfunded};
use bursar_units::{Instant, Millis, vocabulary};

use crate::{Outcome, Pod, Reason, Run};

vocabulary! {
    /// Stage of a run.
    pub enum Stage {
        /// It has no GPUs yet.
        Waiting = "waiting",
        /// Its GPUs are leased, and its processes are being started.
        Starting = "starting",
        /// All its processes run.
        Running = "running",
        /// It is being stopped.
        Ending = "stopping",
        /// It has ended.
        Ended = "ended",
    }
}

/// A run as replies show it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shown {
    /// Identity.
    pub uid: RunUid,
    /// The run with its edits.
    pub run: Run,
    /// Stage.
    pub stage: Stage,
    /// Instant at which the stage began.
    pub since: Instant,
    /// Instant of the submission.
    pub submitted: Instant,
    /// Incarnation, from 0.
    pub incarnation: u64,
    /// Instant at which its leases opened.
    pub started: Option<Instant>,
    /// Instant at which all its processes ran.
    pub running: Option<Instant>,
    /// Cause and deadline, while it is being stopped.
    pub ending: Option<(Reason, Instant)>,
    /// Its end.
    pub end: Option<End>,
    /// Pods with leases; those that it had, if it has ended.
    pub pods: Vec<Pod>,
    /// Claims that pay for it, oldest first.
    pub claims: Vec<Claim>,
    /// Claims that nobody pays, earliest first.
    pub unfunded: Vec<Unfunded>,
}

/// A run in a list: what choosing and sorting need.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Identity.
    pub uid: &'a RunUid,
    /// The run with its edits.
    pub run: &'a Run,
    /// Stage.
    pub stage: Stage,
    /// Instant of the submission.
    pub submitted: Instant,
    /// Instant at which its leases opened.
    pub started: Option<Instant>,
    /// Instant of its end.
    pub ended: Option<Instant>,
    /// Number of the record that opened its leases.
    pub opened_in: Option<u64>,
}

/// The end of a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct End {
    /// Instant.
    pub at: Instant,
    /// Outcome.
    pub outcome: Outcome,
    /// Cause.
    pub reason: Reason,
    /// Exit code of the first process that failed.
    pub code: Option<i32>,
    /// Cause of a failed start, for people.
    pub detail: Option<String>,
}

/// Result of a command that was not refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// The run as the command left it; `changed` is false for a repeat.
    Run {
        /// The run.
        run: Box<Shown>,
        /// Whether the command changed it.
        changed: bool,
    },
    /// Done and on record.
    Done,
    /// Nothing changed.
    Unchanged,
}

impl Shown {
    /// GPUs that are paid for, by claim.
    pub fn takes(&self) -> Vec<Take> {
        let take = |claim: &Claim| Take {
            envelope: claim.id.envelope.clone(),
            pool: claim.id.pool,
            gpus: claim.gpus,
        };
        self.claims.iter().map(take).collect()
    }

    /// GPUs that nobody pays for.
    pub fn unfunded_gpus(&self) -> u64 {
        self.unfunded.iter().map(|claim| claim.gpus).sum()
    }

    /// Time from the submission to the leases, or to `now`.
    pub fn waited(&self, now: Instant) -> Millis {
        let until = self.started.or(self.end.as_ref().map(|end| end.at));
        until.unwrap_or(now).since(self.submitted)
    }
}

/// The leases of a pod: `lease-RECORD.FIRST` and those after it, one for each GPU.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Number of the record that opened it.
    pub record: u64,
    /// Number of its first lease in that record.
    pub first: u64,
    /// The pod with its GPUs.
    pub pod: Pod,
    /// Instant at which it opened.
    pub opened: Instant,
    /// Instant and cause of its close; `None` while it is live.
    pub closed: Option<(Instant, Reason)>,
}

/// Who pays for the GPUs of a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PaidPod {
    /// Number of the pod.
    pub pod: u64,
    /// Payers in the order in which their claims are laid over its GPUs; nobody last.
    pub payers: Vec<Payer>,
}

/// A payer of GPUs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Payer {
    /// The envelope; `None` for GPUs that nobody pays.
    pub envelope: Option<EnvelopeId>,
    /// Class of the time.
    pub class: Class,
    /// GPUs that it pays for now; 0 for a run that has ended.
    pub gpus: u64,
}

impl Lease {
    /// Whether it is live.
    pub fn is_live(&self) -> bool {
        self.closed.is_none()
    }

    /// Identity of the first lease of the pod.
    pub fn id(&self) -> String {
        format!("lease-{}.{}", self.record, self.first)
    }
}
