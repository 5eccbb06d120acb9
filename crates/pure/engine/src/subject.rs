//! What records can be asked about: `booking/job-1`, and whether a record is about it.
//!
//! The server selects records by this question, for proofs and for searches, and the verifier of a
//! proof asks it again of what was proven. It is asked of the decoded record: a name that only
//! occurs in the text, such as a tenant or a class, does not make a record be about it.
//! [`subjects_of`] is the only rule: an index of it and [`Subject::is_of`] cannot disagree.

use std::fmt;
use std::str::FromStr;

use bursar_booking::decide::Change;
use bursar_booking::{Event as Booking, Limit, Node};
use bursar_units::{BookingId, NameError, ObjectName, PodName};
use thiserror::Error;

use crate::codec::Record;
use crate::token::Token;
use crate::{Command, Event, spine};

/// The kinds of subject, in the order in which people read them.
pub const KINDS: [&str; 6] = ["record", "booking", "limit", "node", "pod", "token"];

/// Version of [`subjects_of`]. It rises whenever an old record gets other subjects, so that an index
/// which an earlier program wrote is not used.
pub const VERSION: u32 = 1;

/// What records can be about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Subject {
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
}

/// Why a text names no subject.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Error {
    /// It has no slash.
    #[error("`{text}` is not a kind and a name, as in `booking/job-1`")]
    Form {
        /// The text.
        text: String,
    },
    /// There are no records about that kind of thing.
    #[error("no record is about a `{kind}`; the kinds are {}", KINDS.join(", "))]
    Kind {
        /// The kind that was named.
        kind: String,
    },
    /// The name is none of its kind.
    #[error("the name of a {kind} {reason}")]
    Name {
        /// The kind.
        kind: &'static str,
        /// The rule it breaks.
        reason: NameError,
    },
    /// Not the number of a record.
    #[error("`{text}` is not the number of a record")]
    Number {
        /// What stands in its place.
        text: String,
    },
}

impl Subject {
    /// The subject of a kind and a name.
    pub fn new(kind: &str, name: &str) -> Result<Self, Error> {
        let wrong = |kind| move |reason| Error::Name { kind, reason };
        match kind {
            "record" => match name.parse::<u64>() {
                Ok(seq) if seq.to_string() == name => Ok(Self::Record(seq)),
                _ => Err(Error::Number {
                    text: name.to_owned(),
                }),
            },
            "booking" => BookingId::new(name)
                .map(Self::Booking)
                .map_err(wrong("booking")),
            "limit" => ObjectName::new(name)
                .map(Self::Limit)
                .map_err(wrong("limit")),
            "node" => ObjectName::new(name).map(Self::Node).map_err(wrong("node")),
            "pod" => PodName::new(name).map(Self::Pod).map_err(wrong("pod")),
            "token" => ObjectName::new(name)
                .map(Self::Token)
                .map_err(wrong("token")),
            _ => Err(Error::Kind {
                kind: kind.to_owned(),
            }),
        }
    }

    /// Its kind, one of [`KINDS`].
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Record(_) => "record",
            Self::Booking(_) => "booking",
            Self::Limit(_) => "limit",
            Self::Node(_) => "node",
            Self::Pod(_) => "pod",
            Self::Token(_) => "token",
        }
    }

    /// The name that occurs in every record about it; a record by number has none.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Record(_) => None,
            Self::Booking(id) => Some(id.as_str()),
            Self::Limit(name) | Self::Node(name) | Self::Token(name) => Some(name.as_str()),
            Self::Pod(name) => Some(name.as_str()),
        }
    }

    /// Whether a record is about it.
    pub fn is_of(&self, record: &Record) -> bool {
        subjects_of(record).any(|subject| subject == *self)
    }
}

impl FromStr for Subject {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, name) = text.split_once('/').ok_or_else(|| Error::Form {
            text: text.to_owned(),
        })?;
        Self::new(kind, name)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(seq) => write!(f, "record/{seq}"),
            named => write!(f, "{}/{}", named.kind(), named.name().unwrap_or_default()),
        }
    }
}

/// All that a record is about, in no particular order, some of it more than once: its number, the
/// subjects of its events, and the objects that it was asked to declare.
pub fn subjects_of(record: &Record) -> impl Iterator<Item = Subject> {
    let events = record.events.iter();
    std::iter::once(Subject::Record(record.seq))
        .chain(events.flat_map(subjects_in))
        .chain(changes(&record.command).iter().map(declared))
}

/// The subjects of an event.
pub fn subjects_in(event: &Event) -> impl Iterator<Item = Subject> + use<> {
    in_event(event).into_iter().flatten()
}

/// The subjects of an event, at most two.
fn in_event(event: &Event) -> [Option<Subject>; 2] {
    let one = |subject| [Some(subject), None];
    match event {
        Event::Booking(Booking::LimitSet(Limit { name, .. }) | Booking::LimitDropped { name }) => {
            one(Subject::Limit(name.clone()))
        }
        Event::Booking(Booking::NodeSet(Node { name, .. }) | Booking::NodeDropped { name }) => {
            one(Subject::Node(name.clone()))
        }
        Event::Booking(event) => [event.booking().cloned().map(Subject::Booking), None],
        Event::Market(event) => [
            Some(Subject::Node(event.node().clone())),
            event.pod().cloned().map(Subject::Pod),
        ],
        Event::Spine(
            spine::Event::TokenCreated(Token { name, .. }) | spine::Event::TokenRevoked { name },
        ) => one(Subject::Token(name.clone())),
        Event::Spine(_) => [None, None],
    }
}

/// The object that a change declares.
fn declared(change: &Change) -> Subject {
    match change {
        Change::SetLimit(Limit { name, .. }) | Change::DropLimit { name } => {
            Subject::Limit(name.clone())
        }
        Change::SetNode(Node { name, .. }) | Change::DropNode { name } => {
            Subject::Node(name.clone())
        }
    }
}

/// What a command was asked to declare.
fn changes(command: &Command) -> &[Change] {
    match command {
        Command::Spine(spine::Command::Change { changes }) => changes,
        _ => &[],
    }
}
