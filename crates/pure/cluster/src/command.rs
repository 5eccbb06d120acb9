//! Commands and changes of the cluster, in the form of the journal (L7).

use bursar_budget::{Budget, BudgetId, EnvelopeId, RunUid};
use bursar_units::{BookingId, ScopedName, is_default, whole};
use serde::{Deserialize, Serialize};

use crate::{Policy, Run};

/// A command to the cluster. Budgets and runs are declared by [`Change`]s.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Command {
    /// Ends a wait, or stops a run.
    CancelRun {
        /// Namespace and name.
        run: ScopedName,
        /// Identity that the run must have: a name may be used again. Absent: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<RunUid>,
    },
    /// Closes the epoch of an envelope now and keeps the end of its window (B3).
    RotateEnvelope {
        /// The envelope.
        envelope: EnvelopeId,
        /// Idempotency key: commands with the same key are one action (L6). The engine checks it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency: Option<BookingId>,
        /// Reason of the operator, in clear on record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The executor reports that all processes of an incarnation run.
    RunStarted {
        /// Run.
        uid: RunUid,
        /// Incarnation, from 0.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        incarnation: u64,
    },
    /// The executor reports that processes of an incarnation are gone, or could not be started.
    RunExited {
        /// Run.
        uid: RunUid,
        /// Incarnation, from 0.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        incarnation: u64,
        /// Pods that are gone. Absent: all of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty", with = "whole::list")]
        pods: Vec<u64>,
        /// Their result.
        exit: Exit,
    },
    /// Records the policy of the leader.
    SetPolicy(Policy),
}

/// A change to a declared object of the cluster.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Change {
    /// Adds a budget, or changes the one of that name.
    SetBudget(Budget),
    /// Removes a budget.
    DropBudget {
        /// Its identity.
        budget: BudgetId,
    },
    /// Submits a run, or edits the one of that name.
    SetRun(Run),
    /// Submits a run that must start at once; it is refused if it would wait.
    StartRun(Run),
}

/// Result of processes.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Exit {
    /// They ended well.
    Ok {},
    /// They failed, or were stopped.
    Failed {
        /// Exit code of the first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
    },
    /// They could not be started.
    NotStarted {
        /// Cause, for people.
        reason: String,
    },
}

impl Change {
    /// The run that it submits or edits.
    pub const fn run(&self) -> Option<&Run> {
        match self {
            Self::SetRun(run) | Self::StartRun(run) => Some(run),
            Self::SetBudget(_) | Self::DropBudget { .. } => None,
        }
    }
}
