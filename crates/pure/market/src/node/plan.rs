//! The limits to write after a clearing (M5).
//!
//! First all decreases at once, read back, then the raises, each at most as large as the free capacity:
//! so no write lifts the sum above capacity, or above the sum before. A new pod, and a sum above
//! capacity, are written outside the budget. Otherwise raises come in the order of unmet work and
//! take the decreases they need, the largest first. Decreases that nobody needs are written while the
//! pool is at least half full. Guardrails only leave writes out.

use std::cmp::Reverse;

use super::member::Member;
use super::{Node, Settings};
use crate::act::{Budget, is_worth_it};
use crate::clear::{BoundBy, Quantum};

/// A planned limit of the pod at a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Planned {
    pub(crate) place: usize,
    pub(crate) milli: u64,
}

/// The writes of one clearing, and what was left out.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) decreases: Vec<Planned>,
    pub(super) raises: Vec<Planned>,
    /// The share that was left out, or the part of it, with the first reason; by place once planned.
    left_out: Vec<(usize, BoundBy)>,
    /// The sum of the limits that take part.
    limits_milli: u128,
    /// The limits above their shares, and those below.
    falling: Vec<Change>,
    rising: Vec<Change>,
}

/// The present and the wanted limit of the pod at a place.
#[derive(Clone, Copy, Debug)]
struct Change {
    place: usize,
    limit_milli: u64,
    wanted_milli: u64,
    unmet_milli: u64,
    is_new: bool,
    is_unlimited: bool,
    is_cooling: bool,
}

impl Plan {
    pub(super) fn clear(&mut self) {
        self.decreases.clear();
        self.raises.clear();
        self.left_out.clear();
        self.limits_milli = 0;
        self.falling.clear();
        self.rising.clear();
    }

    /// Why the share of the pod at a place was not written, or not all of it.
    pub(super) fn left_out(&self, place: usize) -> Option<BoundBy> {
        let found = self.left_out.binary_search_by_key(&place, |(at, _)| *at);
        self.left_out
            .get(found.ok()?)
            .map(|(_, bound_by)| *bound_by)
    }

    /// Adds the share of the pod at a place.
    pub(super) fn add(&mut self, place: usize, pod: &Member, wanted_milli: u64, is_cooling: bool) {
        let limit_milli = pod.bidder.limit_milli;
        self.limits_milli += u128::from(limit_milli);
        let is_unlimited = pod.present.quota_us.is_none();
        // The kernel has no limit of 0.
        let wanted_milli = wanted_milli.max(1);
        if wanted_milli == limit_milli && !is_unlimited {
            return;
        }
        let change = Change {
            place,
            limit_milli,
            wanted_milli,
            unmet_milli: pod.bidder.unmet_milli,
            is_new: pod.is_new,
            is_unlimited,
            is_cooling,
        };
        if wanted_milli <= limit_milli {
            self.falling.push(change);
        } else {
            self.rising.push(change);
        }
    }

    /// Plans the writes of the added shares.
    pub(super) fn make(&mut self, settings: &Settings, budget: &mut Budget, capacity_milli: u64) {
        let mut falling = std::mem::take(&mut self.falling);
        let mut rising = std::mem::take(&mut self.rising);
        let mut sum = self.limits_milli;
        let is_over = u128::from(capacity_milli) < sum;
        falling.sort_unstable_by_key(|change| (Reverse(change.fall()), change.place));
        falling.retain(|change| {
            let is_first = change.is_unlimited || change.is_new && change.is_worth_it();
            let is_forced = is_over || is_first;
            if is_forced {
                self.decreases.push(change.down());
                sum -= u128::from(change.fall());
            }
            !is_forced
        });
        let sum = u64::try_from(sum).unwrap_or(u64::MAX);
        let free = capacity_milli.saturating_sub(sum);
        rising.sort_unstable_by_key(|change| (Reverse(change.unmet_milli), change.place));
        self.fill(settings, budget, (&falling, &rising), free);
        self.left_out.sort_by_key(|(place, _)| *place);
        self.left_out.dedup_by_key(|(place, _)| *place);
        (self.falling, self.rising) = (falling, rising);
    }
}

