//! One definition of what a declared object says.

/// Declares a spec: the struct that travels with its schema, the shape that names all mistakes in
/// it, and the ways into the plane's own type and back.
///
/// A row has the field, its name in files, its type there and its kind with the reader of one value;
/// then what the plane's type does with the value, and how it shows the value again.
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
            /// All fields, with what each may say.
            pub(crate) const FIELDS: &'static [$crate::shape::Field] = &[
                $($crate::shape::Field::optional($wire, $crate::object::spec::spec!(@shape $kind $reader)),)+
            ];

            /// What people would write, with defaults shown.
            pub(crate) fn of(target: &$target) -> Self {
                $(let $field = $crate::object::spec::show(target, $show);)+
                Self { $($field),+ }
            }

            /// Puts into a target what is written; `None` where a field says what it may not.
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
