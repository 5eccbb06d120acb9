//! Query parameters: each set is declared once, for the server, the client and `openapi.json`.

#![expect(
    clippy::result_large_err,
    reason = "a problem is moved a few times per refusal; boxing it would complicate every signature"
)]

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use bursar_engine::{Reference, reference};
use bursar_journal::tile::Path as TilePath;
use bursar_units::{BookingId, INTEGER_MAX, Instant, Label, Millis, ObjectName};

use super::{ExecutionOutcome, ExecutionState, LogStream, PAGE_MAX, State, instant};
use crate::problem::FieldError;
use crate::{Code, Problem, nearest, whole_number};

/// A type that is parsed from a text of a request: a path part, a header or a query parameter.
pub trait Parameter: Sized {
    /// Parses the parameter `name`; the problem names it.
    fn read(name: &str, text: &str) -> Result<Self, Problem>;

    /// Schema of the parameter in `openapi.json`.
    #[cfg(feature = "schema")]
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        <String as utoipa::PartialSchema>::schema()
    }
}

/// A set of query parameters, declared with `query!`.
pub trait Parameters: Sized {
    /// Their names.
    const NAMES: &'static [&'static str];

    /// Parses the texts of the parameters. A wrong value reads as absent and adds a problem.
    fn read<'a>(text: impl Fn(&str) -> Option<&'a str>, problems: &mut Vec<Problem>) -> Self;

    /// Calls `add` with the name and the value of each parameter that is present.
    fn write(&self, add: &mut dyn FnMut(&str, &dyn fmt::Display));
}

/// Declares a set of optional query parameters: its struct, [`Parameters`], and its part of
/// `openapi.json`, where the comment of a field is the description.
///
/// A row has the field, its name in the query and its type, and may have a [`Rule`] with the name of
/// another parameter.
macro_rules! query {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $($(#[doc = $line:literal])+
            $field:ident $wire:literal: $type:ty $(, $rule:ident $other:literal)?;)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, Eq, PartialEq)]
        pub struct $name {
            $($(#[doc = $line])+ pub $field: Option<$type>,)+
        }

        impl $crate::api::query::Parameters for $name {
            const NAMES: &'static [&'static str] = &[$($wire),+];

            fn read<'a>(
                text: impl Fn(&str) -> Option<&'a str>,
                problems: &mut Vec<$crate::Problem>,
            ) -> Self {
                $(let $field = text($wire).and_then(|value| {
                    let read = <$type as $crate::api::query::Parameter>::read($wire, value);
                    let read = read.map_err(|problem| problems.push(problem)).ok();
                    $(if let Some(other) = text($other) {
                        let rule = $crate::api::query::Rule::$rule;
                        let conflict = $crate::api::query::conflict;
                        problems.extend(conflict(rule, ($wire, value), ($other, other)));
                    })?
                    read
                });)+
                Self { $($field),+ }
            }

            fn write(&self, add: &mut dyn FnMut(&str, &dyn std::fmt::Display)) {
                $(if let Some(value) = &self.$field {
                    add($wire, value);
                })+
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::IntoParams for $name {
            fn into_params(
                _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
            ) -> Vec<utoipa::openapi::path::Parameter> {
                vec![$($crate::api::query::described(
                    $wire,
                    concat!($($line),+),
                    <$type as $crate::api::query::Parameter>::schema(),
                )),+]
            }
        }
    };
}

pub(crate) use query;

query! {
    /// One page of a list.
    pub struct Page {
        /// Maximum number of items.
        limit "limit": PageSize;
        /// `nextCursor` of the previous page.
        cursor "cursor": String;
    }
}

query! {
    /// The record that an answer must reflect.
    pub struct MinRecord {
        /// Wait until this record is reflected.
        min_record "minRecord": u64;
    }
}

query! {
    /// Choice of a dry run.
    pub struct DryRun {
        /// Return what would happen and change nothing.
        dry_run "dryRun": bool;
    }
}

/// Rule between a parameter and another one.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// The other one must be absent.
    Excludes,
    /// The two must have the same text.
    AliasOf,
}

/// Number of items of a page, from 1 to [`PAGE_MAX`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PageSize(pub u64);

/// Time that a request waits for a change, at most [`Wait::MAX`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wait(pub Duration);

/// A time in the past.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Since {
    /// Distance from now.
    Back(Millis),
    /// Absolute time.
    At(Instant),
}

/// Several words, separated by commas.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Words<T>(pub BTreeSet<T>);

impl Wait {
    /// Longest wait.
    pub const MAX: Duration = Duration::from_mins(5);
}

impl Since {
    /// The time, as milliseconds since the epoch, if it is `now_ms` now.
    pub const fn ms(self, now_ms: u64) -> u64 {
        match self {
            Self::Back(back) => now_ms.saturating_sub(back.ms()),
            Self::At(at) => at.ms(),
        }
    }
}

impl Parameter for String {
    fn read(_: &str, text: &str) -> Result<Self, Problem> {
        Ok(text.to_owned())
    }
}

impl Parameter for u64 {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        let number = text.parse();
        number.map_err(|_| invalid(name, whole_number(0, INTEGER_MAX)))
    }

    #[cfg(feature = "schema")]
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        <Self as utoipa::PartialSchema>::schema()
    }
}

impl Parameter for bool {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        let flag = text.parse();
        flag.map_err(|_| invalid(name, "must be `true` or `false`"))
    }

    #[cfg(feature = "schema")]
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        <Self as utoipa::PartialSchema>::schema()
    }
}

