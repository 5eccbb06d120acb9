//! The inventory: `v1/Node` objects of Kubernetes, of which some fields are read.
//!
//! Unknown fields are accepted here only, so that the output of `kubectl get nodes -o yaml` can be
//! applied unchanged.

use std::collections::BTreeMap;

use bursar_units::ObjectName;
use serde::{Deserialize, Serialize};

use crate::ToSchema;

/// A node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// `v1`.
    pub api_version: String,
    /// `Node`.
    pub kind: String,
    /// Its name.
    pub metadata: NodeMetadata,
    /// Resources.
    #[serde(default)]
    pub status: NodeStatus,
}

/// Name and version of a node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetadata {
    /// Its name.
    #[schema(value_type = String, max_length = 253)]
    pub name: ObjectName,
    /// Version, different for every content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

/// Resources of a node.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Quantities by resource; `cpu`, `memory` and `nvidia.com/gpu` are read.
    #[serde(default)]
    pub allocatable: BTreeMap<String, String>,
}

impl Node {
    /// Object with this name and these resources, as in a file.
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
