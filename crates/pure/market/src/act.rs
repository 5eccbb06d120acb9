//! The rules of writing limits (M5): the smallest change that is written, and the budget of writes.

/// Minimum change that is written, in millicores.
pub const CHANGE_MIN_MILLI: u64 = 10;
/// Minimum change that is written: a twentieth of the present limit.
const CHANGE_MIN_PART: u64 = 20;
/// Seconds in an hour: the pool counts parts of a write, so that a second adds a whole number.
const HOUR_S: u64 = 3_600;
/// Microseconds in a second.
const SECOND_US: u64 = 1_000_000;
/// One write, in units of the pool.
const WRITE: u64 = HOUR_S * SECOND_US;
/// The pool holds the budget of a minute.
const POOL_S: u64 = 60;
/// The pool holds at least so many writes.
const POOL_WRITES_MIN: u64 = 8;

/// A limit to be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Write {
    /// The pod.
    pub id: String,
    /// The new limit.
    pub milli: u64,
}

/// The pool of writes of a node: B writes per pod and hour, saved up for at most a minute. Counted in
/// 1/3600 writes per second, times 10⁶, because intervals are in microseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Budget {
    per_hour: u64,
    /// Absent before the first pod: the pool begins full.
    pool: Option<u64>,
    full: u64,
    at_us: u64,
}

impl Budget {
    pub(crate) const fn new(per_hour: u64) -> Self {
        Self {
            per_hour,
            pool: None,
            full: 0,
            at_us: 0,
        }
    }

    /// Adds the writes of the time since the last call.
    pub(crate) fn refill(&mut self, pods: usize, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.at_us);
        self.at_us = self.at_us.max(now_us);
        if pods == 0 {
            return;
        }
        let pods = u64::try_from(pods).unwrap_or(u64::MAX);
        let per_second = pods.saturating_mul(self.per_hour);
        self.full = match per_second {
            0 => 0,
            rate => rate
                .saturating_mul(POOL_S * SECOND_US)
                .max(POOL_WRITES_MIN * WRITE),
        };
        let more = per_second.saturating_mul(passed_us);
        let pool = self
            .pool
            .map_or(self.full, |pool| pool.saturating_add(more));
        self.pool = Some(pool.min(self.full));
    }

    /// Whether so many writes are in the pool.
    pub(crate) fn has(&self, writes: u64) -> bool {
        writes * WRITE <= self.pool.unwrap_or(0)
    }

    /// Whether the pool is at least half full.
    pub(crate) fn is_half_full(&self) -> bool {
        let pool = self.pool.unwrap_or(0);
        WRITE <= pool && self.full - pool.min(self.full) <= pool
    }

    /// Takes one write.
    pub(crate) fn spend(&mut self) {
        self.pool = self.pool.map(|pool| pool.saturating_sub(WRITE));
    }
}

/// Whether the difference is large enough for a write. A limit below 10m may double: it could never
/// grow otherwise, because a new size is reached by doubling.
pub(crate) fn is_worth_it(effective_milli: u64, wanted_milli: u64) -> bool {
    let least = effective_milli.div_ceil(CHANGE_MIN_PART);
    let least = least.max(CHANGE_MIN_MILLI.min(effective_milli.max(1)));
    least <= effective_milli.abs_diff(wanted_milli)
}
