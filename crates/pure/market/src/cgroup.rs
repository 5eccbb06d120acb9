//! The text of the kernel's files for CPU, read and written (M11).
//!
//! One reader serves version 1, version 2 and both at once, since their keys differ by name. A key
//! that is missing or makes no sense is absent, never zero; nothing that a file holds can make a
//! reader fail otherwise. Deliberately not here: where the files are, and reading them.

use crate::need::floor;

/// The period of a quota where nobody chose one, in microseconds.
pub const PERIOD_US: u64 = 100_000;
/// The longest period that the kernel takes, in microseconds.
const PERIOD_US_MAX: u64 = 1_000_000;
/// The smallest quota that it takes, in microseconds.
const QUOTA_US_MIN: u64 = 1_000;
/// More lines than any of these files has; whatever follows is not read.
const LINES_MAX: usize = 64;

/// What a cgroup may use: so much time in every period.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Quota {
    /// The time, summed over all processors; `None` where nothing is limited.
    pub quota_us: Option<u64>,
    /// The period.
    pub period_us: u64,
}

/// What `cpu.stat` counts; v2 tells use as well, v1 does so in `cpuacct.usage`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stat {
    /// CPU time used.
    pub usage_us: Option<u64>,
    /// Time for which somebody was held back by the quota.
    pub throttled_us: Option<u64>,
    /// Periods that have passed.
    pub periods: Option<u64>,
    /// Periods in which somebody was held back.
    pub throttled_periods: Option<u64>,
}

/// How long somebody waited for a CPU, for whatever reason: shown, and nothing else (M3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pressure {
    /// The share of the last ten seconds, in hundredths of a percent.
    pub last_10s_hundredths: u64,
    /// Since the cgroup was made.
    pub total_us: u64,
}

impl Quota {
    /// No limit.
    pub const NONE: Self = Self {
        quota_us: None,
        period_us: PERIOD_US,
    };

    /// A limit in millicores, in the period that the cgroup has. Where that would be less than the
    /// kernel takes the period grows to its longest, and the least is a millicore.
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

    /// The limit in millicores, rounded up: it allows no more than that.
    pub fn milli_ceil(&self) -> Option<u64> {
        let milli = (u128::from(self.quota_us?) * 1_000).div_ceil(self.period_us.max(1).into());
        Some(u64::try_from(milli).unwrap_or(u64::MAX))
    }

    /// As `cpu.max` takes it.
    pub fn cpu_max(&self) -> String {
        match self.quota_us {
            Some(quota_us) => format!("{quota_us} {}", self.period_us),
            None => format!("max {}", self.period_us),
        }
    }

    /// As `cpu.cfs_quota_us` takes it.
    pub fn cfs_quota(&self) -> String {
        self.quota_us
            .map_or_else(|| "-1".to_owned(), |quota_us| quota_us.to_string())
    }
}

/// Reads `cpu.stat`, of either version.
pub fn stat(text: &str) -> Stat {
    let value = |key: &str| {
        let mut lines = text.lines().take(LINES_MAX);
        lines.find_map(|line| number(line.strip_prefix(key)?.strip_prefix(' ')?))
    };
    // Version 1 counts nanoseconds: rounded down, as the kernel does for version 2.
    let throttled_us = || value("throttled_time").map(|ns| ns / 1_000);
    Stat {
        usage_us: value("usage_usec"),
        throttled_us: value("throttled_usec").or_else(throttled_us),
        periods: value("nr_periods"),
        throttled_periods: value("nr_throttled"),
    }
}

/// Reads `cpuacct.usage` (version 1, nanoseconds), rounded down.
pub fn cpuacct_usage_us(text: &str) -> Option<u64> {
    number(text).map(|ns| ns / 1_000)
}

/// Reads `cpu.max` (version 2).
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

/// Reads `cpu.cfs_quota_us` and `cpu.cfs_period_us` (version 1); −1 is no limit.
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

/// Reads the line of `cpu.pressure` about some waiting.
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

/// A whole number as the kernel prints it: digits, and nothing that `parse` would let pass besides.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

fn positive(text: &str) -> Option<u64> {
    number(text).filter(|number| *number > 0)
}
