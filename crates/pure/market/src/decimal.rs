//! Formats fractions without floats.

use crate::clear::PRICE_MAX_PPM;
use crate::need::PPM;

/// `numerator / denominator` with `places` decimals, rounded to nearest, halves up: `0.533`.
pub fn fraction(numerator: u128, denominator: u128, places: u32) -> String {
    let denominator = denominator.max(1);
    let scale = 10_u128.saturating_pow(places);
    let whole_floor = numerator / denominator;
    let rest = (numerator % denominator).saturating_mul(scale);
    let part_nearest = rest.saturating_add(denominator / 2) / denominator;
    // 0.9996 with three places is 1.000.
    let whole = whole_floor.saturating_add(part_nearest / scale);
    let part = part_nearest % scale;
    if places == 0 {
        return whole.to_string();
    }
    let width = usize::try_from(places).unwrap_or(0);
    format!("{whole}.{part:0width$}")
}

/// A ratio in percent with one decimal: `53.3%`.
pub fn percent(numerator: u128, denominator: u128) -> String {
    format!(
        "{}%",
        fraction(numerator.saturating_mul(100), denominator, 1)
    )
}

/// A price given in parts per million: `1.88`, with more decimals below a tenth, and `max` if no CPU
/// is available.
pub fn price(ppm: u64) -> String {
    let places = match ppm {
        0 => return "0".to_owned(),
        PRICE_MAX_PPM.. => return "max".to_owned(),
        1..1_000 => 6,
        1_000..100_000 => 4,
        _ => 2,
    };
    fraction(ppm.into(), PPM.into(), places)
}
