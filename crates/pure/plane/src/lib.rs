//! The contract that every plane keeps: bookings, the markets' side of the ledger, the spine.
//!
//! A plane owns one part of the state, with the commands that change it and the events that record
//! the change. The engine composes planes: it sends a command to its plane, merges deadlines, and
//! folds each event into the plane that it belongs to. Everything outside the engine (ledger, view,
//! stream, proofs, snapshots, checks) asks through this contract and names no noun of a plane.
//!
//! [`mod@reference`] has the one form of a name, `KIND/NAME`; [`inventory`] the nodes, which belong to no
//! plane: the spine keeps them and the planes read them.

pub mod inventory;
pub mod notice;
pub mod reference;

use bursar_units::{Instant, vocabulary};

pub use inventory::{Inventory, Node};
pub use notice::Notice;
pub use reference::{Kind, Reference};

/// The most deadlines, and the most grants, that one record may carry (L1, L9).
pub const STEPS_PER_RECORD_MAX: usize = 256;

/// One plane of the engine. Dispatch is static: the engine knows its planes by type.
///
/// A method with a default is for planes that have such a thing: deadlines, declared objects, evidence
/// of life. A method without one must be written for every plane.
pub trait Plane: Clone {
    /// Commands, in the form that the journal has.
    type Command;
    /// Events, in the form that the journal has.
    type Event;
    /// Changes to declared objects, in the form that the journal has.
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

    /// First parts of the names of its events in the stream: `booking` of `booking.granted`.
    const STREAMS: &'static [&'static str];

    /// Intake lane of a command (L4). There is no default: each command names its lane.
    fn lane(command: &Self::Command) -> Lane;

    /// Whether the command is the result of an executor, which a batch takes first (L1).
    fn is_result(command: &Self::Command) -> bool;

    /// The object that a good answer shows to be alive, and until when. Such an answer leaves before
    /// its batch is durable; a tick records it when the deadline comes due (S7).
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

    /// Folds an event. It cannot fail: an event that makes no sense changes nothing.
    fn apply(&mut self, at: Instant, event: &Self::Event);

    /// The earliest deadline of a class.
    fn next_deadline(&self, _class: Class) -> Option<Instant> {
        None
    }

    /// Since when grants are owed that had no room in their record (L9).
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

    /// Moves patience deadlines: the server was away until `at`, and its absence expires nobody (L5).
    fn resume(&mut self, _at: Instant) {}

    /// Checks changes to declared objects against what the changes before them would leave.
    fn check_changes(&self, _changes: &[&Self::Change]) -> Result<(), Self::Refusal> {
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

    /// Takes note that the inventory has changed.
    fn take_inventory(&mut self, _inventory: &Inventory) {}

    /// Facts for a snapshot, in the order in which [`Plane::restore`] reads them, and in the form of
    /// the level of the newest records: a snapshot that an older version wrote keeps its hash (L8).
    fn facts(&self, level: u64) -> impl Iterator<Item = Self::Fact>;

    /// Takes one fact of a snapshot.
    fn restore(&mut self, fact: Self::Fact);

    /// Looks for a state that must never be seen; `now` is the time of the last event.
    fn check(&self, now: Instant) -> Result<(), Self::Broken>;

    /// A copy that is large enough to plan these commands and any change (L3).
    #[must_use]
    fn sketch(&self, commands: &[&Self::Command]) -> Self;

    /// The time of an event; `None` where it is the time of its record.
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
    /// Commands that give back, keep alive or operate: served first, also on a nearly full disk.
    Control,
    /// All other commands.
    Work,
}

vocabulary! {
    /// Class of a deadline (L5).
    pub enum Class {
        /// Happens at its instant, whether the server ran or not.
        Clock = "clock",
        /// Measures the silence of somebody: an absence of the server moves it.
        Patience = "patience",
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

/// Result of a command that has no more to say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Did {
    /// Done and on record.
    Done,
    /// Nothing changed: it was so already, or was done before under the same key.
    Unchanged,
}

/// The steps that are left in a record.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Deadlines that may still be processed.
    pub deadlines: usize,
    /// Grants that may still be made.
    pub grants: usize,
}

impl Steps {
    /// The steps of a record that has none yet.
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
    list: Vec<E>,
}

impl<E> Decided<E> {
    /// No events yet, of a record of that time.
    pub fn new(time: Instant) -> Self {
        Self {
            time,
            list: Vec::new(),
        }
    }

    /// The time of the record.
    pub fn time(&self) -> Instant {
        self.time
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
