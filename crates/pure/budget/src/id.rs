//! Identities of budgets, envelopes, caps and meters.
//!
//! Each is one text and compares as its UTF-8 bytes. The text is in an `Arc`, because claims, meters
//! and indexes share it.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bursar_units::{NameError, ObjectName};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Error of a text that is not an identity.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum IdError {
    /// The number of names is wrong.
    #[error("must be {form}")]
    Parts {
        /// The expected form.
        form: &'static str,
    },
    /// One of the names breaks the rules of names.
    #[error("has the part `{part}`, which {source}")]
    Name {
        /// That part.
        part: String,
        /// The broken rule.
        source: NameError,
    },
}

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident, $parts:literal, $form:literal) => {
        $(#[$doc])*
        #[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and stores it.
            pub fn new(text: &str) -> Result<Self, IdError> {
                check(text, $parts, $form)?;
                Ok(Self(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            fn part(&self, number: usize) -> &str {
                self.0.split('/').nth(number).unwrap_or_default()
            }

            /// The namespace of the budget.
            pub fn namespace(&self) -> &str {
                self.part(0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        text_form!($name);
    };
}

/// `FromStr` and the serde form of a type with `new`.
macro_rules! text_form {
    ($name:ident) => {
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

identity! {
    /// A budget: `namespace/budget`.
    BudgetId, 2, "NAMESPACE/BUDGET"
}

identity! {
    /// An envelope: `namespace/budget/envelope`.
    EnvelopeId, 3, "NAMESPACE/BUDGET/ENVELOPE"
}

identity! {
    /// An aggregate cap: `namespace/budget/cap`.
    CapId, 3, "NAMESPACE/BUDGET/CAP"
}

/// A meter (B1): an envelope, an aggregate cap, or the lending pool of an envelope. Its text is the
/// label `meter` of metrics, and its order is that of the text.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub enum MeterId {
    /// An envelope: its identity.
    Envelope(EnvelopeId),
    /// An aggregate cap: `cap/NAMESPACE/BUDGET/CAP`.
    Cap(CapId),
    /// A lending pool: `lending/NAMESPACE/BUDGET/ENVELOPE`.
    Lending(EnvelopeId),
}

impl BudgetId {
    /// The identity of a budget.
    pub fn of(namespace: &ObjectName, name: &ObjectName) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The name of the budget in its namespace.
    pub fn name(&self) -> &str {
        self.part(1)
    }

    /// The identity of one of its envelopes.
    pub fn envelope(&self, name: &ObjectName) -> EnvelopeId {
        EnvelopeId(format!("{self}/{name}").into())
    }

    /// The identity of one of its caps.
    pub fn cap(&self, name: &ObjectName) -> CapId {
        CapId(format!("{self}/{name}").into())
    }
}

impl EnvelopeId {
    /// The budget that declares the envelope.
    pub fn budget(&self) -> BudgetId {
        BudgetId(first_two(&self.0).into())
    }

    /// The name of the envelope in its budget.
    pub fn name(&self) -> &str {
        self.part(2)
    }
}

impl CapId {
    /// The budget that declares the cap.
    pub fn budget(&self) -> BudgetId {
        BudgetId(first_two(&self.0).into())
    }

    /// The name of the cap in its budget.
    pub fn name(&self) -> &str {
        self.part(2)
    }
}

impl MeterId {
    /// Checks the text and stores it.
    pub fn new(text: &str) -> Result<Self, IdError> {
        let is_long = text.split('/').count() == 4;
        match text.split_once('/') {
            Some(("cap", id)) if is_long => Ok(Self::Cap(CapId::new(id)?)),
            Some(("lending", id)) if is_long => Ok(Self::Lending(EnvelopeId::new(id)?)),
            _ => Ok(Self::Envelope(EnvelopeId::new(text)?)),
        }
    }

    /// The budget that declares the meter.
    pub fn budget(&self) -> BudgetId {
        match self {
            Self::Envelope(envelope) | Self::Lending(envelope) => envelope.budget(),
            Self::Cap(cap) => cap.budget(),
        }
    }

    fn text(&self) -> (&'static str, &str) {
        match self {
            Self::Envelope(envelope) => ("", envelope.as_str()),
            Self::Cap(cap) => ("cap/", cap.as_str()),
            Self::Lending(envelope) => ("lending/", envelope.as_str()),
        }
    }
}

impl fmt::Display for MeterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, id) = self.text();
        write!(f, "{prefix}{id}")
    }
}

impl Ord for MeterId {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((prefix, id), (other_prefix, other_id)) = (self.text(), other.text());
        let bytes = prefix.bytes().chain(id.bytes());
        bytes.cmp(other_prefix.bytes().chain(other_id.bytes()))
    }
}

impl PartialOrd for MeterId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

text_form!(MeterId);

fn check(text: &str, parts: usize, form: &'static str) -> Result<(), IdError> {
    if text.split('/').count() != parts {
        return Err(IdError::Parts { form });
    }
    for part in text.split('/') {
        ObjectName::new(part).map_err(|source| IdError::Name {
            part: part.into(),
            source,
        })?;
    }
    Ok(())
}

/// The text before the second slash.
fn first_two(text: &str) -> &str {
    text.rsplit_once('/').map_or(text, |(budget, _)| budget)
}