macro_rules! parsed {
    ($($type:ty),+) => {
        $(impl Parameter for $type {
            fn read(name: &str, text: &str) -> Result<Self, Problem> {
                text.parse().map_err(|error| invalid(name, format!("{error}")))
            }
        })+
    };
}

parsed!(BookingId, Label, Millis, ObjectName);

impl Parameter for PageSize {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        match text.parse() {
            Ok(size @ 1..=PAGE_MAX) => Ok(Self(size)),
            Ok(size) if PAGE_MAX < size => {
                let message = format!("is {size}, a page has at most {PAGE_MAX} items");
                Err(Problem {
                    errors: vec![FieldError::new(name, &message)],
                    ..Problem::new(Code::TooLarge, format!("{name} {message}"))
                })
            }
            _ => Err(invalid(name, whole_number(1, PAGE_MAX))),
        }
    }

    #[cfg(feature = "schema")]
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
        let integer = ObjectBuilder::new().schema_type(Type::Integer);
        let integer = integer.format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)));
        integer.minimum(Some(1)).maximum(Some(PAGE_MAX)).into()
    }
}

impl Parameter for Wait {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        let wait = Duration::from_millis(Millis::read(name, text)?.ms());
        if Self::MAX < wait {
            return Err(invalid(name, "must be at most 5m"));
        }
        Ok(Self(wait))
    }
}

/// `-1h` is a distance into the past; anything else is an instant.
impl Parameter for Since {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        match text.strip_prefix('-') {
            Some(back) => Millis::read(name, back).map(Self::Back),
            None => instant::parse(text)
                .or_else(|error| instant::of_date(text).ok_or(error))
                .map(Self::At)
                .map_err(|error| invalid(name, error.to_string())),
        }
    }
}

impl Parameter for Reference {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        text.parse().map_err(|error| no_subject(name, name, &error))
    }
}

/// A wrong path is `not-found`, like the path of a tile that does not exist.
impl Parameter for TilePath {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        let path = format!("tile/{text}").parse();
        path.map_err(|error| {
            let message = format!("{error}");
            Problem {
                errors: vec![FieldError::new(name, message.clone())],
                ..Problem::new(Code::NotFound, message)
            }
        })
    }
}

impl Parameter for LogStream {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        Self::from_word(text).ok_or_else(|| one_of(name, &Self::WORDS))
    }
}

macro_rules! words {
    ($($type:ty),+) => {
        $(impl Parameter for Words<$type> {
            fn read(name: &str, text: &str) -> Result<Self, Problem> {
                let values = text.split(',').map(<$type>::from_word).collect();
                let values: Option<_> = values;
                let message = || format!("is none of {}", quoted(&<$type>::WORDS).join(", "));
                values.map(Self).ok_or_else(|| invalid(name, message()))
            }
        })+
    };
}

words!(
    State,
    ExecutionState,
    ExecutionOutcome,
    bursar_engine::cluster::Stage
);

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        Millis::from_ms(ms).fmt(f)
    }
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Back(back) => write!(f, "-{back}"),
            Self::At(at) => f.write_str(&instant::format(*at)),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Words<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(T::to_string).collect();
        f.write_str(&words.join(","))
    }
}

impl<T: Ord, const N: usize> From<[T; N]> for Words<T> {
    fn from(values: [T; N]) -> Self {
        Self(values.into())
    }
}

/// Creates the problem of a wrong part of a request.
pub fn invalid(name: &str, message: impl Into<String>) -> Problem {
    Problem::invalid(vec![FieldError::new(name, message)])
}

/// Creates the problem of a text that is not a [`Reference`]. `kind_field` and `name_field` are the
/// fields of the request that hold its parts.
pub fn no_subject(kind_field: &str, name_field: &str, error: &reference::Error) -> Problem {
    let message = error.to_string();
    match error {
        reference::Error::Kind { kind, kinds } => {
            let kinds = kinds.iter().map(|kind| kind.word());
            Problem {
                suggestion: nearest(kind, kinds).map(str::to_owned),
                errors: vec![FieldError::new(kind_field, message.clone())],
                ..Problem::new(Code::NotFound, message)
            }
        }
        _ => Problem {
            errors: vec![FieldError::new(name_field, message.clone())],
            ..Problem::new(Code::Invalid, message)
        },
    }
}

/// Creates the problem of a text that is none of a few words.
pub(super) fn one_of(name: &str, words: &[&str]) -> Problem {
    invalid(name, format!("must be {}", quoted(words).join(" or ")))
}

/// Checks a rule between two parameters, given as name and text.
pub(super) fn conflict(
    rule: Rule,
    (name, text): (&str, &str),
    (other, other_text): (&str, &str),
) -> Option<Problem> {
    let message = match rule {
        Rule::Excludes => format!("cannot be used together with `{other}`"),
        Rule::AliasOf if text == other_text => return None,
        Rule::AliasOf => format!("is an alias of `{other}`; the two differ"),
    };
    Some(invalid(name, message))
}

#[cfg(feature = "schema")]
pub(super) fn described(
    name: &str,
    about: &str,
    schema: utoipa::openapi::RefOr<utoipa::openapi::Schema>,
) -> utoipa::openapi::path::Parameter {
    use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(utoipa::openapi::Required::False)
        .description(Some(about.trim()))
        .schema(Some(schema))
        .build()
}

fn quoted(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("`{word}`")).collect()
}
