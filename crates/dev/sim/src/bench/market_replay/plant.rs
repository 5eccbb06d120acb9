//! A node in virtual time: quotas hold pods back, and if the permitted use exceeds the node, the
//! kernel divides it by weight.
//!
//! A second consists of ten equal periods, so steps of a second are exact.

use bursar_market::cgroup::Quota;
use bursar_market::clear::{Mode, clear};
use bursar_market::kernel::{Claim, solve};
use bursar_market::node::Clearing;
use bursar_market::sense::Sample;

use super::load::Load;
use super::ways::{Setter, Way};
use super::{MAX_MILLI, MIN_MILLI};

/// Interval of setting limits, in seconds.
pub(super) const CLEAR_S: u64 = 5;
const PERIODS_PER_SECOND: u64 = 10;
/// Seconds per point of the picture.
pub(super) const POINT_S: u64 = 300;

pub(super) struct Plant<'a> {
    load: &'a Load,
    node_milli: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pod {
    /// `None` without a limit.
    pub(super) limit_milli: Option<u64>,
    pub(super) counters: Sample,
}

/// Sums over a day. Work is in millicore-seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct DayResult {
    wanted: u64,
    done: u64,
    /// Pod-seconds with demand.
    wanting_s: u64,
    /// Those of them in which the quota held the pod back.
    throttled_s: u64,
    held: u64,
    writes: u64,
    seconds: u64,
    seconds_over: u64,
    /// Σ of Jain's index over the seconds in which work was lost, in parts per million.
    jain_sum: u64,
    jain_count: u64,
    pub(super) clearings: u64,
    pub(super) broken: u64,
    /// Sum of the limits at every point of the picture.
    pub(super) held_milli: Vec<u64>,
}

impl<'a> Plant<'a> {
    pub(super) fn new(load: &'a Load, node_milli: u64) -> Self {
        Self { load, node_milli }
    }

    /// Replays the day with one way to set limits.
    pub(super) fn run(&self, way: Way) -> DayResult {
        let count = self.load.wants().next().map_or(0, <[u64]>::len);
        let nothing = Sample {
            throttled_us: Some(0),
            periods: Some(0),
            throttled_periods: Some(0),
            ..Sample::default()
        };
        let pod = Pod {
            limit_milli: None,
            counters: nothing,
        };
        let mut pods = vec![pod; count];
        let mut may = vec![0; count];
        let mut setter = Setter::new(way, count, self.node_milli);
        let mut result = DayResult::default();
        for (second, wants) in (1..).zip(self.load.wants()) {
            self.second((second, wants), &mut pods, &mut may, &mut result);
            setter.observe(second, &pods);
            if second.is_multiple_of(CLEAR_S) {
                let before_milli = held_milli(&pods);
                result.writes += setter.set(second, &mut pods);
                if let Some(clearing) = setter.clearing() {
                    let bound_milli = before_milli.max(self.node_milli);
                    let is_kept = holds(clearing) && held_milli(&pods) <= bound_milli;
                    result.clearings += 1;
                    result.broken += u64::from(!is_kept);
                }
            }
        }
        result
    }

