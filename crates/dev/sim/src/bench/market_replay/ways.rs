//! The ways to set limits that are compared.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::market::literal::{PodParams, Uid, clear_market_v2};
use super::MIN_MILLI;
use super::load::Load;
use super::optimum::{self, Causal};
use super::ours::Ours;
use super::plant::Pod;

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
    /// The agent's rule, within this many writes per pod and hour.
    Ours { writes_per_hour: u64 },
    /// No limits: the kernel's weights alone.
    Nothing,
    /// The node divided evenly, once.
    Static,
    /// The 90th percentile of use plus 15 %.
    VerticalAutoscaler(Sample),
    /// Prototype 001 as written: demand is the smoothed share of throttled periods.
    Seed { interval_s: u64 },
    /// The least loss of a rule that knows the next interval.
    Clairvoyant { interval_s: u64 },
    /// The least loss of a rule that knows the statistics of the load.
    Causal,
}

impl Way {
    pub(super) const OURS: Self = Self::Ours {
        writes_per_hour: 600,
    };
    pub(super) const SEED: Self = Self::Seed { interval_s: 5 };
    pub(super) const AUTOSCALER: Self = Self::VerticalAutoscaler(Sample::Minute);

    pub(super) const ALL: [Self; 11] = [
        Self::OURS,
        Self::Ours {
            writes_per_hour: 60,
        },
        Self::Nothing,
        Self::Static,
        Self::AUTOSCALER,
        Self::VerticalAutoscaler(Sample::Second),
        Self::SEED,
        Self::Seed { interval_s: 1 },
        Self::Clairvoyant { interval_s: 1 },
        Self::Clairvoyant { interval_s: 5 },
        Self::Causal,
    ];

    pub(super) fn name(self) -> String {
        match self {
            Self::Ours { writes_per_hour } => format!("ours, {writes_per_hour} writes an hour"),
            Self::Nothing => "do nothing (weights only)".to_owned(),
            Self::Static => "static (divided evenly)".to_owned(),
            Self::VerticalAutoscaler(Sample::Minute) => "VPA-like on minutes".to_owned(),
            Self::VerticalAutoscaler(Sample::Second) => "VPA-like on seconds".to_owned(),
            Self::Seed { interval_s } => format!("literal seed 001 at {interval_s} s"),
            Self::Clairvoyant { interval_s } => format!("clairvoyant at {interval_s} s"),
            Self::Causal => "best causal rule at 1 s".to_owned(),
        }
    }

    /// Whether it is a bound, which is told more than a rule can see.
    pub(super) const fn is_bound(self) -> bool {
        matches!(self, Self::Clairvoyant { .. } | Self::Causal)
    }
}

/// State of a way.
pub(super) struct Setter<'a> {
    load: &'a Load,
    node_milli: u64,
    rule: Rule,
}

enum Rule {
    Ours(Box<Ours>),
    Nothing,
    Static,
    VerticalAutoscaler(Sample, Vec<Autoscaled>),
    Seed { interval_s: u64, pods: Vec<Seeded> },
    Clairvoyant { interval_s: u64 },
    Causal(Causal),
}

/// Outcome of a second.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Outcome {
    pub(super) writes: u64,
    /// Whether a clearing of ours kept its promises; absent without one.
    pub(super) is_kept: Option<bool>,
}

/// The autoscaler's state of a pod: the weight of its samples by millicores. The public autoscaler has
/// buckets that grow by a twentieth; these have one millicore each.
#[derive(Clone)]
struct Autoscaled {
    seen_us: u64,
    weights: Vec<f64>,
    total: f64,
}

/// The prototype's state of a pod.
struct Seeded {
    uid: Uid,
    periods: u64,
    throttled: u64,
    demand: f64,
}

