//! Names with rules: booking ids, object names, classes and tenants.
//!
//! The text is in an `Arc`, because the working state, the view, the queue and the deadlines share the
//! id of a booking.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::Instant;

/// Maximum bytes of a booking id, and maximum characters of a class or tenant (L9).
pub const ID_LENGTH_MAX: usize = 128;
/// Maximum bytes of an object's name, as in DNS (L9).
pub const OBJECT_NAME_LENGTH_MAX: usize = 253;
/// Maximum bytes of a pod's name: more than namespace, pod and container together.
pub const POD_NAME_LENGTH_MAX: usize = 512;

/// Error of a text that is not a name.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum NameError {
    /// The text is empty.
    #[error("must not be empty")]
    Empty,
    /// The text is too long.
    #[error("is {length} long, at most {max} is allowed")]
    TooLong {
        /// Its length.
        length: usize,
        /// The maximum.
        max: usize,
    },
    /// A namespaced name has no slash.
    #[error("must be NAMESPACE/NAME")]
    NoNamespace,
    /// A character is not allowed.
    #[error("has the character {character:?}; allowed are {allowed}")]
    Character {
        /// The first such character.
        character: char,
        /// Description of the allowed characters.
        allowed: &'static str,
    },
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and stores it.
            pub fn new(text: &str) -> Result<Self, NameError> {
                $check(text)?;
                Ok(Self(text.into()))
            }

            /// A name from the program itself, which must follow the rules.
            pub fn known(text: &'static str) -> Self {
                debug_assert!($check(text).is_ok(), "{text} is no name");
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a name")
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::new(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}

name! {
    /// The id of a booking, chosen by the client: 1–128 of `A–Z a–z 0–9 . _ : -` (L9).
    BookingId, check_id
}

name! {
    /// The name of a declared object, such as a limit: a DNS name of at most 253 bytes.
    ObjectName, check_object_name
}

name! {
    /// A class or a tenant: 1–128 characters of UTF-8 except control characters, white space and
    /// `* / , =`, which have a meaning in patterns, references and filters.
    Label, check_label
}

name! {
    /// A pod in the CPU market of a node: a cgroup, an execution, or `namespace/pod/container`;
    /// 1–512 bytes of UTF-8 except control characters and white space.
    PodName, check_pod_name
}

name! {
    /// A namespaced object such as a run: `NAMESPACE/NAME`, two object names.
    ScopedName, check_scoped_name
}

/// Namespace of objects that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

impl ScopedName {
    /// The object of that namespace and name.
    pub fn of(namespace: &ObjectName, name: &ObjectName) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.0
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The name in the namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

impl BookingId {
    /// The creation time of the id, if it ends in a `UUIDv7` (L6).
    pub fn made_at(&self) -> Option<Instant> {
        uuid_v7_time(&self.0)
    }
}

fn check_id(text: &str) -> Result<(), NameError> {
    check_length(text.len(), ID_LENGTH_MAX)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    check_characters(text, allowed, "letters, digits and . _ : -")
}

fn check_object_name(text: &str) -> Result<(), NameError> {
    const ALLOWED: &str = "lower-case letters, digits, - and . (not first or last)";
    check_length(text.len(), OBJECT_NAME_LENGTH_MAX)?;
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '.');
    check_characters(text, allowed, ALLOWED)?;
    let edge = |c: &char| matches!(c, '-' | '.');
    match text
        .chars()
        .next()
        .filter(edge)
        .or(text.chars().last().filter(edge))
    {
        Some(character) => Err(NameError::Character {
            character,
            allowed: ALLOWED,
        }),
        None => Ok(()),
    }
}

fn check_label(text: &str) -> Result<(), NameError> {
    check_length(text.chars().count(), ID_LENGTH_MAX)?;
    let allowed =
        |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '*' | '/' | ',' | '=');
    check_characters(
        text,
        allowed,
        "all but control characters, space and * / , =",
    )
}

fn check_pod_name(text: &str) -> Result<(), NameError> {
    check_length(text.len(), POD_NAME_LENGTH_MAX)?;
    let allowed = |c: char| !c.is_control() && !c.is_whitespace();
    check_characters(text, allowed, "all but control characters and white space")
}

