//! Placement: the nodes and GPUs of a gang.

use bursar_units::{Label, ObjectName};
use serde::{Deserialize, Serialize};

use crate::place::{Place, Selector};

/// A node that can hold pods, with its free GPUs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    /// Name of the node.
    pub name: ObjectName,
    /// Its domain.
    pub place: Place,
    /// Flavor of its GPUs.
    pub flavor: Label,
    /// Ordinals of the free GPUs, ascending.
    pub free: Vec<u32>,
}

/// A gang that needs GPUs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gang {
    /// Flavor of the GPUs.
    pub flavor: Label,
    /// Allowed places.
    pub location: Selector,
    /// GPUs of each pod, which sits on one node.
    pub pod_gpus: u64,
    /// Pods of each group, which sits in one domain.
    pub groups: Vec<u64>,
    /// Spare pods wished for in the domain of each group.
    pub spares_per_group: u64,
}

/// A pod with its GPUs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Seat {
    /// Number of the group, from 0.
    pub group: u64,
    /// Number of the pod in the run, from 0.
    pub pod: u64,
    /// Node of the pod.
    pub node: ObjectName,
    /// Ordinals of its GPUs on the node, ascending.
    pub ordinals: Vec<u32>,
}

/// A place for every pod of a gang.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Seating {
    /// Domain of each group, by group number.
    pub groups: Vec<Place>,
    /// Active pods, by group and pod.
    pub pods: Vec<Seat>,
}

// place(hosts: &Hosts, gang: &Gang) -> Option<Seating>
// spares(hosts: &Hosts, gang, &Seating) -> Vec<Seat>   (as many as fit)
// fits_empty(all declared nodes taken empty, gang) -> bool   (never-fits)
