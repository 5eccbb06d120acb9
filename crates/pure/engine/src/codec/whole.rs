//! Whole numbers as a record may carry them: above 2⁵³ − 1 as a decimal string (L7).

use std::fmt;

use bursar_units::INTEGER_MAX;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Any `u64`; each has one spelling.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Whole(pub(super) u64);

impl From<u64> for Whole {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<Whole> for u64 {
    fn from(whole: Whole) -> Self {
        whole.0
    }
}

impl Serialize for Whole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 <= INTEGER_MAX {
            serializer.serialize_u64(self.0)
        } else {
            serializer.collect_str(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Number)
    }
}

struct Number;

impl Visitor<'_> for Number {
    type Value = Whole;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number, as a decimal string above 2^53 - 1")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Whole, E> {
        if value <= INTEGER_MAX {
            Ok(Whole(value))
        } else {
            Err(E::custom(format_args!(
                "{value} is above 2^53 - 1 and must be a string"
            )))
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Whole, E> {
        let value: u64 = text.parse().map_err(E::custom)?;
        let is_its_spelling = value > INTEGER_MAX && value.to_string() == text;
        is_its_spelling
            .then_some(Whole(value))
            .ok_or_else(|| E::custom(format_args!("`{text}` is not how a record writes {value}")))
    }
}
