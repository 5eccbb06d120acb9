//! Explanations: one answer that all surfaces print.

use bursar_engine::cluster::budget::Class;
use bursar_engine::explain::WaitsFor;
use bursar_units::{Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};

use super::cluster::PlaceSpec;
use super::execution::Saga;
use super::instant;
use crate::ToSchema;
use crate::problem::{Holder, LimitUse};

/// Explanation of the state of an object.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Explained object.
    pub object: ObjectRef,
    /// Explanation in one line.
    pub headline: String,
    /// State of the object.
    pub state: String,
    /// Cause of the wait, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::WaitsFor>)]
    pub waits_for: Option<WaitsFor>,
    /// Reason, as a word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Start of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Instant>,
    /// Numbers behind the headline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// Expected time of a change, with its basis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// Tenants that it counts for, or envelopes that pay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<Who>,
    /// Actions that would change the state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Remark of its tenant or of an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Steps and compensations of an execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saga: Option<Saga>,
    /// Last ledger record that this answer reflects.
    pub record: u64,
}

/// Kind and name of an object.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Kind, as in `Booking` or `Limit`.
    pub kind: String,
    /// Namespace, for kinds that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// Numbers behind a headline.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// GPUs that a run needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<u64>,
    /// Free GPUs of its flavor at the allowed places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// Allowed places of a run; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "where")]
    pub location: Option<PlaceSpec>,
    /// Number of requests of its class, or of waiting runs, that come before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// Limits that bind; the first gives the headline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitUse>,
    /// Holders, largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
}

/// Expected time of a change. There is no estimate without a basis.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct When {
    /// Expected time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Instant>,
    /// Latest time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub latest: Option<Instant>,
    /// Basis of the expected time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rests_on: Vec<RestsOn>,
}

/// Basis of an expected time.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestsOn {
    /// Object, as in `booking/job-1`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Assumption, as in `last 200 executions` or `ttl`.
    pub basis: String,
}

/// Tenant that a booking counts for, or payer of a run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Who {
    /// Tenant that a booking counts for.
    Counted {
        /// Tenant.
        #[schema(value_type = String)]
        tenant: Label,
        /// Slots that are counted.
        slots: u64,
        /// Limits that count them.
        #[schema(value_type = Vec<String>)]
        limits: Vec<ObjectName>,
    },
    /// Payer of a run, now or if it started now.
    Pays {
        /// The envelope; absent: unfunded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        envelope: Option<String>,
        /// Number of GPUs.
        gpus: u64,
        /// Funding class.
        #[schema(value_type = crate::api::word::FundingClass)]
        class: Class,
        /// GPU-milliseconds held ahead; absent: no promise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held_gpu_ms: Option<u64>,
        /// GPUs of the envelope that are free now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpus_free: Option<u64>,
        /// The most GPUs of the envelope.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpus_limit: Option<u64>,
        /// Bound that keeps it from paying for more, for people; absent unless the run waits for
        /// budget.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bound: Option<String>,
    },
}
