//! The ways to set limits that are compared.

use std::collections::{HashMap, VecDeque};

use bursar_market::clear::Policy;
use bursar_market::node::{Clearing, Node, Settings, Supply};
use bursar_market::params::Params;

use super::super::market::literal::{PodParams, clear_market_v2};
use super::plant::Pod;
use super::{MAX_MILLI, MIN_MILLI};

/// Over how many samples of a minute the autoscaler takes its percentile: eight days in the real
/// one, so all there are.
const SAMPLES_MAX: usize = 8 * 24 * 60;
/// How often it samples and recommends.
const MINUTE_S: u64 = 60;
/// It acts on a change of more than a tenth.
const AUTOSCALER_CHANGE_PERCENT: u64 = 10;

/// What an autoscaler sees of a pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sees {
    /// Use, as the real one does: what was held back is not seen.
    Use,
    /// Use plus throttled time, as ours does: kinder than the real one.
    Demand,
}

/// A way to set limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    Ours(Policy),
    /// No limits: the kernel's weights alone.
    Nothing,
    /// The node divided evenly, once.
    Static,
    /// The 90th percentile of a minute plus 15 %, by what it sees.
    VerticalAutoscaler(Sees),
    /// Seed 001 as written: the share of throttled periods, smoothed, is demand.
    Seed,
}

impl Way {
    pub(super) const ALL: [Self; 8] = [
        Self::Ours(Policy::Proportional),
        Self::Ours(Policy::WeightedNash),
        Self::Ours(Policy::FullCapacity),
        Self::Nothing,
        Self::Static,
        Self::VerticalAutoscaler(Sees::Use),
        Self::VerticalAutoscaler(Sees::Demand),
        Self::Seed,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours(Policy::Proportional) => "ours, proportional",
            Self::Ours(Policy::WeightedNash) => "ours, weighted-nash",
            Self::Ours(Policy::FullCapacity) => "ours, full-capacity",
            Self::Nothing => "do nothing (weights only)",
            Self::Static => "static limits (the node divided evenly)",
            Self::VerticalAutoscaler(Sees::Use) => "VPA-like, p90 of use + 15 %",
            Self::VerticalAutoscaler(Sees::Demand) => "VPA-like, p90 of demand + 15 %",
            Self::Seed => "literal seed 001",
        }
    }
}

/// A way at work.
pub(super) enum Setter {
    Ours(Ours),
    Nothing,
    Static { limit_milli: u64 },
    VerticalAutoscaler(Sees, Vec<Autoscaled>),
    Seed { node_milli: u64, pods: Vec<Seeded> },
}

pub(super) struct Ours {
    node: Box<Node>,
    ids: Vec<String>,
    node_milli: u64,
}

/// What the autoscaler remembers of a pod.
#[derive(Clone, Default)]
pub(super) struct Autoscaled {
    seen_us: u64,
    /// Millicores in each minute.
    samples: VecDeque<u64>,
}

/// What the seed remembers of a pod.
#[derive(Clone, Default)]
pub(super) struct Seeded {
    periods: u64,
    throttled: u64,
    demand: f64,
}

impl Setter {
    pub(super) fn new(way: Way, count: usize, node_milli: u64) -> Self {
        match way {
            Way::Ours(policy) => Self::Ours(Ours::new(policy, count, node_milli)),
            Way::Nothing => Self::Nothing,
            Way::Static => Self::Static {
                limit_milli: node_milli / u64::try_from(count.max(1)).unwrap_or(1),
            },
            Way::VerticalAutoscaler(sees) => {
                Self::VerticalAutoscaler(sees, vec![Autoscaled::default(); count])
            }
            Way::Seed => Self::Seed {
                node_milli,
                pods: vec![Seeded::default(); count],
            },
        }
    }

    /// A second has passed.
    pub(super) fn observe(&mut self, second: u64, pods: &[Pod]) {
        match self {
            Self::Ours(ours) => {
                for (id, pod) in ours.ids.iter().zip(pods) {
                    ours.node.observe(id, Some(pod.counters));
                }
            }
            Self::VerticalAutoscaler(sees, known) if second.is_multiple_of(MINUTE_S) => {
                for (known, pod) in known.iter_mut().zip(pods) {
                    known.sample(pod, *sees);
                }
            }
            _ => {}
        }
    }

    /// Sets limits, and says how many were written.
    pub(super) fn set(&mut self, second: u64, pods: &mut [Pod]) -> u64 {
        match self {
            Self::Ours(ours) => ours.set(second, pods),
            Self::Static { limit_milli } => {
                let wanted = vec![Some(*limit_milli); pods.len()];
                write(pods, &wanted)
            }
            Self::VerticalAutoscaler(_, known) if second.is_multiple_of(MINUTE_S) => {
                let wanted: Vec<Option<u64>> = known
                    .iter()
                    .zip(pods.iter())
                    .map(|(known, pod)| known.wanted(pod))
                    .collect();
                write(pods, &wanted)
            }
            Self::Seed {
                node_milli,
                pods: known,
            } => {
                let wanted = seeded(*node_milli, known, pods);
                write(pods, &wanted)
            }
            Self::Nothing | Self::VerticalAutoscaler(..) => 0,
        }
    }

