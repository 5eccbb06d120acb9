//! Lists: pages that are consistent as of one record.

use serde::{Deserialize, Serialize};

use crate::ToSchema;

/// One page of a list.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListAnswer<T> {
    /// Items of this page.
    pub items: Vec<T>,
    /// Value of `cursor` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Last ledger record that this answer reflects.
    pub record: u64,
}
