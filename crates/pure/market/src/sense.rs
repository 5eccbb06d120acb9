//! From the counters of the kernel to demand (M1), and what throttling says of headroom (M2).
//!
//! A sample that makes no sense is no value, never zero: the first one, one that goes backwards,
//! one that could not be read. Demand over an interval is ⌊(Δusage + Δthrottled)·1000/Δt⌋
//! millicores: what was used, and what would have been had nobody held it back. Example: 0.5 s of
//! use and 0.5 s of throttling in one second are 1000m, whatever the limit was.
//!
//! Buckets of a few seconds, and the largest of the last dozen: a mean would miss bursts, and a
//! peak that decays would change at every clearing.

use std::collections::VecDeque;

/// How samples are gathered; the agent's settings, in microseconds of its monotonic clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Window {
    /// How long a bucket is.
    pub bucket_us: u64,
    /// How many complete ones count.
    pub buckets: usize,
    /// From which length on the running one counts too.
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

/// The counters of one cgroup at one moment. An absent key is absent, not zero (M11).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sample {
    /// Monotonic time.
    pub at_us: u64,
    /// CPU time used since the cgroup was made.
    pub usage_us: u64,
    /// Time for which its processes were held back by its quota.
    pub throttled_us: Option<u64>,
    /// Periods of its quota that have passed.
    pub periods: Option<u64>,
    /// Periods in which it was held back.
    pub throttled_periods: Option<u64>,
}

/// What a window shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shown {
    /// Nothing yet: the present limit stands.
    Nothing,
    /// Demand, used and held back, at its highest.
    Demand {
        /// In millicores.
        milli: u64,
    },
    /// Use at its highest; this kernel counts no throttling.
    Use {
        /// In millicores.
        milli: u64,
    },
}

/// The counters of one cgroup over time.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    last: Option<Sample>,
    /// Where the running bucket began.
    began: Option<Sample>,
    /// Demand or use in each complete bucket, oldest first.
    complete: VecDeque<Rate>,
    /// Where counting for the headroom began: the last clearing.
    cleared: Option<Sample>,
}

/// Millicores over an interval.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Rate {
    used_milli: u64,
    demand_milli: Option<u64>,
}

impl Estimator {
    /// Takes a sample in; one that goes backwards begins anew from itself.
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

    /// A sample could not be read: what spans the gap is not counted.
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

    /// What was used lately: in the running bucket, or in the last complete one; before there is
    /// one of them, as far as two samples tell.
    pub fn used_milli(&self, window: &Window) -> Option<u64> {
        let complete = self.complete.back().copied();
        let rate = self.running(window).or(complete).or_else(|| self.begun())?;
        Some(rate.used_milli)
    }

    /// The share of throttled periods since the last clearing, in permille; 0 if no period passed
    /// (M2). `None` where it is not known: what was not counted was not quiet.
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

    /// A clearing took place.
    pub fn cleared(&mut self) {
        self.cleared = self.last;
    }

    fn running(&self, window: &Window) -> Option<Rate> {
        let (began, last) = (self.began?, self.last?);
        let is_long_enough = window.running_us_min <= last.at_us.saturating_sub(began.at_us);
        self.begun().filter(|_| is_long_enough)
    }

    /// The running bucket, however short.
    fn begun(&self) -> Option<Rate> {
        rate(&self.began?, &self.last?)
    }
}

/// Whether a sample can come after another: no counter goes back, and time goes on.
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
