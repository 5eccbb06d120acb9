//! The mode that people are shown: it does not flap (M7).
//!
//! Hysteresis touches the label and its alerts only. On the allocation it would over-commit a node
//! by the width of the band.

use crate::clear::{Cleared, Mode};

/// A milder label is held while the sum is above so many percent of capacity.
const BAND_PERCENT: u128 = 95;

/// The label after a clearing, given the one before. Floors are near the end where they are near all
/// that may be used at all: what can be shared is never less than they are where they fit (M8), so
/// by that an overload would last for ever beside others who use the rest.
pub fn label(before: Mode, cleared: &Cleared, allocatable_milli: u64) -> Mode {
    let near = |sum: u64, of: u64| u128::from(sum) * 100 > u128::from(of) * BAND_PERCENT;
    let is_near_full = || near(cleared.need_milli, cleared.capacity_milli);
    let held = match before {
        Mode::Overloaded if near(cleared.min_milli, allocatable_milli) => Mode::Overloaded,
        Mode::Congested | Mode::Overloaded if is_near_full() => Mode::Congested,
        _ => Mode::Uncongested,
    };
    cleared.mode.max(held)
}
