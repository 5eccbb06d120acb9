//! The state of the cluster.

mod fold;
mod paid;
mod reads;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bursar_budget::{Accounts, MeterId, RunUid, Terms, Work};
use bursar_units::{Instant, Millis, ScopedName};
use serde::{Deserialize, Serialize};

use crate::nodes::Nodes;
use crate::queue::Queue;
use crate::shown::End;
use crate::{Pod, Policy, Reason, Run, Stage, Who};

/// Time for which an ended run is remembered (L6).
pub const REMEMBERED: Millis = Millis::from_hours(30 * 24);
/// Most ended runs that are remembered (L6).
pub const REMEMBERED_MAX: usize = 100_000;

/// The cluster: policy, accounts, runs and nodes.
#[derive(Clone, Debug, Default)]
pub struct Clusters {
    /// Whether an event was folded; a state without one has no facts.
    pub(crate) is_begun: bool,
    pub(crate) policy: Policy,
    /// Whether a policy was recorded.
    pub(crate) policy_set: bool,
    pub(crate) accounts: Accounts,
    pub(crate) nodes: Nodes,
    /// Live runs by the number of their submission.
    pub(crate) live: BTreeMap<u64, Live>,
    pub(crate) numbers: BTreeMap<RunUid, u64>,
    /// The newest run of each name.
    pub(crate) names: Arc<BTreeMap<ScopedName, RunUid>>,
    pub(crate) queue: Queue,
    /// Remembered runs, and their order of end. They are shared with sketches of the state.
    pub(crate) ended: Arc<BTreeMap<RunUid, Arc<Ended>>>,
    pub(crate) ends: Arc<VecDeque<RunUid>>,
    /// Starts that must be reported in time.
    pub(crate) starts: BTreeSet<(Instant, u64)>,
    /// Instants at which runs with a hard limit are stopped.
    pub(crate) walltimes: BTreeSet<(Instant, u64)>,
    /// Instant since which starting is owed (R7).
    pub(crate) owed: Option<Instant>,
    /// Number of the next submission.
    pub(crate) next: u64,
    /// Notes on the record that is being decided; not part of the state.
    pub(crate) open: Open,
}

/// Notes on the record that is being decided.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open {
    pub(crate) record: u64,
    /// Runs submitted, and leases opened, in the record.
    pub(crate) runs: u64,
    pub(crate) leases: u64,
    /// Time of its last event.
    pub(crate) at: Instant,
    /// Whether one of its events can make a start possible (R7).
    pub(crate) is_stirred: bool,
    /// Meters that it must refit (B4).
    pub(crate) refit: BTreeSet<MeterId>,
}

/// A run that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) uid: RunUid,
    pub(crate) run: Run,
    pub(crate) submitted: Instant,
    pub(crate) incarnation: u64,
    /// Its GPUs; `None` while it waits.
    pub(crate) held: Option<Held>,
    /// Version of the nodes at which it was not placed; not part of the state.
    pub(crate) unplaced: Option<u64>,
}

/// The GPUs of a run.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) opened: Instant,
    pub(crate) record: u64,
    pub(crate) first: u64,
    /// Pods with live leases, by number.
    pub(crate) pods: BTreeMap<u64, Pod>,
    /// Pods whose leases have closed, by number.
    pub(crate) closed: BTreeMap<u64, Closed>,
    /// Instant at which its start is given up; `None` once it runs or is being stopped.
    pub(crate) start_by: Option<Instant>,
    pub(crate) running: Option<Instant>,
    pub(crate) ending: Option<Ending>,
    /// Time of the last edit; an edit stops nothing earlier.
    pub(crate) edited: Instant,
}

/// A stop of a run.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) reason: Reason,
    /// Instant at which the stop began.
    pub(crate) since: Instant,
    pub(crate) deadline: Instant,
    /// Exit code of the first process that failed.
    pub(crate) code: Option<i32>,
    /// Cause of a failed start, for people.
    pub(crate) detail: Option<String>,
}

/// A pod whose leases have closed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Closed {
    /// The pod with its GPUs.
    pub pod: Pod,
    /// Instant at which they closed.
    pub at: Instant,
    /// Cause.
    pub reason: Reason,
}

/// An ended run.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) run: Run,
    pub(crate) submitted: Instant,
    pub(crate) incarnation: u64,
    pub(crate) opened: Option<Instant>,
    pub(crate) record: u64,
    pub(crate) first: u64,
    pub(crate) running: Option<Instant>,
    pub(crate) pods: Vec<Closed>,
    pub(crate) end: End,
}

impl Live {
    pub(crate) fn who(&self) -> Who {
        Who {
            uid: self.uid.clone(),
            run: self.run.id(),
            owner: self.run.owner.clone(),
        }
    }

    pub(crate) fn work(&self) -> Work {
        Work {
            run: self.uid.clone(),
            incarnation: self.incarnation,
        }
    }

    /// Instant at which a run whose leases opened at `opened` must be gone.
    pub(crate) fn hard_end(&self, opened: Instant) -> Option<Instant> {
        self.run.max_duration.map(|length| opened.after(length))
    }

    /// Terms of its claims, if its leases opened at `opened`.
    pub(crate) fn terms(&self, opened: Instant) -> Terms {
        Terms {
            owner: self.run.owner.clone(),
            pod_gpus: None,
            hard_end: self.hard_end(opened),
        }
    }

    /// Stated length; the expected one first (B2).
    pub(crate) fn stated(&self) -> Option<Millis> {
        self.run.stated()
    }

    /// Instant at which its stop begins, if it has a hard limit, runs, and is not being stopped.
    pub(crate) fn walltime(&self, grace_max: Millis) -> Option<Instant> {
        let held = self.held.as_ref().filter(|held| held.ending.is_none())?;
        let grace = self.run.grace().min(grace_max);
        Some(self.hard_end(held.opened)?.before(grace).max(held.edited))
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.ending.is_some())
    }

    pub(crate) fn stage(&self) -> Stage {
        match &self.held {
            None => Stage::Waiting,
            Some(held) if held.ending.is_some() => Stage::Ending,
            Some(held) if held.running.is_some() => Stage::Running,
            Some(_) => Stage::Starting,
        }
    }

    /// Instant at which its present stage began.
    pub(crate) fn since(&self) -> Instant {
        let Some(held) = &self.held else {
            return self.submitted;
        };
        let ending = held.ending.as_ref().map(|ending| ending.since);
        ending.or(held.running).unwrap_or(held.opened)
    }
}

impl Held {
    /// Live GPUs.
    pub(crate) fn gpus(&self) -> u64 {
        self.pods.values().map(Pod::width).sum()
    }
}