impl Node {
    /// The planned raises, at most as large as what is free now.
    pub(crate) fn raises(&self) -> Vec<Planned> {
        let quantum = Quantum::new(self.settings.quantum_milli);
        let given = self.pods.iter().filter(|pod| pod.given.is_some());
        let sum = given
            .map(|pod| pod.bidder.limit_milli)
            .fold(0_u64, u64::saturating_add);
        let mut free = self.capacity_milli().saturating_sub(sum);
        let mut raises = Vec::with_capacity(self.plan.raises.len());
        for raise in &self.plan.raises {
            let Some(pod) = self.pods.get(raise.place) else {
                continue;
            };
            let limit_milli = pod.bidder.limit_milli;
            let milli = reached(limit_milli, raise.milli, free, quantum);
            let is_free = pod.given.is_some() && pod.left_alone.is_none();
            if is_free && limit_milli < milli && is_worth_it(limit_milli, milli) {
                free -= milli - limit_milli;
                raises.push(Planned { milli, ..*raise });
            }
        }
        raises
    }

    /// The planned decreases.
    pub(crate) fn falls(&self) -> &[Planned] {
        &self.plan.decreases
    }
}

impl Plan {
    /// Raises with the decreases they need, then the other decreases, within the budget. Both lists are
    /// sorted.
    fn fill(
        &mut self,
        settings: &Settings,
        budget: &mut Budget,
        (falling, rising): (&[Change], &[Change]),
        mut free: u64,
    ) {
        let quantum = Quantum::new(settings.quantum_milli);
        let mut spare = falling.iter().peekable();
        for change in rising.iter().filter(|change| change.is_worth_it()) {
            if change.is_cooling {
                self.left_out.push((change.place, BoundBy::Cooldown));
                continue;
            }
            let mut target = change.wanted_milli;
            if let Some(factor) = settings.max_step {
                let most = change.limit_milli.max(1).saturating_mul(factor.max(1));
                if most < target {
                    target = quantum.milli(quantum.floor(most)).max(change.limit_milli);
                    self.left_out.push((change.place, BoundBy::MaxStep));
                }
            }
            if !is_worth_it(change.limit_milli, target) {
                continue;
            }
            if !change.is_new && !budget.has(1) {
                self.left_out.push((change.place, BoundBy::Budget));
                continue;
            }
            let rise = target - change.limit_milli;
            while free < rise && budget.has(2) {
                let Some(fall) = spare.next() else { break };
                budget.spend();
                free = free.saturating_add(fall.fall());
                self.decreases.push(fall.down());
            }
            let milli = reached(change.limit_milli, target, free, quantum);
            if free < rise && !budget.has(2) && spare.peek().is_some() {
                self.left_out.push((change.place, BoundBy::Budget));
            }
            if change.limit_milli < milli && is_worth_it(change.limit_milli, milli) {
                free -= milli - change.limit_milli;
                if !change.is_new {
                    budget.spend();
                }
                self.raises.push(Planned {
                    place: change.place,
                    milli,
                });
            }
        }
        for change in spare.filter(|change| change.is_worth_it()) {
            if change.is_cooling {
                self.left_out.push((change.place, BoundBy::Cooldown));
            } else if budget.is_half_full() {
                budget.spend();
                self.decreases.push(change.down());
            } else {
                self.left_out.push((change.place, BoundBy::Budget));
            }
        }
    }
}

impl Change {
    const fn fall(&self) -> u64 {
        self.limit_milli.saturating_sub(self.wanted_milli)
    }

    const fn down(&self) -> Planned {
        Planned {
            place: self.place,
            milli: self.wanted_milli,
        }
    }

    fn is_worth_it(&self) -> bool {
        is_worth_it(self.limit_milli, self.wanted_milli)
    }
}

/// The limit after a raise by at most `free`, in whole quanta unless it is reached.
fn reached(limit_milli: u64, target_milli: u64, free: u64, quantum: Quantum) -> u64 {
    let most = limit_milli.saturating_add(free);
    if target_milli <= most {
        return target_milli;
    }
    quantum.milli(quantum.floor(most))
}
