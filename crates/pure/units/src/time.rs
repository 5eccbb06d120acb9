//! Instants and durations as whole milliseconds.

use serde::{Deserialize, Serialize};

use crate::INTEGER_MAX;

/// A point in time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Instant(u64);

/// A length of time in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(u64);

impl Instant {
    /// The instant `ms` milliseconds after the epoch.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the epoch.
    pub const fn ms(self) -> u64 {
        self.0
    }

    /// The instant `length` later, at most [`INTEGER_MAX`].
    #[must_use]
    pub const fn after(self, length: Millis) -> Self {
        let sum = self.0.saturating_add(length.0);
        Self(if sum > INTEGER_MAX { INTEGER_MAX } else { sum })
    }

    /// The instant `length` earlier, at least the epoch.
    #[must_use]
    pub const fn before(self, length: Millis) -> Self {
        Self(self.0.saturating_sub(length.0))
    }

    /// The time since `earlier`; zero if it is in the future.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Millis {
    /// Zero length.
    pub const ZERO: Self = Self(0);

    /// A length of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// A length of `seconds` seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// A length of `hours` hours.
    pub const fn from_hours(hours: u64) -> Self {
        Self(hours.saturating_mul(3_600_000))
    }

    /// The length in milliseconds.
    pub const fn ms(self) -> u64 {
        self.0
    }
}
