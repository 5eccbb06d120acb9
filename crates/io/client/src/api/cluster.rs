//! The cluster in JSON: budgets and runs as declared objects, leases and usage.

pub mod budget;
pub mod lease;
pub mod query;
pub mod run;
pub mod usage;

use bursar_units::{Label, ObjectName};
use serde::{Deserialize, Serialize};

use crate::ToSchema;
use crate::object::budget::label_shape;
use crate::object::spec::part;

pub use budget::{
    Budget, BudgetCondition, BudgetSpec, BudgetStatus, CapHeadroom, CapSpec, Envelope,
    EnvelopeHeadroom, EnvelopeSpec, EpochStatus, LendingSpec, MeterStatus, Relative, RotateRequest,
};
pub use lease::{GpuLease, LeasePayer};
pub use query::{GetRun, GetUsage, ListBudgets, ListLeases, ListRuns, PutRun};
pub use run::{CoverRow, FundingSpec, Run, RunAnswer, RunClaim, RunSpec, RunStatus};
pub use usage::{Usage, UsageBy, UsageDebit, UsageRow, UsageSums};

/// Namespace, name and version of an object.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScopedMetadata {
    /// Name, unique among objects of its kind in the namespace.
    #[schema(value_type = String, max_length = 253)]
    pub name: ObjectName,
    /// Namespace; absent: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 253)]
    pub namespace: Option<ObjectName>,
    /// Version, different for every content. With `If-Match` a change applies to this version only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

part! {
    /// A restriction to some places; an absent part means any.
    #[derive(Default)]
    pub struct PlaceSpec {
        /// Region.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, max_length = 128)]
        region "region": Option<Label> = optional label_shape();
        /// Cluster in the region.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, max_length = 128)]
        cluster "cluster": Option<Label> = optional label_shape();
        /// Fabric domain in the cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, max_length = 128)]
        domain "domain": Option<Label> = optional label_shape();
    }
}

impl From<&bursar_engine::cluster::budget::Selector> for PlaceSpec {
    fn from(selector: &bursar_engine::cluster::budget::Selector) -> Self {
        Self {
            region: selector.region.clone(),
            cluster: selector.cluster.clone(),
            domain: selector.domain.clone(),
        }
    }
}

impl From<&PlaceSpec> for bursar_engine::cluster::budget::Selector {
    fn from(spec: &PlaceSpec) -> Self {
        Self {
            region: spec.region.clone(),
            cluster: spec.cluster.clone(),
            domain: spec.domain.clone(),
        }
    }
}
