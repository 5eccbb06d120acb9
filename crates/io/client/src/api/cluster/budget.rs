//! Budgets as declared objects, in Kubernetes form.

use bursar_engine::cluster::budget::Renew;
use bursar_engine::cluster::budget::spec::{GPU_HOURS_MAX, GPUS_MAX, OnExhaustion, Sharing};
use bursar_units::{Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};

use super::{PlaceSpec, ScopedMetadata};
use crate::ToSchema;
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
