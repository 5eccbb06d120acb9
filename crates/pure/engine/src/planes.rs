//! Enums over the planes, in the form of the journal: an object with one key, the kind.
//!
//! ```text
//! {"reserve":{…}}      {"reportMarket":{…}}      {"tick":{}}
//! ```
//! [`kinds`] gets the kinds of a plane's enum from serde. The first plane with the kind of an
//! object reads its value, without a copy.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer as _, MapAccess,
    Visitor,
};

/// Declares an enum over the planes.
macro_rules! by_plane {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$about:meta])* $plane:ident($type:ty),)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
        #[serde(untagged)]
        pub enum $name {
            $($(#[$about])* $plane($type),)+
        }

        $(impl From<$type> for $name {
            fn from(of_plane: $type) -> Self {
                Self::$plane(of_plane)
            }
        })+

        impl $name {
            /// Known kind of that name.
            pub(crate) fn kind(name: &str) -> Option<&'static str> {
                let planes = [$($crate::planes::kinds::<$type>()),+];
                planes.into_iter().flatten().find(|kind| **kind == name).copied()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Kinds;

                impl<'de> serde::de::Visitor<'de> for Kinds {
                    type Value = $name;

                    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        formatter.write_str("an object with one key, its kind")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        let mut entry = $crate::planes::Entry::first(map, $name::kind)?;
                        $(if entry.is_of::<$type>() {
                            return entry.read::<$type>().map($name::$plane);
                        })+
                        Err(entry.unknown())
                    }
                }

                deserializer.deserialize_map(Kinds)
            }
        }
    };
}

pub(crate) use by_plane;

/// Kinds of an enum, by its serde names.
pub(crate) fn kinds<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let nothing: StrDeserializer<'_, Kinds> = "".into_deserializer();
    match T::deserialize(nothing) {
        Ok(_) => &[],
        Err(Kinds(kinds)) => kinds,
    }
}

/// Only entry of an object, after its key was read to choose the plane.
pub(crate) struct Entry<A> {
    kind: &'static str,
    is_read: bool,
    map: A,
}

impl<'de, A: MapAccess<'de>> Entry<A> {
    /// Reads the key; `known` looks a kind up.
    pub(crate) fn first(
        mut map: A,
        known: fn(&str) -> Option<&'static str>,
    ) -> Result<Self, A::Error> {
        let kind = map.next_key_seed(Known(known))?;
        let kind = kind.ok_or_else(|| de::Error::custom("an object without a kind"))?;
        Ok(Self {
            kind,
            is_read: false,
            map,
        })
    }

    pub(crate) fn is_of<T: Deserialize<'de>>(&self) -> bool {
        kinds::<T>().contains(&self.kind)
    }

    /// Reads the value and checks that it is the only one.
    pub(crate) fn read<T: Deserialize<'de>>(&mut self) -> Result<T, A::Error> {
        let value = T::deserialize(MapAccessDeserializer::new(&mut *self))?;
        match self.map.next_key::<IgnoredAny>()? {
            None => Ok(value),
            Some(_) => Err(de::Error::custom("an object with more than its kind")),
        }
    }

    /// Error for a kind that no plane has.
    pub(crate) fn unknown(&self) -> A::Error {
        de::Error::unknown_variant(self.kind, &[])
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entry<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        if std::mem::replace(&mut self.is_read, true) {
            return self.map.next_key_seed(seed);
        }
        let kind: StrDeserializer<'_, A::Error> = self.kind.into_deserializer();
        seed.deserialize(kind).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Reads a key as one of the known kinds.
struct Known(fn(&str) -> Option<&'static str>);

impl<'de> DeserializeSeed<'de> for Known {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Known {
    type Value = &'static str;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a kind")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<&'static str, E> {
        (self.0)(name).ok_or_else(|| E::unknown_variant(name, &[]))
    }
}

/// Error that carries the kinds of an enum; serde makes it for the unknown kind `""`.
#[derive(Debug, thiserror::Error)]
#[error("the value has none of the kinds")]
struct Kinds(&'static [&'static str]);

impl de::Error for Kinds {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, kinds: &'static [&'static str]) -> Self {
        Self(kinds)
    }
}
