//! A node in virtual time: quotas hold pods back, and if the permitted use exceeds the node, the
//! kernel divides it by weight.
//!
//! A second consists of ten equal periods, so steps of a second are exact.

use std::collections::VecDeque;

use bursar_market::kernel::{Claim, solve};
use bursar_market::sense::Sample;

use super::load::Load;
use super::result::{DayResult, jain_ppm};
use super::ways::{Setter, Way};

const PERIODS_PER_SECOND: u64 = 10;
/// Seconds per point of the picture.
pub(super) const POINT_S: u64 = 300;

/// The fate of work that cannot be done at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Work {
    /// It is lost: demand does not depend on limits, and every way has the same day.
    Lost,
    /// It waits and is done later, first come, first served, at no more than the pod's maximum.
    Waits,
}

pub(super) struct Plant<'a> {
    load: &'a Load,
    node_milli: u64,
    work: Work,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pod {
    pub(super) max_milli: u64,
    /// `None` without a limit.
    pub(super) limit_milli: Option<u64>,
    pub(super) counters: Sample,
}

/// Work that waits: the second in which it came, and its amount.
type Queue = VecDeque<(u64, u64)>;

impl<'a> Plant<'a> {
    pub(super) fn new(load: &'a Load, node_milli: u64, work: Work) -> Self {
        Self {
            load,
            node_milli,
            work,
        }
    }

    /// Replays the day with one way to set limits.
    pub(super) fn run(&self, way: Way) -> DayResult {
        let counters = Sample {
            throttled_us: Some(0),
            periods: Some(0),
            throttled_periods: Some(0),
            ..Sample::default()
        };
        let pod = |max_milli: &u64| Pod {
            max_milli: *max_milli,
            limit_milli: None,
            counters,
        };
        let mut pods: Vec<Pod> = self.load.max_milli.iter().map(pod).collect();
        let mut queues = vec![Queue::new(); pods.len()];
        let mut wants = vec![0; pods.len()];
        let mut setter = Setter::new(way, self.load, &pods, self.node_milli);
        let mut result = DayResult::new(self.load.pods);
        for (second, fresh) in (1..).zip(self.load.wants()) {
            self.demand(second, fresh, &mut queues, &mut wants);
            let got = self.second(second, &wants, &mut pods, &mut result);
            if self.work == Work::Waits {
                for (place, (queue, got)) in queues.iter_mut().zip(got).enumerate() {
                    let is_measured = place < self.load.measured;
                    serve(queue, got, second, is_measured.then_some(&mut result));
                }
            }
            let before_milli = held_milli(&pods);
            let set = setter.set(second, &mut pods);
            result.writes += set.writes;
            let bound_milli = before_milli.max(self.node_milli);
            if let Some(is_kept) = set.is_kept {
                result.clearings += 1;
                result.broken += u64::from(!is_kept || held_milli(&pods) > bound_milli);
            }
        }
        let end = self.load.seconds();
        for queue in queues.iter_mut().take(self.load.measured) {
            // Work that never was done waited at least until the end.
            serve(queue, u64::MAX, end, Some(&mut result));
        }
        result
    }

    /// Demand of a second, with the work that waits.
    fn demand(&self, second: u64, fresh: &[u64], queues: &mut [Queue], wants: &mut [u64]) {
        if self.work == Work::Lost {
            wants.copy_from_slice(fresh);
            return;
        }
        let maxima = &self.load.max_milli;
        let pods = fresh.iter().zip(queues).zip(maxima);
        for (want, ((fresh, queue), max_milli)) in wants.iter_mut().zip(pods) {
            if *fresh > 0 {
                queue.push_back((second, *fresh));
            }
            *want = 0;
            for (_, waits) in queue.iter() {
                *want += waits;
                if *want >= *max_milli {
                    *want = *max_milli;
                    break;
                }
            }
        }
    }

    /// One second; returns the use of each pod.
    fn second(
        &self,
        second: u64,
        wants: &[u64],
        pods: &mut [Pod],
        result: &mut DayResult,
    ) -> Vec<u64> {
        let may = |(pod, want): (&Pod, &u64)| pod.limit().min(*want);
        let may: Vec<u64> = pods.iter().zip(wants).map(may).collect();
        let got = if self.node_milli < may.iter().sum() {
            by_weight(&may, self.node_milli)
        } else {
            may.clone()
        };
        let places = pods.iter_mut().zip(wants).zip(may.iter().zip(&got));
        for (place, ((pod, want), (may, got))) in places.enumerate() {
            pod.pass(second, *want, *may, *got);
            if place >= self.load.measured {
                continue;
            }
            result.wanted += want;
            result.done += got;
            result.held += pod.limit();
            result.wanting_s += u64::from(*want > 0);
            result.throttled_s += u64::from(may < want);
        }
        let held = held_milli(pods);
        result.seconds += 1;
        result.seconds_over += u64::from(held > self.node_milli);
        let measured = |all| <[u64]>::iter(all).take(self.load.measured);
        if measured(&got).ne(measured(wants)) {
            result.jain_sum += jain_ppm(measured(wants).zip(measured(&got)));
            result.jain_count += 1;
        }
        if second.is_multiple_of(POINT_S) {
            result.held_milli.push(held);
        }
        got
    }
}

