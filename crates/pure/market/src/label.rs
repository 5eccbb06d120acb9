//! The mode that people are shown: it does not flap (M7).
//!
//! Hysteresis touches the label and its alerts only. On the allocation it would over-commit a node
//! by the width of the band.

use crate::clear::{Cleared, Mode};

/// A milder label is held while the sum is above so many percent of capacity.
const BAND_PERCENT: u128 = 95;

/// The label after a clearing, given the one before.
pub fn label(before: Mode, cleared: &Cleared) -> Mode {
    let near = |sum: u64| u128::from(sum) * 100 > u128::from(cleared.capacity_milli) * BAND_PERCENT;
    let held = match before {
        Mode::Overloaded if near(cleared.min_milli) => Mode::Overloaded,
        Mode::Congested | Mode::Overloaded if near(cleared.need_milli) => Mode::Congested,
        _ => Mode::Uncongested,
    };
    cleared.mode.max(held)
}
