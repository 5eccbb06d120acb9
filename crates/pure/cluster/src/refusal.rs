//! Refusals of the cluster, as data.

use bursar_budget::cover::Trace;
use bursar_budget::{BudgetId, EnvelopeId, RunUid};
use bursar_units::{Label, ObjectName, ScopedName};
use thiserror::Error;

use crate::explain::Wait;

/// Reason of a refusal by the cluster.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Refusal {
    /// Budgets have mistakes.
    #[error("a budget has mistakes")]
    BudgetMistakes {
        /// Each mistake with its budget.
        mistakes: Vec<(BudgetId, bursar_budget::Mistake)>,
    },
    /// A run has mistakes.
    #[error("run {run} has mistakes")]
    RunMistakes {
        /// The run.
        run: ScopedName,
        /// The mistakes, in the order of the fields.
        mistakes: Vec<crate::run::Mistake>,
    },
    /// A value needs a later version.
    #[error("{field} is not supported yet")]
    NotYet {
        /// Path of the field.
        field: String,
    },
    /// A value of the policy is zero and must not be.
    #[error("{field} must be more than 0")]
    PolicyZero {
        /// Path of the field.
        field: String,
    },
    /// No envelope may ever pay for the run, or not for its width (never-fits by money).
    #[error("run {run} can never be paid for")]
    NeverCovered {
        /// The run.
        run: ScopedName,
        /// The walk on empty meters, to its last row, with its outcome.
        trace: Box<Trace>,
        /// GPUs with which it could start, in whole groups; 0 without any.
        most: u64,
    },
    /// The run does not fit all declared nodes taken empty.
    #[error("run {run} fits no declared nodes")]
    NeverPlaced {
        /// The run.
        run: ScopedName,
        /// Flavor that it wants.
        flavor: Label,
        /// GPUs that it wants.
        gpus: u64,
        /// GPUs of its pods.
        pod_gpus: u64,
        /// GPUs of that flavor at the allowed places, on all declared nodes.
        declared: u64,
        /// GPUs in whole pods that the largest domain would have for one group, taken empty.
        largest: u64,
        /// GPUs with which it could start, in whole groups; 0 without any.
        most: u64,
    },
    /// The run is to start at once, and it would wait.
    #[error("run {run} would wait")]
    WouldWait {
        /// The run.
        run: ScopedName,
        /// Why it would wait.
        wait: Box<Wait>,
    },
    /// A live run of that name has another value in a field that must not change.
    #[error("run {run} exists with another {field}")]
    IdReused {
        /// The run.
        run: ScopedName,
        /// Path of the field.
        field: &'static str,
    },
    /// The owner has too many waiting runs.
    #[error("{owner} has {waiting} waiting runs")]
    OverLimit {
        /// The owner.
        owner: Label,
        /// Its waiting runs.
        waiting: u64,
        /// The most that may wait.
        max: u64,
    },
    /// No budget of that identity.
    #[error("no such budget")]
    NoSuchBudget {
        /// The identity.
        budget: BudgetId,
    },
    /// No envelope of that identity.
    #[error("no such envelope")]
    NoSuchEnvelope {
        /// The identity.
        envelope: EnvelopeId,
    },
    /// No run of that name.
    #[error("no such run")]
    NoSuchRun {
        /// The name.
        run: ScopedName,
    },
    /// No live run of that identity, or another incarnation of it.
    #[error("no such live run")]
    NotLive {
        /// The identity.
        uid: RunUid,
        /// The incarnation.
        incarnation: u64,
    },
    /// A node has leases and cannot be removed.
    #[error("node {node} is in use")]
    NodeInUse {
        /// The node.
        node: ObjectName,
        /// The runs on it, by name.
        runs: Vec<ScopedName>,
    },
}