fn check_scoped_name(text: &str) -> Result<(), NameError> {
    let Some((namespace, name)) = text.split_once('/') else {
        return Err(NameError::NoNamespace);
    };
    check_object_name(namespace)?;
    check_object_name(name)
}

fn check_length(length: usize, max: usize) -> Result<(), NameError> {
    match length {
        0 => Err(NameError::Empty),
        _ if length > max => Err(NameError::TooLong { length, max }),
        _ => Ok(()),
    }
}

fn check_characters(
    text: &str,
    allowed: impl Fn(char) -> bool,
    words: &'static str,
) -> Result<(), NameError> {
    match text.chars().find(|c| !allowed(*c)) {
        Some(character) => Err(NameError::Character {
            character,
            allowed: words,
        }),
        None => Ok(()),
    }
}

/// Parses the 48-bit millisecond time of a trailing `UUIDv7`, with or without hyphens.
fn uuid_v7_time(text: &str) -> Option<Instant> {
    let tail = |length: usize| {
        text.len()
            .checked_sub(length)
            .and_then(|from| text.get(from..))
    };
    let hyphenated = tail(36).filter(|uuid| {
        uuid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    });
    let hex: String = match hyphenated {
        Some(uuid) => uuid.chars().filter(|c| *c != '-').collect(),
        None => tail(32)
            .filter(|uuid| uuid.bytes().all(|b| b.is_ascii_hexdigit()))?
            .to_owned(),
    };
    let is_version_7 = hex.get(12..13) == Some("7");
    let is_rfc_variant = matches!(hex.get(16..17)?, "8" | "9" | "a" | "b" | "A" | "B");
    let ms = u64::from_str_radix(hex.get(..12)?, 16).ok()?;
    (is_version_7 && is_rfc_variant).then(|| Instant::from_ms(ms))
}

#[cfg(test)]
mod tests {
    use super::{BookingId, Label, NameError, ObjectName, PodName};
    use crate::Instant;

    #[test]
    fn names_keep_to_their_rules() {
        assert!(BookingId::new("job-9917.a_b:c").is_ok());
        assert_eq!(BookingId::new(""), Err(NameError::Empty));
        assert!(BookingId::new("ö").is_err() && BookingId::new("a b").is_err());
        assert!(BookingId::new(&"x".repeat(128)).is_ok());
        assert!(BookingId::new(&"x".repeat(129)).is_err());
        assert!(Label::new("größe").is_ok() && Label::new(&"ö".repeat(128)).is_ok());
        for text in ["a b", "a*", "a/b", "a,b", "a=b", "a\u{7}", "a\u{a0}b"] {
            assert!(Label::new(text).is_err(), "{text:?}");
        }
        assert!(ObjectName::new("python-3.12").is_ok());
        assert!(ObjectName::new("Python").is_err() && ObjectName::new("-a").is_err());
        assert!(ObjectName::new("a.").is_err());
        assert!(PodName::new("shop/api-7c9f/größe=1").is_ok());
        assert!(PodName::new("a b").is_err() && PodName::new("a\u{7}").is_err());
        assert!(PodName::new(&"x".repeat(513)).is_err() && PodName::new("").is_err());
    }

    #[test]
    fn an_id_that_ends_in_a_uuid_v7_knows_when_it_was_made() {
        let made = |text: &str| BookingId::new(text).ok().and_then(|id| id.made_at());
        let expected = Some(Instant::from_ms(0x0198_f3c2_1a2b));
        assert_eq!(made("exec-0198f3c2-1a2b-7abc-8def-0123456789ab"), expected);
        assert_eq!(made("0198f3c21a2b7abc8def0123456789ab"), expected);
        assert_eq!(made("exec-0198f3c2-1a2b-4abc-8def-0123456789ab"), None);
        assert_eq!(made("exec-0198f3c2-1a2b-7abc-cdef-0123456789ab"), None);
        assert_eq!(made("job-1"), None);
    }
}
