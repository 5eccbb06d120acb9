//! Formats numbers for people.

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

#[cfg(test)]
mod tests {
    use super::{count, number};

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
}
