//! Instants in JSON: RFC 3339, UTC, milliseconds.
//!
//! An instant after the year 9999 means "never" and is written as the last moment of that year.

use bursar_units::Instant;
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde::de::Visitor;
use serde::{Deserializer, Serializer};
use thiserror::Error;

/// Error of a text that is not an instant.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[error("`{0}` is not an instant; write it as in 2026-11-16T10:00:00Z")]
pub struct NotAnInstant(String);

static PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// Formats an instant.
pub fn format(instant: Instant) -> String {
    let ms = i64::try_from(instant.ms()).unwrap_or(i64::MAX);
    PRINTER.timestamp_to_string(&Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX))
}

/// Reads an instant in any offset, rounded down to a millisecond; refuses instants before 1970.
pub fn parse(text: &str) -> Result<Instant, NotAnInstant> {
    let ms = text
        .parse::<Timestamp>()
        .ok()
        .map(Timestamp::as_millisecond);
    ms.and_then(|ms| u64::try_from(ms).ok())
        .map(Instant::from_ms)
        .ok_or_else(|| NotAnInstant(text.chars().take(40).collect()))
}

/// Reads a date, as in `2026-11-16`: its first moment in UTC.
pub fn of_date(text: &str) -> Option<Instant> {
    (text.len() == "2026-11-16".len()).then_some(())?;
    parse(&format!("{text}T00:00:00Z")).ok()
}

/// Writes a required field.
pub fn serialize<S: Serializer>(instant: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*instant))
}

/// Reads a required field.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Instant, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = Instant;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an instant as in 2026-11-16T10:00:00Z")
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Instant, E> {
            parse(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_str(Text)
}

/// Fields that may be absent.
pub mod optional {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::{Instant, format, parse};

    /// Writes a field. Absent fields are skipped by `skip_serializing_if`.
    pub fn serialize<S: Serializer>(
        instant: &Option<Instant>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match instant {
            Some(instant) => serializer.serialize_str(&format(*instant)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a field that may be absent or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Instant>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| parse(&text).map_err(D::Error::custom))
            .transpose()
    }
}
