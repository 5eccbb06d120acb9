//! The state of all planes.

use bursar_booking::Bookings;
use bursar_cluster::Clusters;
use bursar_journal::hash::sha256;
use bursar_market::ledger::Markets;
use bursar_plane::{Class, Plane, Reference};
use bursar_units::{BookingId, Instant, Millis};

use crate::spine::{self, Spine};
use crate::{Command, Event, dated};

/// Format of the records that this program writes.
pub const FORMAT: u64 = 1;
/// Level of the rules by which this program decides. A release with other rules or new fields of
/// events has a higher level. Records of a lower level are applied, never decided again.
pub const LEVEL: u64 = 2;
/// Length of a version of a declared object, in characters.
const VERSION_LENGTH: usize = 16;

/// State of the engine.
#[derive(Clone, Debug)]
pub struct State {
    /// The ledger itself, tokens, keys and nodes.
    pub spine: Spine,
    /// Bookings and limits.
    pub bookings: Bookings,
    /// The CPU markets of nodes.
    pub markets: Markets,
    /// Budgets, runs and leases.
    pub clusters: Clusters,
}

impl Default for State {
    fn default() -> Self {
        Self {
            bookings: Bookings::new(),
            ..Self::blank()
        }
    }
}

impl State {
    /// A state to restore facts into.
    pub fn blank() -> Self {
        Self {
            spine: Spine::default(),
            bookings: Bookings::blank(),
            markets: Markets::default(),
            clusters: Clusters::default(),
        }
    }

    /// Applies an event. Cannot fail.
    pub fn apply(&mut self, at: Instant, event: &Event) {
        match event {
            Event::Booking(event) => Plane::apply(&mut self.bookings, at, event),
            Event::Market(event) => Plane::apply(&mut self.markets, at, event),
            Event::Cluster(event) => Plane::apply(&mut self.clusters, at, event),
            Event::Spine(event) => {
                self.spine.apply(at, event);
                self.follow_spine(at, event);
            }
        }
        self.spine.time = self.spine.time.max(at);
    }

    /// Applies an event of the spine to the other planes.
    pub(crate) fn follow_spine(&mut self, at: Instant, event: &spine::Event) {
        match event {
            spine::Event::Resumed { .. } => {
                Plane::resume(&mut self.bookings, at);
                self.markets.resume(at);
                Plane::resume(&mut self.clusters, at);
            }
            spine::Event::Restored {
                fence: Some(first), ..
            } => self.bookings.begin_fences(*first),
            spine::Event::NodeSet(_) | spine::Event::NodeDropped { .. } => {
                let name = match event {
                    spine::Event::NodeSet(node) => Some(&node.name),
                    spine::Event::NodeDropped { name } => Some(name),
                    _ => None,
                };
                if let Some(name) = name {
                    let node = self.spine.inventory.get(name.as_str());
                    self.clusters.take_node(name, node);
                }
                self.bookings.take_inventory(&self.spine.inventory);
                self.markets.take_inventory(&self.spine.inventory);
            }
            _ => {}
        }
    }

    /// Applies a whole record.
    pub fn apply_record(&mut self, time: Instant, events: &[Event]) {
        for (at, event) in dated(time, events) {
            self.apply(at, event);
        }
        self.spine.head += 1;
    }

