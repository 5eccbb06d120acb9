//! One node's CPU market: what can be shared, who needs what, who gets what, and why (design 10;
//! design 80, 4.4).
//!
//! All numbers of the last clearing are here, so that whoever prints an explanation calculates
//! nothing that was not calculated before. Millicores throughout; a price in parts per million.

use bursar_units::{Instant, vocabulary};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{instant, word};

pub use bursar_market::clear::{
    BoundBy as MarketBound, Mode as MarketMode, Policy as MarketPolicy,
};

/// The market of a node: the body of `GET /v1/nodes/{name}/market`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMarket {
    /// The node.
    pub node: String,
    /// When this was cleared, or looked at last where nothing was cleared yet.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Instant,
    /// The mode that people are shown: it does not flap.
    #[schema(value_type = word::MarketMode)]
    pub mode: MarketMode,
    /// The mode of the last clearing alone.
    #[schema(value_type = word::MarketMode)]
    pub cleared_mode: MarketMode,
    /// C: what can be shared.
    pub capacity_milli: u64,
    /// λ: 0 when nobody is held back.
    pub price_ppm: u64,
    /// K: what may be used at all.
    pub allocatable_milli: u64,
    /// U: what those take who are not managed.
    pub unmanaged_milli: u64,
    /// What those keep who are held as they are.
    pub held_milli: u64,
    /// The sum of the floors of those who take part.
    pub min_milli: u64,
    /// The sum of their needs.
    pub need_milli: u64,
    /// By how much the limits together exceed what can be shared; only after an adoption, a fall
    /// of capacity or somebody else's change.
    pub over_milli: u64,
    /// By which rule what is scarce is divided.
    #[schema(value_type = word::MarketPolicy)]
    pub policy: MarketPolicy,
    /// The step in which limits can be written.
    pub quantum_milli: u64,
    /// Which rule divided.
    #[schema(value_type = word::MarketStep)]
    pub step: MarketStep,
    /// t = numerator / denominator, where the kernel divided: what each unit of a bid bought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<MarketLevel>,
    /// Whether limits are written.
    #[schema(value_type = word::MarketActs)]
    pub acts: MarketActs,
    /// Why it only observes although it was told to act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acts_reason: Option<String>,
    /// Those who are managed, by name.
    pub pods: Vec<MarketPod>,
    /// Those who are only looked at: in observe mode every cgroup that has used CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<ObservedGroup>,
    /// Those who are not managed although they were declared or started here, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged: Vec<UnmanagedPods>,
    /// How the agent does.
    pub agent: MarketAgent,
    /// The last clearings, oldest first; only with `since`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<MarketPoint>,
}

vocabulary! {
    /// Which rule divided.
    #[derive(Default)]
    pub enum MarketStep {
        /// Everything fits.
        #[default]
        AllFits = "all-fits",
        /// What there is was divided by the policy.
        Shared = "shared",
        /// Cooldowns and steps had to yield.
        GuardsYield = "guards-yield",
        /// The floors do not fit.
        Overload = "overload",
    }
}

vocabulary! {
    /// Whether limits are written.
    #[derive(Default)]
    pub enum MarketActs {
        /// They are.
        Act = "act",
        /// It only looks.
        #[default]
        Observe = "observe",
    }
}

vocabulary! {
    /// Where a pod comes from; how it opts out depends on it.
    pub enum MarketKind {
        /// The settings declare its cgroup.
        Declared = "declared",
        /// It is an execution: `e-` and the name of its booking.
        Execution = "execution",
        /// It is a container of Kubernetes.
        Kubernetes = "kubernetes",
    }
}

/// A common ratio.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketLevel {
    /// What is shared.
    pub numerator: u64,
    /// What is asked for together.
    pub denominator: u64,
}

