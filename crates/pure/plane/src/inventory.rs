//! The declared nodes: their capacity and topology.

use std::collections::BTreeMap;

use bursar_units::{Amount, ObjectName, Total, is_default, whole};
use serde::{Deserialize, Serialize};

/// Label of the region of a node.
pub const REGION: &str = "topology.kubernetes.io/region";
/// Label of the cluster of a node.
pub const CLUSTER: &str = "bursar.dev/cluster";
/// Label of the fabric domain of a node.
pub const DOMAIN: &str = "bursar.dev/domain";
/// Label of the flavor of its GPUs.
pub const FLAVOR: &str = "bursar.dev/flavor";

/// The labels that are read: those of its place, from the widest, and that of its flavor.
pub const LABELS: [&str; 4] = [REGION, CLUSTER, DOMAIN, FLAVOR];

/// A node, in the form of the journal (L7).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    /// Its name.
    pub name: ObjectName,
    /// CPU in millicores.
    #[serde(with = "whole")]
    pub cpu_milli: u64,
    /// Memory in bytes.
    #[serde(with = "whole")]
    pub memory_bytes: u64,
    /// Whole GPUs.
    #[serde(with = "whole")]
    pub gpus: u64,
    /// Its labels. Absent: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether nothing new may be placed on it. Absent: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unschedulable: bool,
}

impl Node {
    /// A node with this capacity; a node has no slots.
    pub fn new(name: ObjectName, capacity: &Amount) -> Self {
        Self {
            name,
            cpu_milli: capacity.cpu_milli,
            memory_bytes: capacity.memory_bytes,
            gpus: capacity.gpus,
            labels: BTreeMap::new(),
            unschedulable: false,
        }
    }

    /// Its capacity; the slots are always zero.
    pub fn capacity(&self) -> Amount {
        Amount {
            slots: 0,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            gpus: self.gpus,
        }
    }

    /// Its region, if a label names one.
    pub fn region(&self) -> Option<&str> {
        self.label(REGION)
    }

    /// Its cluster, if a label names one.
    pub fn cluster(&self) -> Option<&str> {
        self.label(CLUSTER)
    }

    /// Its fabric domain, if a label names one.
    pub fn domain(&self) -> Option<&str> {
        self.label(DOMAIN)
    }

    /// The flavor of its GPUs, if a label names one.
    pub fn flavor(&self) -> Option<&str> {
        self.label(FLAVOR)
    }

    /// The labels without which no run is placed on its GPUs; none of a node without GPUs.
    pub fn missing_labels(&self) -> impl Iterator<Item = &'static str> {
        let needed = LABELS.into_iter().filter(|_| self.gpus > 0);
        needed.filter(|key| self.label(key).is_none())
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// The declared nodes, by name.
#[derive(Clone, Debug, Default)]
pub struct Inventory(BTreeMap<ObjectName, Node>);

impl Inventory {
    /// All nodes, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.values()
    }

    /// One node.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.0.get(name)
    }

    /// Adds a node, or replaces the one of that name.
    pub fn set(&mut self, node: Node) {
        self.0.insert(node.name.clone(), node);
    }

    /// Removes a node.
    pub fn remove(&mut self, name: &ObjectName) {
        self.0.remove(name);
    }

    /// The capacity of all nodes together.
    pub fn total(&self) -> Total {
        let mut total = Total::ZERO;
        for node in self.0.values() {
            total.add(&node.capacity());
        }
        total
    }
}
