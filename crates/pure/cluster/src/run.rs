//! Runs as submitted, in the form of the journal (L7).
//!
//! A run of this version has a fixed width. An edge refuses the fields of later versions by name.

mod mistake;

use bursar_budget::{RunUid, Selector};
use bursar_journal::hash::Hash;
use bursar_units::{Label, Millis, ObjectName, ScopedName, is_default, whole};
use serde::{Deserialize, Serialize};

pub use mistake::{Mistake, Wrong};

/// Most GPUs of one run.
pub const WIDTH_MAX: u64 = 1_000_000;
/// Most pods of one run: a run is one record with one line per pod.
pub const PODS_MAX: u64 = 10_000;
/// Most sponsors of one run.
pub const SPONSORS_MAX: usize = 100;
/// Lowest and highest priority.
pub const PRIORITY: std::ops::RangeInclusive<i32> = -100..=100;
/// Longest stated length and grace: ten years. Sums of promises stay far below 2⁶³.
pub const LENGTH_MAX: Millis = Millis::from_hours(10 * 365 * 24);
/// GPUs of a pod that are usual on one node.
const POD_GPUS_USUAL: u64 = 8;
/// Time to checkpoint of a run that states none.
pub const GRACE: Millis = Millis::from_secs(30);
/// A run as submitted.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Run {
    /// Namespace of the run.
    pub namespace: ObjectName,
    /// Name in the namespace.
    pub name: ObjectName,
    /// Owner, whose envelopes pay first.
    pub owner: Label,
    /// Flavor of the GPUs.
    pub flavor: Label,
    /// Width: all GPUs start and end together.
    #[serde(rename = "totalGPUs", with = "whole")]
    pub total_gpus: u64,
    /// GPUs of a pod, which sits on one node. Absent: at most 8.
    #[serde(
        default,
        rename = "podGPUs",
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub pod_gpus: Option<u64>,
    /// GPUs of a group, which sits in one domain. Absent: the whole run.
    #[serde(
        default,
        rename = "groupGPUs",
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub group_gpus: Option<u64>,
    /// Whether groups may sit in different domains. Without it the run is one group.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spread: bool,
    /// Allowed places.
    #[serde(default, skip_serializing_if = "is_default")]
    pub location: Selector,
    /// Borrowing that it allows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub funding: Funding,
    /// Expected length, which is promised once it is admitted; never a limit.
    #[serde(
        default,
        rename = "expectedDurationMs",
        skip_serializing_if = "Option::is_none"
    )]
    pub expected_duration: Option<Millis>,
    /// Hard limit of the length.
    #[serde(
        default,
        rename = "maxDurationMs",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_duration: Option<Millis>,
    /// Order among the runs of its owner, the highest first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// Time to checkpoint when it is stopped. Absent: 30 s.
    #[serde(default, rename = "graceMs", skip_serializing_if = "Option::is_none")]
    pub grace: Option<Millis>,
    /// Salted hash of the template, which is stored beside the ledger (L13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Hash>,
}

/// Borrowing that a run allows.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Funding {
    /// Whether it may borrow.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_borrow: bool,
    /// The most GPUs that it may borrow.
    #[serde(
        default,
        rename = "maxBorrowGPUs",
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub borrow_gpus_max: Option<u64>,
    /// Owners to borrow from, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sponsors: Vec<Label>,
}

/// The fields of a submitted run that may change, all with their new values.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edit {
    /// Priority.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// Hard limit of the length.
    #[serde(
        default,
        rename = "maxDurationMs",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_duration: Option<Millis>,
}

/// A run as events name it, so that no sentence needs an earlier record.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Who {
    /// Identity.
    pub uid: RunUid,
    /// Namespace and name.
    pub run: ScopedName,
    /// Owner.
    pub owner: Label,
}

impl Run {
    /// Namespace and name.
    pub fn id(&self) -> ScopedName {
        ScopedName::of(&self.namespace, &self.name)
    }

    /// GPUs of each pod.
    pub fn pod(&self) -> u64 {
        self.pod_gpus
            .unwrap_or_else(|| self.total_gpus.min(POD_GPUS_USUAL))
    }

    /// Number of pods.
    pub fn pods(&self) -> u64 {
        self.total_gpus.checked_div(self.pod()).unwrap_or(0)
    }

    /// Pods of each group. Without `spread` the run is placed as one group.
    pub fn groups(&self) -> Vec<u64> {
        let size = self.group_gpus.filter(|_| self.spread);
        let size = size.unwrap_or(self.total_gpus);
        let pods = size.checked_div(self.pod()).unwrap_or(0).max(1);
        let count = self.pods().checked_div(pods).unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        vec![pods; count]
    }

    /// Stated length D; the expected one first, never beyond the hard limit (B2).
    pub fn stated(&self) -> Option<Millis> {
        let expected = self.expected_duration.into_iter();
        expected.chain(self.max_duration).min()
    }

    /// Time to checkpoint, before the policy bounds it.
    pub fn grace(&self) -> Millis {
        self.grace.unwrap_or(GRACE)
    }

    /// The fields that may change.
    pub fn editable(&self) -> Edit {
        Edit {
            priority: self.priority,
            max_duration: self.max_duration,
        }
    }

    /// The same run with other values of the fields that may change.
    #[must_use]
    pub fn edited(mut self, edit: Edit) -> Self {
        self.priority = edit.priority;
        self.max_duration = edit.max_duration;
        self
    }

    /// Path of the first field that differs and must not change.
    pub fn other_field(&self, other: &Self) -> Option<&'static str> {
        let fields = [
            ("spec.owner", self.owner != other.owner),
            ("spec.flavor", self.flavor != other.flavor),
            ("spec.totalGPUs", self.total_gpus != other.total_gpus),
            ("spec.podGPUs", self.pod() != other.pod()),
            ("spec.groupGPUs", self.group_gpus != other.group_gpus),
            ("spec.spread", self.spread != other.spread),
            ("spec.location", self.location != other.location),
            ("spec.funding", self.funding != other.funding),
            (
                "spec.expectedDuration",
                self.expected_duration != other.expected_duration,
            ),
            ("spec.grace", self.grace() != other.grace()),
            ("spec.template", self.template != other.template),
        ];
        let mut fields = fields.into_iter();
        fields.find_map(|(path, differs)| differs.then_some(path))
    }
}
