//! The nodes that runs are placed on, with their leased GPUs.
//!
//! A node takes part if its labels name region, cluster, domain and flavor; another one is
//! reported by surfaces (`Node::missing_labels`) and blocks nobody. A node that is not schedulable keeps its leases and gets
//! no new ones.

use std::collections::{BTreeMap, BTreeSet};

use bursar_budget::placement::{Gang, Host, Hosts, Seating};
use bursar_budget::{Place, RunUid, Selector};
use bursar_plane::Node;
use bursar_plane::inventory::{CLUSTER, DOMAIN, FLAVOR, REGION};
use bursar_units::{Label, ObjectName};

/// Most GPUs of one node that are leased; further ones stay free.
pub const NODE_GPUS_MAX: u32 = 1_024;

/// All nodes, by name.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    declared: BTreeMap<ObjectName, Declared>,
    leased: BTreeMap<ObjectName, BTreeMap<u32, RunUid>>,
    /// Schedulable nodes with their free GPUs.
    hosts: Hosts,
    /// All declared nodes, taken empty.
    empty: Hosts,
    /// Schedulable nodes, taken empty.
    usable: Hosts,
    /// Number of declared nodes with GPUs, by flavor and place.
    seats: BTreeMap<Label, BTreeMap<Place, u64>>,
    /// Raised whenever room may have grown; a placement that failed fails again until then.
    version: u64,
}

#[derive(Clone, Debug)]
struct Declared {
    /// Place and flavor, if its labels name them.
    seat: Option<(Place, Label)>,
    gpus: u32,
    is_usable: bool,
}

impl Nodes {
    /// Adds a node or replaces the one of that name; `None` removes it.
    pub(crate) fn set(&mut self, name: &ObjectName, node: Option<&Node>) {
        if let Some(old) = self.declared.remove(name) {
            self.leave_seat(&old);
        }
        if let Some(node) = node {
            let declared = Declared {
                seat: seat(node),
                gpus: u32::try_from(node.gpus)
                    .unwrap_or(u32::MAX)
                    .min(NODE_GPUS_MAX),
                is_usable: !node.unschedulable,
            };
            if let Some((place, flavor)) = declared.seat.as_ref().filter(|_| declared.gpus > 0) {
                let places = self.seats.entry(flavor.clone()).or_default();
                *places.entry(place.clone()).or_default() += 1;
            }
            self.declared.insert(name.clone(), declared);
        }
        self.refresh(name);
        self.version += 1;
    }

    /// Leases GPUs of a node to a run.
    pub(crate) fn lease(
        &mut self,
        name: &ObjectName,
        gpus: impl Iterator<Item = u32>,
        run: &RunUid,
    ) {
        let leased = self.leased.entry(name.clone()).or_default();
        let gpus: Vec<u32> = gpus.collect();
        leased.extend(gpus.iter().map(|gpu| (*gpu, run.clone())));
        self.hosts.take(name, &gpus);
    }

    /// Frees GPUs of a node.
    pub(crate) fn free(&mut self, name: &ObjectName, gpus: impl Iterator<Item = u32>) {
        let mut gpus: Vec<u32> = gpus.collect();
        if let Some(leased) = self.leased.get_mut(name) {
            gpus.retain(|gpu| leased.remove(gpu).is_some());
            if leased.is_empty() {
                self.leased.remove(name);
            }
        }
        let declared = self.declared.get(name).map_or(0, |node| node.gpus);
        gpus.retain(|gpu| *gpu < declared);
        self.hosts.give(name, &gpus);
        self.version += 1;
    }

    /// A place for a gang on the free GPUs.
    pub(crate) fn place(&self, gang: &Gang) -> Option<Seating> {
        self.hosts.place(gang)
    }

    /// Free GPUs of a flavor on all schedulable nodes.
    pub(crate) fn free_anywhere(&self, flavor: &Label) -> u64 {
        self.hosts.free(flavor).map(|(_, free)| free).sum()
    }

    /// Whether the gang fits all declared nodes taken empty, schedulable or not.
    pub(crate) fn ever_fits(&self, gang: &Gang) -> bool {
        self.empty.place(gang).is_some()
    }

    /// Whether the gang fits all schedulable nodes taken empty.
    pub(crate) fn would_fit_usable(&self, gang: &Gang) -> bool {
        self.usable.place(gang).is_some()
    }

    /// GPUs of a flavor at some places, on all declared nodes.
    pub fn declared_gpus(&self, flavor: &Label, location: &Selector) -> u64 {
        let nodes = self.declared.values();
        let wanted = nodes.filter(|declared| declared.is_at(flavor, location));
        wanted.map(|declared| u64::from(declared.gpus)).sum()
    }

