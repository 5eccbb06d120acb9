//! A simulated machine in virtual time, with pods whose demand does not depend on their limits.

use std::collections::BTreeMap;

use bursar_market::cgroup::Quota;
use bursar_market::node::{Node, Settings, Supply};
use bursar_market::params::Params;
use bursar_market::sense::Sample;

pub(crate) const SECOND_US: u64 = 1_000_000;
const PERIOD_US: u64 = 100_000;

/// A cgroup of the machine. Throttled work is lost, not done later.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    pub(crate) quota: Quota,
    pub(crate) demand_milli: u64,
    pub(crate) sample: Sample,
    pub(crate) writes: u32,
    pub(crate) refusals: usize,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
}

#[derive(Debug)]
pub(crate) struct Plant {
    pub(crate) node: Node,
    pub(crate) cgroups: BTreeMap<String, Cgroup>,
    pub(crate) now_us: u64,
    pub(crate) allocatable_milli: u64,
    pub(crate) others_milli: u64,
    pub(crate) conflicts: Vec<String>,
    machine_us: u64,
}

impl Plant {
    pub(crate) fn new(allocatable_milli: u64, settings: Settings) -> Self {
        Self {
            node: Node::new(settings),
            cgroups: BTreeMap::new(),
            now_us: 0,
            allocatable_milli,
            others_milli: 0,
            conflicts: Vec::new(),
            machine_us: 0,
        }
    }

    pub(crate) fn add(&mut self, id: &str, params: Params, quota: Quota, demand_milli: u64) {
        let sample = Sample {
            throttled_us: Some(0),
            periods: Some(0),
            throttled_periods: Some(0),
            ..Sample::default()
        };
        let cgroup = Cgroup {
            quota,
            demand_milli,
            sample,
            writes: 0,
            refusals: 0,
            is_readable: true,
            is_writable: true,
        };
        self.node.adopt(id, params, quota, quota);
        let at_us = self.now_us;
        self.node.observe(id, Some(Sample { at_us, ..sample }));
        self.cgroups.insert(id.to_owned(), cgroup);
    }

    pub(crate) fn get(&mut self, id: &str) -> &mut Cgroup {
        self.cgroups.get_mut(id).unwrap()
    }

    pub(crate) fn limit(&self, id: &str) -> u64 {
        self.cgroups[id].quota.milli_ceil().unwrap()
    }

    /// Advances time in periods of 100 ms, and samples and clears every second.
    pub(crate) fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second();
            self.clear();
        }
    }

    fn second(&mut self) {
        for _ in 0..SECOND_US / PERIOD_US {
            self.now_us += PERIOD_US;
            self.machine_us += self.others_milli * PERIOD_US / 1_000;
            for cgroup in self.cgroups.values_mut() {
                self.machine_us += cgroup.period(self.now_us);
            }
        }
        for (id, cgroup) in &self.cgroups {
            self.node
                .observe(id, cgroup.is_readable.then_some(cgroup.sample));
        }
        self.node
            .observe_machine(self.now_us, Some(self.machine_us));
    }

    pub(crate) fn clear(&mut self) {
        for (id, cgroup) in &self.cgroups {
            if cgroup.is_readable && self.node.found(id, cgroup.quota, self.now_us) {
                self.conflicts.push(id.clone());
            }
        }
        let supply = Supply {
            allocatable_milli: self.allocatable_milli,
            unmanaged_milli: None,
        };
        self.node.clear(self.now_us, supply);
        for writes in [Node::decreases, Node::increases] {
            for write in writes(&self.node) {
                let quota = self.node.begin(&write).unwrap();
                let cgroup = self.cgroups.get_mut(&write.id).unwrap();
                if cgroup.is_writable {
                    cgroup.quota = quota;
                    cgroup.writes += 1;
                    self.node.wrote(&write.id, quota, self.now_us);
                } else {
                    cgroup.refusals += 1;
                    self.node
                        .refused(&write.id, Some(cgroup.quota), self.now_us);
                }
            }
        }
    }

    pub(crate) fn sum_milli(&self) -> u64 {
        self.node.limits_milli()
    }
}

impl Cgroup {
    /// Runs one period and returns the use.
    fn period(&mut self, now_us: u64) -> u64 {
        let wants_us = self.demand_milli * PERIOD_US / 1_000;
        let sample = &mut self.sample;
        sample.at_us = now_us;
        let Some(quota_us) = self.quota.quota_us else {
            sample.usage_us += wants_us;
            return wants_us;
        };
        let may_us = quota_us * PERIOD_US / self.quota.period_us;
        let used_us = wants_us.min(may_us);
        let add = |counter: &mut Option<u64>, more: u64| *counter = counter.map(|had| had + more);
        sample.usage_us += used_us;
        add(&mut sample.throttled_us, wants_us - used_us);
        add(&mut sample.periods, 1);
        add(&mut sample.throttled_periods, u64::from(used_us < wants_us));
        used_us
    }
}