impl<'a> Setter<'a> {
    pub(super) fn new(way: Way, load: &'a Load, pods: &[Pod], node_milli: u64) -> Self {
        let rule = match way {
            Way::Ours { writes_per_hour } => {
                let ours = Ours::new(load, pods, node_milli, writes_per_hour);
                Rule::Ours(Box::new(ours))
            }
            Way::Nothing => Rule::Nothing,
            Way::Static => Rule::Static,
            Way::VerticalAutoscaler(sample) => {
                let pods = load.max_milli.iter().map(|max| Autoscaled::new(*max));
                Rule::VerticalAutoscaler(sample, pods.collect())
            }
            Way::Seed { interval_s } => Rule::Seed {
                interval_s,
                pods: ids(load.pods).into_iter().map(Seeded::new).collect(),
            },
            Way::Clairvoyant { interval_s } => Rule::Clairvoyant { interval_s },
            Way::Causal => Rule::Causal(Causal::new(load)),
        };
        Self {
            load,
            node_milli,
            rule,
        }
    }

    /// Takes the counters of a second and sets limits.
    pub(super) fn set(&mut self, second: u64, pods: &mut [Pod]) -> Outcome {
        let Self {
            load, node_milli, ..
        } = *self;
        let limits = match &mut self.rule {
            Rule::Ours(ours) => return ours.set(second, pods),
            Rule::Nothing => return Outcome::default(),
            Rule::Static if second == 1 => {
                let even = node_milli / u64::try_from(pods.len().max(1)).unwrap_or(1);
                pods.iter().map(|pod| even.min(pod.max_milli)).collect()
            }
            Rule::VerticalAutoscaler(sample, known) => {
                if second.is_multiple_of(sample.seconds()) {
                    for (known, pod) in known.iter_mut().zip(pods.iter()) {
                        known.take(second, sample.seconds(), pod);
                    }
                }
                if !second.is_multiple_of(MINUTE_S) {
                    return Outcome::default();
                }
                let places = known.iter().zip(pods.iter());
                let wanted = places.map(|(known, pod)| known.wanted(pod).unwrap_or(pod.limit()));
                wanted.collect()
            }
            Rule::Seed {
                interval_s,
                pods: known,
            } if second.is_multiple_of(*interval_s) => seeded(node_milli, known, pods),
            Rule::Clairvoyant { interval_s } if second.is_multiple_of(*interval_s) => {
                optimum::clairvoyant(load, second, *interval_s, node_milli)
            }
            Rule::Causal(causal) => {
                causal.observe(load, second);
                causal.limits(load, second, node_milli)
            }
            Rule::Static | Rule::Seed { .. } | Rule::Clairvoyant { .. } => {
                return Outcome::default();
            }
        };
        Outcome {
            writes: write(pods, &limits),
            is_kept: None,
        }
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
    fn new(max_milli: u64) -> Self {
        let places = usize::try_from(max_milli + 1).unwrap_or(0);
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
        let wanted = (p90? * 115 / 100).clamp(MIN_MILLI, pod.max_milli);
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

pub(super) fn ids(count: usize) -> Vec<Uid> {
    let id = |number| format!("vm{number:04}").into();
    (0..count).map(id).collect()
}

/// Limits of prototype 001: demand is the mean of the present share of throttled periods and of the
/// previous demand.
fn seeded(node_milli: u64, known: &mut [Seeded], pods: &[Pod]) -> Vec<u64> {
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
                max_milli: whole(pod.max_milli),
                weight: float(MIN_MILLI),
            },
        );
    }
    let allocations = clear_market_v2(whole(node_milli), &params);
    let of = |known: &Seeded| {
        let milli = allocations.get(&known.uid).copied();
        milli
            .and_then(|milli| u64::try_from(milli).ok())
            .unwrap_or(0)
    };
    known.iter().map(of).collect()
}

fn float(value: u64) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

/// Writes the limits that differ and returns their number.
fn write(pods: &mut [Pod], wanted: &[u64]) -> u64 {
    let mut writes = 0;
    for (pod, wanted) in pods.iter_mut().zip(wanted) {
        if pod.limit_milli != Some(*wanted) {
            pod.limit_milli = Some(*wanted);
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
        let mut pod = Pod {
            max_milli: 1_000,
            ..Pod::default()
        };
        let mut known = Autoscaled::new(1_000);
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
        let mut pod = Pod {
            max_milli: 1_000,
            ..Pod::default()
        };
        let mut known = Autoscaled::new(1_000);
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
