//! Declaration and reading of objects in requests.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A `T` that is read from a JSON object only. A derived reader alone would also accept a list of
/// the values of the fields. All request bodies and all objects in them are read through this type.
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

/// Declares an object of a request: its struct with serde and schema, its `FIELDS` for the report
/// of all mistakes, and a constructor from the required fields.
///
/// A row has the field, its name in JSON, its type and its shape. An `optional` field may be absent
/// or null; a `defaulted` field may be absent and then has the value at the end of the row.
macro_rules! object {
    (
        $(#[$about:meta])*
        pub struct $name:ident { $($rows:tt)* }
    ) => {
        object!(@rows [$(#[$about])* pub struct $name] $name [] [] [] [] $($rows)*);
    };
    (@rows $head:tt $name:ident [$($fields:tt)*] [$($shapes:tt)*] [$($required:tt)*] [$($values:tt)*]
        $(#[$with:meta])* required $field:ident $wire:tt: $type:ty = $shape:expr; $($rows:tt)*
    ) => {
        object!(@rows $head $name
            [$($fields)* $(#[$with])* #[serde(rename = $wire)] pub $field: $type,]
            [$($shapes)* $crate::shape::Field::required($wire, $shape),]
            [$($required)* $field: $type,]
            [$($values)* $field,]
            $($rows)*);
    };
    (@rows $head:tt $name:ident [$($fields:tt)*] [$($shapes:tt)*] $required:tt [$($values:tt)*]
        $(#[$with:meta])* optional $field:ident $wire:tt: $type:ty = $shape:expr; $($rows:tt)*
    ) => {
        object!(@rows $head $name
            [$($fields)*
                $(#[$with])*
                #[serde(rename = $wire, default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,]
            [$($shapes)* $crate::shape::Field::optional($wire, $shape),]
            $required
            [$($values)* $field: None,]
            $($rows)*);
    };
    (@rows $head:tt $name:ident [$($fields:tt)*] [$($shapes:tt)*] $required:tt [$($values:tt)*]
        $(#[$with:meta])* defaulted $field:ident $wire:tt: $type:ty = $shape:expr, $value:expr;
        $($rows:tt)*
    ) => {
        object!(@rows $head $name
            [$($fields)* $(#[$with])* #[serde(rename = $wire)] pub $field: $type,]
            [$($shapes)* $crate::shape::Field::defaulted($wire, $shape),]
            $required
            [$($values)* $field: $value,]
            $($rows)*);
    };
    (@rows [$($head:tt)*] $name:ident [$($fields:tt)*] [$($shapes:tt)*] [$($required:tt)*] [$($values:tt)*]) => {
        $($head)* { $($fields)* }

        impl $name {
            pub(crate) const FIELDS: &'static [$crate::shape::Field] = &[$($shapes)*];

            /// A request with the required fields only.
            pub fn new($($required)*) -> Self {
                Self { $($values)* }
            }
        }
    };
}

pub(crate) use object;
