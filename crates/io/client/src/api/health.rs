//! Is it there, and may it be used.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The answer of `/healthz` and `/readyz`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `ok`, or what is missing, in words.
    pub status: String,
    /// The program's version.
    pub version: String,
    /// The last committed record; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<u64>,
    /// The server's clock, in milliseconds since 1970, to compare with one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now_ms: Option<u64>,
}
