//! Kubernetes quantities: `500m`, `1.5`, `256Mi`, `2e3`, `8Ei`.
//!
//! CPU becomes whole millicores and memory whole bytes, both rounded **up**, as in Kubernetes: a
//! fraction of the smallest unit is charged as a whole one.

use thiserror::Error;

use crate::INTEGER_MAX;

/// Error of a text that is not a quantity.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Error {
    /// Not a number with a Kubernetes suffix.
    #[error("`{0}` is not a quantity; write it as in 500m, 2, 1.5, 256Mi or 4Gi")]
    Form(String),
    /// Below zero.
    #[error("`{0}` is negative")]
    Negative(String),
    /// Larger than [`INTEGER_MAX`].
    #[error("`{0}` is too large")]
    TooLarge(String),
    /// More significant digits than supported.
    #[error("`{0}` has more than 18 significant digits")]
    TooPrecise(String),
}

/// Maximum number of significant digits: more than any valid quantity needs.
const DIGITS_MAX: usize = 18;

/// Parses CPU as millicores, rounded up.
pub fn cpu_milli(text: &str) -> Result<u64, Error> {
    parse(text, 3)
}

/// Parses memory as bytes, rounded up.
pub fn memory_bytes(text: &str) -> Result<u64, Error> {
    parse(text, 0)
}

/// Formats millicores like Kubernetes: `1500m`, `2`.
pub fn format_cpu(milli: u64) -> String {
    if milli.is_multiple_of(1_000) {
        (milli / 1_000).to_string()
    } else {
        format!("{milli}m")
    }
}

/// Formats bytes with the largest exact binary suffix: `256Mi`, `1000`.
pub fn format_memory(bytes: u64) -> String {
    const SUFFIXES: [(&str, u32); 6] = [
        ("Ei", 60),
        ("Pi", 50),
        ("Ti", 40),
        ("Gi", 30),
        ("Mi", 20),
        ("Ki", 10),
    ];
    SUFFIXES
        .iter()
        .find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(
            || bytes.to_string(),
            |(suffix, shift)| format!("{}{suffix}", bytes >> shift),
        )
}

/// Parses `text` as a whole number of 10^−`scale`, rounded up.
fn parse(text: &str, scale: i32) -> Result<u64, Error> {
    let shown = || text.chars().take(40).collect::<String>();
    let form = || Error::Form(shown());
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(form());
    }
    let (binary_shift, exponent) = suffix_power(suffix).ok_or_else(form)?;
    let digits: String = whole
        .chars()
        .chain(fraction.chars())
        .skip_while(|c| *c == '0')
        .collect();
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Ok(0);
    }
    if text.starts_with('-') {
        return Err(Error::Negative(shown()));
    }
    let too_precise = || Error::TooPrecise(shown());
    if significant.len() > DIGITS_MAX {
        return Err(too_precise());
    }
    let length = |text: &str| i32::try_from(text.len()).unwrap_or(i32::MAX);
    let power = exponent
        .saturating_add(scale)
        .saturating_add(length(&digits).saturating_sub(length(significant)))
        .saturating_sub(length(fraction));
    rounded_up(
        significant.parse().map_err(|_| too_precise())?,
        binary_shift,
        power,
    )
    .filter(|value| *value <= INTEGER_MAX)
    .ok_or_else(|| Error::TooLarge(shown()))
}

fn suffix_power(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            let sign = if exponent.starts_with('-') { -1 } else { 1 };
            let size: i32 = digits.parse().unwrap_or(i32::MAX);
            is_number.then(|| (0, size.saturating_mul(sign)))?
        }
    })
}

/// ⌈digits · 2^shift · 10^power⌉, or `None` beyond `u64`. 18 digits times 2⁶⁰ are below 2¹²⁰; a power
/// that overflows u128 determines the result alone.
fn rounded_up(digits: u64, shift: u32, power: i32) -> Option<u64> {
    let value = u128::from(digits) << shift;
    let factor = 10_u128.checked_pow(power.unsigned_abs());
    match (power < 0, factor) {
        (true, Some(divisor)) => u64::try_from(value.div_ceil(divisor)).ok(),
        (true, None) => Some(1),
        (false, Some(factor)) => u64::try_from(value.checked_mul(factor)?).ok(),
        (false, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, cpu_milli, format_cpu, format_memory, memory_bytes};

    #[test]
    fn quantities_read_as_kubernetes_reads_them_rounded_up() {
        let cpu = |text: &str| cpu_milli(text).ok();
        assert_eq!(cpu("500m"), Some(500));
        assert_eq!(cpu("1.5"), Some(1_500));
        assert_eq!(cpu("0.0001"), Some(1));
        assert_eq!(cpu("2e3"), Some(2_000_000));
        assert_eq!(cpu("1e-9999999999"), Some(1));
        assert_eq!(cpu("0e9999999999"), Some(0));
        assert_eq!(cpu("+.5"), Some(500));
        let memory = |text: &str| memory_bytes(text).ok();
        assert_eq!(memory("256Mi"), Some(268_435_456));
        assert_eq!(memory("1.5Gi"), Some(1_610_612_736));
        assert_eq!(memory("100m"), Some(1));
        assert_eq!(memory("7Pi"), Some(7 << 50));
    }

    #[test]
    fn wrong_quantities_say_what_is_wrong() {
        for text in [
            "", ".", "1.2.3", "5 Gi", "Gi", "1e", "1eE", "five", "1ki", "0x10", "1_000",
        ] {
            assert!(matches!(memory_bytes(text), Err(Error::Form(_))), "{text}");
        }
        assert!(matches!(cpu_milli("-1"), Err(Error::Negative(_))));
        assert_eq!(cpu_milli("-0"), Ok(0));
        for text in ["8Ei", "1e40", "9007199254740992"] {
            assert!(
                matches!(memory_bytes(text), Err(Error::TooLarge(_))),
                "{text}"
            );
        }
        assert!(matches!(
            memory_bytes("1.2345678901234567891"),
            Err(Error::TooPrecise(_))
        ));
    }

    #[test]
    fn formatted_quantities_parse_to_the_same_value() {
        for value in [
            0,
            1,
            999,
            1_000,
            1_024,
            1_500,
            1 << 30,
            (1 << 30) + 1,
            3 << 40,
        ] {
            assert_eq!(cpu_milli(&format_cpu(value)), Ok(value));
            assert_eq!(memory_bytes(&format_memory(value)), Ok(value));
        }
    }
}
