//! The inventory: `v1/Node` objects of Kubernetes, of which some fields are read.
//!
//! Unknown fields are accepted here only, so that the output of `kubectl get nodes -o yaml` can be
//! applied unchanged. The server adds the executor and the missing labels to its answers.

use std::collections::BTreeMap;

use bursar_units::{ObjectName, is_default, vocabulary};
use serde::{Deserialize, Serialize};

use crate::ToSchema;

vocabulary! {
    /// Executor of a node.
    pub enum NodeExecutor {
        /// No process starts: the node was declared in a file, and runs on it are simulated.
        Simulated = "simulated",
        /// The machine of the server, which carries out executions.
        Local = "local",
    }
}

/// A node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// `v1`.
    pub api_version: String,
    /// `Node`.
    pub kind: String,
    /// Its name and labels.
    pub metadata: NodeMetadata,
    /// Its cordon.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spec: NodeSpec,
    /// Resources.
    pub status: NodeStatus,
}

/// Name, labels and version of a node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetadata {
    /// Its name.
    #[schema(value_type = String, max_length = 253)]
    pub name: ObjectName,
    /// Its labels; `topology.kubernetes.io/region`, `bursar.dev/cluster`, `bursar.dev/domain` and
    /// `bursar.dev/flavor` are read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Version, different for every content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

/// Cordon of a node.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    /// Whether nothing new may be placed on it; nothing ends because of it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unschedulable: bool,
}

/// Resources of a node, and facts that the server adds.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Quantities by resource; `cpu`, `memory` and `nvidia.com/gpu` are read.
    pub allocatable: BTreeMap<String, String>,
    /// Executor of runs on it, in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::NodeExecutor>)]
    pub executor: Option<NodeExecutor>,
    /// Labels without which no run is placed on its GPUs, in answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_labels: Vec<String>,
}

impl Node {
    /// Object with this name and these resources, as in a file.
    pub fn new(name: ObjectName, allocatable: BTreeMap<String, String>) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            metadata: NodeMetadata {
                name,
                labels: BTreeMap::new(),
                resource_version: None,
            },
            spec: NodeSpec::default(),
            status: NodeStatus {
                allocatable,
                ..NodeStatus::default()
            },
        }
    }
}
