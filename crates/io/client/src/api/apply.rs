//! Changes to declared objects, all or none.

use bursar_units::vocabulary;
use serde::{Deserialize, Serialize};

use crate::ToSchema;

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
    /// One result for each object, in order.
    pub results: Vec<Change>,
    /// Last ledger record that this answer reflects.
    pub record: u64,
    /// True for a dry run: nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// Result for one object.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The object, as in `limit/python`.
    pub object: String,
    /// Kind of change.
    #[schema(value_type = crate::api::word::ChangeKind)]
    pub change: ChangeKind,
    /// The fields that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
    /// Effect on held and waiting bookings, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

vocabulary! {
    /// Kind of change of an object.
    pub enum ChangeKind {
        /// The object is new.
        Created = "created",
        /// The object had another content.
        Changed = "changed",
        /// The object had this content already.
        Unchanged = "unchanged",
        /// The object was removed.
        Deleted = "deleted",
    }
}

/// A field that differs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// Path of the field, as in `slots`.
    pub path: String,
    /// Old value; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// New value; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}
