//! Enums with one word per variant, for journal, API, command line and metrics.

/// Declares an enum with a word for each variant.
///
/// ```
/// bursar_units::vocabulary! {
///     /// Colours of a traffic light.
///     pub enum Colour {
///         /// Stop.
///         Red = "red",
///         /// Go.
///         Green = "green",
///     }
/// }
/// assert_eq!(Colour::ALL.map(Colour::word), ["red", "green"]);
/// assert_eq!(Colour::from_word("green"), Some(Colour::Green));
/// assert_eq!(Colour::from_word("blue"), None);
/// ```
///
/// The order of the variants is the order of the values and of `ALL`. The serde form is the word.
#[macro_export]
macro_rules! vocabulary {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$about:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
        $visibility enum $name {
            $($(#[$about])* $variant,)+
        }

        impl $name {
            /// All of them, in their order.
            $visibility const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Their words, in the same order.
            $visibility const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];

            /// Its word.
            $visibility const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The value of a word.
            $visibility fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                formatter.pad(self.word())
            }
        }

        impl $crate::vocabulary::serde::Serialize for $name {
            fn serialize<S: $crate::vocabulary::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl<'de> $crate::vocabulary::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::vocabulary::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::core::result::Result<Self, D::Error> {
                $crate::vocabulary::read(deserializer, Self::from_word, &Self::WORDS)
            }
        }
    };
}

use std::fmt;

use ::serde::Deserializer;
use ::serde::de::{Error, Visitor};

#[doc(hidden)]
pub use serde;

/// Deserializes the word of an enum.
#[doc(hidden)]
pub fn read<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    from_word: fn(&str) -> Option<T>,
    words: &'static [&'static str],
) -> Result<T, D::Error> {
    deserializer.deserialize_str(Word { from_word, words })
}

struct Word<T> {
    from_word: fn(&str) -> Option<T>,
    words: &'static [&'static str],
}

impl<T> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "one of {}", self.words.join(", "))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
        (self.from_word)(word).ok_or_else(|| E::unknown_variant(word, self.words))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    crate::vocabulary! {
        /// Colours of a traffic light.
        enum Colour {
            /// Stop.
            Red = "red",
            /// Stop soon.
            Amber = "dark-yellow",
            /// Go.
            Green = "green",
        }
    }

    #[test]
    fn every_word_is_read_back_as_the_value_that_wrote_it() {
        assert_eq!(Colour::WORDS, ["red", "dark-yellow", "green"]);
        assert_eq!(Colour::ALL.map(Colour::word), Colour::WORDS);
        assert!(Colour::ALL.is_sorted());
        for colour in Colour::ALL {
            let word = colour.word();
            assert_eq!(Colour::from_word(word), Some(colour));
            assert_eq!(colour.to_string(), word);
            let text = serde_json::to_string(&colour).unwrap();
            assert_eq!(text, format!("\"{word}\""));
            assert_eq!(serde_json::from_str::<Colour>(&text).unwrap(), colour);
        }
        assert_eq!(format!("{:>6}", Colour::Red), "   red");
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_list_of_known_ones() {
        for word in ["blue", "Red", "Amber", "red ", ""] {
            assert_eq!(Colour::from_word(word), None);
            let refusal = serde_json::from_str::<Colour>(&format!("\"{word}\"")).unwrap_err();
            let expected =
                format!("unknown variant `{word}`, expected one of `red`, `dark-yellow`, `green`");
            assert!(refusal.to_string().starts_with(&expected), "{refusal}");
        }
        for text in ["0", "null", "[\"red\"]", "{\"red\":null}"] {
            let refusal = serde_json::from_str::<Colour>(text).unwrap_err();
            let expected = "expected one of red, dark-yellow, green";
            assert!(refusal.to_string().contains(expected), "{refusal}");
        }
    }
}
