//! Events of the cluster, in the form of the journal (L7). The state is a fold over them.

use bursar_budget::accounts::{EpochClosed, MeterNear};
use bursar_budget::{Budget, BudgetId, ClaimLine, Demoted, Funded, RunUid};
use bursar_units::{Instant, is_default, vocabulary, whole};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::nodes::NODE_GPUS_MAX;
use crate::{Edit, Policy, Run, Who};

vocabulary! {
    /// Cause for which leases close and a run ends.
    pub enum Reason {
        /// The work ended well.
        Completed = "Completed",
        /// The work failed.
        Failed = "Failed",
        /// A person cancelled it.
        Cancelled = "Cancelled",
        /// Its processes could not be started in time.
        StartFailed = "StartFailed",
        /// Its hard limit was reached.
        Walltime = "Walltime",
        /// The hours of its envelope were used up, and the envelope ends such work (B2).
        BudgetEnd = "BudgetEnd",
    }
}

vocabulary! {
    /// Outcome of a run.
    pub enum Outcome {
        /// All processes ended well.
        Ok = "ok",
        /// It failed, or was ended by a limit.
        Failed = "failed",
        /// A person cancelled it.
        Cancelled = "cancelled",
    }
}

/// An event of this plane. `t` is its time where that is not the time of its record: money moves at
/// its own instant (L5).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Event {
    /// The policy was recorded.
    PolicySet(Policy),
    /// A budget was declared or changed.
    BudgetSet(Budget),
    /// A budget was removed.
    BudgetDropped {
        /// Its identity.
        budget: BudgetId,
    },
    /// An epoch of a meter was closed for ever (B3).
    EpochClosed {
        /// Meter, number, accrued time and next window.
        epoch: EpochClosed,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// A meter reached 80 or 95 % of a limit, or had no room (100).
    MeterNear {
        /// Meter, dimension and share.
        near: MeterNear,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// A run was submitted.
    RunSubmitted {
        /// Identity, `run-RECORD` or `run-RECORD.N`.
        uid: RunUid,
        /// The run.
        run: Run,
    },
    /// A run was edited.
    RunEdited {
        /// The run.
        of: Who,
        /// The new values.
        edit: Edit,
    },
    /// Envelopes pay for GPUs of a run.
    RunFunded {
        /// The run.
        of: Who,
        /// Incarnation, from 0.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        incarnation: u64,
        /// Claims with their promise ends.
        claims: Vec<ClaimLine>,
        /// Cause.
        cause: Funded,
        /// Number of the unfunded claim that is refunded.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "whole::optional"
        )]
        unfunded: Option<u64>,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// Envelopes do not pay for GPUs of a run any more; it goes on, unfunded.
    RunDemoted {
        /// The run.
        of: Who,
        /// Incarnation, from 0.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        incarnation: u64,
        /// Claims, each with the GPUs that it loses.
        claims: Vec<ClaimLine>,
        /// Cause.
        cause: Demoted,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// A run holds GPUs. Each is a lease, `lease-RECORD.N`, numbered in the order of the pods.
    LeasesOpened {
        /// The run.
        of: Who,
        /// Incarnation, from 0.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        incarnation: u64,
        /// Number of the record.
        #[serde(with = "whole")]
        record: u64,
        /// Number of the first lease in the record, from 0.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        first: u64,
        /// Pods with their GPUs.
        pods: Vec<Pod>,
    },
    /// Pods of a run are positively gone, and their GPUs are free.
    LeasesClosed {
        /// The run.
        of: Who,
        /// Incarnation, from 0.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        incarnation: u64,
        /// Pods. Absent: all that were left.
        #[serde(default, skip_serializing_if = "Vec::is_empty", with = "whole::list")]
        pods: Vec<u64>,
        /// Number of GPUs.
        #[serde(with = "whole")]
        gpus: u64,
        /// Cause.
        reason: Reason,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// A run is being stopped; its leases last until its processes are gone.
    RunEnding {
        /// The run.
        of: Who,
        /// Cause.
        reason: Reason,
        /// Instant at which its processes are killed.
        deadline: Instant,
        /// Exit code of the process that failed, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        /// Cause of a failed start, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// All processes of a run run.
    RunRunning {
        /// The run.
        of: Who,
    },
    /// A run ended.
    RunEnded {
        /// The run.
        of: Who,
        /// Outcome.
        outcome: Outcome,
        /// Cause.
        reason: Reason,
        /// Exit code of the first process that failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        /// Cause of a failed start, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// Starting is owed: a tick before the resume, a full record, or a deadline at the same instant
    /// left it undone (R7).
    PassUnfinished {
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// Starting that was owed is done, and started nothing.
    PassFinished {},
}

/// The leases of a pod.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pod {
    /// Number of the pod in the run, from 0.
    #[serde(with = "whole")]
    pub pod: u64,
    /// Number of its group, from 0.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub group: u64,
    /// Its node.
    pub node: bursar_units::ObjectName,
    /// Ordinals of its GPUs on the node as ascending ranges, each with its first and last.
    #[serde(deserialize_with = "ranges")]
    pub gpus: Vec<(u32, u32)>,
}

/// Reads ranges of ordinals: ascending, and below the most GPUs of a node. So a forged record cannot
/// stand for more GPUs than it has bytes for.
fn ranges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u32, u32)>, D::Error> {
    let ranges = Vec::<(u32, u32)>::deserialize(deserializer)?;
    let mut free = 0;
    for (first, last) in &ranges {
        if *first < free || last < first || NODE_GPUS_MAX <= *last {
            let text = format!("ordinals {first} to {last} are no ascending GPUs of a node");
            return Err(D::Error::custom(text));
        }
        free = last.saturating_add(1);
    }
    Ok(ranges)
}

impl Pod {
    /// Ordinals of its GPUs, ascending.
    pub fn ordinals(&self) -> impl Iterator<Item = u32> {
        self.gpus.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Number of its GPUs.
    pub fn width(&self) -> u64 {
        let widths = self.gpus.iter();
        let widths = widths.map(|(first, last)| u64::from(last.saturating_sub(*first)) + 1);
        widths.sum()
    }

    /// Ascending ordinals as ranges.
    pub fn ranges(ordinals: &[u32]) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for ordinal in ordinals {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(*ordinal) => *last = *ordinal,
                _ => ranges.push((*ordinal, *ordinal)),
            }
        }
        ranges
    }
}

impl Reason {
    /// The cause as a sentence about a run.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Completed => "it completed",
            Self::Failed => "a process failed",
            Self::Cancelled => "a person cancelled it",
            Self::StartFailed => "its processes could not be started",
            Self::Walltime => "it reached its hard limit",
            Self::BudgetEnd => "the hours of its envelope are used up",
        }
    }

    /// Outcome of a run that ends for it.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Completed => Outcome::Ok,
            Self::Cancelled => Outcome::Cancelled,
            Self::Failed | Self::StartFailed | Self::Walltime | Self::BudgetEnd => Outcome::Failed,
        }
    }
}

