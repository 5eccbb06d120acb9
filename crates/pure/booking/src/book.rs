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
    /// The end of the newest forgotten booking: an unknown id made before it is too old (L6).
    pub(crate) forgotten_at: Option<Instant>,
    /// The last fence given out.
    pub(crate) fence: Fence,
    /// No fence below this one is given out any more: the first of the present generation.
    pub(crate) fences_from: Fence,
    /// V of S3.
    pub(crate) virtual_time: u128,
    pub(crate) sequence: u64,
    pub(crate) dues: u64,
    /// The time at which the pump ran out of its record and goes on, whenever it does (L1, L9).
    pub(crate) unsettled: Option<Instant>,
}

/// What is held and how many wait, under one value of one kind of limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    pub(crate) used: Total,
    pub(crate) waiting: u64,
}

/// What is known of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Class {
    pub(crate) counter: Counter,
    /// How long the last bookings were held, oldest first: what an estimate rests on (S8).
    pub(crate) held_ms: VecDeque<u64>,
}

/// What is known of a tenant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenant {
    pub(crate) counter: Counter,
    /// Where it stands in start-time fair queueing (S3).
    pub(crate) turn: u128,
}

/// A class and tenant of which something is held or waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) counter: Counter,
    pub(crate) held: u64,
    pub(crate) applied: Applied,
}

/// A booking that waits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Queued {
    pub(crate) terms: Terms,
    pub(crate) sequence: u64,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
}

/// A booking that holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Granted {
    pub(crate) terms: Terms,
    /// The number that proves it.
    pub fence: Fence,
    /// When it was asked for.
    pub queued_at: Instant,
    /// When it was granted.
    pub granted_at: Instant,
    /// When time itself ends it: a plain booking unless the holder shows life before, an
    /// execution in its present stage. One that is being stopped has no such moment.
    pub until: Option<Instant>,
    /// How often the ledger has recorded that the holder showed life.
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
    /// Where an execution stands; `None` of a plain booking.
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

/// A moment at which time itself changes something, in the order in which they are processed.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct Deadline {
    /// When.
    pub at: Instant,
    /// What then happens; an expiry frees what a wait that ends at the same time may get.
    pub kind: DeadlineKind,
    /// To which booking.
    pub id: BookingId,
}

/// What happens at a deadline.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum DeadlineKind {
    /// A grant ends unless it was renewed.
    Expiry,
    /// An execution has not started, or runs, for as long as it may.
    Overdue,
    /// A wait is over.
    WaitOver,
}

/// What is held of a class, and what of it waits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ClassUse {
    /// Slots held.
    pub slots_in_use: u64,
    /// Bookings that wait.
    pub waiting: u64,
    /// Since when the one that waits longest does.
    pub oldest: Option<Instant>,
}

/// What is known of a booking.
#[derive(Clone, Debug)]
pub enum Standing<'a> {
    /// It waits.
    Queued {
        /// Since when.
        since: Instant,
        /// Until when it will.
        until: Instant,
    },
    /// It holds.
    Granted(&'a Granted),
    /// It has ended and is remembered.
    Ended(&'a Ended),
}

impl Bookings {
    /// The state at the beginning: the shipped limit and nothing else.
    pub fn new() -> Self {
        let mut bookings = Self::default();
        bookings.limits.set(&Limit::shipped());
        bookings
    }

    /// Gives out no fence below `first` any more (S5): a new generation of the ledger begins.
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
