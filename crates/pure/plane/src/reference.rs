//! Names of objects, `KIND/NAME`.
//!
//! Proofs, searches, the stream, explanations, watchers and the command line share this type, so they
//! know the same kinds.

use std::fmt;
use std::str::FromStr;

use bursar_units::{
    BookingId, DEFAULT_NAMESPACE, NameError, ObjectName, PodName, ScopedName, vocabulary,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

vocabulary! {
    /// Kinds of objects, in the order of output.
    pub enum Kind {
        /// A record of the ledger, by its number.
        Record = "record",
        /// A booking, or the execution under it.
        Booking = "booking",
        /// A limit.
        Limit = "limit",
        /// A node, declared or with a CPU market.
        Node = "node",
        /// A pod of a CPU market.
        Pod = "pod",
        /// An access token.
        Token = "token",
        /// A budget.
        Budget = "budget",
        /// An envelope of a budget.
        Envelope = "envelope",
        /// A run.
        Run = "run",
        /// A lease of a run.
        Lease = "lease",
    }
}

/// The name of an object, with its kind.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum Reference {
    /// The record of this number.
    Record(u64),
    /// A booking, or the execution under it.
    Booking(BookingId),
    /// A limit.
    Limit(ObjectName),
    /// A node, declared or with a CPU market.
    Node(ObjectName),
    /// A pod of a CPU market.
    Pod(PodName),
    /// An access token.
    Token(ObjectName),
    /// A budget: `NAMESPACE/NAME`.
    Budget(ScopedName),
    /// An envelope: its budget, and its name.
    Envelope(ScopedName, ObjectName),
    /// A run: `NAMESPACE/NAME`.
    Run(ScopedName),
    /// A lease, `lease-RECORD.N`.
    Lease(BookingId),
}

/// Error of a text that is not a reference.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Error {
    /// It has no slash.
    #[error("`{text}` has no kind, write {}", forms(.kinds))]
    Form {
        /// The text.
        text: String,
        /// The accepted kinds.
        kinds: &'static [Kind],
    },
    /// The kind is unknown or not accepted.
    #[error("`{kind}` is not a kind here; the kinds are {}", list(.kinds))]
    Kind {
        /// The given kind.
        kind: String,
        /// The accepted kinds.
        kinds: &'static [Kind],
    },
    /// The name breaks a rule of its kind.
    #[error("the name of a {kind} {reason}")]
    Name {
        /// The kind.
        kind: Kind,
        /// The rule that it breaks.
        reason: NameError,
    },
    /// The name of a record is its number.
    #[error("`{text}` is not the number of a record")]
    Number {
        /// The text in place of a number.
        text: String,
    },
}

impl Reference {
    /// The reference of a kind and a name.
    pub fn new(kind: Kind, name: &str) -> Result<Self, Error> {
        let object = || ObjectName::new(name);
        let read = match kind {
            Kind::Record => {
                return match name.parse::<u64>() {
                    Ok(seq) if seq.to_string() == name => Ok(Self::Record(seq)),
                    _ => Err(Error::Number {
                        text: name.to_owned(),
                    }),
                };
            }
            Kind::Booking => BookingId::new(name).map(Self::Booking),
            Kind::Limit => object().map(Self::Limit),
            Kind::Node => object().map(Self::Node),
            Kind::Pod => PodName::new(name).map(Self::Pod),
            Kind::Token => object().map(Self::Token),
            Kind::Budget => scoped(name).map(Self::Budget),
            Kind::Envelope => envelope(name),
            Kind::Run => scoped(name).map(Self::Run),
            Kind::Lease => BookingId::new(name).map(Self::Lease),
        };
        read.map_err(|reason| Error::Name { kind, reason })
    }

    /// The reference of a kind as text and a name; only these kinds are accepted.
    pub fn of(kind: &str, name: &str, kinds: &'static [Kind]) -> Result<Self, Error> {
        match Kind::from_word(kind).filter(|known| kinds.contains(known)) {
            Some(known) => Self::new(known, name),
            None => Err(Error::Kind {
                kind: kind.to_owned(),
                kinds,
            }),
        }
    }

    /// Parses `KIND/NAME`; only these kinds are accepted.
    pub fn read(text: &str, kinds: &'static [Kind]) -> Result<Self, Error> {
        match text.split_once('/') {
            Some((kind, name)) => Self::of(kind, name, kinds),
            None => Err(Error::Form {
                text: text.to_owned(),
                kinds,
            }),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Record(_) => Kind::Record,
            Self::Booking(_) => Kind::Booking,
            Self::Limit(_) => Kind::Limit,
            Self::Node(_) => Kind::Node,
            Self::Pod(_) => Kind::Pod,
            Self::Token(_) => Kind::Token,
            Self::Budget(_) => Kind::Budget,
            Self::Envelope(..) => Kind::Envelope,
            Self::Run(_) => Kind::Run,
            Self::Lease(_) => Kind::Lease,
        }
    }

    /// The name, as records about the object have it; a record itself has none, and an envelope has
    /// its name in its budget.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Record(_) => None,
            Self::Booking(id) | Self::Lease(id) => Some(id.as_str()),
            Self::Budget(name) | Self::Run(name) => Some(name.as_str()),
            Self::Envelope(_, name) | Self::Limit(name) | Self::Node(name) | Self::Token(name) => {
                Some(name.as_str())
            }
            Self::Pod(name) => Some(name.as_str()),
        }
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::read(text, &Kind::ALL)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(seq) => write!(f, "record/{seq}"),
            Self::Envelope(budget, name) => write!(f, "envelope/{budget}/{name}"),
            named => write!(f, "{}/{}", named.kind(), named.name().unwrap_or_default()),
        }
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// `NAMESPACE/NAME`, or a name in the default namespace.
fn scoped(name: &str) -> Result<ScopedName, NameError> {
    if name.contains('/') {
        return ScopedName::new(name);
    }
    let namespace = ObjectName::known(DEFAULT_NAMESPACE);
    Ok(ScopedName::of(&namespace, &ObjectName::new(name)?))
}

/// `NAMESPACE/BUDGET/NAME`, or `BUDGET/NAME` in the default namespace.
fn envelope(text: &str) -> Result<Reference, NameError> {
    let (budget, name) = text.rsplit_once('/').ok_or(NameError::NoNamespace)?;
    Ok(Reference::Envelope(scoped(budget)?, ObjectName::new(name)?))
}

fn forms(kinds: &[Kind]) -> String {
    let forms: Vec<String> = kinds.iter().map(|kind| format!("{kind}/NAME")).collect();
    forms.join(" or ")
}

fn list(kinds: &[Kind]) -> String {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
    words.join(", ")
}
