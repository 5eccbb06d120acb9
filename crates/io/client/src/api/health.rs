//! Health of the server.

use serde::{Deserialize, Serialize};

use crate::ToSchema;

/// Answer of `/healthz` and `/readyz`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `ok`, or a sentence about the missing part.
    pub status: String,
    /// Version of the program.
    pub version: String,
    /// Last committed record; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<u64>,
    /// Clock of the server, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now_ms: Option<u64>,
}
