//! Placement: the nodes and GPUs of a gang.
//!
//! A group sits in one domain, a pod on one node. Groups go largest first, each to the domain where
//! it leaves the fewest free GPUs, then by the key of the domain. Inside a domain each pod takes the
//! node with the least free GPUs that still holds it, then by name, and the lowest ordinals. Spares
//! are seated the same way, in the domain of their group.
//!
//! [`Hosts`] keeps nodes by flavor, domain and number of free GPUs, so a search reads the free nodes
//! of a domain in the order of the rule. It knows no runs: the plane takes and gives back GPUs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bursar_units::{Label, ObjectName, whole};
use serde::{Deserialize, Serialize};

use crate::place::{Place, Selector};

/// A node that can hold pods.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    /// Name of the node.
    pub name: ObjectName,
    /// Its domain.
    pub place: Place,
    /// Flavor of its GPUs.
    pub flavor: Label,
    /// Ordinals of the free GPUs.
    pub free: BTreeSet<u32>,
}

/// A gang that needs GPUs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gang {
    /// Flavor of the GPUs.
    pub flavor: Label,
    /// Allowed places.
    pub location: Selector,
    /// GPUs of each pod.
    pub pod_gpus: u64,
    /// Pods of each group.
    pub groups: Vec<u64>,
    /// Spare pods wished for in the domain of each group.
    pub spares_per_group: u64,
}

/// A pod with its GPUs.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Seat {
    /// Number of the group, from 0.
    #[serde(with = "whole")]
    pub group: u64,
    /// Number of the pod in the run, from 0; spares follow the active pods.
    #[serde(with = "whole")]
    pub pod: u64,
    /// Node of the pod.
    pub node: ObjectName,
    /// Ordinals of its GPUs on the node, ascending.
    pub ordinals: Vec<u32>,
}

/// Seats of a gang.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Seating {
    /// Domain of each group, by group number.
    pub groups: Vec<Place>,
    /// Active pods, by group and pod.
    pub pods: Vec<Seat>,
    /// Spare pods that found a seat, by group and pod.
    pub spares: Vec<Seat>,
}

/// Nodes that can hold pods, by flavor and domain.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    hosts: BTreeMap<ObjectName, Host>,
    flavors: BTreeMap<Label, BTreeMap<Place, Domain>>,
}

#[derive(Clone, Debug, Default)]
struct Domain {
    /// Free GPUs of all nodes.
    free: u64,
    /// Nodes by number of free GPUs, then by name.
    nodes: BTreeMap<u64, BTreeSet<ObjectName>>,
}

/// A domain while a gang is seated in it.
#[derive(Clone, Debug)]
struct Seats<'a> {
    base: &'a Domain,
    /// Free GPUs of the domain now.
    free: u64,
    /// Free GPUs now of the nodes that got a pod.
    changed: BTreeMap<&'a ObjectName, u64>,
}

/// Pods of a group: node and ordinals.
type Pods = Vec<(ObjectName, Vec<u32>)>;

impl Hosts {
    /// One node.
    pub fn get(&self, name: &ObjectName) -> Option<&Host> {
        self.hosts.get(name)
    }

