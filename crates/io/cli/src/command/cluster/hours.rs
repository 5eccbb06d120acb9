//! GPU-hours as text.

use bursar_engine::words;

const HOUR_MS: u64 = 3_600_000;
/// From this many hours on, tenths are not shown.
const WHOLE_FROM: u64 = 1_000;

/// `24`, `0.5` or `1,152`: whole hours, or one decimal below 1,000; `<0.1` for less than that.
pub(super) fn hours(gpu_ms: u64) -> String {
    let rest = gpu_ms % HOUR_MS;
    let whole = gpu_ms / HOUR_MS;
    if rest == 0 {
        return words::number(whole);
    }
    let tenths = nearest(gpu_ms, HOUR_MS / 10);
    match (tenths / 10, tenths % 10) {
        (0, 0) => "<0.1".to_owned(),
        (whole, tenth) if whole < WHOLE_FROM => format!("{whole}.{tenth}"),
        _ => words::number(nearest(gpu_ms, HOUR_MS)),
    }
}

/// `1 GPU-hour`, `0.5 GPU-hours`.
pub(super) fn gpu_hours(gpu_ms: u64) -> String {
    let unit = if gpu_ms == HOUR_MS {
        "GPU-hour"
    } else {
        "GPU-hours"
    };
    format!("{} {unit}", hours(gpu_ms))
}

/// A quotient, rounded to the nearest whole number; halves are rounded up.
fn nearest(amount: u64, unit: u64) -> u64 {
    let doubled = u128::from(amount) * 2 + u128::from(unit);
    u64::try_from(doubled / (u128::from(unit) * 2)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{HOUR_MS, gpu_hours, hours};

    #[test]
    fn hours_have_one_decimal_below_a_thousand_unless_they_are_whole() {
        for (gpu_ms, expected) in [
            (0, "0"),
            (1, "<0.1"),
            (HOUR_MS / 20 - 1, "<0.1"),
            (HOUR_MS / 20, "0.1"),
            (HOUR_MS / 2, "0.5"),
            (HOUR_MS - 1, "1.0"),
            (HOUR_MS, "1"),
            (24 * HOUR_MS, "24"),
            (24 * HOUR_MS + 1, "24.0"),
            (999 * HOUR_MS + HOUR_MS / 2, "999.5"),
            (1_000 * HOUR_MS - 1, "1,000"),
            (1_152 * HOUR_MS + HOUR_MS / 2, "1,153"),
            (u64::MAX, "5,124,095,576,030"),
        ] {
            assert_eq!(hours(gpu_ms), expected, "{gpu_ms}");
        }
        assert_eq!(gpu_hours(HOUR_MS), "1 GPU-hour");
        assert_eq!(gpu_hours(HOUR_MS / 2), "0.5 GPU-hours");
    }
}
