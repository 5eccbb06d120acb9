//! Budgets as declared objects, in Kubernetes form.

use bursar_engine::cluster::budget::Renew;
use bursar_engine::cluster::budget::accounts::ConditionKind;
use bursar_engine::cluster::budget::cover::Relation;
use bursar_engine::cluster::budget::spec::{GPU_HOURS_MAX, GPUS_MAX, OnExhaustion, Sharing};
use bursar_units::{Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};

use super::{PlaceSpec, ScopedMetadata};
use crate::ToSchema;
use crate::api::body::reason_of_force;
use crate::api::fields::object;
use crate::api::{instant, integer};
use crate::object::budget::{
    duration_shape, instant_shape, label_shape, member_shape, name_shape, pattern_shape,
    window_rule,
};
use crate::object::spec::part;
use crate::shape::Shape;

/// An owner's envelopes and caps.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// `bursar.dev/v1alpha1`.
    pub api_version: String,
    /// `Budget`.
    pub kind: String,
    /// Namespace, name and version.
    pub metadata: ScopedMetadata,
    /// Declared envelopes and caps.
    pub spec: BudgetSpec,
    /// Present state, in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Box<BudgetStatus>>,
}

/// Present state of a budget.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetStatus {
    /// Relatives of the owner, in the order in which they are asked.
    pub family: Vec<Relative>,
    /// Room of each envelope.
    pub headroom: Vec<EnvelopeHeadroom>,
    /// Room of each aggregate cap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregate_headroom: Vec<CapHeadroom>,
    /// Meters: each envelope with its lending pool, then the caps.
    pub meters: Vec<MeterStatus>,
    /// Conditions, one of each kind.
    pub conditions: Vec<BudgetCondition>,
}

/// A relative of an owner.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Relative {
    /// The owner.
    #[schema(value_type = String)]
    pub owner: Label,
    /// Its relation.
    #[schema(value_type = crate::api::word::Relation)]
    pub relation: Relation,
}

/// Room that an envelope has left, over its own meter and its caps.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeHeadroom {
    /// The envelope, as `NAMESPACE/BUDGET/NAME`.
    pub envelope: String,
    /// GPUs that could be taken now.
    pub gpus: u64,
    /// Uncommitted GPU-milliseconds; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ms: Option<u64>,
    /// Whether it is in its window and not paused.
    pub open: bool,
}

/// Room that an aggregate cap has left.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapHeadroom {
    /// The cap, as `NAMESPACE/BUDGET/NAME`.
    pub cap: String,
    /// GPUs that could be taken now; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u64>,
    /// Uncommitted GPU-milliseconds; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ms: Option<u64>,
}

/// A meter with its present epoch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeterStatus {
    /// An envelope's identity, `cap/NAMESPACE/BUDGET/NAME` or `lending/ENVELOPE`.
    pub meter: String,
    /// Number of the present epoch, from 0.
    pub epoch: u64,
    /// Start of the present window.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start: Option<Instant>,
    /// End of the present window.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub end: Option<Instant>,
    /// True after the last window.
    pub over: bool,
    /// GPUs in use.
    pub gpus_used: u64,
    /// The most GPUs; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_limit: Option<u64>,
    /// GPU-milliseconds used in this epoch.
    pub accrued_gpu_ms: u64,
    /// GPU-milliseconds used and held ahead in this epoch.
    pub committed_gpu_ms: u64,
    /// The most GPU-milliseconds; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_gpu_ms: Option<u64>,
    /// Time until which the hours last at the present rate; absent if nothing uses them, or without a limit.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub lasts_to: Option<Instant>,
    /// Epochs that are over.
    #[serde(default)]
    pub closed: Vec<EpochStatus>,
}

/// An epoch that is over.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EpochStatus {
    /// Number, from 0.
    pub epoch: u64,
    /// Start of its window.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start: Option<Instant>,
    /// Time at which it was closed.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub end: Instant,
    /// GPU-milliseconds used in it.
    pub accrued_gpu_ms: u64,
}

/// A condition of a budget, in Kubernetes form.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetCondition {
    /// Kind.
    #[serde(rename = "type")]
    #[schema(value_type = crate::api::word::ConditionKind)]
    pub kind: ConditionKind,
    /// `True` or `False`.
    pub status: String,
    /// The meters, values and bounds that make it true.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// An envelope with its meter: a row of `GET /v1/envelopes`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The envelope, as `NAMESPACE/BUDGET/NAME`.
    pub envelope: String,
    /// Its owner.
    #[schema(value_type = String)]
    pub owner: Label,
    /// Flavor of the GPUs.
    #[schema(value_type = String)]
    pub flavor: Label,
    /// Places that it is meant for; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<PlaceSpec>,
    /// Whether its budget is paused.
    pub paused: bool,
    /// Its meter.
    #[serde(flatten)]
    pub meter: MeterStatus,
    /// Room that it has left.
    pub headroom: EnvelopeHeadroom,
}

object! {
    /// The body of `POST /v1/budgets/{namespace}/{name}/rotate`.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RotateRequest {
        /// Name of the envelope in the budget.
        #[schema(value_type = String, max_length = 253)]
        required envelope "envelope": ObjectName = name_shape();
        /// Reason; it is recorded in clear.
        #[schema(min_length = 1, max_length = 1024)]
        optional reason "reason": String = Shape::Text(reason_of_force);
    }
}

