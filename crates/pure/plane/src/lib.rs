//! The contract of every plane: bookings, the markets' side of the ledger, the spine.
//!
//! A plane owns one part of the state, with the commands that change it and the events that record
//! the change. The engine composes planes: it sends a command to its plane, merges deadlines, and
//! folds each event into the plane that it belongs to. Everything outside the engine (ledger, view,
//! stream, proofs, snapshots, checks) uses this contract and knows no type of a plane.
//!
//! [`mod@reference`] has names of objects, `KIND/NAME`; [`inventory`] has the nodes, which belong to no
//! plane: the spine keeps them and the planes read them.

pub mod inventory;
pub mod notice;
pub mod reference;

use bursar_units::{Instant, vocabulary};

pub use inventory::{Inventory, Node};
pub use notice::Notice;
pub use reference::{Kind, Reference};

/// Maximum number of deadlines, and of grants, in one record (L1, L9).
pub const STEPS_PER_RECORD_MAX: usize = 256;

/// One plane of the engine. Dispatch is static: the engine knows its planes by type.
///
/// Methods with a default are for optional features: deadlines, declared objects, evidence of life.
pub trait Plane: Clone {
    /// Commands, in the form of the journal.
    type Command;
    /// Events, in the form of the journal.
    type Event;
    /// Changes to declared objects, in the form of the journal.
    type Change;
    /// Lines of a snapshot.
    type Fact;
    /// Results of commands that were not refused.
    type Reply;
    /// Reasons for a refusal, as data.
    type Refusal;
    /// Violations that [`Plane::check`] can find.
    type Broken;
    /// Data of events for the programs that read the stream.
    type Data;

    /// Names of its events in the stream, such as `booking.granted`.
    const STREAMS: &'static [&'static str];

    /// Intake lane of a command (L4). There is no default: each command names its lane.
    fn lane(command: &Self::Command) -> Lane;

    /// Whether the command is the result of an executor, which a batch takes first (L1).
    fn is_result(command: &Self::Command) -> bool;

    /// The object that a successful answer proves to be alive, and its new deadline. Such an answer is
    /// sent before its batch is durable; a tick records it when the old deadline is due (S7).
    fn life(_command: &Self::Command, _reply: &Self::Reply) -> Option<(Reference, Instant)> {
        None
    }

    /// Answers a command and applies its events. After a refusal the state is as it was.
    fn decide(
        &mut self,
        now: Instant,
        command: &Self::Command,
        out: &mut Decided<Self::Event>,
    ) -> Result<Self::Reply, Self::Refusal>;

    /// Folds an event. It cannot fail: an invalid event changes nothing.
    fn apply(&mut self, at: Instant, event: &Self::Event);

    /// The earliest deadline of a class.
    fn next_deadline(&self, _class: Class) -> Option<Instant> {
        None
    }

    /// The time since which grants are owed that had no room in their record (L9).
    fn owed_since(&self) -> Option<Instant> {
        None
    }

    /// The objects whose patience deadlines have passed at `now`, earliest first.
    fn overdue(&self, _now: Instant) -> impl Iterator<Item = Reference> {
        std::iter::empty()
    }

    /// Makes the grants that are owed, then processes the deadlines that are due, each at its own
    /// time, as long as `steps` last.
    fn tick(
        &mut self,
        _due: Due,
        _alive_until: &dyn Fn(&Reference) -> Option<Instant>,
        _steps: &mut Steps,
        _out: &mut Decided<Self::Event>,
    ) {
    }

    /// The time since which work is owed that comes after all deadlines of a tick (R7).
    fn owed_last(&self) -> Option<Instant> {
        None
    }

    /// Does the work that is owed after all deadlines of a tick (R7); `due` is that of the tick.
    fn finish(&mut self, _due: Due, _steps: &mut Steps, _out: &mut Decided<Self::Event>) {}

    /// Moves patience deadlines: the server was away until `at`, and its absence expires nobody (L5).
    fn resume(&mut self, _at: Instant) {}

    /// Checks changes to declared objects against what the changes before them would leave.
    fn check_changes(
        &self,
        _now: Instant,
        _changes: &[&Self::Change],
    ) -> Result<(), Self::Refusal> {
        Ok(())
    }

    /// Changes that these ones imply: those that come before them, and those that come after.
    fn implied(&self, _changes: &[&Self::Change]) -> [Vec<Self::Change>; 2] {
        [Vec::new(), Vec::new()]
    }

    /// Applies one checked change; a change that changes nothing has no event.
    fn change(&mut self, at: Instant, change: &Self::Change, out: &mut Decided<Self::Event>);

    /// Grants what the changes made possible.
    fn settle(&mut self, _at: Instant, _out: &mut Decided<Self::Event>) {}

    /// Takes the changed inventory.
    fn take_inventory(&mut self, _inventory: &Inventory) {}

    /// Facts for a snapshot, in the order in which [`Plane::restore`] reads them, and in the form of
    /// the level of the newest records: a snapshot that an older version wrote keeps its hash (L8).
    fn facts(&self, level: u64) -> impl Iterator<Item = Self::Fact>;

    /// Takes one fact of a snapshot.
    fn restore(&mut self, fact: Self::Fact);

    /// Checks the invariants; `now` is the time of the last event.
    fn check(&self, now: Instant) -> Result<(), Self::Broken>;

    /// A copy that is large enough to plan these commands and any change (L3).
    #[must_use]
    fn sketch(&self, commands: &[&Self::Command]) -> Self;

    /// The time of an event; `None` for the time of its record.
    fn time(_event: &Self::Event) -> Option<Instant> {
        None
    }

    /// The sentence and the data of an event; `record` has all events of this plane in its record.
    fn notice(at: Instant, event: &Self::Event, record: &[&Self::Event]) -> Notice<Self::Data>;

    /// The objects that an event is about.
    fn subjects(event: &Self::Event) -> impl Iterator<Item = Reference>;

    /// The object that a change declares.
    fn declared(change: &Self::Change) -> Reference;

    /// The object whose life an event ends, so that it needs no evidence of life any more (S7).
    fn ends(_event: &Self::Event) -> Option<Reference> {
        None
    }
}

