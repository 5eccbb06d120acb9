//! Position of a waiting booking: the bookings ahead, the reason, and an estimate (S8).

use std::collections::BTreeMap;

use bursar_units::{Amount, BookingId, Dimension, Instant, Label, ObjectName};

use crate::limit::{Applied, Declared, Kind, LimitUse};
use crate::names::NameIndex;
use crate::request::Request;
use crate::room::Lane;
use crate::{Bookings, ESTIMATE_RESTS_ON_MIN, Fence};

/// Reason of a wait, in the order in which a headline is chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum Reason {
    /// A limit is set to zero.
    LimitPaused,
    /// A limit is full.
    LimitFull,
    /// The booking fits, but an earlier large request is due.
    Shielded,
    /// The booking fits, but others come first.
    QueueOrder,
}

/// Position of a waiting booking.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Position {
    /// Number of bookings of its class that come before it.
    pub ahead: u64,
    /// Reason of the wait.
    pub reason: Reason,
    /// Limits that are full, headline first; the shared ones if only the order matters.
    pub limits: Vec<LimitUse>,
    /// Estimated time until the grant.
    pub estimate: Option<Estimate>,
}

/// Bookings that a limit holds up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeldUp {
    /// Number of bookings.
    pub bookings: u64,
    /// Time of the oldest request among them.
    pub since: Instant,
}

/// An estimate and its basis.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Estimate {
    /// Milliseconds from now.
    pub ms: u64,
    /// Number of ends of the class that it rests on.
    pub rests_on: usize,
}

impl Bookings {
    /// Position of a waiting booking; `None` if it does not wait.
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
            _ => self.estimate(lane.class, ahead),
        };
        Some(Position {
            ahead,
            reason,
            limits,
            estimate,
        })
    }

    /// Estimate of the next free slot of a class, for refusals.
    pub fn next_free(&self, class: &Label) -> Option<Estimate> {
        self.estimate(self.classes.find(class)?, 0)
    }

    /// Limits that apply to a request, each with its use in every bounded dimension.
    pub fn limits_for(&self, request: &Request) -> Vec<LimitUse> {
        let applied = self.limits.applied(&request.class, &request.tenant);
        applied
            .iter()
            .flat_map(|declared| self.counter_use(declared, &request.class, &request.tenant))
            .collect()
    }

    /// Bookings that each limit holds up. A booking that fits and waits for its turn is held up by
    /// the limits that it shares with others.
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

    /// Limits and dimensions that an amount exceeds now, headline first (S1).
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

    /// Use of a limit's counter for a lane, in a dimension that the limit bounds.
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

    /// Limits that a lane shares with other tenants, each in its first bounded dimension; all
    /// limits of the lane if no shared one has a bound.
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

    /// Fence of the next grant.
    pub fn next_fence(&self) -> Fence {
        Fence(self.fence.0 + 1).max(self.fences_from)
    }

    /// Interns the names of a request for the duration of `read`, which needs the counters.
    pub(crate) fn with_lane<T>(
        &mut self,
        request: &Request,
        read: impl FnOnce(&Self, Lane) -> T,
    ) -> T {
        let class = self.classes.take(&request.class);
        let tenant = self.tenants.take(&request.tenant);
        let lane = Lane {
            class,
            tenant,
            priority: request.priority,
        };
        let result = read(self, lane);
        self.classes.give(class);
        self.tenants.give(tenant);
        result
    }

    /// Number of bookings of the class that come before, in the order of turns. The turn of a
    /// booking is that of its tenant after the grants to those before it in its lane.
    fn ahead(&self, at: Instant, lane: Lane, sequence: u64) -> u64 {
        let mut mine = None;
        let mut keys = Vec::new();
        for (other, queue) in self
            .room
            .lanes()
            .filter(|(other, _)| other.class == lane.class)
        {
            let weight = self.applied_of(other.class, other.tenant).weight();
            let mut turn = self.tenants.get(other.tenant).turn;
            for waiting in queue {
                let key = (waiting.aged(other.priority, at), turn, waiting.sequence);
                if waiting.sequence == sequence {
                    mine = Some(key);
                }
                keys.push(key);
                turn = turn.saturating_add(crate::room::turn_step_floor(&waiting.amount, weight));
            }
        }
        let before = mine.map_or(0, |mine| keys.iter().filter(|key| **key < mine).count());
        u64::try_from(before).unwrap_or(u64::MAX)
    }

    /// ⌈mean time held · (ahead + 1) / slots in use⌉: with n slots in use one comes free every
    /// n-th part of the mean. `None` with too few ends.
    fn estimate(&self, class: NameIndex, ahead: u64) -> Option<Estimate> {
        let class = self.classes.get(class);
        let slots_in_use = class.counter.used.shown().slots;
        let rests_on = class.held_ms.len();
        if rests_on < ESTIMATE_RESTS_ON_MIN || slots_in_use == 0 {
            return None;
        }
        let sum: u128 = class.held_ms.iter().map(|ms| u128::from(*ms)).sum();
        let divisor = u128::try_from(rests_on).ok()? * u128::from(slots_in_use);
        let ms = (sum * (u128::from(ahead) + 1)).div_ceil(divisor);
        Some(Estimate {
            ms: u64::try_from(ms).ok()?,
            rests_on,
        })
    }
}
