//! Lists: pages that are consistent as of a record (design 80, 4.1).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListAnswer<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// What to send as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The last ledger record this answer reflects.
    pub record: u64,
}
