//! Where a waiting booking stands, why it waits, and what that rests on (S8).

use std::collections::BTreeMap;

use bursar_units::{Amount, BookingId, Dimension, Instant, Label, ObjectName};

use crate::limit::{Applied, Declared, Kind, LimitUse};
use crate::request::Request;
use crate::room::Lane;
use crate::{Bookings, ESTIMATE_RESTS_ON_MIN, Fence};

/// Why a booking waits, in the order in which a headline is chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum Reason {
    /// A limit is set to zero.
    LimitPaused,
    /// A limit is full.
    LimitFull,
    /// It would fit, but an earlier large request is due.
    Shielded,
    /// It would fit, but others come first.
    QueueOrder,
}

/// What can be said of a booking that waits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Position {
    /// How many of its class come before it.
    pub ahead: u64,
    /// Why it waits.
    pub reason: Reason,
    /// The limits that bind, headline first; those it shares where only order binds.
    pub limits: Vec<LimitUse>,
    /// When it may be granted.
    pub estimate: Option<Estimate>,
}

/// Whom a limit holds up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeldUp {
    /// How many bookings.
    pub bookings: u64,
    /// Since when the longest of them waits.
    pub since: Instant,
}

/// A guess, with what it rests on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Estimate {
    /// Milliseconds from now.
    pub ms: u64,
    /// How many ends of the class it rests on.
    pub rests_on: usize,
}

impl Bookings {
    /// Where a waiting booking stands; `None` if it does not wait.
    pub fn position(&self, at: Instant, id: &BookingId) -> Option<Position> {
        let queued = self.queued.get(id)?;
        let lane = queued.terms.lane();
        let applied = self.applied_of(lane.class, lane.tenant);
        let limits = self.binding(lane, &applied, &queued.terms.amount);
        let waiting = self.room.get(lane, queued.sequence)?;
        let reason = if limits.iter().any(|limit| limit.size == 0) {
            Reason::LimitPaused
        } else if !limits.is_empty() {
            Reason::LimitFull
        } else if self.is_shielded(lane, &waiting.amount, waiting.due) {
            Reason::Shielded
        } else {
            Reason::QueueOrder
        };
        let limits = if limits.is_empty() {
            self.shared_use(lane, &applied)
        } else {
            limits
        };
        let ahead = self.ahead(at, lane, queued.sequence);
        let estimate = match reason {
            Reason::LimitPaused => None,
            _ => self.estimate_of(lane, ahead),
        };
        Some(Position {
            ahead,
            reason,
            limits,
            estimate,
        })
    }

    /// When a slot of a class may come free for someone who would be first; for refusals.
    pub fn next_free(&self, class: &Label) -> Option<Estimate> {
        let class = self.classes.get(self.classes.find(class)?);
        estimate(&class.held_ms, class.counter.used.shown().slots, 0)
    }

    /// The limits that a request would apply, each with its use in every bounded dimension.
    pub fn limits_for(&self, request: &Request) -> Vec<LimitUse> {
        let applied = self.limits.applied(&request.class, &request.tenant);
        applied
            .iter()
            .flat_map(|declared| self.counter_use(declared, &request.class, &request.tenant))
            .collect()
    }

    /// How many bookings each limit holds up, and since when the longest. One that lacks nothing
    /// and waits for its turn is held up by the limits whose order it stands in.
    pub fn held_up(&self) -> BTreeMap<ObjectName, HeldUp> {
        let mut held_up = BTreeMap::new();
        for (lane, queue) in self.room.lanes() {
            let applied = self.applied_of(lane.class, lane.tenant);
            for waiting in queue {
                let mut lacking: Vec<&Declared> = applied
                    .iter()
                    .filter(|declared| self.lacks(declared, lane, &waiting.amount))
                    .collect();
                if lacking.is_empty() {
                    let shared = |kind| matches!(kind, Kind::Everything | Kind::Class);
                    lacking = applied.iter().filter(|d| shared(d.limit.kind())).collect();
                }
                for declared in lacking {
                    let entry = held_up
                        .entry(declared.limit.name.clone())
                        .or_insert(HeldUp {
                            bookings: 0,
                            since: waiting.since,
                        });
                    entry.bookings += 1;
                    entry.since = entry.since.min(waiting.since);
                }
            }
        }
        held_up
    }

