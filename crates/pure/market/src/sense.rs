//! Computes demand from the kernel's counters (M1), and throttling for the headroom (M2).
//!
//! An invalid sample gives no value, never zero: the first one, one that goes backwards, one that
//! could not be read. Demand over an interval is ⌊(Δusage + Δthrottled)·1000/Δt⌋ millicores: the use,
//! and the use that the quota prevented. Example: 0.5 s of use and 0.5 s of throttling in one second
//! are 1000m, whatever the limit was.
//!
//! Demand is the maximum of the last dozen buckets of a few seconds: a mean would miss bursts, and a
//! decaying peak would change at every clearing.

use std::collections::VecDeque;

/// Settings of sampling, in microseconds of the agent's monotonic clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Window {
    /// Length of a bucket.
    pub bucket_us: u64,
    /// Number of complete buckets in the window.
    pub buckets: usize,
    /// Length from which on the running bucket counts too.
    pub running_us_min: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            bucket_us: 5_000_000,
            buckets: 12,
            running_us_min: 1_000_000,
        }
    }
}

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

/// Result of a window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shown {
    /// Nothing yet: the present limit stays.
    Nothing,
    /// The highest demand: use plus throttled time.
    Demand {
        /// In millicores.
        milli: u64,
    },
    /// The highest use, on a kernel that counts no throttling.
    Use {
        /// In millicores.
        milli: u64,
    },
}

/// The counters of one cgroup over time.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    last: Option<Sample>,
    /// Begin of the running bucket.
    began: Option<Sample>,
    /// Complete buckets, oldest first.
    complete: VecDeque<Rate>,
    /// Begin of the counting for the headroom: the last clearing.
    cleared: Option<Sample>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Rate {
    used_milli: u64,
    demand_milli: Option<u64>,
}

impl Estimator {
    /// Adds a sample; one that goes backwards starts over.
    pub fn take(&mut self, sample: Sample, window: &Window) {
        let goes_on = self.last.is_some_and(|last| follows(&last, &sample));
        self.last = Some(sample);
        let Some(began) = self.began.filter(|_| goes_on) else {
            self.began = Some(sample);
            self.cleared = self.cleared.filter(|_| goes_on);
            return;
        };
        if sample.at_us - began.at_us < window.bucket_us {
            return;
        }
        if let Some(rate) = rate(&began, &sample) {
            self.complete.push_back(rate);
            while self.complete.len() > window.buckets {
                self.complete.pop_front();
            }
        }
        self.began = Some(sample);
    }

    /// Marks a gap: a sample could not be read, and no interval spans the gap.
    pub fn miss(&mut self) {
        (self.last, self.began, self.cleared) = (None, None, None);
    }

    /// The highest demand of the window.
    pub fn shown(&self, window: &Window) -> Shown {
        if self.complete.is_empty() {
            return Shown::Nothing;
        }
        let running = self.running(window);
        let rates = || self.complete.iter().copied().chain(running);
        let used = rates().map(|rate| rate.used_milli).max().unwrap_or(0);
        match rates()
            .map(|rate| rate.demand_milli)
            .collect::<Option<Vec<_>>>()
        {
            Some(demands) => Shown::Demand {
                milli: demands.into_iter().max().unwrap_or(0),
            },
            None => Shown::Use { milli: used },
        }
    }

    /// The recent use: of the running bucket, else of the last complete one, else between two
    /// samples.
    pub fn used_milli(&self, window: &Window) -> Option<u64> {
        let complete = self.complete.back().copied();
        let rate = self.running(window).or(complete).or_else(|| self.begun())?;
        Some(rate.used_milli)
    }

    /// The share of throttled periods since the last clearing, in permille; 0 if no period passed
    /// (M2). `None` if it is not known, which does not count as quiet.
    pub fn throttled_permille(&self) -> Option<u64> {
        let (then, now) = (self.cleared?, self.last?);
        let passed = |before: Option<u64>, after: Option<u64>| after?.checked_sub(before?);
        let periods = passed(then.periods, now.periods)?;
        let throttled = passed(then.throttled_periods, now.throttled_periods)?;
        Some(match periods {
            0 => 0,
            _ => crate::need::floor(1_000, throttled.min(periods), periods),
        })
    }

    /// Marks a clearing.
    pub fn cleared(&mut self) {
        self.cleared = self.last;
    }

    fn running(&self, window: &Window) -> Option<Rate> {
        let (began, last) = (self.began?, self.last?);
        let is_long_enough = window.running_us_min <= last.at_us.saturating_sub(began.at_us);
        self.begun().filter(|_| is_long_enough)
    }

    /// The rate of the running bucket, however short.
    fn begun(&self) -> Option<Rate> {
        rate(&self.began?, &self.last?)
    }
}

/// Whether a sample can follow another: time advances, and no counter goes back.
fn follows(before: &Sample, after: &Sample) -> bool {
    let rises = |before: Option<u64>, after: Option<u64>| match (before, after) {
        (Some(before), Some(after)) => before <= after,
        _ => true,
    };
    before.at_us < after.at_us
        && before.usage_us <= after.usage_us
        && rises(before.throttled_us, after.throttled_us)
        && rises(before.periods, after.periods)
        && rises(before.throttled_periods, after.throttled_periods)
}

fn rate(before: &Sample, after: &Sample) -> Option<Rate> {
    let took = after
        .at_us
        .checked_sub(before.at_us)
        .filter(|took| *took > 0)?;
    let used = after.usage_us.checked_sub(before.usage_us)?;
    let held_back = match (before.throttled_us, after.throttled_us) {
        (Some(before), Some(after)) => Some(after.checked_sub(before)?),
        _ => None,
    };
    let milli = |us: u64| crate::need::floor(us, 1_000, took);
    Some(Rate {
        used_milli: milli(used),
        demand_milli: held_back.map(|held_back| milli(used.saturating_add(held_back))),
    })
}
