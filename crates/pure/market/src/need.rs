//! The CPU that a pod could use, from the position of its demand between floor and ceiling (M1).
//!
//! ```text
//! raw  = m + ⌊(M − m)·d/10⁶⌋
//! need = min(M, raw + ⌊raw·(10⁶·h + 150·d)/10⁹⌋)
//! ```
//! with d in parts per million and the headroom h in permille. Example: m = 100, M = 1000,
//! d = 0.6 and h = 100: raw = 640, headroom 19 % = 121, need = 761.

use crate::clear::VALUE_MAX;

/// The whole, in parts per million.
pub const PPM: u64 = 1_000_000;
/// Initial and minimum headroom, in permille (M2).
pub const HEADROOM_MIN_PERMILLE: u64 = 100;
/// Maximum headroom, in permille (M2).
pub const HEADROOM_MAX_PERMILLE: u64 = 500;
/// Increase of the headroom after a miss, in permille.
const HEADROOM_MISS_PERMILLE: u64 = 50;
/// Decrease of the headroom after a quiet minute, in permille.
const HEADROOM_QUIET_PERMILLE: u64 = 10;
/// Share of throttled periods from which on a minute is a miss, in permille.
pub const THROTTLED_PERMILLE: u64 = 300;
/// Headroom per demand: 15 % of it.
const HEADROOM_PER_DEMAND: u64 = 150;

/// A need, with the steps that led to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Need {
    /// The floor.
    pub min_milli: u64,
    /// The range from floor to ceiling.
    pub range_milli: u64,
    /// The position of demand between floor and ceiling, in parts per million.
    pub demand_ppm: u64,
    /// The need without headroom.
    pub raw_milli: u64,
    /// The headroom, in parts per million.
    pub headroom_ppm: u64,
    /// The need before the ceiling.
    pub uncapped_milli: u64,
    /// The need.
    pub milli: u64,
}

/// The need of a pod whose demand is known.
pub fn need(min_milli: u64, max_milli: u64, demand_ppm: u64, headroom_permille: u64) -> Need {
    let max_milli = max_milli.min(VALUE_MAX);
    let min_milli = min_milli.min(max_milli);
    let demand_ppm = demand_ppm.min(PPM);
    let headroom_permille = headroom_permille.min(VALUE_MAX);
    let range_milli = max_milli - min_milli;
    // Both products stay below 10¹⁶.
    let raw_milli = min_milli + range_milli * demand_ppm / PPM;
    let headroom_ppm = headroom_permille * 1_000 + demand_ppm * HEADROOM_PER_DEMAND / 1_000;
    // Rounded once: h·10⁶ + 150·d are parts in 10⁹.
    let parts = headroom_permille * PPM + HEADROOM_PER_DEMAND * demand_ppm;
    let uncapped_milli = raw_milli.saturating_add(floor(raw_milli, parts, 1_000_000_000));
    Need {
        min_milli,
        range_milli,
        demand_ppm,
        raw_milli,
        headroom_ppm,
        uncapped_milli,
        milli: uncapped_milli.min(max_milli),
    }
}

/// The position of a demand between floor and ceiling, rounded up; 0 if they are equal.
pub fn demand_ppm(min_milli: u64, max_milli: u64, demand_milli: u64) -> u64 {
    let max_milli = max_milli.min(VALUE_MAX);
    let range = max_milli.saturating_sub(min_milli);
    let above = demand_milli.min(max_milli).saturating_sub(min_milli);
    if range == 0 {
        return 0;
    }
    // The product stays below 10¹⁶.
    (above * PPM).div_ceil(range)
}

/// The headroom after a minute (M2): more after a miss, less after a quiet one. Only a minute in which
/// nothing was forgotten and every pod had its whole need is judged.
pub fn next_headroom(permille: u64, throttled_permille: u64) -> u64 {
    if throttled_permille < THROTTLED_PERMILLE {
        permille
            .saturating_sub(HEADROOM_QUIET_PERMILLE)
            .max(HEADROOM_MIN_PERMILLE)
    } else {
        permille
            .saturating_add(HEADROOM_MISS_PERMILLE)
            .min(HEADROOM_MAX_PERMILLE)
    }
}

/// ⌊value · parts / whole⌋, exactly.
#[inline]
pub(crate) fn floor(value: u64, parts: u64, whole: u64) -> u64 {
    let whole = whole.max(1);
    // Division in one machine word is many times faster.
    if let Some(product) = value.checked_mul(parts) {
        return product / whole;
    }
    let product = u128::from(value) * u128::from(parts);
    u64::try_from(product / u128::from(whole)).unwrap_or(u64::MAX)
}
