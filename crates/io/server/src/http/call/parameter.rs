//! Types of path parts, headers and query parameters.

use bursar_client::api::instant;
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem, whole_number};
use bursar_engine::Reference;
use bursar_journal::tile::Path as TilePath;
use bursar_units::{BookingId, INTEGER_MAX, Label, Millis, ObjectName};

use crate::service::{Cursor, Position, Since, no_subject};

/// A type that is parsed from a text of a request.
pub(crate) trait Parameter: Sized {
    /// Parses the parameter `name`; the problem names it.
    fn read(name: &str, text: &str) -> Result<Self, Problem>;
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

impl Parameter for Cursor {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        let message =
            "is not a cursor of this list; send `nextCursor` of the previous page unchanged";
        Self::parse(text).ok_or_else(|| invalid(name, message))
    }
}

impl Parameter for Position {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        let message = "is not `record.index`, as in `48212.1`";
        Self::parse(text).ok_or_else(|| invalid(name, message))
    }
}

/// `-1h` is a distance into the past; anything else is an instant.
impl Parameter for Since {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        match text.strip_prefix('-') {
            Some(back) => Millis::read(name, back).map(Self::Back),
            None => instant::parse(text)
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

pub(super) fn invalid(name: &str, message: impl Into<String>) -> Problem {
    Problem::invalid(vec![FieldError::new(name, message)])
}
