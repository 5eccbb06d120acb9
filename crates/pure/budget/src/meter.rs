//! One meter: GPUs and GPU time of an envelope, an aggregate cap or a lending pool (B1, B2).
//!
//! The width of a meter is a step function. The meter keeps the time accrued until the last step,
//! so the value at any instant is one multiplication away, and a step costs the same after a million
//! steps as after one. `committed(t) = accrued(t) + Σ w·(min(E, e) − t)` is kept as two sums: Σ w·E
//! and Σ w of the promised claims. For an instant before the window the sum starts at the window.

use std::collections::BTreeSet;
use std::sync::Arc;

use bursar_units::{Instant, Millis, is_default, whole};
use serde::{Deserialize, Serialize};

use crate::calendar::{Schedule, Window};
use crate::claim::Promise;
use crate::cover::Dimension;
use crate::id::MeterId;

/// Percentages that are announced (`meterNear`) when the value reaches that share of the limit.
pub const SHARES: [u64; 2] = [80, 95];
/// Percentage that is announced for a failed take, extension or claim.
pub const EXHAUSTED: u64 = 100;
/// Points by which a share must fall before a percentage is announced again.
pub const POINTS_LOWER: u64 = 5;

/// An epoch that is over.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClosedEpoch {
    /// Number of the epoch, from 0.
    #[serde(with = "whole")]
    pub epoch: u64,
    /// Start of its window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Instant>,
    /// Instant at which it was closed.
    pub end: Instant,
    /// GPU-milliseconds accrued in it.
    #[serde(with = "whole", rename = "accruedGpuMs")]
    pub accrued: u64,
}

/// A value and its limit at an instant, such as that at which a percentage was announced.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Share {
    /// The value.
    #[serde(with = "whole")]
    pub value: u64,
    /// The limit.
    #[serde(with = "whole")]
    pub limit: u64,
    /// The instant.
    pub at: Instant,
}

/// Percentages that were announced in this epoch and are not armed again.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Announced {
    /// Of the GPUs, by [`SHARES`], then [`EXHAUSTED`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus: [Option<Share>; 3],
    /// Of the hours, by [`SHARES`], then [`EXHAUSTED`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub hours: [Option<Share>; 3],
}

#[derive(Clone, Debug)]
pub(crate) struct Meter {
    pub(crate) id: MeterId,
    /// Whether a budget declares it now.
    pub(crate) is_declared: bool,
    pub(crate) gpus_limit: Option<u64>,
    pub(crate) time_limit: Option<u64>,
    pub(crate) schedule: Schedule,
    /// The present window; `None` after the last one.
    pub(crate) window: Option<Window>,
    pub(crate) epoch: u64,
    /// Epochs that are over; shared with copies of the state.
    pub(crate) closed: Arc<Vec<ClosedEpoch>>,
    accrued: u128,
    since: Instant,
    /// Σ w of the claims with a promise.
    promised_gpus: u64,
    /// Σ w·E of the claims with a promise, E clamped to the window.
    promised: u128,
    /// Σ w of the overrunning claims.
    overrunning: u64,
    /// Σ w of the holds.
    held_gpus: u64,
    /// Σ w·D of the holds.
    held: u128,
    /// Numbers of the claims.
    pub(crate) claims: BTreeSet<u64>,
    pub(crate) announced: Announced,
    /// Deadlines that are in the common set now.
    pub(crate) edge: Option<Instant>,
    pub(crate) opening: Option<Instant>,
    pub(crate) depletion: Option<Instant>,
    pub(crate) threshold: Option<Instant>,
}

impl Meter {
    pub(crate) fn new(id: MeterId) -> Self {
        Self {
            id,
            is_declared: false,
            gpus_limit: None,
            time_limit: None,
            schedule: Schedule::default(),
            window: None,
            epoch: 0,
            closed: Arc::default(),
            accrued: 0,
            since: Instant::from_ms(0),
            promised_gpus: 0,
            promised: 0,
            overrunning: 0,
            held_gpus: 0,
            held: 0,
            claims: BTreeSet::new(),
            announced: Announced::default(),
            edge: None,
            opening: None,
            depletion: None,
            threshold: None,
        }
    }

    /// GPUs of all claims and holds.
    pub(crate) fn gpus(&self) -> u64 {
        self.promised_gpus
            .saturating_add(self.overrunning)
            .saturating_add(self.held_gpus)
    }

    pub(crate) fn gpus_held(&self) -> u64 {
        self.held_gpus
    }

    fn gpus_accruing(&self) -> u64 {
        self.promised_gpus.saturating_add(self.overrunning)
    }

    /// The time limit while the meter has a window.
    pub(crate) fn time_limit_in_force(&self) -> Option<u64> {
        self.time_limit.filter(|_| self.window.is_some())
    }

