//! What the stream says (design 80, 4.5).

use bursar_units::Instant;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::instant;

/// The name of the last event of a stream whose caller's right has ended: its token was revoked or
/// has expired. Its data is the problem `unauthenticated`, and it has no id.
pub const SIGNED_OUT: &str = "signed-out";

/// The data of one event. Its name and its id, `record.index`, are the stream's own fields.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamEvent {
    /// When it happened.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Instant,
    /// To what, as in `booking/job-9917`.
    pub object: String,
    /// The sentence people see everywhere.
    pub summary: String,
    /// The facts, by kind of event.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
}
