//! Used GPU time, from the ledger alone.

use bursar_engine::cluster::budget::Class;
use bursar_units::{Instant, Label, vocabulary};
use serde::{Deserialize, Serialize};

use crate::ToSchema;
use crate::api::instant;

vocabulary! {
    /// Grouping of used GPU time.
    pub enum UsageBy {
        /// By owner of the runs.
        Owner = "owner",
        /// By run.
        Run = "run",
        /// By UTC day.
        Day = "day",
        /// By envelope that paid.
        Envelope = "envelope",
    }
}

/// Answer of `GET /v1/usage`. All times are GPU-milliseconds.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Start of the counted period, a UTC midnight; absent: from the first record.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Instant>,
    /// End of the counted period: a UTC midnight, or now.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub until: Instant,
    /// Grouping.
    #[schema(value_type = crate::api::word::UsageBy)]
    pub by: UsageBy,
    /// Rows, by their name.
    pub items: Vec<UsageRow>,
    /// Sum of the rows.
    pub total: UsageSums,
    /// Last ledger record that this answer reflects.
    pub record: u64,
}

/// A row of used GPU time.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// Owner of the runs; of the envelope, by envelope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<Label>,
    /// The run, as `NAMESPACE/NAME`, by run; absent there: runs that no other row has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Identity of the run, by run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Date in UTC, by day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// The envelope, by envelope; absent there: unfunded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<String>,
    /// Sums.
    #[serde(flatten)]
    pub sums: UsageSums,
    /// Debits by envelope, class and epoch, by run; the unfunded time has none.
    #[serde(default)]
    pub debits: Vec<UsageDebit>,
}

/// Sums of used GPU time by class, in GPU-milliseconds. Leased time is the sum of the four classes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageSums {
    /// All time of leases.
    pub leased_gpu_ms: u64,
    /// Paid by the owner itself.
    pub owned_gpu_ms: u64,
    /// Paid by relatives.
    pub shared_gpu_ms: u64,
    /// Paid by lenders.
    pub borrowed_gpu_ms: u64,
    /// Paid by nobody.
    pub unfunded_gpu_ms: u64,
    /// Time that its envelopes paid for runs of others outside the family; part of those runs' time.
    pub lent_gpu_ms: u64,
}

/// Time of a run that one envelope paid in one epoch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageDebit {
    /// The envelope.
    pub envelope: String,
    /// Funding class.
    #[schema(value_type = crate::api::word::FundingClass)]
    pub class: Class,
    /// Epoch of the envelope.
    pub epoch: u64,
    /// GPU-milliseconds.
    pub gpu_ms: u64,
}
