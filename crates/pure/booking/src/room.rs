//! The waiting room: lanes, turns, passes and the shield (S2–S4).
//!
//! A lane is (class, tenant, priority), first in first out, and only heads are candidates.
//! The next grant goes to the head with the least (aged priority, turn of its tenant, sequence)
//! among those that fit and are not shielded. `tests/it/oracle.rs` holds the plain loop.

use std::collections::{BTreeMap, VecDeque};

use bursar_units::{Amount, BookingId, Instant};

use crate::names::NameIndex;
use crate::request::Priority;

/// One first-in-first-out queue. Class first, so that a class is a range.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub(crate) struct Lane {
    pub(crate) class: NameIndex,
    pub(crate) tenant: NameIndex,
    pub(crate) priority: Priority,
}

/// A booking in a lane.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// Order of arrival in the whole ledger.
    pub(crate) sequence: u64,
    pub(crate) id: BookingId,
    pub(crate) amount: Amount,
    pub(crate) since: Instant,
    /// How often a later one was granted what this one lacked.
    pub(crate) passes: u32,
    /// When it became due, counted in dues; `None` until then.
    pub(crate) due: Option<u64>,
}

/// What orders candidates; the least is served first.
pub(crate) type Key = (u64, u128, u64);

/// All lanes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    lanes: BTreeMap<Lane, VecDeque<Waiting>>,
    length: usize,
}

impl Waiting {
    /// The priority after ageing: one step better for every minute waited.
    pub(crate) fn aged(&self, priority: Priority, at: Instant) -> u64 {
        let steps_floor = at.since(self.since).ms() / crate::AGEING_STEP.ms();
        priority.level().saturating_sub(steps_floor)
    }
}

impl Room {
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn join(&mut self, lane: Lane, waiting: Waiting) {
        let queue = self.lanes.entry(lane).or_default();
        // Arrival order is sequence order; a snapshot restores bookings by id.
        let at = queue.partition_point(|other| other.sequence < waiting.sequence);
        queue.insert(at, waiting);
        self.length += 1;
    }

    pub(crate) fn leave(&mut self, lane: Lane, sequence: u64) -> Option<Waiting> {
        let queue = self.lanes.get_mut(&lane)?;
        let at = queue.binary_search_by_key(&sequence, |waiting| waiting.sequence).ok()?;
        let left = queue.remove(at);
        if queue.is_empty() {
            self.lanes.remove(&lane);
        }
        self.length -= 1;
        left
    }

    pub(crate) fn get(&self, lane: Lane, sequence: u64) -> Option<&Waiting> {
        let queue = self.lanes.get(&lane)?;
        let at = queue.binary_search_by_key(&sequence, |waiting| waiting.sequence).ok()?;
        queue.get(at)
    }

    pub(crate) fn has_lane(&self, lane: Lane) -> bool {
        self.lanes.contains_key(&lane)
    }

    pub(crate) fn heads(&self) -> impl Iterator<Item = (Lane, &Waiting)> {
        self.lanes.iter().filter_map(|(lane, queue)| Some((*lane, queue.front()?)))
    }

    pub(crate) fn head_mut(&mut self, lane: Lane) -> Option<&mut Waiting> {
        self.lanes.get_mut(&lane)?.front_mut()
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = (Lane, &VecDeque<Waiting>)> {
        self.lanes.iter().map(|(lane, queue)| (*lane, queue))
    }
}
