//! The CPU market of a node: capacity, needs, shares and their reasons.
//!
//! The answer has all numbers of the last clearing, so that an explanation is printed without a new
//! calculation. CPU is in millicores, the price in parts per million.

use bursar_units::{Instant, vocabulary};
use serde::{Deserialize, Serialize};

use super::instant;
use super::query::{Since, query};
use crate::ToSchema;

pub use bursar_market::clear::{
    BoundBy as MarketBound, Mode as MarketMode, Policy as MarketPolicy,
};

/// Market of a node: the answer of `GET /v1/nodes/{name}/market`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMarket {
    /// Name of the node.
    pub node: String,
    /// Time of the last clearing, or of the last reading of counters before the first clearing.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Instant,
    /// Mode, smoothed so that it does not flap.
    #[schema(value_type = crate::api::word::MarketMode)]
    pub mode: MarketMode,
    /// Mode of the last clearing alone.
    #[schema(value_type = crate::api::word::MarketMode)]
    pub cleared_mode: MarketMode,
    /// C: capacity that is shared.
    pub capacity_milli: u64,
    /// λ: 0 if no pod is held back.
    pub price_ppm: u64,
    /// K: CPU of the node that may be used.
    pub allocatable_milli: u64,
    /// U: CPU used by unmanaged processes.
    pub unmanaged_milli: u64,
    /// CPU of the pods that are held.
    pub held_milli: u64,
    /// Sum of the floors of the pods that take part.
    pub min_milli: u64,
    /// Sum of their needs.
    pub need_milli: u64,
    /// Excess of the sum of the limits over the capacity; only after an adoption, a drop in capacity
    /// or a change by another program.
    pub over_milli: u64,
    /// Rule that divides scarce CPU.
    #[schema(value_type = crate::api::word::MarketPolicy)]
    pub policy: MarketPolicy,
    /// Smallest step of a limit.
    pub quantum_milli: u64,
    /// Step of the clearing that decided.
    #[schema(value_type = crate::api::word::MarketStep)]
    pub step: MarketStep,
    /// t = numerator / denominator: the CPU per unit of a bid, if the kernel rule divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<MarketLevel>,
    /// w: use in a window of so many intervals is kept; absent for shares and overload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<u64>,
    /// W: number of intervals that are remembered while nobody lacks room.
    pub windows: u64,
    /// `act` if limits are written, else `observe`.
    #[schema(value_type = crate::api::word::MarketActs)]
    pub acts: MarketActs,
    /// Reason why the agent only observes although it is set to act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acts_reason: Option<String>,
    /// Managed pods, by name.
    pub pods: Vec<MarketPod>,
    /// Pods that are only observed: in observe mode every cgroup that has used CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<ObservedGroup>,
    /// Declared or started pods that are not managed, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged: Vec<UnmanagedPods>,
    /// Status of the agent.
    pub agent: MarketAgent,
    /// Last clearings, oldest first; only with `since`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<MarketPoint>,
}

vocabulary! {
    /// Step of a clearing that decided.
    #[derive(Default)]
    pub enum MarketStep {
        /// Each pod got its rung.
        #[default]
        Rung = "rung",
        /// Not even the asks fit: the policy divided the capacity.
        Shared = "shared",
        /// The floors do not fit.
        Overload = "overload",
    }
}

vocabulary! {
    /// Mode of the agent.
    #[derive(Default)]
    pub enum MarketActs {
        /// Limits are written.
        Act = "act",
        /// Limits are not written.
        #[default]
        Observe = "observe",
    }
}

vocabulary! {
    /// Origin of a pod. The way to opt out depends on it.
    pub enum MarketKind {
        /// A cgroup that the settings declare.
        Declared = "declared",
        /// An execution: `e-` and the id of its booking.
        Execution = "execution",
        /// A container of Kubernetes.
        Kubernetes = "kubernetes",
    }
}

/// Ratio of a clearing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketLevel {
    /// CPU that is shared.
    pub numerator: u64,
    /// Sum of the bids.
    pub denominator: u64,
}

/// A pod that takes part.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketPod {
    /// Name: that of a cgroup, or namespace and name on Kubernetes.
    pub pod: String,
    /// Origin.
    #[schema(value_type = crate::api::word::MarketKind)]
    pub kind: MarketKind,
    /// Floor and ceiling set by users.
    pub wrote: Wrote,
    /// Original limit, which is put back in the end; absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_milli: Option<u64>,
    /// Weight.
    pub weight: u64,
    /// Need.
    pub need_milli: u64,
    /// Share of the last clearing.
    pub allocated_milli: u64,
    /// Limit as read from the kernel.
    pub applied_milli: u64,
    /// Recent use; absent until it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_milli: Option<u64>,
    /// Share of its periods that were throttled, in permille.
    pub throttled_permille: u64,
    /// Share of the last ten seconds in which some task of it waited for a CPU, for any reason, in
    /// hundredths of a percent; absent if the kernel does not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure_hundredths: Option<u64>,
    /// Time of the last change of its limit; absent if it never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Instant>,
    /// Bound that decided its share; absent while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::MarketBound>)]
    pub bound_by: Option<MarketBound>,
    /// Why its share was not written, or not all of it: `budget`, `cooldown` or `max-step`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::MarketBound>)]
    pub left_out: Option<MarketBound>,
    /// Reason why its limit is not changed.
    pub held: Option<MarketHeld>,
    /// Its ask; absent while it is held, and until it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<MarketAsk>,
    /// Bid: size, weight, or weight times demand in parts per million.
    pub bid: u64,
}