    fn second(
        &self,
        (second, wants): (u64, &[u64]),
        pods: &mut [Pod],
        may: &mut [u64],
        result: &mut DayResult,
    ) {
        for ((may, pod), want) in may.iter_mut().zip(pods.iter()).zip(wants) {
            *may = pod.limit().min(*want);
        }
        let sum = |all: &[u64]| all.iter().sum::<u64>();
        let (wanted, allowed) = (sum(wants), sum(may));
        let divided = (self.node_milli < allowed).then(|| by_weight(may, self.node_milli));
        let got = divided.as_deref().unwrap_or(may);
        for (((pod, want), may), got) in pods.iter_mut().zip(wants).zip(&*may).zip(got) {
            pod.pass(second, *want, *may, *got);
        }
        let held = held_milli(pods);
        let done = allowed.min(self.node_milli);
        result.wanted += wanted;
        result.done += done;
        for (want, may) in wants.iter().zip(&*may) {
            result.wanting_s += u64::from(*want > 0);
            result.throttled_s += u64::from(may < want);
        }
        result.held += held;
        result.seconds += 1;
        result.seconds_over += u64::from(held > self.node_milli);
        if done < wanted {
            result.jain_sum += jain_ppm(wants, got);
            result.jain_count += 1;
        }
        if second.is_multiple_of(POINT_S) {
            result.held_milli.push(held);
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
    fn limit(&self) -> u64 {
        self.limit_milli.unwrap_or(MAX_MILLI)
    }

    /// The limit as a quota of the kernel.
    pub(super) fn quota(&self) -> Quota {
        self.limit_milli.map_or(Quota::NONE, |milli| {
            Quota::of_milli(milli, Quota::NONE.period_us)
        })
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

/// (Σx)²/(n·Σx²), x = done over wanted, over the pods with demand.
fn jain_ppm(wants: &[u64], got: &[u64]) -> u64 {
    let (mut count, mut sum, mut squares) = (0_u64, 0_u64, 0_u64);
    for (want, got) in wants.iter().zip(got).filter(|(want, _)| **want > 0) {
        let part = got * 1_000_000 / want;
        (count, sum, squares) = (count + 1, sum + part, squares + part * part);
    }
    let above = u128::from(sum) * u128::from(sum) * 1_000_000;
    let index = above.checked_div(u128::from(count) * u128::from(squares));
    u64::try_from(index.unwrap_or(1_000_000)).unwrap_or(0)
}

/// Whether a clearing keeps bounds and capacity, and gives the same result when repeated (M4, M5).
fn holds(clearing: &Clearing) -> bool {
    let cleared = &clearing.cleared;
    let sum: u64 = cleared
        .shares
        .iter()
        .map(|share| share.allocated_milli)
        .sum();
    let is_within = cleared.mode == Mode::Overloaded
        || cleared
            .shares
            .iter()
            .all(|share| (MIN_MILLI..=MAX_MILLI).contains(&share.allocated_milli));
    is_within && sum <= clearing.market.capacity_milli && clear(&clearing.market) == *cleared
}

impl DayResult {
    fn ppm(part: u64, whole: u64) -> u64 {
        let ppm = u128::from(part) * 1_000_000 / u128::from(whole.max(1));
        u64::try_from(ppm).unwrap_or(u64::MAX)
    }

    /// Share of the time with demand in which a quota held the pod back: throttled periods over
    /// periods, because those of a second are equal.
    pub(super) fn throttled_ppm(&self) -> u64 {
        Self::ppm(self.throttled_s, self.wanting_s)
    }

    /// Share of the wanted work that was not done.
    pub(super) fn lost_ppm(&self) -> u64 {
        Self::ppm(self.wanted.saturating_sub(self.done), self.wanted)
    }

    /// Limits over use.
    pub(super) fn held_percent(&self) -> u64 {
        Self::ppm(self.held, self.done) / 10_000
    }

    /// Writes per pod and hour, in hundredths.
    pub(super) fn writes_hundredths(&self, pods: usize) -> u64 {
        let pods = u64::try_from(pods).unwrap_or(1);
        self.writes * 100 * 3_600 / (pods * self.seconds).max(1)
    }

    /// Mean of Jain's index.
    pub(super) fn jain_ppm(&self) -> u64 {
        self.jain_sum
            .checked_div(self.jain_count)
            .unwrap_or(1_000_000)
    }

    /// Share of the time in which the limits exceed the node.
    pub(super) fn over_ppm(&self) -> u64 {
        Self::ppm(self.seconds_over, self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::{Load, Plant, Way};

    #[test]
    fn a_full_node_loses_work_and_only_a_quota_throttles() {
        // Two pods that want a core each in every second of a day, on one core.
        let load = Load::of(String::new(), &[vec![100; 288], vec![100; 288]], 1);
        let costs = |way| {
            let result = Plant::new(&load, 1_000).run(way);
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
        let load = Load::of(String::new(), &[vec![100; 288], vec![0; 288]], 1);
        let result = Plant::new(&load, 1_000).run(Way::Static);
        let throttled = result.throttled_ppm();
        assert!((999_900..1_000_000).contains(&throttled), "{throttled}");
    }
}
