//! Durations as text: `500ms`, `10s`, `5m`, `36h`, `7d`, and sums like `1h30m`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::{INTEGER_MAX, Millis};

/// Error of a text that is not a duration.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Error {
    /// Not a sum of whole numbers with units.
    #[error(
        "`{0}` is not a duration; write a whole number and a unit, as in 500ms, 10s, 5m, 36h or 7d"
    )]
    Form(String),
    /// Longer than [`INTEGER_MAX`] milliseconds.
    #[error("`{0}` is too long a duration")]
    TooLong(String),
}

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

impl FromStr for Millis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "0" {
            return Ok(Self::ZERO);
        }
        let form = || Error::Form(shorten(text));
        let mut rest = text;
        let mut total = 0_u64;
        while !rest.is_empty() {
            let (digits, tail) = split_while(rest, |c| c.is_ascii_digit());
            let (unit, tail) = split_while(tail, |c| c.is_ascii_alphabetic());
            if digits.is_empty() {
                return Err(form());
            }
            let (_, unit_ms) = UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .ok_or_else(form)?;
            let too_long = || Error::TooLong(shorten(text));
            let count: u64 = digits.parse().map_err(|_| too_long())?;
            total = count
                .checked_mul(*unit_ms)
                .and_then(|ms| ms.checked_add(total))
                .filter(|ms| *ms <= INTEGER_MAX)
                .ok_or_else(too_long)?;
            rest = tail;
        }
        if text.is_empty() {
            Err(form())
        } else {
            Ok(Self::from_ms(total))
        }
    }
}

/// The exact length with the fewest units: `90s` is `1m30s`, `86400s` is `1d`.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ms() == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.ms();
        for (name, unit_ms) in UNITS {
            if let count @ 1.. = rest / unit_ms {
                write!(f, "{count}{name}")?;
                rest %= unit_ms;
            }
        }
        Ok(())
    }
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !keep(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// An error must not repeat a megabyte of input.
fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::Error;
    use crate::Millis;

    #[test]
    fn durations_read_and_write_exactly() {
        for (text, ms) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("36h", 129_600_000),
            ("7d", 604_800_000),
            ("1h30m", 5_400_000),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Millis::from_ms(ms)), "{text}");
            let written = Millis::from_ms(ms).to_string();
            assert_eq!(written.parse(), Ok(Millis::from_ms(ms)), "{written}");
        }
        for text in ["", "5", "m", "-5s", "5 s", "1.5h", "5sec", "5S"] {
            assert!(
                matches!(text.parse::<Millis>(), Err(Error::Form(_))),
                "{text}"
            );
        }
        assert!(matches!(
            "99999999999999999999d".parse::<Millis>(),
            Err(Error::TooLong(_))
        ));
    }
}
