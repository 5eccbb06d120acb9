//! Budgets as declared, in the form of the journal (L7).
//!
//! [`Budget::mistakes`] finds the mistakes of one budget, and [`crate::Accounts::mistakes`] those
//! that need the other budgets. Both name the path of the field, so that an edge can add its line.

mod mistake;
mod pattern;

use bursar_units::{Instant, Label, Millis, ObjectName, is_default, vocabulary, whole};
use serde::{Deserialize, Serialize};

use crate::id::{BudgetId, CapId, EnvelopeId};
use crate::place::Selector;

pub(crate) use mistake::Found;
pub use mistake::{Mistake, Wrong, window_mistakes};
pub use pattern::{Pattern, PatternError};

/// GPU-milliseconds of a GPU-hour.
pub const GPU_MS_PER_HOUR: u64 = 3_600_000;
/// The most GPU-hours of a limit: their GPU-milliseconds are at most 2⁵³ − 1.
pub const GPU_HOURS_MAX: u64 = bursar_units::INTEGER_MAX / GPU_MS_PER_HOUR;
/// The most GPUs of a limit.
pub const GPUS_MAX: u64 = 1_000_000_000;
/// The most envelopes, and the most caps, of one budget.
pub const PARTS_MAX: usize = 10_000;
/// The most parents of one budget, patterns of one envelope, and levels of a family.
pub const EDGES_MAX: usize = 100;

vocabulary! {
    /// Unit by which a window repeats, in UTC (B3).
    pub enum Renew {
        /// Every day.
        Day = "day",
        /// Every seven days.
        Week = "week",
        /// Every month.
        Month = "month",
        /// Every three months.
        Quarter = "quarter",
        /// Every twelve months.
        Year = "year",
    }
}

vocabulary! {
    /// Owners that an envelope pays for without a loan (D4).
    pub enum Sharing {
        /// Its own owner and the relatives of that owner.
        Family = "family",
        /// Its own owner only.
        None = "none",
    }
}

vocabulary! {
    /// Fate of overrunning work when the hours of an envelope are used up (B2).
    pub enum OnExhaustion {
        /// It goes on, unfunded.
        Demote = "demote",
        /// It ends, unless another envelope pays.
        End = "end",
    }
}

/// A budget as declared: an owner's envelopes and caps.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// Namespace of the budget.
    pub namespace: ObjectName,
    /// Name in the namespace.
    pub name: ObjectName,
    /// Owner of the envelopes.
    pub owner: Label,
    /// Parents of the owner. An owner has the parents of all its budgets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<Label>,
    /// Envelopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub envelopes: Vec<Envelope>,
    /// Caps over several envelopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregate_caps: Vec<AggregateCap>,
    /// Whether nothing is taken from its envelopes; their claims go on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
}

/// An envelope as declared.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Envelope {
    /// Name in the budget.
    pub name: ObjectName,
    /// Flavor of the GPUs that it pays for.
    pub flavor: Label,
    /// Places that it is meant for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub selector: Selector,
    /// The most GPUs at once.
    #[serde(with = "whole")]
    pub concurrency: u64,
    /// The most GPU-hours of one window.
    #[serde(
        default,
        rename = "maxGPUHours",
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub gpu_hours_max: Option<u64>,
    /// Start of the first window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Instant>,
    /// End of the first window, which does not belong to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Instant>,
    /// Unit by which the window repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<Renew>,
    /// Owners that it pays for without a loan. Absent: the family.
    #[serde(default = "family", skip_serializing_if = "is_family")]
    pub sharing: Sharing,
    /// Owners that it lends to. Absent: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending: Option<Lending>,
    /// Fate of overrunning work when its hours are used up. Absent: demoted.
    #[serde(default = "demote", skip_serializing_if = "is_demote")]
    pub on_exhaustion: OnExhaustion,
    /// Promise to a run that states no duration. Absent: that of the policy.
    #[serde(
        default,
        rename = "admissionHorizonMs",
        skip_serializing_if = "Option::is_none"
    )]
    pub admission_horizon: Option<Millis>,
}

/// The lending of an envelope as declared.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lending {
    /// Whether it lends at all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow: bool,
    /// Borrowers; none if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Pattern>,
    /// The most GPUs that are lent at once.
    #[serde(
        default,
        rename = "maxConcurrency",
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub concurrency_max: Option<u64>,
    /// The most GPU-hours that are lent in one window of the envelope.
    #[serde(
        default,
        rename = "maxGPUHours",
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub gpu_hours_max: Option<u64>,
}

/// A bound on several envelopes as declared.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AggregateCap {
    /// Name in the budget.
    pub name: ObjectName,
    /// Flavor of its envelopes.
    pub flavor: Label,
    /// Envelopes of its owner and of that owner's descendants.
    pub envelopes: Vec<EnvelopeId>,
    /// The most GPUs at once.
    #[serde(
        default,
        rename = "maxConcurrency",
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub concurrency_max: Option<u64>,
    /// The most GPU-hours of one window.
    #[serde(
        default,
        rename = "maxGPUHours",
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub gpu_hours_max: Option<u64>,
    /// Start of the first window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Instant>,
    /// End of the first window, which does not belong to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Instant>,
    /// Unit by which the window repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<Renew>,
}

impl Budget {
    /// Its identity.
    pub fn id(&self) -> BudgetId {
        BudgetId::of(&self.namespace, &self.name)
    }

    /// The identity of one of its envelopes.
    pub fn envelope_id(&self, envelope: &Envelope) -> EnvelopeId {
        self.id().envelope(&envelope.name)
    }

    /// The identity of one of its caps.
    pub fn cap_id(&self, cap: &AggregateCap) -> CapId {
        self.id().cap(&cap.name)
    }
}

impl Envelope {
    /// Whether it lends to this borrower.
    pub fn lends_to(&self, borrower: &Label) -> bool {
        self.lending.as_ref().is_some_and(|lending| {
            lending.allow && lending.to.iter().any(|pattern| pattern.matches(borrower))
        })
    }
}

const fn family() -> Sharing {
    Sharing::Family
}

const fn demote() -> OnExhaustion {
    OnExhaustion::Demote
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_family(sharing: &Sharing) -> bool {
    *sharing == Sharing::Family
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_demote(fate: &OnExhaustion) -> bool {
    *fate == OnExhaustion::Demote
}
