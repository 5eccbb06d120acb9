//! The state of the plane: its types, the fold over its events, its counters and its reads.

mod counters;
mod fold;
mod reads;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bursar_units::{BookingId, Instant, Total};

pub use counters::CounterView;

use crate::archive::{Archive, Ended, Terms};
use crate::execution::Progress;
use crate::limit::{Applied, Limit, Limits};
use crate::names::{NameIndex, Names};
use crate::request::Fence;
use crate::room::Room;

/// All bookings, limits and counters.
#[derive(Clone, Debug, Default)]
pub struct Bookings {
    pub(crate) limits: Limits,
    pub(crate) everything: Counter,
    pub(crate) classes: Names<Class>,
    pub(crate) tenants: Names<Tenant>,
    pub(crate) pairs: BTreeMap<(NameIndex, NameIndex), Pair>,
    pub(crate) room: Room,
    pub(crate) queued: BTreeMap<BookingId, Queued>,
    pub(crate) granted: BTreeMap<BookingId, Granted>,
    pub(crate) archive: Archive,
    pub(crate) deadlines: BTreeSet<Deadline>,
    /// End of the newest forgotten booking; an unknown id made before it is refused (L6).
    pub(crate) forgotten_at: Option<Instant>,
    pub(crate) fence: Fence,
    /// First fence of the current generation of the ledger; no lower one is given out.
    pub(crate) fences_from: Fence,
    /// V of S3.
    pub(crate) virtual_time: u128,
    pub(crate) sequence: u64,
    pub(crate) dues: u64,
    /// Time at which grants stopped because the record was full; they go on at this time (L1, L9).
    pub(crate) unsettled: Option<Instant>,
}

/// Amount held and number of waiting bookings, for one value of one kind of limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    pub(crate) used: Total,
    pub(crate) waiting: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Class {
    pub(crate) counter: Counter,
    /// Times for which the last bookings were held, oldest first; estimates use them (S8).
    pub(crate) held_ms: VecDeque<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tenant {
    pub(crate) counter: Counter,
    /// Start tag in start-time fair queueing (S3).
    pub(crate) turn: u128,
}

/// A class and tenant with at least one granted or queued booking.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) counter: Counter,
    pub(crate) held: u64,
    pub(crate) applied: Applied,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Queued {
    pub(crate) terms: Terms,
    pub(crate) sequence: u64,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
}

/// A granted booking.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Granted {
    pub(crate) terms: Terms,
    /// Fence of the grant.
    pub fence: Fence,
    /// Time of the request.
    pub queued_at: Instant,
    /// Time of the grant.
    pub granted_at: Instant,
    /// Deadline: of a plain booking until the next renewal, of an execution in its current
    /// stage. An execution that is being stopped has none.
    pub until: Option<Instant>,
    /// Number of recorded renewals.
    pub renewals: u64,
    pub(crate) progress: Option<Box<Progress>>,
}

impl Queued {
    pub(crate) fn standing(&self) -> Standing<'_> {
        Standing::Queued {
            since: self.since,
            until: self.until,
        }
    }
}

impl Granted {
    /// Progress of an execution; `None` for a plain booking.
    pub fn progress(&self) -> Option<&Progress> {
        self.progress.as_deref()
    }

    pub(crate) fn deadline(&self, id: &BookingId) -> Option<Deadline> {
        let kind = match self.progress {
            None => DeadlineKind::Expiry,
            Some(_) => DeadlineKind::Overdue,
        };
        let (at, id) = (self.until?, id.clone());
        Some(Deadline { at, kind, id })
    }
}

/// Deadline of a booking. The order is the order of processing.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct Deadline {
    /// Time of the deadline.
    pub at: Instant,
    /// Kind; at equal times an expiry comes first, since a wait that ends then may get its slots.
    pub kind: DeadlineKind,
    /// Booking.
    pub id: BookingId,
}

/// Kind of a deadline.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum DeadlineKind {
    /// A grant ends unless the holder has renewed it.
    Expiry,
    /// An execution has reached its start timeout or its longest run time.
    Overdue,
    /// A wait is over.
    WaitOver,
}

/// Use of a class.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ClassUse {
    /// Slots held.
    pub slots_in_use: u64,
    /// Waiting bookings.
    pub waiting: u64,
    /// Time of the oldest waiting request.
    pub oldest: Option<Instant>,
}

/// State of a booking.
#[derive(Clone, Debug)]
pub enum Standing<'a> {
    /// The booking waits.
    Queued {
        /// Time of the request.
        since: Instant,
        /// End of the wait.
        until: Instant,
    },
    /// The booking holds its amount.
    Granted(&'a Granted),
    /// The booking has ended and is remembered.
    Ended(&'a Ended),
}

impl Bookings {
    /// Initial state, with the shipped limit `default`.
    pub fn new() -> Self {
        let mut bookings = Self::default();
        bookings.limits.set(&Limit::shipped());
        bookings
    }

    /// Begins a new generation of the ledger: no fence below `first` is given out any more (S5).
    pub fn begin_fences(&mut self, first: Fence) {
        self.fences_from = self.fences_from.max(first);
    }
}

pub(crate) fn wait_deadline(id: &BookingId, at: Instant) -> Deadline {
    Deadline {
        at,
        kind: DeadlineKind::WaitOver,
        id: id.clone(),
    }
}
