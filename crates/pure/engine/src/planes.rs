//! Values of several planes in one list, as the journal has them: an object with one key, the kind.
//!
//! ```text
//! {"reserve":{…}}      {"reportMarket":{…}}      {"tick":{}}
//! ```
//! A plane's enum names its kinds once, and serde knows them: [`kinds`] asks it. The first plane that
//! has a kind reads the value, straight from the bytes.

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
            /// The known kind of that word.
            pub(crate) fn kind(word: &str) -> Option<&'static str> {
                let planes = [$($crate::planes::kinds::<$type>()),+];
                planes.into_iter().flatten().find(|kind| **kind == word).copied()
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

/// The kinds of an enum, as serde knows them.
pub(crate) fn kinds<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let nothing: StrDeserializer<'_, Kinds> = "".into_deserializer();
    match T::deserialize(nothing) {
        Ok(_) => &[],
        Err(Kinds(kinds)) => kinds,
    }
}

/// The only entry of an object, whose key was read to see which plane reads the value.
pub(crate) struct Entry<A> {
    kind: &'static str,
    is_read: bool,
    map: A,
}

impl<'de, A: MapAccess<'de>> Entry<A> {
    /// Reads the key; `known` says which kinds there are.
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

    /// Whether the kind is one of this enum.
    pub(crate) fn is_of<T: Deserialize<'de>>(&self) -> bool {
        kinds::<T>().contains(&self.kind)
    }

    /// Reads the value, and sees to it that nothing follows.
    pub(crate) fn read<T: Deserialize<'de>>(&mut self) -> Result<T, A::Error> {
        let value = T::deserialize(MapAccessDeserializer::new(&mut *self))?;
        match self.map.next_key::<IgnoredAny>()? {
            None => Ok(value),
            Some(_) => Err(de::Error::custom("an object with more than its kind")),
        }
    }

    /// No plane has the kind.
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

    fn visit_str<E: de::Error>(self, word: &str) -> Result<&'static str, E> {
        (self.0)(word).ok_or_else(|| E::unknown_variant(word, &[]))
    }
}

/// The kinds of an enum, on the way on which a failure comes back: an empty word is none of them.
#[derive(Debug, thiserror::Error)]
#[error("only the kinds were asked for")]
struct Kinds(&'static [&'static str]);

impl de::Error for Kinds {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, kinds: &'static [&'static str]) -> Self {
        Self(kinds)
    }
}