/// One who takes part.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketPod {
    /// Its name: of a cgroup here, with its namespace on Kubernetes.
    pub pod: String,
    /// Where it comes from.
    #[schema(value_type = word::MarketKind)]
    pub kind: MarketKind,
    /// What people wrote for it: floor and ceiling.
    pub wrote: Wrote,
    /// What is put back in the end; absent where it had no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_milli: Option<u64>,
    /// How much it counts.
    pub weight: u64,
    /// What it needs.
    pub need_milli: u64,
    /// What the last clearing gave it.
    pub allocated_milli: u64,
    /// What the kernel says that it may use.
    pub applied_milli: u64,
    /// What it used lately; absent until that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_milli: Option<u64>,
    /// The share of its periods in which it was held back, in permille.
    pub throttled_permille: u64,
    /// How much of the last ten seconds somebody in it waited for a CPU, for whatever reason, in
    /// hundredths of a percent; absent where the kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure_hundredths: Option<u64>,
    /// Since when its limit is what it is; absent where it never changed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Instant>,
    /// When it last changed without being forced to: for a while from then on it may not shrink.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub cooling_since: Option<Instant>,
    /// What kept it from more, or from less; absent while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::MarketBound>)]
    pub bound_by: Option<MarketBound>,
    /// Why it is left as it is.
    pub held: Option<MarketHeld>,
    /// How its need came about; absent until its demand was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<MarketDemand>,
    /// The most it used where the kernel counts no throttling: then need is 1.3 times that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_milli_max: Option<u64>,
    /// What pulled it upwards: need less floor, weight, or weight times demand in parts per million.
    pub bid: u64,
}

/// What people wrote for a pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wrote {
    /// Its floor.
    pub request_milli: u64,
    /// Its ceiling.
    pub limit_milli: u64,
}

/// How a need came about: `min(limit, raw + raw × headroom)`, with raw = request + demand × range.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketDemand {
    /// Use plus time held back at their highest in the window.
    pub peak_milli: u64,
    /// Over how long the highest is taken, in milliseconds.
    pub window_ms: u64,
    /// Where that lies between floor and ceiling.
    pub demand_ppm: u64,
    /// What demand alone comes to.
    pub raw_milli: u64,
    /// What is added to that.
    pub headroom_ppm: u64,
    /// Both together, before the ceiling.
    pub uncapped_milli: u64,
}

/// Why a pod is left as it is.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketHeld {
    /// A word: `unreadable`, `conflict`, `refused` or `too-narrow`.
    pub reason: String,
    /// The same for people.
    pub words: String,
}

/// One who is only looked at.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedGroup {
    /// The cgroup, from the root of its hierarchy.
    pub pod: String,
    /// What it may use; absent where nothing is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_milli: Option<u64>,
    /// What it used lately; absent until that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_milli: Option<u64>,
    /// Use plus time held back at their highest in the window; absent until that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_milli: Option<u64>,
    /// The share of its periods in which it was held back, in permille.
    pub throttled_permille: u64,
}

/// Those who are not managed for one reason.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnmanagedPods {
    /// A word: `missing`, `root`, `own`, `nested`, `not-a-path`, `name-taken`, `unreadable`,
    /// `no-quota`, `no-rights`, `owed` or `taken`.
    pub reason: String,
    /// The same for people.
    pub words: String,
    /// How many.
    pub count: u64,
    /// Who, by name; the first few.
    pub pods: Vec<String>,
}

/// How an agent does.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketAgent {
    /// How often it looks, in milliseconds.
    pub sense_ms: u64,
    /// How often it clears, in milliseconds.
    pub clear_ms: u64,
    /// For how long after a change a limit does not shrink, in milliseconds.
    pub cooldown_ms: u64,
    /// When it cleared last; absent before the first time.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub cleared_at: Option<Instant>,
    /// How often it cleared.
    pub clearings: u64,
    /// How many limits it wrote.
    pub writes: u64,
    /// How long the limits together exceeded what can be shared, in milliseconds.
    pub over_ms: u64,
    /// What went wrong last; absent while nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One past clearing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketPoint {
    /// When.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Instant,
    /// The mode that people were shown.
    #[schema(value_type = word::MarketMode)]
    pub mode: MarketMode,
    /// The price.
    pub price_ppm: u64,
    /// What could be shared.
    pub capacity_milli: u64,
    /// Those who took part.
    pub pods: Vec<MarketPodPoint>,
}

/// One who took part in a past clearing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarketPodPoint {
    /// Who.
    pub pod: String,
    /// What it needed.
    pub need_milli: u64,
    /// What it was allowed, as read back.
    pub limit_milli: u64,
    /// What it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_milli: Option<u64>,
}

/// What was put back: the body of the answer to `POST /v1/nodes/{name}/restore`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreAnswer {
    /// The node.
    pub node: String,
    /// Whose limit is what its user wrote again.
    pub restored: Vec<RestoredPod>,
    /// Whose is not, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedPod>,
    /// Whether this was only an answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// A limit that was put back; an absent one is none.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoredPod {
    /// Whose.
    pub pod: String,
    /// What it was until now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_milli: Option<u64>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_milli: Option<u64>,
}

/// A limit that could not be put back.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedPod {
    /// Whose.
    pub pod: String,
    /// Why.
    pub reason: String,
}

/// What a restore is asked with: nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {}