/// Floor and ceiling of a pod, set by users.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wrote {
    /// Floor.
    pub request_milli: u64,
    /// Ceiling.
    pub limit_milli: u64,
}

/// Ask of a pod, and what it follows from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketAsk {
    /// a: what it would use.
    pub ask_milli: u64,
    /// f: the ask, or its mean use if that is higher.
    pub firm_milli: u64,
    /// u: its use in the last interval.
    pub used_milli: u64,
    /// q: share of throttled periods in the last interval, in permille; absent if the kernel does not
    /// count throttling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_permille: Option<u64>,
    /// S: the most it used in an interval of the present and the previous block.
    pub size_milli: u64,
    /// True if it asks for more than its limit.
    pub asks: bool,
    /// True if twice its use bounds the ask.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stepped: bool,
}

/// Reason why the limit of a pod is not changed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketHeld {
    /// `unreadable`, `conflict`, `refused`, `too-narrow` or `unmeasured`.
    pub reason: String,
    /// The reason as a sentence.
    pub words: String,
}

/// A pod that is only observed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedGroup {
    /// Path of the cgroup from the root of its hierarchy.
    pub pod: String,
    /// Limit; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_milli: Option<u64>,
    /// Recent use; absent until it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_milli: Option<u64>,
    /// Highest use in the window of memory; absent until it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_milli: Option<u64>,
    /// Share of its periods that were throttled, in permille.
    pub throttled_permille: u64,
}

/// Pods that are not managed for one reason.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnmanagedPods {
    /// `missing`, `root`, `own`, `nested`, `not-a-path`, `name-taken`, `unreadable`, `no-quota`,
    /// `no-rights`, `owed` or `taken`.
    pub reason: String,
    /// The reason as a sentence.
    pub words: String,
    /// Number of pods.
    pub count: u64,
    /// First few pods, by name.
    pub pods: Vec<String>,
}

/// Status of an agent.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketAgent {
    /// Time between clearings, in milliseconds.
    pub interval_ms: u64,
    /// Length of the two blocks in which a size is kept, in milliseconds.
    pub size_ms: u64,
    /// Budget of writes per pod and hour.
    pub writes_per_hour: u64,
    /// Time after a change in which a limit is not changed again, in milliseconds; 0 for none.
    pub cooldown_ms: u64,
    /// Factor by which a raise multiplies a limit at most; absent for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_step: Option<u64>,
    /// Time of the last clearing; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub cleared_at: Option<Instant>,
    /// Number of clearings.
    pub clearings: u64,
    /// Number of written limits.
    pub writes: u64,
    /// Total time in which the sum of the limits exceeded the capacity, in milliseconds.
    pub over_ms: u64,
    /// Last error; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A past clearing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketPoint {
    /// Time of the clearing.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Instant,
    /// Mode that was shown.
    #[schema(value_type = crate::api::word::MarketMode)]
    pub mode: MarketMode,
    /// Price.
    pub price_ppm: u64,
    /// Capacity.
    pub capacity_milli: u64,
    /// Pods that took part.
    pub pods: Vec<MarketPodPoint>,
}

/// A pod in a past clearing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketPodPoint {
    /// Name of the pod.
    pub pod: String,
    /// Need.
    pub need_milli: u64,
    /// Limit, as read back.
    pub limit_milli: u64,
    /// Use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_milli: Option<u64>,
}

/// Restored limits: the answer of `POST /v1/nodes/{name}/restore`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreAnswer {
    /// Name of the node.
    pub node: String,
    /// Pods that have their original limit again.
    pub restored: Vec<RestoredPod>,
    /// Pods that do not, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedPod>,
    /// True for a dry run: nothing was changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// A limit that was put back. An absent number means no limit.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoredPod {
    /// Name of the pod.
    pub pod: String,
    /// Limit before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_milli: Option<u64>,
    /// Limit now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_milli: Option<u64>,
}

/// A limit that could not be put back.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedPod {
    /// Name of the pod.
    pub pod: String,
    /// Cause.
    pub reason: String,
}

/// The body of `POST /v1/nodes/{name}/restore`, which may be empty.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {}

query! {
    /// Times of a market.
    pub struct GetMarket {
        /// Include past clearings from this time on: `-10m`, the longest history kept, or an
        /// instant.
        since "since": Since;
        /// Return the last clearing before this time, replayed from the agent's record of the last
        /// day: `-5m`, or an instant. Values that the record does not hold, such as use and
        /// originals, are absent.
        at "at": Since, Excludes "since";
    }
}
