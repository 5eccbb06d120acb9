//! Integers in JSON: at most 2⁵³ − 1, which every JSON reader reads exactly.

use bursar_units::INTEGER_MAX;
use serde::{Deserialize as _, Deserializer};

/// Reads a required field.
pub fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    bounded(u64::deserialize(deserializer)?)
}

/// Reads a field that may be absent or null.
pub fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::<u64>::deserialize(deserializer)?
        .map(bounded)
        .transpose()
}

fn bounded<E: serde::de::Error>(value: u64) -> Result<u64, E> {
    if value <= INTEGER_MAX {
        Ok(value)
    } else {
        Err(E::custom(format_args!(
            "{value} is too large, at most {INTEGER_MAX} is allowed"
        )))
    }
}
