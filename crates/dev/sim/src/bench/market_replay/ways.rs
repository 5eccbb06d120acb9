//! The ways to set limits that are compared.

use std::collections::HashMap;
use std::sync::Arc;

use bursar_market::clear::Policy;
use bursar_market::node::{Clearing, Node, Settings, Supply};
use bursar_market::params::Params;

use super::super::market::literal::{PodParams, Uid, clear_market_v2};
use super::plant::Pod;
use super::{MAX_MILLI, MIN_MILLI};

/// Interval of the autoscaler's recommendations, and of its samples in a usual deployment.
const MINUTE_S: u64 = 60;
/// The autoscaler acts on a change of more than a tenth.
const AUTOSCALER_CHANGE_PERCENT: u64 = 10;
/// Age at which a sample has half the weight of a new one.
const HALF_LIFE_S: f64 = 86_400.0;
/// Share of the samples that must fit, by weight.
const PERCENTILE: f64 = 0.9;

/// Length of an autoscaler's sample, which is the mean of use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sample {
    /// A minute, as in a usual deployment.
    Minute,
    /// A second, as ours.
    Second,
}

/// A way to set limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    Ours(Policy),
    /// No limits: the kernel's weights alone.
    Nothing,
    /// The node divided evenly, once.
    Static,
    /// The 90th percentile of use plus 15 %.
    VerticalAutoscaler(Sample),
    /// Prototype 001 as written: demand is the smoothed share of throttled periods.
    Seed,
}

impl Way {
    pub(super) const ALL: [Self; 8] = [
        Self::Ours(Policy::Proportional),
        Self::Ours(Policy::WeightedNash),
        Self::Ours(Policy::FullCapacity),
        Self::Nothing,
        Self::Static,
        Self::VerticalAutoscaler(Sample::Minute),
        Self::VerticalAutoscaler(Sample::Second),
        Self::Seed,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours(Policy::Proportional) => "ours, proportional",
            Self::Ours(Policy::WeightedNash) => "ours, weighted-nash",
            Self::Ours(Policy::FullCapacity) => "ours, full-capacity",
            Self::Nothing => "do nothing (weights only)",
            Self::Static => "static limits (the node divided evenly)",
            Self::VerticalAutoscaler(Sample::Minute) => "VPA-like, p90 of minutes + 15 %",
            Self::VerticalAutoscaler(Sample::Second) => "VPA-like, p90 of seconds + 15 %",
            Self::Seed => "literal seed 001",
        }
    }
}

/// State of a way.
pub(super) enum Setter {
    Ours(Ours),
    Nothing,
    Static { limit_milli: u64 },
    VerticalAutoscaler(Sample, Vec<Autoscaled>),
    Seed { node_milli: u64, pods: Vec<Seeded> },
}

pub(super) struct Ours {
    node: Box<Node>,
    ids: Vec<Uid>,
    node_milli: u64,
}

/// The autoscaler's state of a pod: the weight of its samples by millicores. The public autoscaler has
/// buckets that grow by a twentieth; these have one millicore each.
#[derive(Clone)]
pub(super) struct Autoscaled {
    seen_us: u64,
    weights: Vec<f64>,
    total: f64,
}

/// The prototype's state of a pod.
pub(super) struct Seeded {
    uid: Uid,
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
            Way::VerticalAutoscaler(sample) => {
                Self::VerticalAutoscaler(sample, vec![Autoscaled::new(); count])
            }
            Way::Seed => Self::Seed {
                node_milli,
                pods: ids(count).into_iter().map(Seeded::new).collect(),
            },
        }
    }

    /// Takes the counters of a second.
    pub(super) fn observe(&mut self, second: u64, pods: &[Pod]) {
        match self {
            Self::Ours(ours) => {
                for (id, pod) in ours.ids.iter().zip(pods) {
                    ours.node.observe(id, Some(pod.counters));
                }
            }
            Self::VerticalAutoscaler(sample, known) if second.is_multiple_of(sample.seconds()) => {
                for (known, pod) in known.iter_mut().zip(pods) {
                    known.take(second, sample.seconds(), pod);
                }
            }
            _ => {}
        }
    }

    /// Sets limits and returns the number of writes.
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

    /// The last clearing of ours.
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
        let ids = ids(count);
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

    /// Sets limits in the same way as the agent.
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
                let place = self.ids.binary_search_by(|id| (**id).cmp(&write.id)).ok();
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