const WHOLE_GPUS: Shape = Shape::Whole {
    min: 1,
    max: GPUS_MAX,
};
const WHOLE_HOURS: Shape = Shape::Whole {
    min: 0,
    max: GPU_HOURS_MAX,
};

part! {
    /// Declared envelopes and caps of an owner.
    pub struct BudgetSpec {
        /// Owner of the envelopes.
        #[schema(value_type = String, max_length = 128)]
        owner "owner": Label = required label_shape();
        /// Parents of the owner.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schema(value_type = Vec<String>)]
        parents "parents": Vec<Label> = defaulted Shape::List(&label_shape());
        /// Envelopes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        envelopes "envelopes": Vec<EnvelopeSpec> = defaulted
            Shape::List(&Shape::Ruled(&Shape::Map(EnvelopeSpec::FIELDS), window_rule));
        /// Caps over several envelopes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        aggregate_caps "aggregateCaps": Vec<CapSpec> = defaulted
            Shape::List(&Shape::Ruled(&Shape::Map(CapSpec::FIELDS), window_rule));
        /// Whether nothing is taken from its envelopes; running work goes on. Default `false`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paused "paused": Option<bool> = optional Shape::Bool;
    }
}

part! {
    /// A bound on GPUs and GPU-hours that pays for runs.
    pub struct EnvelopeSpec {
        /// Name in the budget.
        #[schema(value_type = String, max_length = 253)]
        name "name": ObjectName = required name_shape();
        /// Flavor of the GPUs that it pays for.
        #[schema(value_type = String, max_length = 128)]
        flavor "flavor": Label = required label_shape();
        /// Places that it is meant for; absent: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selector "selector": Option<PlaceSpec> = optional Shape::Map(PlaceSpec::FIELDS);
        /// The most GPUs at once.
        #[serde(deserialize_with = "integer::required")]
        concurrency "concurrency": u64 = required WHOLE_GPUS;
        /// The most GPU-hours of one window; absent: no bound.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "integer::optional")]
        max_gpu_hours "maxGPUHours": Option<u64> = optional WHOLE_HOURS;
        /// Start of the first window.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "instant::optional")]
        #[schema(value_type = Option<String>, format = DateTime)]
        start "start": Option<Instant> = optional instant_shape();
        /// End of the first window, which does not belong to it.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "instant::optional")]
        #[schema(value_type = Option<String>, format = DateTime)]
        end "end": Option<Instant> = optional instant_shape();
        /// Unit by which the window repeats, in UTC; absent: never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<crate::api::word::Renew>)]
        renew "renew": Option<Renew> = optional Shape::Word(&Renew::WORDS);
        /// Owners that it pays for without a loan; default `family`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<crate::api::word::Sharing>)]
        sharing "sharing": Option<Sharing> = optional Shape::Word(&Sharing::WORDS);
        /// Owners that it lends to; absent: nobody.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lending "lending": Option<LendingSpec> = optional Shape::Map(LendingSpec::FIELDS);
        /// Fate of overrunning work when its hours are used up; default `demote`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<crate::api::word::OnExhaustion>)]
        on_exhaustion "onExhaustion": Option<OnExhaustion> = optional
            Shape::Word(&OnExhaustion::WORDS);
        /// Time for which it pays in advance for a run that states no duration.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(example = "24h")]
        admission_horizon "admissionHorizon": Option<String> = optional duration_shape();
    }
}

part! {
    /// The lending of an envelope.
    #[derive(Default)]
    pub struct LendingSpec {
        /// Whether it lends at all.
        #[serde(default)]
        allow "allow": bool = defaulted Shape::Bool;
        /// Borrowers: an owner, the beginning of one with a `*` at the end, or `*`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        to "to": Vec<String> = defaulted Shape::List(&pattern_shape());
        /// The most GPUs that are lent at once.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "integer::optional")]
        max_concurrency "maxConcurrency": Option<u64> = optional WHOLE_GPUS;
        /// The most GPU-hours that are lent in one window of the envelope.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "integer::optional")]
        max_gpu_hours "maxGPUHours": Option<u64> = optional WHOLE_HOURS;
    }
}

part! {
    /// A bound on several envelopes.
    pub struct CapSpec {
        /// Name in the budget.
        #[schema(value_type = String, max_length = 253)]
        name "name": ObjectName = required name_shape();
        /// Flavor of its envelopes.
        #[schema(value_type = String, max_length = 128)]
        flavor "flavor": Label = required label_shape();
        /// Envelopes: a name in this budget, or `NAMESPACE/BUDGET/ENVELOPE`.
        envelopes "envelopes": Vec<String> = required Shape::List(&member_shape());
        /// The most GPUs at once.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "integer::optional")]
        max_concurrency "maxConcurrency": Option<u64> = optional WHOLE_GPUS;
        /// The most GPU-hours of one window.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "integer::optional")]
        max_gpu_hours "maxGPUHours": Option<u64> = optional WHOLE_HOURS;
        /// Start of the first window.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "instant::optional")]
        #[schema(value_type = Option<String>, format = DateTime)]
        start "start": Option<Instant> = optional instant_shape();
        /// End of the first window, which does not belong to it.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "instant::optional")]
        #[schema(value_type = Option<String>, format = DateTime)]
        end "end": Option<Instant> = optional instant_shape();
        /// Unit by which the window repeats, in UTC; absent: never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<crate::api::word::Renew>)]
        renew "renew": Option<Renew> = optional Shape::Word(&Renew::WORDS);
    }
}
