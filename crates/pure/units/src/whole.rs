//! Serde form of whole numbers in records: a decimal string above 2⁵³ − 1 (L7).
//!
//! For `#[serde(with = "whole")]` on a `u64`, `whole::optional` on an `Option<u64>`, and `whole::list`
//! on a `Vec<u64>`. Each number has one spelling; any other is refused.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::INTEGER_MAX;

/// Serializes a number.
pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    if *value <= INTEGER_MAX {
        serializer.serialize_u64(*value)
    } else {
        serializer.collect_str(value)
    }
}

/// Deserializes a number.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(Number)
}

/// The same for an optional number.
pub mod optional {
    use std::fmt;

    use serde::de::{Deserializer, Visitor};
    use serde::{Serialize, Serializer};

    use super::Whole;

    /// Serializes an optional number.
    pub fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(Whole).serialize(serializer)
    }

    /// Deserializes an optional number.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        struct Present;

        impl<'de> Visitor<'de> for Present {
            type Value = Option<u64>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(super::EXPECTED)
            }

            fn visit_none<E>(self) -> Result<Option<u64>, E> {
                Ok(None)
            }

            fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<Option<u64>, D::Error> {
                super::deserialize(value).map(Some)
            }
        }

        deserializer.deserialize_option(Present)
    }
}

/// The same for a list of numbers.
pub mod list {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Whole;

    /// Serializes a list of numbers.
    pub fn serialize<S: Serializer>(value: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(value.iter().copied().map(Whole))
    }

    /// Deserializes a list of numbers.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        let list = Vec::<Whole>::deserialize(deserializer)?;
        Ok(list.into_iter().map(|Whole(value)| value).collect())
    }
}

/// A number inside another type.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Whole(#[serde(with = "crate::whole")] u64);

const EXPECTED: &str = "a whole number, as a decimal string above 2^53 - 1";

struct Number;

impl Visitor<'_> for Number {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(EXPECTED)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        if value <= INTEGER_MAX {
            Ok(value)
        } else {
            Err(E::custom(format_args!(
                "{value} is above 2^53 - 1 and must be a string"
            )))
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let value: u64 = text.parse().map_err(E::custom)?;
        let is_its_spelling = value > INTEGER_MAX && value.to_string() == text;
        is_its_spelling
            .then_some(value)
            .ok_or_else(|| E::custom(format_args!("`{text}` is not how a record writes {value}")))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use serde::{Deserialize, Serialize};

    use crate::INTEGER_MAX;

    #[derive(Debug, Eq, PartialEq, Serialize, Deserialize)]
    struct One(#[serde(with = "super")] u64);

    #[derive(Debug, Eq, PartialEq, Serialize, Deserialize)]
    struct Maybe {
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "super::optional"
        )]
        n: Option<u64>,
    }

    #[derive(Debug, Eq, PartialEq, Serialize, Deserialize)]
    struct Many(#[serde(with = "super::list")] Vec<u64>);

    #[test]
    fn each_number_is_read_back_from_its_one_spelling() {
        for (number, text) in [
            (0, "0"),
            (INTEGER_MAX, "9007199254740991"),
            (INTEGER_MAX + 1, "\"9007199254740992\""),
            (u64::MAX, "\"18446744073709551615\""),
        ] {
            assert_eq!(serde_json::to_string(&One(number)).unwrap(), text);
            assert_eq!(serde_json::from_str::<One>(text).unwrap(), One(number));
            let (maybe, object) = (Maybe { n: Some(number) }, format!("{{\"n\":{text}}}"));
            assert_eq!(serde_json::to_string(&maybe).unwrap(), object);
            assert_eq!(serde_json::from_str::<Maybe>(&object).unwrap(), maybe);
            let (many, array) = (Many(vec![number, 7]), format!("[{text},7]"));
            assert_eq!(serde_json::to_string(&many).unwrap(), array);
            assert_eq!(serde_json::from_str::<Many>(&array).unwrap(), many);
        }
        let none = Maybe { n: None };
        assert_eq!(serde_json::to_string(&none).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<Maybe>("{}").unwrap(), none);
    }

    #[test]
    fn another_spelling_of_a_number_is_refused() {
        for text in [
            "\"0\"",
            "\"9007199254740991\"",
            "9007199254740992",
            "18446744073709551615",
            "18446744073709551616",
            "\"18446744073709551616\"",
            "\"+9007199254740992\"",
            "\"09007199254740992\"",
            "\" 9007199254740992\"",
            "\"9007199254740992.0\"",
            "\"\"",
            "-1",
            "1.0",
            "1e3",
            "true",
            "[1]",
        ] {
            assert!(serde_json::from_str::<One>(text).is_err(), "{text}");
            let object = format!("{{\"n\":{text}}}");
            assert!(serde_json::from_str::<Maybe>(&object).is_err(), "{text}");
            let array = format!("[7,{text}]");
            assert!(serde_json::from_str::<Many>(&array).is_err(), "{text}");
        }
    }
}