    pub(crate) fn accrued(&self, at: Instant) -> u128 {
        let length = self
            .window
            .map_or(0, |window| window.length(self.since, at.max(self.since)));
        self.accrued + product(self.gpus_accruing(), length)
    }

    /// Accrued and promised time. It grows by the overrunning width only.
    pub(crate) fn committed(&self, at: Instant) -> u128 {
        let from = self.window.map_or(at, |window| window.clamp(at));
        let promised = product(self.promised_gpus, from.ms());
        self.accrued(at) + self.promised.saturating_sub(promised) + self.held
    }

    /// Accrues until an instant.
    pub(crate) fn accrue(&mut self, at: Instant) {
        self.accrued = self.accrued(at);
        self.since = self.since.max(at);
    }

    /// Adds the GPUs of a claim; the meter has accrued until now.
    pub(crate) fn add(&mut self, gpus: u64, promise: Promise) {
        let time = self.contribution(gpus, promise);
        match promise {
            Promise::Until(_) => {
                self.promised_gpus = self.promised_gpus.saturating_add(gpus);
                self.promised += time;
            }
            Promise::Overruns(_) => self.overrunning = self.overrunning.saturating_add(gpus),
            Promise::Held { .. } => {
                self.held_gpus = self.held_gpus.saturating_add(gpus);
                self.held += time;
            }
        }
    }

    /// Takes off what [`Self::add`] added in the same window.
    pub(crate) fn remove(&mut self, gpus: u64, promise: Promise) {
        let time = self.contribution(gpus, promise);
        match promise {
            Promise::Until(_) => {
                self.promised_gpus = self.promised_gpus.saturating_sub(gpus);
                self.promised = self.promised.saturating_sub(time);
            }
            Promise::Overruns(_) => self.overrunning = self.overrunning.saturating_sub(gpus),
            Promise::Held { .. } => {
                self.held_gpus = self.held_gpus.saturating_sub(gpus);
                self.held = self.held.saturating_sub(time);
            }
        }
    }

    fn contribution(&self, gpus: u64, promise: Promise) -> u128 {
        let clamp = |at: Instant| self.window.map_or(at, |window| window.clamp(at));
        match promise {
            Promise::Until(end) => product(gpus, clamp(end).ms()),
            Promise::Overruns(_) => 0,
            Promise::Held { since, duration } => {
                let length = clamp(since.after(duration)).since(clamp(since));
                product(gpus, length.ms())
            }
        }
    }

    /// Length of time in the window that a claim of this promise encumbers from an instant on.
    pub(crate) fn length(&self, promise: Promise, at: Instant) -> u64 {
        let Some(window) = self.window else {
            return 0;
        };
        match promise {
            Promise::Until(end) => window.length(at, end.max(at)),
            Promise::Overruns(_) => 0,
            Promise::Held { since, duration } => window.length(since, since.after(duration)),
        }
    }

    /// Forgets the sums, for a new window; the claims are added again.
    pub(crate) fn clear_sums(&mut self) {
        (self.promised_gpus, self.promised) = (0, 0);
        (self.held_gpus, self.held) = (0, 0);
        self.overrunning = 0;
    }

    /// Begins the next epoch.
    pub(crate) fn close(&mut self, at: Instant, next: Option<Window>) {
        self.accrue(at);
        Arc::make_mut(&mut self.closed).push(ClosedEpoch {
            epoch: self.epoch,
            start: self.window.and_then(|window| window.start),
            end: at,
            accrued: saturated(self.accrued),
        });
        self.epoch += 1;
        self.accrued = 0;
        self.window = next;
        self.announced = Announced::default();
    }

    /// The instant at which the overrunning claims have used all uncommitted time:
    /// `t + ⌊(L − committed) / Σ w overrunning⌋`. `None` if the window ends before.
    pub(crate) fn depletes(&self) -> Option<Instant> {
        let (limit, window) = (self.time_limit?, self.window?);
        if self.overrunning == 0 {
            return None;
        }
        let from = window.clamp(self.since);
        let left = u128::from(limit).saturating_sub(self.committed(from));
        let length_floor = saturated(left / u128::from(self.overrunning));
        let at = from.after(Millis::from_ms(length_floor));
        window.end.is_none_or(|end| at < end).then_some(at)
    }

    /// The earliest instant at which a percentage that is not announced is reached.
    pub(crate) fn nears(&self) -> Option<Instant> {
        let gpus = SHARES.iter().zip(&self.announced.gpus);
        let is_crossed = gpus.into_iter().any(|(percent, announced)| {
            let reached = self
                .gpus_limit
                .is_some_and(|limit| reaches(u128::from(self.gpus()), u128::from(limit), *percent));
            reached && announced.is_none()
        });
        if is_crossed {
            return Some(self.since);
        }
        let hours = SHARES.iter().zip(&self.announced.hours);
        hours
            .filter(|(_, announced)| announced.is_none())
            .find_map(|(percent, _)| self.reaches_hours_at(*percent))
    }