    /// Time of the next tick: the earliest deadline of all planes, or the time of the last event if
    /// grants are owed (L9).
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.owes() {
            return Some(self.spine.time);
        }
        Class::ALL
            .into_iter()
            .filter_map(|class| self.next_deadline_of(class))
            .min()
    }

    /// Earliest deadline of a class, of all planes.
    pub fn next_deadline_of(&self, class: Class) -> Option<Instant> {
        let planes = [
            self.spine.next_deadline(class),
            Plane::next_deadline(&self.bookings, class),
            self.markets.next_deadline(class),
            Plane::next_deadline(&self.clusters, class),
            Plane::owed_last(&self.clusters).filter(|_| class == Class::Clock),
        ];
        planes.into_iter().flatten().min()
    }

    /// Whether a clock deadline is before `now` (L5).
    pub fn clock_is_due(&self, now: Instant) -> bool {
        let next = self.next_deadline_of(Class::Clock);
        next.is_some_and(|deadline| deadline < now)
    }

    /// Whether a deadline of any class has passed at `until`.
    pub fn is_due(&self, until: Instant) -> bool {
        let mut classes = Class::ALL.into_iter();
        classes.any(|class| {
            self.next_deadline_of(class)
                .is_some_and(|deadline| deadline <= until)
        })
    }

    /// Whether grants are owed that did not fit into a record; they come before any other command
    /// (L9).
    pub fn owes(&self) -> bool {
        let planes = [
            self.spine.owed_since(),
            self.bookings.owed_since(),
            self.markets.owed_since(),
            Plane::owed_since(&self.clusters),
        ];
        planes.into_iter().any(|since| since.is_some())
    }

    /// Whether a deadline is overdue by `by`, so that the server must have been absent (L5).
    pub fn missed(&self, now: Instant, by: Millis) -> bool {
        !self.owes()
            && self
                .next_deadline()
                .is_some_and(|deadline| deadline.after(by) <= now)
    }

    /// Tick for the deadlines up to `until`, or up to `now`, with the renewals that it needs (S7).
    pub fn tick(
        &self,
        now: Instant,
        until: Option<Instant>,
        alive_until: impl Fn(&Reference) -> Option<Instant>,
    ) -> spine::Command {
        let overdue = Plane::overdue(&self.bookings, until.unwrap_or(now));
        let renewed = overdue
            .take(bursar_plane::STEPS_PER_RECORD_MAX)
            .filter_map(|object| match &object {
                Reference::Booking(id) => Some((id.clone(), alive_until(&object)?)),
                _ => None,
            })
            .collect::<Vec<(BookingId, Instant)>>();
        spine::Command::Tick {
            renewed,
            until,
            class: None,
        }
    }

    /// Version of a declared object: a hash of its content; `None` if it does not exist. Records of
    /// changes contain versions, so the hash of a content is fixed within a level.
    pub fn version(&self, object: &Reference) -> Option<String> {
        let content = match object {
            Reference::Limit(name) => {
                serde_json::to_vec(&self.bookings.limit(name.as_str())?.limit)
            }
            Reference::Budget(name) => {
                let id = bursar_cluster::budget::BudgetId::new(name.as_str()).ok()?;
                serde_json::to_vec(self.clusters.accounts().budget(&id)?)
            }
            Reference::Run(name) => serde_json::to_vec(&self.clusters.run_named(name)?.run),
            Reference::Node(name) => serde_json::to_vec(self.spine.inventory.get(name.as_str())?),
            _ => return None,
        };
        let hash = sha256(&content.unwrap_or_default()).to_string();
        Some(hash.chars().take(VERSION_LENGTH).collect())
    }

    /// Small copy of the state, for plans (L3).
    #[must_use]
    pub fn sketch(&self, commands: &[Command]) -> Self {
        let (mut spine, mut booking) = (Vec::new(), Vec::new());
        let (mut market, mut cluster) = (Vec::new(), Vec::new());
        for command in commands {
            match command {
                Command::Spine(command) => spine.push(command),
                Command::Booking(command) => booking.push(command),
                Command::Market(command) => market.push(command),
                Command::Cluster(command) => cluster.push(command),
            }
        }
        Self {
            spine: self.spine.sketch(&spine),
            bookings: Plane::sketch(&self.bookings, &booking),
            markets: self.markets.sketch(&market),
            // Commands to bookings and markets do not reach the cluster.
            clusters: if spine.is_empty() && cluster.is_empty() {
                Clusters::default()
            } else {
                Plane::sketch(&self.clusters, &cluster)
            },
        }
    }
}