    /// GPUs in whole pods of a gang that the largest of its domains has, on all declared nodes taken
    /// empty.
    pub fn largest_domain(&self, gang: &Gang) -> u64 {
        let mut domains: BTreeMap<&Place, u64> = BTreeMap::new();
        for node in self.declared.values() {
            if let Some((place, _)) = &node.seat
                && node.is_at(&gang.flavor, &gang.location)
            {
                let gpus = u64::from(node.gpus);
                let part = gpus.checked_rem(gang.pod_gpus).unwrap_or(gpus);
                *domains.entry(place).or_default() += gpus - part;
            }
        }
        domains.into_values().max().unwrap_or(0)
    }

    /// Free GPUs of a flavor at some places, on schedulable nodes.
    pub fn free_gpus(&self, flavor: &Label, location: &Selector) -> u64 {
        let nodes = self.declared.iter();
        let wanted = nodes.filter(|(_, node)| node.is_usable && node.is_at(flavor, location));
        wanted
            .map(|(name, node)| u64::from(node.gpus).saturating_sub(self.used(name)))
            .sum()
    }

    /// The places with GPUs of a flavor, among some places, on all declared nodes, in order.
    pub(crate) fn places<'a>(
        &'a self,
        flavor: &Label,
        location: &Selector,
    ) -> impl Iterator<Item = &'a Place> {
        let places = self.seats.get(flavor).into_iter().flat_map(BTreeMap::keys);
        places.filter(|place| location.matches(place))
    }

    /// Place and flavor of a node, if its labels name them.
    pub fn seat(&self, name: &str) -> Option<&(Place, Label)> {
        self.declared.get(name)?.seat.as_ref()
    }

    /// The leased GPUs of a node, with their runs.
    pub fn leased(&self, name: &str) -> impl Iterator<Item = (u32, &RunUid)> {
        let leased = self.leased.get(name).into_iter().flatten();
        leased.map(|(gpu, run)| (*gpu, run))
    }

    /// All leased GPUs, by node.
    pub fn all_leased(&self) -> impl Iterator<Item = (&ObjectName, u32, &RunUid)> {
        let nodes = self.leased.iter();
        nodes.flat_map(|(name, leased)| leased.iter().map(move |(gpu, run)| (name, *gpu, run)))
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    fn used(&self, name: &ObjectName) -> u64 {
        let used = self.leased.get(name).map_or(0, BTreeMap::len);
        u64::try_from(used).unwrap_or(u64::MAX)
    }

    /// Takes a node off the number of its place.
    fn leave_seat(&mut self, node: &Declared) {
        let Some((place, flavor)) = node.seat.as_ref().filter(|_| node.gpus > 0) else {
            return;
        };
        let Some(places) = self.seats.get_mut(flavor) else {
            return;
        };
        if let Some(count) = places.get_mut(place) {
            *count -= 1;
        }
        places.retain(|_, count| *count > 0);
    }

    /// Computes the free GPUs of a node anew.
    fn refresh(&mut self, name: &ObjectName) {
        self.hosts.remove(name);
        self.empty.remove(name);
        self.usable.remove(name);
        let Some(declared) = self.declared.get(name) else {
            return;
        };
        let Some((place, flavor)) = &declared.seat else {
            return;
        };
        let gpus = declared.gpus;
        let whole = host(name, place, flavor, (0..gpus).collect());
        self.empty.set(whole.clone());
        if !declared.is_usable {
            return;
        }
        self.usable.set(whole);
        let leased = self.leased.get(name);
        let is_free = |gpu: &u32| leased.is_none_or(|leased| !leased.contains_key(gpu));
        let free = (0..gpus).filter(is_free).collect();
        self.hosts.set(host(name, place, flavor, free));
    }
}

impl Declared {
    fn is_at(&self, flavor: &Label, location: &Selector) -> bool {
        let seat = self.seat.as_ref();
        seat.is_some_and(|(place, own)| own == flavor && location.matches(place))
    }
}

/// Place and flavor of a node; `None` if a label is missing or is no name.
fn seat(node: &Node) -> Option<(Place, Label)> {
    let label = |key: &str| Label::new(node.labels.get(key)?).ok();
    let place = Place {
        region: label(REGION)?,
        cluster: label(CLUSTER)?,
        domain: label(DOMAIN)?,
    };
    Some((place, label(FLAVOR)?))
}

fn host(name: &ObjectName, place: &Place, flavor: &Label, free: BTreeSet<u32>) -> Host {
    Host {
        name: name.clone(),
        place: place.clone(),
        flavor: flavor.clone(),
        free,
    }
}
