//! Runs as declared objects, in Kubernetes form.

use bursar_engine::cluster::run::WIDTH_MAX;
use bursar_units::Label;
use serde::{Deserialize, Serialize};

use super::{PlaceSpec, ScopedMetadata};
use crate::ToSchema;
use crate::api::integer;
use crate::object::budget::{duration_shape, label_shape};
use crate::object::run::FUNDING_LATER;
use crate::object::spec::part;
use crate::shape::Shape;

/// Work on GPUs that starts and ends together.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Run {
    /// `bursar.dev/v1alpha1`.
    pub api_version: String,
    /// `Run`.
    pub kind: String,
    /// Namespace, name and version.
    pub metadata: ScopedMetadata,
    /// The run as submitted.
    pub spec: RunSpec,
}

const WHOLE_GPUS: Shape = Shape::Whole {
    min: 1,
    max: WIDTH_MAX,
};

part! {
    /// A run as submitted.
    pub struct RunSpec {
        /// Owner, whose envelopes pay first; absent: the only owner that the caller may act as.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, max_length = 128)]
        owner "owner": Option<Label> = optional label_shape();
        /// Flavor of the GPUs.
        #[schema(value_type = String, max_length = 128)]
        flavor "flavor": Label = required label_shape();
        /// Width: all GPUs start and end together.
        #[serde(deserialize_with = "integer::required")]
        total_gpus "totalGPUs": u64 = required WHOLE_GPUS;
        /// GPUs of a pod, which sits on one node; default the width, at most 8.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "integer::optional")]
        pod_gpus "podGPUs": Option<u64> = optional WHOLE_GPUS;
        /// GPUs of a group, which sits in one domain; absent: the whole run.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "integer::optional")]
        group_gpus "groupGPUs": Option<u64> = optional WHOLE_GPUS;
        /// Whether groups may sit in different domains; default `false`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spread "spread": Option<bool> = optional Shape::Bool;
        /// Allowed places; absent: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        location "location": Option<PlaceSpec> = optional Shape::Map(PlaceSpec::FIELDS);
        /// Borrowing that it allows; absent: none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        funding "funding": Option<FundingSpec> = optional
            Shape::Both(FundingSpec::FIELDS, FUNDING_LATER);
        /// Expected length, which is promised once it is admitted; never a limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(example = "48h")]
        expected_duration "expectedDuration": Option<String> = optional duration_shape();
        /// Hard limit of the length.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(example = "72h")]
        max_duration "maxDuration": Option<String> = optional duration_shape();
        /// Order among the runs of its owner, -100 to 100, the highest first; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority "priority": Option<i32> = optional Shape::Signed32;
        /// Time to checkpoint when it is stopped; default `30s`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(example = "10m")]
        grace "grace": Option<String> = optional duration_shape();
    }
}

part! {
    /// Borrowing that a run allows.
    #[derive(Default)]
    pub struct FundingSpec {
        /// Whether it may borrow.
        #[serde(default)]
        allow_borrow "allowBorrow": bool = defaulted Shape::Bool;
        /// The most GPUs that it may borrow.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "integer::optional")]
        max_borrow_gpus "maxBorrowGPUs": Option<u64> = optional crate::shape::WHOLE;
        /// Owners to borrow from, in this order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schema(value_type = Vec<String>)]
        sponsors "sponsors": Vec<Label> = defaulted Shape::List(&label_shape());
    }
}
