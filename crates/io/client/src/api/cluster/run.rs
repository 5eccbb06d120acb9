//! Runs as declared objects, in Kubernetes form.

use bursar_engine::cluster::budget::cover::{Bound, Relation, Row, RowState};
use bursar_engine::cluster::budget::{Class, EnvelopeId, Pool, Take};
use bursar_engine::cluster::explain::WaitReason;
use bursar_engine::cluster::run::WIDTH_MAX;
use bursar_engine::cluster::{Outcome, Reason, Stage};
use bursar_engine::explain::WaitsFor;
use bursar_units::{Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};

use super::{PlaceSpec, ScopedMetadata};
use crate::ToSchema;
use crate::api::{ChangeKind, Explanation, instant, integer};
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
    /// Present state, in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Box<RunStatus>>,
}

/// Present state of a run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// Identity; a later run of the same name has another one.
    pub uid: String,
    /// State.
    #[schema(value_type = crate::api::word::RunState)]
    pub state: Stage,
    /// Start of the state.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub since: Instant,
    /// Cause of the wait, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::WaitsFor>)]
    pub waits_for: Option<WaitsFor>,
    /// Reason of the wait, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::WaitReason>)]
    pub reason: Option<WaitReason>,
    /// Position in the queue, from 1, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u64>,
    /// GPUs that it holds.
    pub gpus: u64,
    /// GPUs that it asked for.
    pub gpus_asked: u64,
    /// Claims that pay for it, oldest first, then those that nobody pays.
    #[serde(default)]
    pub claims: Vec<RunClaim>,
    /// Nodes that it is on; those that it was on, if it has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<ObjectName>,
    /// Domains that it is in, as `region/cluster/domain`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// Incarnation, from 0.
    pub incarnation: u64,
    /// Time of the submission.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub submitted_at: Instant,
    /// Time at which its leases opened.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Instant>,
    /// End that it stated, if it holds GPUs: the expected one first.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub stated_end: Option<Instant>,
    /// Time at which its processes are killed, if it is being stopped.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub stops_at: Option<Instant>,
    /// Time of the end.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Instant>,
    /// Outcome, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::RunOutcome>)]
    pub outcome: Option<Outcome>,
    /// Cause of the stop or of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::CloseReason>)]
    pub ended_by: Option<Reason>,
    /// Exit code of the first process that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Cause of a failed start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// GPUs of a run that one envelope pays for, or that nobody pays for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunClaim {
    /// The envelope; absent: unfunded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<String>,
    /// Right by which it pays; absent: unfunded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::Pool>)]
    pub pool: Option<Pool>,
    /// Funding class.
    #[schema(value_type = crate::api::word::FundingClass)]
    pub class: Class,
    /// Number of GPUs.
    pub gpus: u64,
    /// Promise end; absent: unfunded.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Instant>,
    /// True if the promise has ended and the claim is paid from uncommitted time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overruns: bool,
}

/// Answer to a submission, an edit, a plan or a cancel of a run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunAnswer {
    /// The run as the command left it, with its status.
    #[serde(flatten)]
    pub run: Run,
    /// Kind of change.
    #[schema(value_type = crate::api::word::ChangeKind)]
    pub change: ChangeKind,
    /// Its state, explained.
    pub explanation: Explanation,
    /// Envelopes that pay, or would pay now, in order.
    #[serde(default)]
    #[schema(value_type = Vec<crate::api::cluster::run::TakeSchema>)]
    pub takes: Vec<Take>,
    /// The walk over all envelopes that may pay, if it waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<CoverRow>,
    /// Events that the submission would write now, as in the record; of a dry run only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub events: Vec<Box<serde_json::value::RawValue>>,
    /// Last ledger record that this answer reflects.
    pub record: u64,
    /// True for a dry run: nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// Schema of a take.
#[cfg(feature = "schema")]
#[derive(ToSchema)]
#[schema(as = Take)]
#[serde(rename_all = "camelCase")]
pub struct TakeSchema {
    /// The envelope.
    pub envelope: String,
    /// Right by which it pays.
    pub pool: crate::api::word::Pool,
    /// Number of GPUs.
    pub gpus: u64,
}

/// A row of the walk over the envelopes that may pay for a run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoverRow {
    /// Number of the group in the run, from 0.
    pub group: usize,
    /// The envelope.
    #[schema(value_type = String)]
    pub envelope: EnvelopeId,
    /// Owner of the envelope.
    #[schema(value_type = String)]
    pub owner: Label,
    /// Relation of that owner to the owner of the run.
    #[schema(value_type = crate::api::word::Relation)]
    pub relation: Relation,
    /// Right by which it would pay.
    #[schema(value_type = crate::api::word::Pool)]
    pub pool: Pool,
    /// Whether its selector matches the domain.
    pub here: bool,
    /// State of the row.
    #[schema(value_type = crate::api::word::RowState)]
    pub state: RowState,
    /// GPUs for which the row has room.
    pub room: u64,
    /// Bound that left this room: a meter with its dimension, or the borrow limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub bound: Option<Bound>,
    /// GPUs taken from the row.
    pub gpus: u64,
    /// End of the promise that it would give.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Instant>,
}

impl From<&Row> for CoverRow {
    fn from(row: &Row) -> Self {
        Self {
            group: row.group,
            envelope: row.envelope.clone(),
            owner: row.owner.clone(),
            relation: row.relation,
            pool: row.pool,
            here: row.here,
            state: row.state,
            room: row.room,
            bound: row.bound.clone(),
            gpus: row.gpus,
            until: row.until,
        }
    }
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
