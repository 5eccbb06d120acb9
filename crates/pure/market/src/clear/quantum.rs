//! The step of limits (M6).

use super::{SURVIVAL_MILLI, VALUE_MAX};

/// The step of limits, at least 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantum(u64);

impl Quantum {
    pub(crate) fn new(milli: u64) -> Self {
        Self(milli.clamp(1, VALUE_MAX))
    }

    /// Divisions are slow, and the quantum is mostly 1.
    pub(crate) const fn floor(self, milli: u64) -> u64 {
        if self.0 == 1 { milli } else { milli / self.0 }
    }

    pub(crate) const fn ceil(self, milli: u64) -> u64 {
        if self.0 == 1 {
            milli
        } else {
            milli.div_ceil(self.0)
        }
    }

    pub(crate) const fn milli(self, units: u64) -> u64 {
        units.saturating_mul(self.0)
    }

    /// The floor rounded up and the ceiling rounded down; the first is above the second if the range is
    /// too narrow.
    pub(crate) const fn range(self, min_milli: u64, max_milli: u64) -> (u64, u64) {
        (self.ceil(min_milli), self.floor(max_milli))
    }

    /// Whether no multiple of the quantum is between floor and ceiling.
    pub(crate) fn is_too_narrow(self, min_milli: u64, max_milli: u64) -> bool {
        let max_milli = max_milli.min(VALUE_MAX);
        let (m, max) = self.range(min_milli.min(max_milli), max_milli);
        max < m
    }

    pub(crate) const fn survival(self) -> u64 {
        self.ceil(SURVIVAL_MILLI)
    }
}
