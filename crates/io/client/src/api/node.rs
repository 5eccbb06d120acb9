//! The inventory: core `v1/Node` objects, of which we read a part (design 80, 5.4).
//!
//! Unknown fields are allowed here and only here, because `kubectl get nodes -o yaml` must apply
//! as it is.

use std::collections::BTreeMap;

use bursar_units::ObjectName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A machine.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// `v1`.
    pub api_version: String,
    /// `Node`.
    pub kind: String,
    /// Its name.
    pub metadata: NodeMetadata,
    /// What it has.
    #[serde(default)]
    pub status: NodeStatus,
}

/// How a machine is named.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetadata {
    /// Its name.
    #[schema(value_type = String, max_length = 253)]
    pub name: ObjectName,
    /// Its version, another for every content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

/// What a machine has.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Quantities by resource; we read `cpu`, `memory` and `nvidia.com/gpu`.
    #[serde(default)]
    pub allocatable: BTreeMap<String, String>,
}

impl Node {
    /// The object of that name with what it has, as people write it.
    pub fn new(name: ObjectName, allocatable: BTreeMap<String, String>) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            metadata: NodeMetadata {
                name,
                resource_version: None,
            },
            status: NodeStatus { allocatable },
        }
    }
}
