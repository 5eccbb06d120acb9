//! Pauses between repeats: growing, bounded, and random so that callers do not repeat together.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    next: Duration,
}

const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_secs(5);

impl Pause {
    pub(crate) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// Next pause: 50 to 100 % of a length that doubles each time.
    pub(crate) fn next(&mut self) -> Duration {
        let full = self.next;
        self.next = full.saturating_mul(2).min(LAST);
        uneven(full, 50)
    }
}

/// Shortens a length at random by at most this many percent.
pub(crate) fn uneven(full: Duration, percent_max: u32) -> Duration {
    // Every `RandomState` has its own seed, which is random enough here.
    let random = RandomState::new().hash_one(0_u8) % 1_001;
    let random = u32::try_from(random).unwrap_or_default();
    let shorter = (full / 100_000).saturating_mul(percent_max.saturating_mul(random));
    full.saturating_sub(shorter)
}
