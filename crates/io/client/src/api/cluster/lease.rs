//! Leases: who held which GPUs, from when to when, who paid, and why it ended.

use bursar_engine::cluster::Reason;
use bursar_engine::cluster::budget::Class;
use bursar_units::{Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};

use crate::ToSchema;
use crate::api::instant;

/// The leases of one pod of a run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuLease {
    /// Identity of its first lease, `lease-RECORD.N`; one follows for each GPU.
    pub lease: String,
    /// The run, as `NAMESPACE/NAME`.
    pub run: String,
    /// Identity of the run.
    pub uid: String,
    /// Owner of the run.
    #[schema(value_type = String)]
    pub owner: Label,
    /// Flavor of the GPUs.
    #[schema(value_type = String)]
    pub flavor: Label,
    /// The node.
    #[schema(value_type = String)]
    pub node: ObjectName,
    /// Number of GPUs.
    pub gpus: u64,
    /// GPUs on the node, as ranges: `0-7`, `0-1,4`.
    pub ordinals: String,
    /// `Active`.
    pub role: String,
    /// Incarnation of the run, from 0.
    pub incarnation: u64,
    /// Group, from 0.
    pub group: u64,
    /// Pod, from 0.
    pub pod: u64,
    /// Who pays; of an ended lease, who paid for the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paid_by: Vec<LeasePayer>,
    /// Time at which it opened.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub from: Instant,
    /// Time at which it closed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub to: Option<Instant>,
    /// Cause of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::CloseReason>)]
    pub ended_by: Option<Reason>,
}

/// A payer of a pod.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeasePayer {
    /// The envelope; absent: unfunded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<String>,
    /// Funding class.
    #[schema(value_type = crate::api::word::FundingClass)]
    pub class: Class,
}