    /// The limits and dimensions that an amount exceeds now, headline first (S1).
    pub(crate) fn binding(&self, lane: Lane, applied: &Applied, amount: &Amount) -> Vec<LimitUse> {
        applied
            .iter()
            .flat_map(|declared| {
                let counter = self.counter(declared.limit.kind(), lane.class, lane.tenant);
                let exceeded = counter.used.exceeds(amount, &declared.bounds);
                exceeded.map(|dimension| self.limit_use(declared, dimension, lane))
            })
            .collect()
    }

    /// A limit's counter for a lane in one dimension, which the limit bounds.
    pub(crate) fn limit_use(
        &self,
        declared: &Declared,
        dimension: Dimension,
        lane: Lane,
    ) -> LimitUse {
        let counter = self.counter(declared.limit.kind(), lane.class, lane.tenant);
        LimitUse {
            name: declared.limit.name.clone(),
            dimension,
            size: declared.bounds.of(dimension).unwrap_or_default(),
            in_use: counter.used.shown().of(dimension),
            waiting: counter.waiting,
        }
    }

    /// The limits that a lane's order is about, each in its first bounded dimension: those it
    /// shares with others, or its tenant's own where nobody else counts in a bounded one.
    pub(crate) fn shared_use(&self, lane: Lane, applied: &Applied) -> Vec<LimitUse> {
        let in_use = |is_wanted: fn(Kind) -> bool| -> Vec<LimitUse> {
            applied
                .iter()
                .filter(|declared| is_wanted(declared.limit.kind()))
                .filter_map(|declared| {
                    let is_bounded =
                        |dimension: &Dimension| declared.bounds.of(*dimension).is_some();
                    let dimension = Dimension::ALL.into_iter().find(is_bounded)?;
                    Some(self.limit_use(declared, dimension, lane))
                })
                .collect()
        };
        let shared = in_use(|kind| matches!(kind, Kind::Everything | Kind::Class));
        if shared.is_empty() {
            in_use(|_| true)
        } else {
            shared
        }
    }

    /// The fence of the next grant.
    pub fn next_fence(&self) -> Fence {
        Fence(self.fence.0 + 1).max(self.fences_from)
    }

    /// Interns the request's names for the length of `look`, so that counters can be read.
    pub(crate) fn with_lane<T>(
        &mut self,
        request: &Request,
        look: impl FnOnce(&Self, Lane) -> T,
    ) -> T {
        let class = self.classes.take(&request.class);
        let tenant = self.tenants.take(&request.tenant);
        let result = look(
            self,
            Lane {
                class,
                tenant,
                priority: request.priority,
            },
        );
        self.classes.give(class);
        self.tenants.give(tenant);
        result
    }

    /// How many of the class come before, if everyone is served in the order of turns: each
    /// booking is placed at the turn its tenant will have reached when those of its lane before
    /// it have been granted.
    fn ahead(&self, at: Instant, lane: Lane, sequence: u64) -> u64 {
        let mut mine = None;
        let mut places = Vec::new();
        for (other, queue) in self
            .room
            .lanes()
            .filter(|(other, _)| other.class == lane.class)
        {
            let weight = self.applied_of(other.class, other.tenant).weight();
            let mut turn = self.tenants.get(other.tenant).turn;
            for waiting in queue {
                let place = (waiting.aged(other.priority, at), turn, waiting.sequence);
                if waiting.sequence == sequence {
                    mine = Some(place);
                }
                places.push(place);
                turn = turn.saturating_add(crate::room::turn_step_floor(&waiting.amount, weight));
            }
        }
        let before = mine.map_or(0, |mine| {
            places.iter().filter(|place| **place < mine).count()
        });
        u64::try_from(before).unwrap_or(u64::MAX)
    }

    fn estimate_of(&self, lane: Lane, ahead: u64) -> Option<Estimate> {
        let class = self.classes.get(lane.class);
        estimate(&class.held_ms, class.counter.used.shown().slots, ahead)
    }
}

/// ⌈mean time held · (ahead + 1) / slots in use⌉: with n slots in use one comes free every
/// n-th part of the mean. Absent where it would rest on too little.
fn estimate(
    held_ms: &std::collections::VecDeque<u64>,
    slots_in_use: u64,
    ahead: u64,
) -> Option<Estimate> {
    let rests_on = held_ms.len();
    if rests_on < ESTIMATE_RESTS_ON_MIN || slots_in_use == 0 {
        return None;
    }
    let sum: u128 = held_ms.iter().map(|ms| u128::from(*ms)).sum();
    let divisor = u128::try_from(rests_on).ok()? * u128::from(slots_in_use);
    let ms = (sum * (u128::from(ahead) + 1)).div_ceil(divisor);
    Some(Estimate {
        ms: u64::try_from(ms).ok()?,
        rests_on,
    })
}
