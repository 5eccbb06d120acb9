//! Cover: which envelopes pay for a request (D1–D5).
//!
//! The greedy walk is the definition: it visits rows (envelope, pool) in the order of D3 and takes
//! from each `min(remaining, smallest room of its meters)`, without backtracking. A plan, a trace
//! and a failure come from the same walk. The trace goes on to the last row; a plan stops as soon as
//! the width is covered.

use bursar_units::{Instant, Label, Millis, vocabulary};
use serde::{Deserialize, Serialize};

use crate::claim::{ClaimLine, Demotion, Pool, Take, Work};
use crate::id::{EnvelopeId, MeterId};
use crate::place::Place;

vocabulary! {
    /// Reason of a failed cover (D5).
    pub enum Reason {
        /// No envelope of the flavor may pay.
        NoEnvelope = "NoEnvelope",
        /// Every envelope that may pay is outside its window.
        OutsideWindow = "OutsideWindow",
        /// Too few GPUs of an envelope or of its lending pool are free.
        ConcurrencyCapExceeded = "ConcurrencyCapExceeded",
        /// Too few GPU-hours of an envelope or of its lending pool are uncommitted.
        IntegralCapExceeded = "IntegralCapExceeded",
        /// An aggregate cap has too little room.
        AggregateCapExceeded = "AggregateCapExceeded",
        /// A sponsor does not lend to the owner.
        AclDenied = "ACLDenied",
        /// The run may not borrow more.
        BorrowLimitExceeded = "BorrowLimitExceeded",
        /// The budget is paused.
        BudgetPaused = "BudgetPaused",
    }
}

vocabulary! {
    /// Relation of the owner of an envelope to the owner of a run (D3).
    pub enum Relation {
        /// The same owner.
        Owner = "own",
        /// Another child of a direct parent.
        Sibling = "sibling",
        /// A parent, a parent's parent, and so on.
        Ancestor = "ancestor",
        /// A child of a parent's sibling.
        Cousin = "cousin",
        /// An owner that the run names as sponsor.
        Sponsor = "sponsor",
    }
}

vocabulary! {
    /// State of a row of the walk.
    pub enum RowState {
        /// The envelope may pay.
        Open = "open",
        /// The relative does not share the envelope.
        SharingOff = "sharing-off",
        /// The sponsor's envelope does not lend to the owner.
        AclDenied = "acl-denied",
        /// The run does not allow borrowing.
        BorrowOff = "borrow-off",
        /// The envelope is outside its window.
        OutsideWindow = "outside-window",
        /// The budget is paused.
        Paused = "paused",
        /// The run's own claim on the envelope overruns, so nothing joins it (B2).
        Overruns = "overruns",
    }
}

vocabulary! {
    /// Counted quantity of a meter.
    pub enum Dimension {
        /// GPUs at once.
        Gpus = "gpus",
        /// GPU time of a window.
        Hours = "hours",
    }
}

/// Bound that left the smallest room in a row. Ties go by this order (D5).
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Bound {
    /// A meter in one dimension: the envelope's GPUs, its hours, its caps by name, its lending pool.
    Meter {
        /// The meter.
        meter: MeterId,
        /// The dimension.
        dimension: Dimension,
    },
    /// The most GPUs that the run may borrow.
    BorrowLimit,
}

impl Reason {
    /// The reason of a request that finds too little room on a meter.
    pub fn of_meter(meter: &MeterId, dimension: Dimension) -> Self {
        match (meter, dimension) {
            (MeterId::Cap(_), _) => Self::AggregateCapExceeded,
            (_, Dimension::Gpus) => Self::ConcurrencyCapExceeded,
            (_, Dimension::Hours) => Self::IntegralCapExceeded,
        }
    }
}

impl Bound {
    /// The reason of a request that this bounds.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Meter { meter, dimension } => Reason::of_meter(meter, *dimension),
            Self::BorrowLimit => Reason::BorrowLimitExceeded,
        }
    }
}

impl RowState {
    /// The reason of a request that finds only rows of this state; `None` for a row that is open, is
    /// bound by the run's own claim, or may never pay.
    pub fn reason(self) -> Option<Reason> {
        match self {
            Self::AclDenied => Some(Reason::AclDenied),
            Self::OutsideWindow => Some(Reason::OutsideWindow),
            Self::Paused => Some(Reason::BudgetPaused),
            Self::Open | Self::SharingOff | Self::BorrowOff | Self::Overruns => None,
        }
    }
}

/// Borrowing that a run allows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Borrowing {
    /// Whether it may borrow.
    pub allow: bool,
    /// The most GPUs that it may borrow at once, over all its claims; `None` is unbounded.
    pub gpus_max: Option<u64>,
    /// Owners to borrow from, in this order.
    pub sponsors: Vec<Label>,
}

/// The GPUs of one group at the domain that placement chose for it (D1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Group {
    /// Domain of the group.
    pub place: Place,
    /// Number of GPUs.
    pub gpus: u64,
}

/// A request for payers. All groups are covered on one scratch pad, all or nothing (D1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// Incarnation whose claims the takes join; `None` for a run without claims, as in a plan.
    pub work: Option<Work>,
    /// Owner of the run.
    pub owner: Label,
    /// Flavor of the GPUs.
    pub flavor: Label,
    /// Groups, in the order of placement.
    pub groups: Vec<Group>,
    /// Stated duration D; `None` takes the admission horizon of each envelope (B2).
    pub duration: Option<Millis>,
    /// Instant beyond which nothing is promised.
    pub hard_end: Option<Instant>,
    /// Borrowing that the run allows.
    pub borrowing: Borrowing,
}

/// The payers of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Takes of all groups in the order of the walks; one per (envelope, pool).
    pub takes: Vec<Take>,
    /// The same as lines of a `runFunded` event.
    pub lines: Vec<ClaimLine>,
    /// Takes of each group, in the order of the request.
    pub groups: Vec<Vec<Take>>,
    /// Claims of relatives that are demoted first (B6), newest first.
    pub recalled: Vec<Demotion>,
}

/// The outcome of a walk that did not cover the width.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// Headline (D5).
    pub reason: Reason,
    /// Requested GPUs.
    pub wanted: u64,
    /// GPUs that found a payer.
    pub found: u64,
    /// GPUs that found none.
    pub short: u64,
    /// Meters that bound an open row, for `meterNear` 100; each once, in order.
    pub exhausted: Vec<(MeterId, Dimension)>,
    /// Envelopes of named sponsors that do not lend to the owner, for the counter and the log of
    /// denials.
    pub denied: Vec<EnvelopeId>,
}

/// A row of the walk (D5).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Row {
    /// Number of the group in the request, from 0.
    pub group: usize,
    /// The envelope.
    pub envelope: EnvelopeId,
    /// Owner of the envelope.
    pub owner: Label,
    /// Relation of that owner to the owner of the run.
    pub relation: Relation,
    /// Right by which it would pay.
    pub pool: Pool,
    /// Whether its selector matches the group's domain.
    pub here: bool,
    /// State of the row.
    pub state: RowState,
    /// GPUs for which the row has room; 0 unless it is open.
    pub room: u64,
    /// Bound that left this room; `None` unless the row is open or the run's own claim overruns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// GPUs taken from the row.
    pub gpus: u64,
    /// End of the promise that the row would give; `None` unless it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Instant>,
}

/// A walk to its last row, with its outcome.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trace {
    /// All rows in the order of the walk, group by group.
    pub rows: Vec<Row>,
    /// The outcome.
    pub outcome: Result<Plan, Failure>,
}
