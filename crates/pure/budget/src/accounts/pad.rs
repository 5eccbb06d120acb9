//! The scratch pad: takes and removals of one decision, over the state as it is (D1).

use std::collections::BTreeMap;

use bursar_units::Instant;

use super::Accounts;
use crate::claim::{Pool, Promise};
use crate::cover::Dimension;
use crate::meter::{Meter, product, saturated};

/// Changes that a decision would make, by meter.
#[derive(Clone, Debug, Default)]
pub(super) struct Pad {
    meters: BTreeMap<usize, Delta>,
    /// Takes in order, one per envelope and pool.
    pub(super) takes: Vec<PadTake>,
}

#[derive(Clone, Debug, Default)]
struct Delta {
    gpus: i128,
    time: i128,
}

#[derive(Clone, Debug)]
pub(super) struct PadTake {
    pub(super) envelope: usize,
    pub(super) pool: Pool,
    pub(super) gpus: u64,
    pub(super) until: Instant,
}

/// Instant of a decision, and whether the meters count as empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Instant,
    /// Whether meters have no claims and nothing accrued, and windows are those of `now`.
    pub(super) is_empty: bool,
}

/// Room of a meter; `None` is unbounded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) gpus: Option<u64>,
    pub(super) hours: Option<u64>,
}

impl Pad {
    /// GPUs that the takes borrow.
    pub(super) fn gpus_lent(&self) -> u64 {
        let lent = self.takes.iter().filter(|take| take.pool == Pool::Lent);
        lent.fold(0, |sum, take| sum.saturating_add(take.gpus))
    }

    /// Notes a take and charges its meters.
    pub(super) fn take(&mut self, accounts: &Accounts, moment: Moment, take: PadTake) {
        let payer = (take.envelope, take.pool);
        let promise = Promise::Until(take.until);
        self.charge(accounts, moment, payer, take.gpus, promise, 1);
        let same = |other: &&mut PadTake| (other.envelope, other.pool) == payer;
        match self.takes.iter_mut().find(same) {
            Some(other) => other.gpus = other.gpus.saturating_add(take.gpus),
            None => self.takes.push(take),
        }
    }

    /// Adds GPUs of a claim to its meters, or takes them off for a `sign` of −1.
    pub(super) fn charge(
        &mut self,
        accounts: &Accounts,
        moment: Moment,
        (envelope, pool): (usize, Pool),
        gpus: u64,
        promise: Promise,
        sign: i128,
    ) {
        for number in accounts.charged(envelope, pool) {
            let Some(meter) = accounts.meters.get(number) else {
                continue;
            };
            let length = moment.length(meter, promise);
            let time = i128::try_from(product(gpus, length)).unwrap_or(i128::MAX);
            let delta = self.meters.entry(number).or_default();
            delta.gpus += sign * i128::from(gpus);
            delta.time = delta.time.saturating_add(sign * time);
        }
    }

    /// Room of a meter for GPUs with a promise (D2): free GPUs, and ⌊(L − committed)/length⌋.
    pub(super) fn room(
        &self,
        accounts: &Accounts,
        moment: Moment,
        number: usize,
        promise: Promise,
    ) -> Room {
        let Some(meter) = accounts.meters.get(number) else {
            return Room {
                gpus: Some(0),
                hours: None,
            };
        };
        let delta = self.meters.get(&number);
        let gpus = meter.gpus_limit.map(|limit| {
            let used = moment.gpus(meter) + delta.map_or(0, |delta| delta.gpus);
            floor_at_zero(i128::from(limit) - used)
        });
        let hours = moment.time_limit(meter).and_then(|limit| {
            let more = delta.map_or(0, |delta| delta.time);
            let left = i128::from(limit) - moment.committed(meter).saturating_add(more);
            match moment.length(meter, promise) {
                _ if left < 0 => Some(0),
                0 => None,
                length => Some(floor_at_zero(left / i128::from(length))),
            }
        });
        Room { gpus, hours }
    }

    /// The most GPUs of a claim that fit all its meters, and the meter that bounds them.
    pub(super) fn fit(
        &self,
        accounts: &Accounts,
        moment: Moment,
        payer: (usize, Pool),
        promise: Promise,
    ) -> (u64, Option<(usize, Dimension)>) {
        let mut fit = (u64::MAX, None);
        for number in accounts.charged(payer.0, payer.1) {
            let room = self.room(accounts, moment, number, promise);
            let parts = [(Dimension::Gpus, room.gpus), (Dimension::Hours, room.hours)];
            for (dimension, room) in parts {
                if let Some(room) = room.filter(|room| *room < fit.0) {
                    fit = (room, Some((number, dimension)));
                }
            }
        }
        fit
    }
}

impl Moment {
    pub(super) fn live(now: Instant) -> Self {
        Self {
            now,
            is_empty: false,
        }
    }

    fn gpus(self, meter: &Meter) -> i128 {
        if self.is_empty {
            return 0;
        }
        i128::from(meter.gpus())
    }

    fn committed(self, meter: &Meter) -> i128 {
        if self.is_empty {
            return 0;
        }
        i128::try_from(meter.committed(self.now)).unwrap_or(i128::MAX)
    }

    fn time_limit(self, meter: &Meter) -> Option<u64> {
        if self.is_empty {
            return meter
                .time_limit
                .filter(|_| meter.schedule.current(self.now).is_some());
        }
        meter.time_limit_in_force()
    }

    fn length(self, meter: &Meter, promise: Promise) -> u64 {
        match promise {
            Promise::Until(end) if self.is_empty => {
                let window = meter.schedule.current(self.now);
                window.map_or(0, |window| window.length(self.now, end.max(self.now)))
            }
            _ => meter.length(promise, self.now),
        }
    }
}

fn floor_at_zero(value: i128) -> u64 {
    saturated(u128::try_from(value).unwrap_or(0))
}