/// Intake of a command (L4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lane {
    /// Commands that release, renew or operate: served first, also on a nearly full disk.
    Control,
    /// All other commands.
    Work,
}

vocabulary! {
    /// Class of a deadline (L5).
    pub enum Class {
        /// Takes effect at its instant, whether the server ran or not.
        Clock = "clock",
        /// Measures the silence of a client; an absence of the server moves it.
        Patience = "patience",
    }
}

vocabulary! {
    /// Cause of a wait. The first that applies gives the headline.
    pub enum WaitsFor {
        /// A mistake in the request, to be corrected by its author.
        Mistake = "mistake",
        /// A time, or another object.
        After = "after",
        /// A limit, to be raised by its owner.
        Budget = "budget",
        /// Resources, to be freed by the end of others.
        Room = "room",
        /// Its turn, after the requests ahead.
        Turn = "turn",
    }
}

/// The deadlines that a tick processes.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The last time that is processed.
    pub until: Instant,
    /// The class that is processed; `None` for both.
    pub class: Option<Class>,
}

impl Due {
    /// Whether deadlines of a class are processed.
    pub fn includes(&self, class: Class) -> bool {
        self.class.is_none_or(|only| only == class)
    }
}

/// Result of a command without further data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Did {
    /// Done and on record.
    Done,
    /// Nothing changed: the state was the same already, or the key was used before.
    Unchanged,
}

/// The remaining steps of a record.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Deadlines that may still be processed.
    pub deadlines: usize,
    /// Grants that may still be made.
    pub grants: usize,
}

impl Steps {
    /// The steps of a new record.
    pub const FULL: Self = Self {
        deadlines: STEPS_PER_RECORD_MAX,
        grants: STEPS_PER_RECORD_MAX,
    };
}

/// The events of one record of one plane, as they are decided.
#[derive(Clone, Debug)]
pub struct Decided<E> {
    /// The time of the record.
    time: Instant,
    /// The number of the record.
    record: u64,
    list: Vec<E>,
}

impl<E> Decided<E> {
    /// No events yet, of a record of that time and number.
    pub fn new(time: Instant, record: u64) -> Self {
        Self {
            time,
            record,
            list: Vec::new(),
        }
    }

    /// The time of the record.
    pub fn time(&self) -> Instant {
        self.time
    }

    /// The number of the record, which names the things that it makes (L6).
    pub fn record(&self) -> u64 {
        self.record
    }

    /// Number of events so far.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no events yet.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds an event.
    pub fn push(&mut self, event: E) {
        self.list.push(event);
    }

    /// All events, in order.
    pub fn into_list(self) -> Vec<E> {
        self.list
    }
}