    /// All nodes, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values()
    }

    /// Adds a node, or replaces the one of that name.
    pub fn set(&mut self, host: Host) {
        self.remove(&host.name);
        self.list(&host);
        self.hosts.insert(host.name.clone(), host);
    }

    /// Removes a node.
    pub fn remove(&mut self, name: &ObjectName) {
        if let Some(host) = self.hosts.remove(name) {
            self.unlist(&host);
        }
    }

    /// Takes GPUs of a node; those that are not free stay as they are.
    pub fn take(&mut self, name: &ObjectName, ordinals: &[u32]) {
        self.change(name, |free| {
            ordinals.iter().for_each(|ordinal| {
                free.remove(ordinal);
            });
        });
    }

    /// Gives GPUs of a node back.
    pub fn give(&mut self, name: &ObjectName, ordinals: &[u32]) {
        self.change(name, |free| free.extend(ordinals));
    }

    /// Free GPUs of a flavor, by domain.
    pub fn free(&self, flavor: &Label) -> impl Iterator<Item = (&Place, u64)> {
        let domains = self.flavors.get(flavor).into_iter().flatten();
        domains.map(|(place, domain)| (place, domain.free))
    }

    /// Seats for every active pod of a gang, and for as many spares as fit; `None` if a pod finds
    /// none.
    pub fn place(&self, gang: &Gang) -> Option<Seating> {
        let domains = self.flavors.get(&gang.flavor).into_iter().flatten();
        let allowed = domains.filter(|(place, _)| gang.location.matches(place));
        let mut domains: BTreeMap<&Place, Seats<'_>> = allowed
            .map(|(place, domain)| (place, Seats::new(domain)))
            .collect();
        let mut order: Vec<(u64, usize)> = gang.groups.iter().copied().zip(0..).collect();
        order.sort_by_key(|(pods, group)| (Reverse(*pods), *group));
        let mut seated: BTreeMap<usize, (&Place, Pods)> = BTreeMap::new();
        for (pods, group) in order {
            let place = fullest(&domains, pods, gang.pod_gpus)?;
            let domain = domains.get_mut(place)?;
            let seats: Option<Pods> = (0..pods).map(|_| self.seat(domain, gang.pod_gpus)).collect();
            seated.insert(group, (place, seats?));
        }
        Some(self.seating(gang, seated, domains))
    }

    fn seating<'a>(
        &'a self,
        gang: &Gang,
        seated: BTreeMap<usize, (&'a Place, Pods)>,
        mut domains: BTreeMap<&'a Place, Seats<'a>>,
    ) -> Seating {
        let mut seating = Seating {
            groups: seated.values().map(|(place, _)| (*place).clone()).collect(),
            pods: Vec::new(),
            spares: Vec::new(),
        };
        let mut numbers = 0_u64..;
        let mut seat = |group: u64, (node, ordinals): (ObjectName, Vec<u32>)| {
            let pod = numbers.next().unwrap_or(u64::MAX);
            Seat {
                group,
                pod,
                node,
                ordinals,
            }
        };
        for (group, (_, pods)) in (0_u64..).zip(seated.into_values()) {
            let pods = pods.into_iter().map(|pod| seat(group, pod));
            seating.pods.extend(pods);
        }
        for (group, place) in (0_u64..).zip(&seating.groups) {
            let Some(domain) = domains.get_mut(place) else {
                continue;
            };
            let spares = (0..gang.spares_per_group).map_while(|_| self.seat(domain, gang.pod_gpus));
            seating.spares.extend(spares.map(|spare| seat(group, spare)));
        }
        seating
    }

    /// Seats one pod: the node with the least free GPUs that holds it, then by name; the lowest
    /// ordinals.
    fn seat<'a>(&'a self, domain: &mut Seats<'a>, pod_gpus: u64) -> Option<(ObjectName, Vec<u32>)> {
        let (free, name) = domain.tightest(pod_gpus)?;
        let host = self.hosts.get(name)?;
        let taken = usize::try_from(count(host).checked_sub(free)?).ok()?;
        let pod = usize::try_from(pod_gpus).ok()?;
        let ordinals = host.free.iter().copied().skip(taken).take(pod).collect();
        domain.changed.insert(name, free - pod_gpus);
        domain.free = domain.free.saturating_sub(pod_gpus);
        Some((name.clone(), ordinals))
    }

    fn change(&mut self, name: &ObjectName, edit: impl FnOnce(&mut BTreeSet<u32>)) {
        let Some(mut host) = self.hosts.remove(name) else {
            return;
        };
        self.unlist(&host);
        edit(&mut host.free);
        self.list(&host);
        self.hosts.insert(name.clone(), host);
    }

    fn list(&mut self, host: &Host) {
        let domains = self.flavors.entry(host.flavor.clone()).or_default();
        let domain = domains.entry(host.place.clone()).or_default();
        let free = count(host);
        domain.free = domain.free.saturating_add(free);
        let nodes = domain.nodes.entry(free).or_default();
        nodes.insert(host.name.clone());
    }

    fn unlist(&mut self, host: &Host) {
        let Some(domains) = self.flavors.get_mut(&host.flavor) else {
            return;
        };
        if let Some(domain) = domains.get_mut(&host.place) {
            let free = count(host);
            domain.free = domain.free.saturating_sub(free);
            if let Some(nodes) = domain.nodes.get_mut(&free) {
                nodes.remove(&host.name);
                if nodes.is_empty() {
                    domain.nodes.remove(&free);
                }
            }
            if domain.nodes.is_empty() {
                domains.remove(&host.place);
            }
        }
        if domains.is_empty() {
            self.flavors.remove(&host.flavor);
        }
    }
}

impl<'a> Seats<'a> {
    fn new(base: &'a Domain) -> Self {
        Self {
            base,
            free: base.free,
            changed: BTreeMap::new(),
        }
    }

    /// The node with the least free GPUs that holds a pod, then by name.
    fn tightest(&self, pod_gpus: u64) -> Option<(u64, &'a ObjectName)> {
        let buckets = self.base.nodes.range(pod_gpus..);
        let nodes = buckets.flat_map(|(free, names)| names.iter().map(move |name| (*free, name)));
        let unchanged = nodes.into_iter().find(|(_, name)| !self.changed.contains_key(name));
        let changed = self.changed.iter().map(|(name, free)| (*free, *name));
        let changed = changed.filter(|(free, _)| pod_gpus <= *free).min();
        unchanged.into_iter().chain(changed).min()
    }

    /// Whether a number of pods fits: Σ ⌊free/p⌋ over the nodes.
    fn holds(&self, pods: u64, pod_gpus: u64) -> bool {
        let Some(per_node) = std::num::NonZeroU64::new(pod_gpus) else {
            return false;
        };
        let mut room_floor = 0_u64;
        for (free, names) in self.base.nodes.range(pod_gpus..).rev() {
            let unchanged = names.iter().filter(|name| !self.changed.contains_key(name));
            for _ in unchanged {
                room_floor = room_floor.saturating_add(*free / per_node);
                if pods <= room_floor {
                    return true;
                }
            }
        }
        let changed = self.changed.values().map(|free| *free / per_node);
        pods <= changed.fold(room_floor, u64::saturating_add)
    }
}

/// The domain where a group leaves the fewest free GPUs, then by key.
fn fullest<'a>(
    domains: &BTreeMap<&'a Place, Seats<'_>>,
    pods: u64,
    pod_gpus: u64,
) -> Option<&'a Place> {
    let gpus = pods.saturating_mul(pod_gpus);
    let enough = domains.iter().filter(|(_, domain)| gpus <= domain.free);
    let mut order: Vec<(u64, String, &Place)> = enough
        .map(|(place, domain)| (domain.free, place.to_string(), *place))
        .collect();
    order.sort();
    let fits = |place: &&Place| domains.get(place).is_some_and(|d| d.holds(pods, pod_gpus));
    order.into_iter().map(|(.., place)| place).find(fits)
}

fn count(host: &Host) -> u64 {
    u64::try_from(host.free.len()).unwrap_or(u64::MAX)
}
