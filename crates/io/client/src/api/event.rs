//! Events of the stream.

use bursar_units::{Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};

use super::instant;
use super::query::query;
use crate::ToSchema;

/// Name of the last event of a stream whose token was revoked or has expired. Its data is the
/// problem `unauthenticated`, and it has no id.
pub const SIGNED_OUT: &str = "signed-out";

/// Data of one event. The name and the id (`record.index`) are fields of the stream.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamEvent {
    /// Time of the event.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Instant,
    /// Object of the event, as in `booking/job-9917`.
    pub object: String,
    /// The event in one sentence, the same on every surface.
    pub summary: String,
    /// Facts; the members depend on the kind of event.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
}

query! {
    /// Filter of the stream; absent parameters select all.
    pub struct StreamEvents {
        /// `booking`, `limit`, `node`, `pod`, `run`, `lease`, `booking.granted` and so on, with commas.
        kinds "kinds": String;
        /// Tenant.
        tenant "tenant": Label;
        /// Namespace of runs and budgets.
        ns "ns": ObjectName;
        /// Send events after this record; by default only new ones.
        from "from": u64;
    }
}
