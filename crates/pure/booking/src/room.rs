//! The waiting room: lanes, turns, passes and the shield (S2–S4).
//!
//! A lane is (class, tenant, priority), first in first out, and only heads are candidates. The next
//! grant goes to the head with the least (aged priority, turn of its tenant, sequence) among those
//! that fit and are not shielded. `tests/it/oracle.rs` has the same rule as a plain loop.

use std::collections::{BTreeMap, VecDeque};

use bursar_units::{Amount, BookingId, Instant};

use crate::PASSES_UNTIL_DUE;
use crate::names::NameIndex;
use crate::request::Priority;

/// Key of one first-in-first-out queue. The class is first, so that its lanes are one range.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub(crate) struct Lane {
    pub(crate) class: NameIndex,
    pub(crate) tenant: NameIndex,
    pub(crate) priority: Priority,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// Number of the request in the ledger.
    pub(crate) sequence: u64,
    pub(crate) id: BookingId,
    pub(crate) amount: Amount,
    pub(crate) since: Instant,
    /// Number of later bookings that were granted what this one lacked.
    pub(crate) passes: u32,
    /// Number in the order in which heads became due; `None` until then.
    pub(crate) due: Option<u64>,
}

/// Order of candidates; the least is served first.
pub(crate) type Key = (u64, u128, u64);

#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    lanes: BTreeMap<Lane, VecDeque<Waiting>>,
    length: usize,
    /// Lanes with a due head, in the order in which heads became due. A due head stays the head.
    due: BTreeMap<u64, Lane>,
}

impl Waiting {
    /// Priority after ageing: one level higher for every minute waited.
    pub(crate) fn aged(&self, priority: Priority, at: Instant) -> u64 {
        let steps_floor = at.since(self.since).ms() / crate::AGEING_STEP.ms();
        priority.level().saturating_sub(steps_floor)
    }
}

/// Step of the turn for a grant: ⌊slots · 2⁶⁴ / weight⌋ (S3).
pub(crate) fn turn_step_floor(amount: &Amount, weight: u64) -> u128 {
    (u128::from(amount.slots) << 64) / u128::from(weight.max(1))
}

impl Room {
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn join(&mut self, lane: Lane, waiting: Waiting) {
        if let Some(due) = waiting.due {
            self.due.insert(due, lane);
        }
        let queue = self.lanes.entry(lane).or_default();
        // A snapshot restores bookings in the order of ids, not of arrival.
        let at = queue.partition_point(|other| other.sequence < waiting.sequence);
        queue.insert(at, waiting);
        self.length += 1;
    }

    pub(crate) fn leave(&mut self, lane: Lane, sequence: u64) -> Option<Waiting> {
        let queue = self.lanes.get_mut(&lane)?;
        let at = queue
            .binary_search_by_key(&sequence, |waiting| waiting.sequence)
            .ok()?;
        let left = queue.remove(at)?;
        if queue.is_empty() {
            self.lanes.remove(&lane);
        }
        if let Some(due) = left.due {
            self.due.remove(&due);
        }
        self.length -= 1;
        Some(left)
    }

    pub(crate) fn get(&self, lane: Lane, sequence: u64) -> Option<&Waiting> {
        let queue = self.lanes.get(&lane)?;
        let at = queue
            .binary_search_by_key(&sequence, |waiting| waiting.sequence)
            .ok()?;
        queue.get(at)
    }

    pub(crate) fn has_lane(&self, lane: Lane) -> bool {
        self.lanes.contains_key(&lane)
    }

    pub(crate) fn heads(&self) -> impl Iterator<Item = (Lane, &Waiting)> {
        self.lanes
            .iter()
            .filter_map(|(lane, queue)| Some((*lane, queue.front()?)))
    }

    /// Due heads with their numbers, first due first.
    pub(crate) fn due_heads(&self) -> impl Iterator<Item = (u64, Lane, &Waiting)> {
        self.due
            .iter()
            .filter_map(|(due, lane)| Some((*due, *lane, self.lanes.get(lane)?.front()?)))
    }

    /// Counts a pass of the head of a lane. Returns whether it became due, with number `dues`.
    pub(crate) fn pass(&mut self, lane: Lane, dues: u64) -> bool {
        let Some(head) = self.lanes.get_mut(&lane).and_then(VecDeque::front_mut) else {
            return false;
        };
        head.passes = head.passes.saturating_add(1);
        let becomes_due = PASSES_UNTIL_DUE <= head.passes && head.due.is_none();
        if becomes_due {
            head.due = Some(dues);
            self.due.insert(dues, lane);
        }
        becomes_due
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = (Lane, &VecDeque<Waiting>)> {
        self.lanes.iter().map(|(lane, queue)| (*lane, queue))
    }
}
