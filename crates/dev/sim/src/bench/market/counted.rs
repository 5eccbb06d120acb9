//! Time of one clearing in an agent, from the counters of a second to the planned writes.
//!
//! The pods are those of the other clearings. In every second each pod wants something else with a
//! chance of one in eight, and the node has half of what they may use, so that rungs and shares change.
//! Counters are read and limits are written outside the measured time.

use std::time::{Duration, Instant};

use bursar_market::cgroup::Quota;
use bursar_market::clear::Policy;
use bursar_market::node::{Node, Settings, Supply};
use bursar_market::params::Params;
use bursar_market::sense::Sample;

use super::{SEED, market, median};
use crate::rng::Rng;

const SECOND_US: u64 = 1_000_000;
const PERIODS: u64 = 10;
/// Clearings before the first measured one: all memories and sizes are known.
const WARM: usize = 20;
/// Fewest measured clearings.
const LEAST: usize = 11;

/// A pod of the simulated kernel.
struct Counted {
    id: std::sync::Arc<str>,
    max_milli: u64,
    want_milli: u64,
    limit_milli: Option<u64>,
    sample: Sample,
}

/// Median time of a clearing.
pub(super) fn median_ns(pods: usize, policy: Policy, time: Duration) -> u64 {
    let mut rng = Rng::new(SEED);
    let mut node = Node::new(Settings {
        policy,
        ..Settings::default()
    });
    let mut pods: Vec<Counted> = market(pods, policy, SEED)
        .pods
        .into_iter()
        .map(|pod| {
            let params = Params {
                min_milli: pod.min_milli,
                max_milli: pod.max_milli,
                weight: pod.weight,
            };
            node.adopt(&pod.id, params, Quota::NONE, Quota::NONE);
            Counted {
                id: pod.id,
                max_milli: pod.max_milli,
                want_milli: 0,
                limit_milli: None,
                sample: Sample {
                    throttled_us: Some(0),
                    periods: Some(0),
                    throttled_periods: Some(0),
                    ..Sample::default()
                },
            }
        })
        .collect();
    let supply = Supply {
        allocatable_milli: pods.iter().map(|pod| pod.max_milli).sum::<u64>() / 2,
        unmanaged_milli: Some(0),
    };
    let (mut took, mut measured) = (Vec::new(), Duration::ZERO);
    for second in 0_u64.. {
        let now_us = second * SECOND_US;
        for pod in &mut pods {
            pod.pass(now_us, &mut rng);
            node.observe(&pod.id, Some(pod.sample));
        }
        let start = Instant::now();
        node.clear(now_us, supply);
        let spent = start.elapsed();
        write(&mut node, &mut pods, now_us);
        if usize::try_from(second).is_ok_and(|second| second < WARM) {
            continue;
        }
        took.push(spent);
        measured += spent;
        if took.len() >= LEAST && measured >= time / 4 {
            break;
        }
    }
    median(took)
}

impl Counted {
    /// A second of use.
    fn pass(&mut self, now_us: u64, rng: &mut Rng) {
        if rng.once_in(8) {
            self.want_milli = rng.below(self.max_milli + 1);
        }
        let used = self
            .limit_milli
            .map_or(self.want_milli, |limit| limit.min(self.want_milli));
        let add = |counter: &mut Option<u64>, more| *counter = counter.map(|had: u64| had + more);
        self.sample.at_us = now_us;
        self.sample.usage_us += used * 1_000;
        if self.limit_milli.is_some() {
            let is_throttled = used < self.want_milli;
            add(
                &mut self.sample.throttled_us,
                (self.want_milli - used) * 1_000,
            );
            add(&mut self.sample.periods, PERIODS);
            add(
                &mut self.sample.throttled_periods,
                if is_throttled { PERIODS } else { 0 },
            );
        }
    }
}

/// Writes the limits of a clearing. The pods are in the order of their ids.
fn write(node: &mut Node, pods: &mut [Counted], now_us: u64) {
    for plan in [Node::decreases, Node::increases] {
        for write in plan(node) {
            let place = pods.binary_search_by(|pod| (*pod.id).cmp(&write.id)).ok();
            let pod = place.and_then(|place| pods.get_mut(place));
            if let (Some(pod), Some(quota)) = (pod, node.begin(&write)) {
                pod.limit_milli = Some(write.milli);
                node.wrote(&write.id, quota, now_us);
            }
        }
    }
}