impl Event {
    /// Time of the event; `None` if it is that of the record.
    pub fn time(&self) -> Option<Instant> {
        match self {
            Self::EpochClosed { t, .. }
            | Self::MeterNear { t, .. }
            | Self::RunFunded { t, .. }
            | Self::RunDemoted { t, .. }
            | Self::LeasesClosed { t, .. }
            | Self::RunEnding { t, .. }
            | Self::RunEnded { t, .. }
            | Self::PassUnfinished { t } => *t,
            _ => None,
        }
    }

    /// The same event at a time of its own.
    #[must_use]
    pub(crate) fn at(mut self, time: Instant) -> Self {
        match &mut self {
            Self::EpochClosed { t, .. }
            | Self::MeterNear { t, .. }
            | Self::RunFunded { t, .. }
            | Self::RunDemoted { t, .. }
            | Self::LeasesClosed { t, .. }
            | Self::RunEnding { t, .. }
            | Self::RunEnded { t, .. }
            | Self::PassUnfinished { t } => *t = Some(time),
            _ => debug_assert!(false, "only events of deadlines have a time of their own"),
        }
        self
    }

    /// The run of the event.
    pub fn who(&self) -> Option<Who> {
        match self {
            Self::RunSubmitted { uid, run } => Some(Who {
                uid: uid.clone(),
                run: run.id(),
                owner: run.owner.clone(),
            }),
            Self::RunEdited { of, .. }
            | Self::RunFunded { of, .. }
            | Self::RunDemoted { of, .. }
            | Self::LeasesOpened { of, .. }
            | Self::LeasesClosed { of, .. }
            | Self::RunEnding { of, .. }
            | Self::RunRunning { of }
            | Self::RunEnded { of, .. } => Some(of.clone()),
            _ => None,
        }
    }
}