impl Sample {
    const fn seconds(self) -> u64 {
        match self {
            Self::Minute => MINUTE_S,
            Self::Second => 1,
        }
    }
}

impl Autoscaled {
    fn new() -> Self {
        let places = usize::try_from(MAX_MILLI + 1).unwrap_or(0);
        Self {
            seen_us: 0,
            weights: vec![0.0; places],
            total: 0.0,
        }
    }

    /// Adds a sample: the mean of use over the last seconds. Demand above the limit is not visible.
    fn take(&mut self, second: u64, seconds: u64, pod: &Pod) {
        let passed_us = pod.counters.usage_us - self.seen_us;
        self.seen_us = pod.counters.usage_us;
        let place = usize::try_from(passed_us / (seconds * 1_000)).unwrap_or(usize::MAX);
        let weight = (float(second) / HALF_LIFE_S).exp2();
        if let Some(held) = self.weights.get_mut(place) {
            *held += weight;
            self.total += weight;
        }
    }

    /// The new limit, or the present one if it is near enough.
    fn wanted(&self, pod: &Pod) -> Option<u64> {
        let mut below = 0.0;
        let p90 = (0..).zip(&self.weights).find_map(|(milli, weight)| {
            below += weight;
            (below > 0.0 && below >= PERCENTILE * self.total).then_some(milli)
        });
        let wanted = (p90? * 115 / 100).clamp(MIN_MILLI, MAX_MILLI);
        match pod.limit_milli {
            Some(limit) if wanted.abs_diff(limit) * 100 <= limit * AUTOSCALER_CHANGE_PERCENT => {
                Some(limit)
            }
            _ => Some(wanted),
        }
    }
}

impl Seeded {
    fn new(uid: Uid) -> Self {
        Self {
            uid,
            periods: 0,
            throttled: 0,
            demand: 0.0,
        }
    }
}

fn ids(count: usize) -> Vec<Uid> {
    let id = |number| format!("vm{number:04}").into();
    (0..count).map(id).collect()
}

/// Limits of prototype 001: demand is the mean of the present share of throttled periods and of the
/// previous demand.
fn seeded(node_milli: u64, known: &mut [Seeded], pods: &[Pod]) -> Vec<Option<u64>> {
    let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut params = HashMap::new();
    for (known, pod) in known.iter_mut().zip(pods) {
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
            Arc::clone(&known.uid),
            PodParams {
                demand: known.demand,
                bid: 0.0,
                min_milli: whole(MIN_MILLI),
                max_milli: whole(MAX_MILLI),
                weight: float(MIN_MILLI),
            },
        );
    }
    let allocations = clear_market_v2(whole(node_milli), &params);
    let of = |known: &Seeded| {
        let milli = allocations.get(&known.uid).copied();
        milli.and_then(|milli| u64::try_from(milli).ok())
    };
    known.iter().map(of).collect()
}

fn float(value: u64) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

/// Writes the limits that differ and returns their number.
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

#[cfg(test)]
mod tests {
    use super::{Autoscaled, Pod};

    /// Recommendation after one second at each of these uses, in millicores.
    fn recommended(used: &[u64]) -> Option<u64> {
        let mut pod = Pod::default();
        let mut known = Autoscaled::new();
        for (second, milli) in (1..).zip(used) {
            pod.counters.usage_us += milli * 1_000;
            known.take(second, 1, &pod);
        }
        known.wanted(&pod)
    }

    #[test]
    fn the_autoscaler_takes_the_90th_percentile_and_15_percent_within_bounds() {
        let mixed =
            |low: u64, high: u64, often| [vec![low; 100 - often], vec![high; often]].concat();
        assert_eq!(recommended(&[]), None);
        assert_eq!(recommended(&mixed(200, 600, 5)), Some(230));
        assert_eq!(recommended(&mixed(200, 600, 15)), Some(690));
        assert_eq!(recommended(&[0; 10]), Some(50));
        assert_eq!(recommended(&[1_000; 10]), Some(1_000));
    }

    #[test]
    fn a_sample_of_a_day_ago_has_half_the_weight() {
        let mut pod = Pod::default();
        let mut known = Autoscaled::new();
        for (second, milli, count) in [(0, 800, 4), (86_400, 200, 18)] {
            for _ in 0..count {
                pod.counters.usage_us += milli * 1_000;
                known.take(second, 1, &pod);
            }
        }
        // 4 against 36: exactly a tenth is above; at equal weights it would be more.
        assert_eq!(known.wanted(&pod), Some(230));
    }
}
