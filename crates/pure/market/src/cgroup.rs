//! Parses and formats the text of the kernel's CPU files (M11).
//!
//! One parser serves version 1, version 2 and hybrids, because their keys differ. A missing or invalid
//! key is absent, never zero; no content makes a parser fail otherwise. Deliberately absent: finding
//! and reading the files.

use serde::{Deserialize, Serialize};

use crate::need::floor;

/// Default period of a quota, in microseconds.
pub const PERIOD_US: u64 = 100_000;
/// The longest period that the kernel accepts, in microseconds.
const PERIOD_US_MAX: u64 = 1_000_000;
/// The smallest quota that the kernel accepts, in microseconds.
const QUOTA_US_MIN: u64 = 1_000;
/// More lines than any of these files has; the rest is not read.
const LINES_MAX: usize = 64;

/// CPU limit of a cgroup: CPU time in every period. The agent stores originals in this form.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quota {
    /// The time, summed over all processors; `None` for no limit.
    pub quota_us: Option<u64>,
    /// The period.
    pub period_us: u64,
}

/// Counters of `cpu.stat`; version 1 counts use in `cpuacct.usage` instead.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stat {
    /// CPU time used.
    pub usage_us: Option<u64>,
    /// Time for which processes were throttled.
    pub throttled_us: Option<u64>,
    /// Elapsed periods.
    pub periods: Option<u64>,
    /// Periods with throttling.
    pub throttled_periods: Option<u64>,
}

/// Time that processes waited for a CPU, for any reason; only displayed (M3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pressure {
    /// The share of the last ten seconds, in hundredths of a percent.
    pub last_10s_hundredths: u64,
    /// Total since the cgroup was created.
    pub total_us: u64,
}

impl Quota {
    /// No limit.
    pub const NONE: Self = Self {
        quota_us: None,
        period_us: PERIOD_US,
    };

    /// A limit in millicores, at least one, in a given period. If the quota would be below the
    /// kernel's minimum, the period is the longest.
    pub fn of_milli(milli: u64, period_us: u64) -> Self {
        let quota = |period_us| floor(milli.max(1), period_us, 1_000);
        let period_us = if quota(period_us) < QUOTA_US_MIN {
            PERIOD_US_MAX
        } else {
            period_us
        };
        Self {
            quota_us: Some(quota(period_us)),
            period_us,
        }
    }

    /// The limit in millicores, rounded up: an upper bound.
    pub fn milli_ceil(&self) -> Option<u64> {
        let milli = (u128::from(self.quota_us?) * 1_000).div_ceil(self.period_us.max(1).into());
        Some(u64::try_from(milli).unwrap_or(u64::MAX))
    }

    /// The text for `cpu.max`.
    pub fn cpu_max(&self) -> String {
        match self.quota_us {
            Some(quota_us) => format!("{quota_us} {}", self.period_us),
            None => format!("max {}", self.period_us),
        }
    }

    /// The text for `cpu.cfs_quota_us`.
    pub fn cfs_quota(&self) -> String {
        self.quota_us
            .map_or_else(|| "-1".to_owned(), |quota_us| quota_us.to_string())
    }
}

/// Parses `cpu.stat` of either version.
pub fn stat(text: &str) -> Stat {
    let value = |key: &str| {
        let mut lines = text.lines().take(LINES_MAX);
        lines.find_map(|line| number(line.strip_prefix(key)?.strip_prefix(' ')?))
    };
    // Version 1 counts nanoseconds; rounded down, as the kernel does in version 2.
    let throttled_us = || value("throttled_time").map(|ns| ns / 1_000);
    Stat {
        usage_us: value("usage_usec"),
        throttled_us: value("throttled_usec").or_else(throttled_us),
        periods: value("nr_periods"),
        throttled_periods: value("nr_throttled"),
    }
}

/// Parses `cpuacct.usage` (version 1, nanoseconds), rounded down.
pub fn cpuacct_usage_us(text: &str) -> Option<u64> {
    number(text).map(|ns| ns / 1_000)
}

/// Parses `cpu.max` (version 2).
pub fn cpu_max(text: &str) -> Option<Quota> {
    let (quota, period) = text.trim().split_once(' ')?;
    let quota_us = match quota {
        "max" => None,
        quota => Some(positive(quota)?),
    };
    Some(Quota {
        quota_us,
        period_us: positive(period)?,
    })
}

/// Parses `cpu.cfs_quota_us` and `cpu.cfs_period_us` (version 1); −1 means no limit.
pub fn cfs(quota: &str, period: &str) -> Option<Quota> {
    let quota_us = match quota.trim() {
        "-1" => None,
        quota => Some(positive(quota)?),
    };
    Some(Quota {
        quota_us,
        period_us: positive(period)?,
    })
}

/// Parses the line `some` of `cpu.pressure`.
pub fn pressure(text: &str) -> Option<Pressure> {
    let mut lines = text.lines().take(LINES_MAX);
    let some = lines.find_map(|line| line.strip_prefix("some "))?;
    let value = |key: &str| {
        some.split(' ')
            .find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
    };
    let (percent, hundredths) = value("avg10")?.split_once('.')?;
    let hundredths = number(hundredths).filter(|_| hundredths.len() == 2)?;
    Some(Pressure {
        last_10s_hundredths: number(percent)?.checked_mul(100)?.checked_add(hundredths)?,
        total_us: number(value("total")?)?,
    })
}

/// Parses digits only; `parse` alone would accept a sign.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

fn positive(text: &str) -> Option<u64> {
    number(text).filter(|number| *number > 0)
}