/// Takes work from the front of a queue and counts its delay.
fn serve(queue: &mut Queue, mut got: u64, second: u64, mut result: Option<&mut DayResult>) {
    while got > 0
        && let Some((came, waits)) = queue.front_mut()
    {
        let part = got.min(*waits);
        if let Some(result) = result.as_deref_mut() {
            result.delay(second - *came, part);
        }
        (got, *waits) = (got - part, *waits - part);
        if *waits == 0 {
            queue.pop_front();
        }
    }
}

/// Sum of the limits.
fn held_milli(pods: &[Pod]) -> u64 {
    pods.iter().map(Pod::limit).sum()
}

impl Pod {
    /// Updates the counters after a second, from demand, permitted use and actual use.
    fn pass(&mut self, second: u64, want: u64, may: u64, got: u64) {
        let counters = &mut self.counters;
        let add = |counter: &mut Option<u64>, more: u64| *counter = counter.map(|had| had + more);
        counters.at_us = second * 1_000_000;
        counters.usage_us += got * 1_000;
        if self.limit_milli.is_some() {
            add(&mut counters.throttled_us, (want - may) * 1_000);
            add(&mut counters.periods, PERIODS_PER_SECOND);
            let throttled = if may < want { PERIODS_PER_SECOND } else { 0 };
            add(&mut counters.throttled_periods, throttled);
        }
    }

    /// The limit, or the maximum of a pod without one.
    pub(super) fn limit(&self) -> u64 {
        self.limit_milli.unwrap_or(self.max_milli)
    }
}

/// Division by the kernel on a full node: equal weights, and no pod gets more than it wants.
fn by_weight(may: &[u64], node_milli: u64) -> Vec<u64> {
    let claim = |may: &u64| Claim {
        offset: 0,
        lo: 0,
        hi: *may,
        bid: 1,
    };
    let claims: Vec<Claim> = may.iter().map(claim).collect();
    solve(&claims, node_milli).shares
}

#[cfg(test)]
mod tests {
    use super::super::load::Shape;
    use super::{Load, Plant, Way, Work};

    #[test]
    fn a_full_node_loses_work_and_only_a_quota_throttles() {
        // Two pods that want a core each in every second of a day, on one core.
        let load = Load::of(&[vec![100; 288], vec![100; 288]], Shape::Bursts, 1);
        let costs = |way| {
            let result = Plant::new(&load, 1_000, Work::Lost).run(way);
            (result.throttled_ppm(), result.lost_ppm())
        };
        assert_eq!(costs(Way::Nothing), (0, 500_000));
        let (throttled, lost) = costs(Way::Static);
        // Throttled all the time, except before the first clearing.
        assert!((999_900..1_000_000).contains(&throttled), "{throttled}");
        assert_eq!(lost, 500_000);
    }

    #[test]
    fn a_pod_without_demand_does_not_count_as_throttled() {
        let load = Load::of(&[vec![100; 288], vec![0; 288]], Shape::Bursts, 1);
        let result = Plant::new(&load, 1_000, Work::Lost).run(Way::Static);
        let throttled = result.throttled_ppm();
        assert!((999_900..1_000_000).contains(&throttled), "{throttled}");
    }

    #[test]
    fn work_that_waits_is_done_in_order_and_its_delay_is_counted() {
        // A quarter of a core is wanted for the first five minutes of the day.
        let mut means = vec![0; 288];
        if let Some(first) = means.first_mut() {
            *first = 25;
        }
        let load = Load::of(&[means], Shape::Means, 1);
        let waits = |node| Plant::new(&load, node, Work::Waits).run(Way::Nothing);
        assert_eq!(waits(250).delay_s_p99(), 0);
        // At 125m the last work of the 300 s is done 300 s late, and the 99th percentile at 297 s.
        let late = waits(125);
        assert!(
            (296..=298).contains(&late.delay_s_p99()),
            "{}",
            late.delay_s_p99()
        );
        assert_eq!(late.throttled_ppm(), 0);
    }

    #[test]
    fn knowledge_of_the_future_loses_least_and_of_the_statistics_less_than_nothing() {
        let means: Vec<Vec<u64>> = (1..9).map(|pod| vec![pod * 3; 288]).collect();
        let load = Load::of(&means, Shape::Bursts, 1);
        let lost = |way| Plant::new(&load, 1_500, Work::Lost).run(way).lost_ppm();
        let all = [Way::Clairvoyant { interval_s: 1 }, Way::Causal, Way::Static];
        let [best, causal, even] = all.map(lost);
        assert!(best < causal && causal < even, "{best} {causal} {even}");
        assert!(best < lost(Way::Clairvoyant { interval_s: 5 }));
    }
}
