//! Query parameters: each is known, read once, and of its own type.

use axum::extract::Query as Pairs;
use bursar_client::Code;
use bursar_client::Problem;
use bursar_client::api::{PAGE_DEFAULT, PAGE_MAX};
use bursar_client::problem::FieldError;
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
        let mistakes: Vec<FieldError> = self
            .0
            .iter()
            .enumerate()
            .filter_map(|(at, (name, _))| {
                if !known.contains(&name.as_str()) {
                    let near = crate::service::nearest_name(name, known.iter().copied());
                    return Some(FieldError {
                        suggestion: near.map(|near| format!("did you mean `{near}`?")),
                        ..FieldError::new(name, "is not a parameter of this address")
                    });
                }
                let is_again = self.0.iter().take(at).any(|(earlier, _)| earlier == name);
                is_again.then(|| FieldError::new(name, "is given twice"))
            })
            .collect();
        if mistakes.is_empty() {
            Ok(())
        } else {
            Err(Problem::invalid(mistakes))
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// A parameter of a type of its own.
    pub(super) fn read<T>(&self, name: &str) -> Result<Option<T>, Problem>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        self.get(name)
            .map(|value| {
                value
                    .parse()
                    .map_err(|error: T::Err| invalid(name, &error.to_string()))
            })
            .transpose()
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(_) => Err(invalid(name, "is neither `true` nor `false`")),
        }
    }

    /// How many items a page has.
    pub(super) fn page(&self) -> Result<usize, Problem> {
        match self.read::<u64>("limit")? {
            Some(0) => Err(invalid("limit", "is 0; a page has at least one item")),
            Some(limit) if limit > PAGE_MAX => {
                let detail = format!("limit is {limit}, a page has at most {PAGE_MAX} items");
                Err(Problem::new(Code::TooLarge, detail))
            }
            limit => Ok(usize::try_from(limit.unwrap_or(PAGE_DEFAULT)).unwrap_or(usize::MAX)),
        }
    }

    pub(super) fn min_record(&self) -> Result<Option<u64>, Problem> {
        self.read("minRecord")
    }
}

/// One wrong parameter.
pub(super) fn invalid(name: &str, message: &str) -> Problem {
    Problem::invalid(vec![FieldError::new(name, message)])
}

fn is_broken(text: &str) -> bool {
    text.contains(char::REPLACEMENT_CHARACTER)
}
