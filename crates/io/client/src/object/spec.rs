//! Declaration of the spec of a declared object.

/// Declares a spec: the struct with serde and schema, its `FIELDS` for the report of all mistakes,
/// and the conversions to and from the type of the plane.
///
/// A row has the field, its name in files, its type there, its kind with the reader of one value,
/// the setter and the getter of the plane's type.
macro_rules! spec {
    (
        $(#[$about:meta])*
        pub struct $name:ident of $target:ty {
            $(
                $(#[$with:meta])*
                $field:ident $wire:tt: $type:ident = $kind:ident $reader:tt, $set:expr, $show:expr;
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[$with])*
                #[serde(rename = $wire, default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )+
        }

        impl $name {
            pub(crate) const FIELDS: &'static [$crate::shape::Field] = &[
                $($crate::shape::Field::optional($wire, $crate::object::spec::spec!(@shape $kind $reader)),)+
            ];

            /// Spec of a target, with defaults.
            pub(crate) fn of(target: &$target) -> Self {
                $(let $field = $crate::object::spec::show(target, $show);)+
                Self { $($field),+ }
            }

            /// Sets the given fields of a target; `None` if a field has a mistake.
            pub(crate) fn put(&self, target: &mut $target) -> Option<()> {
                $(
                    if let Some(written) = &self.$field {
                        let read = $crate::object::spec::spec!(@read $kind $reader);
                        $crate::object::spec::put(target, read(written).ok()?, $set);
                    }
                )+
                Some(())
            }
        }
    };
    (@shape text($reader:path)) => { $crate::shape::Shape::Text(|text| $reader(text).map(drop)) };
    (@shape quantity($reader:path)) => {
        $crate::shape::Shape::Quantity(|text| $reader(text).map(drop))
    };
    (@shape whole($min:expr, $max:expr)) => {
        $crate::shape::Shape::Whole { min: $min, max: $max }
    };
    (@read whole($min:expr, $max:expr)) => {
        |number: &u64| {
            $crate::shape::check_whole(&number.to_string(), $min, $max).map(|()| *number)
        }
    };
    (@read $kind:ident($reader:path)) => { |text: &String| $reader(text) };
}

pub(crate) use spec;

pub(crate) fn put<T, V>(target: &mut T, value: V, set: impl Fn(&mut T, V)) {
    set(target, value);
}

pub(crate) fn show<T, W>(target: &T, show: impl Fn(&T) -> Option<W>) -> Option<W> {
    show(target)
}

/// Declares an object inside a declared object: the struct with serde and schema, and its `FIELDS`
/// for the report of all mistakes.
///
/// A row has the field, its name in files, its type there, its presence and its shape. A field that
/// is not `required` needs a serde default.
macro_rules! part {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $(
                $(#[$with:meta])*
                $field:ident $wire:tt: $type:ty = $presence:ident $shape:expr;
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[$with])*
                #[serde(rename = $wire)]
                pub $field: $type,
            )+
        }

        impl $name {
            pub(crate) const FIELDS: &'static [$crate::shape::Field] =
                &[$($crate::shape::Field::$presence($wire, $shape),)+];
        }
    };
}

pub(crate) use part;
