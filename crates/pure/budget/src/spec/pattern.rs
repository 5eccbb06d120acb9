//! Patterns of borrowers: an owner, the beginning of one, or everybody.

use std::fmt;
use std::str::FromStr;

use bursar_units::{Label, NameError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The owners that an envelope lends to.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Pattern {
    /// One owner.
    Exactly(Label),
    /// All owners whose name begins so; written with a `*` at the end.
    Prefix(Label),
    /// All owners; written as `*`.
    Any,
}

/// Error of a text that is not a pattern.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum PatternError {
    /// A `*` is neither alone nor at the end.
    #[error("a `*` stands alone or at the end")]
    Star,
    /// The text without its `*` is not the name of an owner.
    #[error("{0}")]
    Name(#[from] NameError),
}

impl Pattern {
    /// Reads a pattern.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (name, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if name.contains('*') {
            return Err(PatternError::Star);
        }
        let name = Label::new(name)?;
        Ok(if is_prefix {
            Self::Prefix(name)
        } else {
            Self::Exactly(name)
        })
    }

    /// Whether the owner is one of them.
    pub fn matches(&self, owner: &Label) -> bool {
        match self {
            Self::Exactly(name) => name == owner,
            Self::Prefix(prefix) => owner.as_str().starts_with(prefix.as_str()),
            Self::Any => true,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(name) => write!(f, "{name}"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Any => f.write_str("*"),
        }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;
    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::new(text)
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}
