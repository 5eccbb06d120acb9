//! What is asked for, and how it can end.

use bursar_units::{Amount, BookingId, Label, Millis};

use crate::execution::Order;

/// The number that proves a booking is still yours: one counter for the whole ledger (S5).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Fence(pub u64);

/// How urgent a request is; the least is served first (S3).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Priority {
    /// 0.
    Urgent,
    /// 1.
    High,
    /// 2, what a request that names none gets.
    #[default]
    Normal,
    /// 3.
    Low,
    /// 4.
    Batch,
}

impl Priority {
    /// All, most urgent first.
    pub const ALL: [Self; 5] = [
        Self::Urgent,
        Self::High,
        Self::Normal,
        Self::Low,
        Self::Batch,
    ];

    /// 0 for urgent to 4 for batch.
    pub const fn level(self) -> u64 {
        match self {
            Self::Urgent => 0,
            Self::High => 1,
            Self::Normal => 2,
            Self::Low => 3,
            Self::Batch => 4,
        }
    }
}

/// What is asked for under a booking's id. Two requests are the same iff all of it is (L6).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// What kind of execution it is; the seed's language.
    pub class: Label,
    /// Whom it counts for.
    pub tenant: Label,
    /// What is charged to every applicable limit.
    pub amount: Amount,
    /// How urgent it is.
    pub priority: Priority,
    /// How long a grant lasts without renewal; zero for an execution, which has its own times.
    pub ttl: Millis,
    /// How long it may wait; zero refuses at once.
    pub wait: Millis,
    /// What is stored and charged to nothing; rare, hence boxed.
    pub extras: Option<Box<Extras>>,
}

/// What no limit counts: fields of the seed's data model, and what makes it an execution.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Extras {
    /// The execution this booking belongs to, where it is not the booking's own id.
    pub execution: Option<BookingId>,
    /// CPU limit for the executor, in millicores.
    pub cpu_limit_milli: Option<u64>,
    /// Memory limit for the executor, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// What is to be run under it; the id of the execution is the booking's own (X1).
    pub order: Option<Order>,
}

/// How a booking ended (S6).
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum End {
    /// The holder gave it back.
    Released,
    /// The caller gave up while it waited.
    Cancelled,
    /// The holder did not renew in time.
    Expired,
    /// The wait that was asked for went by without a grant.
    WaitOver,
    /// An operator took it back.
    Forced,
}

impl End {
    /// The word people see.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::WaitOver => "wait-over",
            Self::Forced => "forced",
        }
    }
}

/// What the holder says of its work when it gives the slot back.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Outcome {
    /// It went well.
    Ok,
    /// It did not.
    Failed,
}

impl Request {
    /// What is to be run under it, if it is an execution.
    pub fn order(&self) -> Option<&Order> {
        self.extras.as_ref()?.order.as_ref()
    }

    /// The first field in which two requests differ, by its name in the API.
    pub fn first_difference(&self, other: &Self) -> Option<&'static str> {
        let none = Extras::default();
        let (mine, theirs) = (
            self.extras.as_deref().unwrap_or(&none),
            other.extras.as_deref().unwrap_or(&none),
        );
        [
            ("class", self.class == other.class),
            ("tenant", self.tenant == other.tenant),
            ("slots", self.amount.slots == other.amount.slots),
            ("cpuMilli", self.amount.cpu_milli == other.amount.cpu_milli),
            (
                "memoryBytes",
                self.amount.memory_bytes == other.amount.memory_bytes,
            ),
            ("gpus", self.amount.gpus == other.amount.gpus),
            ("priority", self.priority == other.priority),
            ("ttlMs", self.ttl == other.ttl),
            ("waitMs", self.wait == other.wait),
            ("executionId", mine.execution == theirs.execution),
            (
                "cpuLimitMilli",
                mine.cpu_limit_milli == theirs.cpu_limit_milli,
            ),
            (
                "memoryLimitBytes",
                mine.memory_limit_bytes == theirs.memory_limit_bytes,
            ),
        ]
        .into_iter()
        .find_map(|(field, same)| (!same).then_some(field))
        .or_else(|| match (&mine.order, &theirs.order) {
            (None, None) => None,
            (Some(mine), Some(theirs)) => mine.first_difference(theirs),
            (Some(_), None) | (None, Some(_)) => Some("command"),
        })
    }
}