    /// The instant at which the accrued time reaches a percentage of its limit, in this window.
    fn reaches_hours_at(&self, percent: u64) -> Option<Instant> {
        let (limit, window) = (self.time_limit?, self.window?);
        let wanted_ceil = (u128::from(limit) * u128::from(percent)).div_ceil(100);
        let from = window.clamp(self.since);
        let missing = wanted_ceil.max(1).saturating_sub(self.accrued(from));
        if missing == 0 {
            return Some(from);
        }
        let width = u128::from(self.gpus_accruing());
        let length_ceil = missing.checked_add(width.checked_sub(1)?)? / width;
        let at = from.after(Millis::from_ms(saturated(length_ceil)));
        window.end.is_none_or(|end| at < end).then_some(at)
    }

    /// The percentages that are reached and not announced.
    pub(crate) fn reached(&self, at: Instant) -> Vec<(Dimension, u64)> {
        let mut list = Vec::new();
        for dimension in Dimension::ALL {
            let Some(share) = self.share(dimension, at) else {
                continue;
            };
            for (percent, announced) in SHARES.iter().zip(self.announced(dimension)) {
                let (value, limit) = (u128::from(share.value), u128::from(share.limit));
                if announced.is_none() && reaches(value, limit, *percent) {
                    list.push((dimension, *percent));
                }
            }
        }
        list
    }

    /// The value and the limit of a dimension.
    pub(crate) fn share(&self, dimension: Dimension, at: Instant) -> Option<Share> {
        Some(match dimension {
            Dimension::Gpus => Share {
                value: self.gpus(),
                limit: self.gpus_limit?,
                at,
            },
            Dimension::Hours => Share {
                value: saturated(self.accrued(at)),
                limit: self.time_limit_in_force()?,
                at,
            },
        })
    }

    pub(crate) fn announced(&self, dimension: Dimension) -> &[Option<Share>; 3] {
        match dimension {
            Dimension::Gpus => &self.announced.gpus,
            Dimension::Hours => &self.announced.hours,
        }
    }

    pub(crate) fn announce(&mut self, dimension: Dimension, percent: u64, at: Instant) {
        let share = self.share(dimension, at);
        let list = match dimension {
            Dimension::Gpus => &mut self.announced.gpus,
            Dimension::Hours => &mut self.announced.hours,
        };
        for (slot, level) in list.iter_mut().zip(SHARES.into_iter().chain([EXHAUSTED])) {
            if level == percent {
                *slot = share;
            }
        }
    }

    /// Arms the percentages again whose share is five points lower than at their event.
    pub(crate) fn rearm(&mut self) {
        for dimension in Dimension::ALL {
            let share = self.share(dimension, self.since);
            let list = match dimension {
                Dimension::Gpus => &mut self.announced.gpus,
                Dimension::Hours => &mut self.announced.hours,
            };
            for slot in list {
                if slot.is_some_and(|then| share.is_none_or(|now| is_lower(now, then))) {
                    *slot = None;
                }
            }
        }
    }

    /// The stored part of the value, for a snapshot.
    pub(crate) fn stored(&self) -> (u64, Instant) {
        (saturated(self.accrued), self.since)
    }

    pub(crate) fn set_stored(&mut self, accrued: u64, since: Instant) {
        self.accrued = u128::from(accrued);
        self.since = since;
    }

    /// The sums, for the checker: promised, overrunning and held GPUs.
    pub(crate) fn widths(&self) -> (u64, u64, u64) {
        (self.promised_gpus, self.overrunning, self.held_gpus)
    }
}

/// GPU-milliseconds of a rectangle.
pub(crate) fn product(gpus: u64, length_ms: u64) -> u128 {
    u128::from(gpus) * u128::from(length_ms)
}

pub(crate) fn saturated(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn reaches(value: u128, limit: u128, percent: u64) -> bool {
    0 < value && limit * u128::from(percent) <= value * 100
}

/// Whether `now` is at least [`POINTS_LOWER`] hundredths lower than `then`, without rounding.
fn is_lower(now: Share, then: Share) -> bool {
    let wide = |value: u64| u128::from(value);
    if then.limit == 0 || now.limit == 0 {
        return now.limit != then.limit;
    }
    // now.value/now.limit + 5/100 ≤ then.value/then.limit. Limits are below 2⁵³ and 2³⁰, so the
    // products stay below 2¹²⁸ for values below 2⁶⁴.
    let left = wide(now.value).saturating_mul(100) + wide(now.limit) * wide(POINTS_LOWER);
    let right = wide(then.value).saturating_mul(100);
    left.saturating_mul(wide(then.limit)) <= right.saturating_mul(wide(now.limit))
}