    /// The last clearing, where it is ours.
    pub(super) fn clearing(&self) -> Option<&Clearing> {
        match self {
            Self::Ours(ours) => ours.node.last(),
            _ => None,
        }
    }
}

impl Ours {
    fn new(policy: Policy, count: usize, node_milli: u64) -> Self {
        let mut node = Node::new(Settings {
            policy,
            ..Settings::default()
        });
        let params = Params {
            min_milli: MIN_MILLI,
            max_milli: MAX_MILLI,
            weight: MIN_MILLI,
        };
        let ids: Vec<String> = (0..count).map(|number| format!("vm{number:04}")).collect();
        let quota = bursar_market::cgroup::Quota::NONE;
        for id in &ids {
            node.adopt(id, params, quota, quota);
        }
        Self {
            node: Box::new(node),
            ids,
            node_milli,
        }
    }

    /// As the agent does it.
    fn set(&mut self, second: u64, pods: &mut [Pod]) -> u64 {
        let now_us = second * 1_000_000;
        for (id, pod) in self.ids.iter().zip(pods.iter()) {
            self.node.found(id, pod.quota(), now_us);
        }
        let supply = Supply {
            allocatable_milli: self.node_milli,
            unmanaged_milli: Some(0),
        };
        self.node.clear(now_us, supply);
        let mut writes = 0;
        for plan in [Node::decreases, Node::increases] {
            for write in plan(&self.node) {
                let place = self.ids.binary_search(&write.id).ok();
                let pod = place.and_then(|place| pods.get_mut(place));
                let (Some(pod), Some(quota)) = (pod, self.node.begin(&write)) else {
                    continue;
                };
                pod.limit_milli = Some(write.milli);
                self.node.wrote(&write.id, quota, now_us);
                writes += 1;
            }
        }
        writes
    }
}

impl Autoscaled {
    fn sample(&mut self, pod: &Pod, sees: Sees) {
        let held_back_us = match sees {
            Sees::Use => 0,
            Sees::Demand => pod.counters.throttled_us.unwrap_or(0),
        };
        let seen_us = pod.counters.usage_us + held_back_us;
        let passed_us = seen_us - self.seen_us;
        self.seen_us = seen_us;
        self.samples.push_back(passed_us / (MINUTE_S * 1_000));
        while self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    /// The new limit; the present one while it is near enough.
    fn wanted(&self, pod: &Pod) -> Option<u64> {
        let mut sorted: Vec<u64> = self.samples.iter().copied().collect();
        sorted.sort_unstable();
        let place = (sorted.len() * 9 / 10).min(sorted.len().saturating_sub(1));
        let p90 = sorted.get(place).copied()?;
        let wanted = (p90 * 115 / 100).clamp(MIN_MILLI, MAX_MILLI);
        match pod.limit_milli {
            Some(limit) if wanted.abs_diff(limit) * 100 <= limit * AUTOSCALER_CHANGE_PERCENT => {
                Some(limit)
            }
            _ => Some(wanted),
        }
    }
}

/// What seed 001 sets: demand is the share of throttled periods, half of it the one before.
fn seeded(node_milli: u64, known: &mut [Seeded], pods: &[Pod]) -> Vec<Option<u64>> {
    let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let float = |value: u64| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    let mut params = HashMap::new();
    for (place, (known, pod)) in known.iter_mut().zip(pods).enumerate() {
        let periods = pod.counters.periods.unwrap_or(0);
        let throttled = pod.counters.throttled_periods.unwrap_or(0);
        let passed = periods - known.periods;
        let ratio = if passed == 0 {
            0.0
        } else {
            float(throttled - known.throttled) / float(passed)
        };
        known.demand = f64::midpoint(known.demand, ratio);
        (known.periods, known.throttled) = (periods, throttled);
        params.insert(
            place.to_string(),
            PodParams {
                demand: known.demand,
                min_milli: whole(MIN_MILLI),
                max_milli: whole(MAX_MILLI),
                weight: float(MIN_MILLI),
            },
        );
    }
    let allocations = clear_market_v2(whole(node_milli), &params);
    let of = |place: usize| {
        let milli = allocations.get(&place.to_string()).copied();
        milli.and_then(|milli| u64::try_from(milli).ok())
    };
    (0..pods.len()).map(of).collect()
}

/// Writes what differs.
fn write(pods: &mut [Pod], wanted: &[Option<u64>]) -> u64 {
    let mut writes = 0;
    for (pod, wanted) in pods.iter_mut().zip(wanted) {
        if wanted.is_some() && pod.limit_milli != *wanted {
            pod.limit_milli = *wanted;
            writes += 1;
        }
    }
    writes
}
