//! Explanations: one answer that all surfaces print.

use bursar_engine::explain::WaitsFor;
use bursar_units::{Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};

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
    /// Tenants that it counts for.
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
    /// Number of requests of its class that come before it.
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

/// Tenant that an object counts for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Who {
    /// Tenant.
    #[schema(value_type = String)]
    pub tenant: Label,
    /// Slots that are counted.
    pub slots: u64,
    /// Limits that count them.
    #[schema(value_type = Vec<String>)]
    pub limits: Vec<ObjectName>,
}
