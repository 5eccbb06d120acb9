//! Applying several objects, all or none (design 80, 4.1).

use bursar_units::vocabulary;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::word;

/// The body of `POST /v1/apply`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplyRequest {
    /// `Limit` and `Node` objects; read with [`crate::object::read_values`].
    #[schema(value_type = Vec<Object>)]
    pub objects: Vec<serde_json::Value>,
}

/// The answer to an apply, a put or a delete of declared objects.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplyAnswer {
    /// One each, in order.
    pub results: Vec<Change>,
    /// The last ledger record this answer reflects.
    pub record: u64,
    /// True where nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// What became of one object.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Which, as in `limit/python`.
    pub object: String,
    /// What happened to it.
    #[schema(value_type = word::ChangeKind)]
    pub change: ChangeKind,
    /// The fields that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
    /// What it means for those who hold and wait, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

vocabulary! {
    /// What happened to an object.
    pub enum ChangeKind {
        /// It is new.
        Created = "created",
        /// It was other.
        Changed = "changed",
        /// It was so already.
        Unchanged = "unchanged",
        /// It is gone.
        Deleted = "deleted",
    }
}

/// A field that differs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// Where, as in `slots`.
    pub path: String,
    /// What it was; absent where there was nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it is; absent where there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}
