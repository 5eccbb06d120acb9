//! The one answer that every surface prints (design 80, rule 1 and 4.3).

use bursar_units::{Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::execution::Saga;
use super::instant;
use crate::problem::{Holder, LimitUse};

/// Why something is as it is, when that changes, and who counts.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What is explained.
    pub object: ObjectRef,
    /// The verdict, in one line.
    pub headline: String,
    /// Its state.
    pub state: String,
    /// What it waits for, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// The reason, as a word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Instant>,
    /// The numbers behind the headline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// When it changes, and what that rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// For whom it counts, and where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<Who>,
    /// What would change it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// The steps of an execution, and what is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saga: Option<Saga>,
    /// The last ledger record this answer reflects.
    pub record: u64,
}

/// A thing by kind and name.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// `Booking`, `Limit` and so on.
    pub kind: String,
    /// Where it lives, for kinds that have namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// What a thing can wait for, in the order in which a headline is chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    /// For who submitted it to correct it.
    Mistake,
    /// For time, or for another thing.
    After,
    /// For whoever owns the limit.
    Budget,
    /// For others to end.
    Room,
    /// For those ahead.
    Turn,
}

/// The numbers behind a headline.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// How many of its class come before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// The limits that bind, headline first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitUse>,
    /// Who holds them, most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
}

/// When it changes. No basis, no estimate.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct When {
    /// The expected moment.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Instant>,
    /// The latest moment.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub latest: Option<Instant>,
    /// What the expectation rests on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rests_on: Vec<RestsOn>,
}

/// One thing that an expectation rests on.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestsOn {
    /// The thing, as in `booking/job-1`, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// What is believed of it, as in `last 200 executions` or `ttl`.
    pub basis: String,
}

/// For whom a thing counts.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Who {
    /// The tenant.
    #[schema(value_type = String)]
    pub tenant: Label,
    /// With how many slots.
    pub slots: u64,
    /// In which limits.
    #[schema(value_type = Vec<String>)]
    pub limits: Vec<ObjectName>,
}
