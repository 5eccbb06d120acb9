//! Numbers, lengths of time and amounts as people read them.
//!
//! Thousands have commas, every number has its unit, and a length of time has at most two units.

use crate::quantity::{format_cpu, format_memory};
use crate::{Amount, Dimension, Label, Millis};

/// GPU-milliseconds of a GPU-hour.
const HOUR_MS: u64 = 3_600_000;
/// From this many GPU-hours on, tenths are not shown.
const WHOLE_FROM: u64 = 1_000;

/// A whole number with commas between thousands: `48,102`.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and its noun: `1 waiting booking`, `3 waiting bookings`.
pub fn count(value: u64, noun: &str) -> String {
    let ending = if value == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", number(value))
}

/// A length of time, rounded down to at most two units: `210ms`, `37s`, `5m 02s`, `2h 41m`, `3d`.
pub fn length(length: Millis) -> String {
    let ms = length.ms();
    let two = |large: u64, unit: char, small: u64, small_unit: char| match small {
        0 => format!("{}{unit}", number(large)),
        _ => format!("{}{unit} {small:02}{small_unit}", number(large)),
    };
    match ms / 1_000 {
        0 if ms == 0 => "0s".to_owned(),
        0 => format!("{ms}ms"),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => two(seconds / 60, 'm', seconds % 60, 's'),
        seconds @ 3_600..86_400 => two(seconds / 3_600, 'h', seconds % 3_600 / 60, 'm'),
        seconds => two(seconds / 86_400, 'd', seconds % 86_400 / 3_600, 'h'),
    }
}

/// GPU-hours as `24`, `0.5` or `1,152`: whole hours, or one decimal below 1,000; `<0.1` for less than that.
pub fn hours(gpu_ms: u64) -> String {
    let rest = gpu_ms % HOUR_MS;
    let whole = gpu_ms / HOUR_MS;
    if rest == 0 {
        return number(whole);
    }
    let tenths = nearest(gpu_ms, HOUR_MS / 10);
    match (tenths / 10, tenths % 10) {
        (0, 0) => "<0.1".to_owned(),
        (whole, tenth) if whole < WHOLE_FROM => format!("{whole}.{tenth}"),
        _ => number(nearest(gpu_ms, HOUR_MS)),
    }
}

/// `1 GPU-hour`, `0.5 GPU-hours`.
pub fn gpu_hours(gpu_ms: u64) -> String {
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

/// An estimated length of time, rounded up to a whole second: `about 40s`.
pub fn about(ms: u64) -> String {
    let seconds_ceil = ms.div_ceil(1_000);
    format!("about {}", length(Millis::from_secs(seconds_ceil)))
}

/// Slots of a class: `1 python slot`, `4 python slots`, `1 slot` where the class is not known.
pub fn slots(value: u64, class: Option<&Label>) -> String {
    match class {
        Some(class) => count(value, &format!("{class} slot")),
        None => count(value, "slot"),
    }
}

/// An amount of a class: `1 python slot`, `2 python slots (cpu 500m, memory 256Mi)`.
pub fn amount(amount: &Amount, class: Option<&Label>) -> String {
    let slots_only = Amount {
        slots: amount.slots,
        ..Amount::default()
    };
    let slots = slots(amount.slots, class);
    if *amount == slots_only {
        slots
    } else {
        format!("{slots} ({})", resources(amount))
    }
}

/// All of an amount but its slots: `cpu 500m, memory 256Mi`; `nothing` where there is none.
pub fn resources(amount: &Amount) -> String {
    let parts: Vec<String> = Dimension::ALL
        .into_iter()
        .filter(|dimension| *dimension != Dimension::Slots && amount.of(*dimension) > 0)
        .map(|dimension| {
            format!(
                "{} {}",
                dimension.word(),
                value(dimension, amount.of(dimension))
            )
        })
        .collect();
    if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(", ")
    }
}

/// A number in the unit of its dimension: `100`, `1500m`, `240Gi`.
pub fn value(dimension: Dimension, value: u64) -> String {
    match dimension {
        Dimension::Slots | Dimension::Gpus => number(value),
        Dimension::Cpu => format_cpu(value),
        Dimension::Memory => format_memory(value),
    }
}

/// A number with its dimension: `100 slots`, `cpu 60`.
pub fn value_of(dimension: Dimension, size: u64) -> String {
    match dimension {
        Dimension::Slots => count(size, "slot"),
        Dimension::Gpus => count(size, "gpu"),
        Dimension::Cpu | Dimension::Memory => {
            format!("{} {}", dimension.word(), value(dimension, size))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HOUR_MS, about, amount, count, gpu_hours, hours, length, number, slots, value_of};
    use crate::{Amount, Dimension, Label, Millis};

    #[test]
    fn numbers_have_commas_between_thousands() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (48_102, "48,102"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn one_is_singular_and_all_else_plural() {
        assert_eq!(count(1, "record"), "1 record");
        assert_eq!(count(0, "record"), "0 records");
        assert_eq!(count(1_000, "record"), "1,000 records");
    }

    #[test]
    fn a_length_of_time_has_at_most_two_units_and_rounds_down() {
        for (ms, text) in [
            (0, "0s"),
            (210, "210ms"),
            (37_999, "37s"),
            (60_000, "1m"),
            (302_000, "5m 02s"),
            (9_660_000, "2h 41m"),
            (18_120_000, "5h 02m"),
            (86_400_000, "1d"),
            (93_600_000, "1d 02h"),
        ] {
            assert_eq!(length(Millis::from_ms(ms)), text);
        }
        assert_eq!(about(39_001), "about 40s");
    }

    #[test]
    fn amounts_name_their_class_and_their_dimensions() {
        let class = Label::new("python").ok();
        assert_eq!(slots(1, class.as_ref()), "1 python slot");
        assert_eq!(slots(2, None), "2 slots");
        let asked = Amount {
            slots: 2,
            cpu_milli: 500,
            memory_bytes: 256 << 20,
            gpus: 1,
        };
        assert_eq!(
            amount(&asked, class.as_ref()),
            "2 python slots (cpu 500m, memory 256Mi, gpus 1)"
        );
        assert_eq!(value_of(Dimension::Slots, 1_000), "1,000 slots");
        assert_eq!(value_of(Dimension::Memory, 1 << 30), "memory 1Gi");
    }

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
