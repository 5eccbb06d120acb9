//! Objects that are read as objects only.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A `T` that is read from a JSON object. A derived reader alone takes a list of the fields'
/// values too, in the order in which they are declared.
///
/// Every request body is read through this, and every object in one that is a type of ours.
pub(crate) struct Fields<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Fields<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = Fields<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Fields<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Fields)
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}
