//! Query parameters: each is known, read once, and of its own type.

use std::collections::BTreeSet;

use axum::extract::Query as Pairs;
use bursar_client::api::{PAGE_DEFAULT, PAGE_MAX};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem, whole_number};
use bursar_units::{BookingId, INTEGER_MAX, Label, Millis};
use http::Uri;

/// What follows the `?`.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(uri: &Uri) -> Result<Self, Problem> {
        if uri.query().is_none_or(str::is_empty) {
            return Ok(Self(Vec::new()));
        }
        match Pairs::<Vec<(String, String)>>::try_from_uri(uri) {
            // Bytes that are no text arrive as the character that stands for them.
            Ok(Pairs(pairs))
                if !pairs
                    .iter()
                    .any(|(name, value)| is_broken(name) || is_broken(value)) =>
            {
                Ok(Self(pairs))
            }
            _ => Err(invalid(
                "query",
                "is not a list of name=value, percent-encoded as UTF-8",
            )),
        }
    }

    /// Refuses parameters that are not of this address: a typo must not be ignored.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        self.parameters(known).end()
    }

    /// The parameters of an address, to be read together.
    pub(super) fn parameters(&self, known: &[&str]) -> Parameters<'_> {
        let mistakes = self.0.iter().enumerate().filter_map(|(at, (name, _))| {
            if !known.contains(&name.as_str()) {
                let near = crate::service::nearest_name(name, known.iter().copied());
                return Some(FieldError {
                    suggestion: near.map(|near| format!("did you mean `{near}`?")),
                    ..FieldError::new(name, "is not a parameter of this address")
                });
            }
            let is_again = self.0.iter().take(at).any(|(earlier, _)| earlier == name);
            is_again.then(|| FieldError::new(name, "is given twice"))
        });
        Parameters {
            query: self,
            mistakes: mistakes.collect(),
            too_large: None,
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// A parameter of a type of its own.
    pub(super) fn read<T: Parameter>(&self, name: &str) -> Result<Option<T>, Problem> {
        self.one(|query| query.read(name))
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        self.one(|query| query.flag(name))
    }

    /// How many items a page has.
    pub(super) fn page(&self) -> Result<usize, Problem> {
        self.one(Parameters::page)
    }

    pub(super) fn min_record(&self) -> Result<Option<u64>, Problem> {
        self.read("minRecord")
    }

    fn one<'a, T>(&'a self, read: impl FnOnce(&mut Parameters<'a>) -> T) -> Result<T, Problem> {
        let mut query = Parameters {
            query: self,
            mistakes: Vec::new(),
            too_large: None,
        };
        let value = read(&mut query);
        query.end().map(|()| value)
    }
}

/// A type that a parameter may have, with what is wrong with a text that is none.
pub(super) trait Parameter: Sized {
    fn parameter(text: &str) -> Result<Self, String>;
}

impl Parameter for u64 {
    fn parameter(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| whole_number(0, INTEGER_MAX))
    }
}

impl Parameter for Millis {
    fn parameter(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error| format!("{error}"))
    }
}

impl Parameter for Label {
    fn parameter(text: &str) -> Result<Self, String> {
        Self::new(text).map_err(|error| error.to_string())
    }
}

impl Parameter for BookingId {
    fn parameter(text: &str) -> Result<Self, String> {
        Self::new(text).map_err(|error| error.to_string())
    }
}

/// Parameters that are read together. A wrong one reads as absent, and [`Parameters::end`] refuses
/// the request with every mistake.
pub(super) struct Parameters<'a> {
    query: &'a Query,
    mistakes: Vec<FieldError>,
    too_large: Option<Problem>,
}

impl<'a> Parameters<'a> {
    /// A parameter as it is written.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.query.get(name)
    }

    /// A parameter of a type of its own.
    pub(super) fn read<T: Parameter>(&mut self, name: &str) -> Option<T> {
        let read = T::parameter(self.text(name)?);
        read.map_err(|message| self.mistake(name, &message)).ok()
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.text(name) {
            None | Some("false") => false,
            Some("true" | "") => true,
            Some(_) => {
                self.mistake(name, "is neither `true` nor `false`");
                false
            }
        }
    }

    /// The values that some words with commas name.
    pub(super) fn chosen<T: Copy + Ord>(&mut self, name: &str, all: &[(&str, T)]) -> BTreeSet<T> {
        let words = self.text(name).into_iter().flat_map(|text| text.split(','));
        let mut chosen = BTreeSet::new();
        for wanted in words {
            let Some((_, value)) = all.iter().find(|(word, _)| *word == wanted) else {
                let words: Vec<String> = all.iter().map(|(word, _)| format!("`{word}`")).collect();
                self.mistake(name, &format!("is none of {}", words.join(", ")));
                break;
            };
            chosen.insert(*value);
        }
        chosen
    }

    /// How many items a page has.
    pub(super) fn page(&mut self) -> usize {
        let limit = match self.text("limit").map(str::parse) {
            None => PAGE_DEFAULT,
            Some(Ok(limit @ 1..=PAGE_MAX)) => limit,
            Some(Ok(limit)) if PAGE_MAX < limit => {
                let detail = format!("limit is {limit}, a page has at most {PAGE_MAX} items");
                self.too_large = Some(Problem::new(Code::TooLarge, detail));
                PAGE_DEFAULT
            }
            Some(_) => {
                self.mistake("limit", &whole_number(1, PAGE_MAX));
                PAGE_DEFAULT
            }
        };
        usize::try_from(limit).unwrap_or(usize::MAX)
    }

    /// Notes what is wrong with a parameter.
    pub(super) fn mistake(&mut self, name: &str, message: &str) {
        self.mistakes.push(FieldError::new(name, message));
    }

    /// Refuses what has mistakes, with all of them.
    pub(super) fn end(self) -> Result<(), Problem> {
        match (self.mistakes.is_empty(), self.too_large) {
            (false, _) => Err(Problem::invalid(self.mistakes)),
            (true, Some(problem)) => Err(problem),
            (true, None) => Ok(()),
        }
    }
}

/// One wrong parameter.
pub(super) fn invalid(name: &str, message: &str) -> Problem {
    Problem::invalid(vec![FieldError::new(name, message)])
}

fn is_broken(text: &str) -> bool {
    text.contains(char::REPLACEMENT_CHARACTER)
}
