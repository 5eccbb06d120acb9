//! The displayed mode, with hysteresis (M7).
//!
//! Hysteresis applies to the label and its alerts only. In the allocation it would over-commit a node
//! by the width of the band.

use crate::clear::Mode;

/// The label becomes milder only when the sum is at most this percentage of capacity.
const BAND_PERCENT: u128 = 95;

/// The label after a clearing, given the one before and the exact mode; the floors with the allocatable
/// CPU, and the asks with the capacity. Floors are not compared with capacity: capacity is never less
/// than floors that fit (M8), so an overload would last for ever beside unmanaged use of the rest.
pub fn label(
    (before, exact): (Mode, Mode),
    (min_milli, allocatable_milli): (u64, u64),
    (ask_milli, capacity_milli): (u64, u64),
) -> Mode {
    let near = |sum: u64, of: u64| u128::from(sum) * 100 > u128::from(of) * BAND_PERCENT;
    let is_near_full = || near(ask_milli, capacity_milli);
    let held = match before {
        Mode::Overloaded if near(min_milli, allocatable_milli) => Mode::Overloaded,
        Mode::Congested | Mode::Overloaded if is_near_full() => Mode::Congested,
        _ => Mode::Uncongested,
    };
    exact.max(held)
}
