//! Computes use and throttling from the kernel's counters (M1).
//!
//! Over an interval Δt: u = ⌊Δusage·1000/Δt⌋ and s = ⌊Δthrottled·1000/Δt⌋ millicores, and
//! q = ⌊1000·Δthrottled periods/Δperiods⌋ permille, 0 without periods. An invalid sample gives no
//! value, never zero: the first one, one that goes backwards, one that could not be read.

use crate::clear::VALUE_MAX;
use crate::need::floor;

/// The counters of one cgroup at one moment. A missing key is absent, not zero (M11).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sample {
    /// Monotonic time.
    pub at_us: u64,
    /// CPU time used since the cgroup was created.
    pub usage_us: u64,
    /// Time for which its processes were throttled.
    pub throttled_us: Option<u64>,
    /// Elapsed periods of its quota.
    pub periods: Option<u64>,
    /// Periods with throttling.
    pub throttled_periods: Option<u64>,
}

/// Use and throttling of one cgroup over one interval.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reading {
    /// u: its use.
    pub used_milli: u64,
    /// Its throttling; `None` if the kernel does not count it.
    pub throttled: Option<Throttled>,
}

/// Throttling over one interval.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Throttled {
    /// s: the throttled time, as millicores.
    pub milli: u64,
    /// Elapsed periods.
    pub periods: u64,
    /// Periods with throttling, at most `periods`.
    pub throttled_periods: u64,
}

impl Throttled {
    /// q: the share of throttled periods, in permille.
    pub fn permille(&self) -> u64 {
        permille(self.throttled_periods, self.periods)
    }
}

/// ⌊1000·throttled/all⌋; 0 without periods.
pub fn permille(throttled_periods: u64, periods: u64) -> u64 {
    match periods {
        0 => 0,
        _ => floor(1_000, throttled_periods.min(periods), periods),
    }
}

/// The change between two samples; `None` if the second cannot follow the first: time stands still, or
/// a counter goes back.
pub fn reading(before: &Sample, after: &Sample) -> Option<Reading> {
    let took_us = after.at_us.checked_sub(before.at_us)?;
    if took_us == 0 {
        return None;
    }
    // A counter that appears or disappears is absent in this interval.
    let passed = |before: Option<u64>, after: Option<u64>| match (before, after) {
        (Some(before), Some(after)) => after.checked_sub(before).map(Some),
        _ => Some(None),
    };
    let milli = |us: u64| floor(us, 1_000, took_us).min(VALUE_MAX);
    let used_us = after.usage_us.checked_sub(before.usage_us)?;
    let throttled_us = passed(before.throttled_us, after.throttled_us)?;
    let periods = passed(before.periods, after.periods)?;
    let throttled_periods = passed(before.throttled_periods, after.throttled_periods)?;
    let throttled = throttled_us.zip(periods).zip(throttled_periods);
    Some(Reading {
        used_milli: milli(used_us),
        throttled: throttled.map(|((us, periods), throttled_periods)| Throttled {
            milli: milli(us),
            periods,
            throttled_periods: throttled_periods.min(periods),
        }),
    })
}
