//! The state of one pod of a node.

use std::sync::Arc;

use super::{Held, Settings};
use crate::act;
use crate::bidder::{Bidder, Estimate, Measured};
use crate::cgroup::Quota;
use crate::clear::{self, BoundBy};
use crate::need::{self, THROTTLED_PERMILLE};
use crate::params::Params;
use crate::sense::{self, Reading, Sample};

/// The state of one pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Standing {
    /// The pod.
    pub id: String,
    /// Its parameters, limit, headroom and memory.
    pub bidder: Bidder,
    /// The quota to restore.
    pub original: Quota,
    /// Its use in the last interval.
    pub used_milli: Option<u64>,
    /// The share of throttled periods in the last interval, in permille, if known.
    pub throttled_permille: Option<u64>,
    /// Its estimate in the last clearing; `None` while it is held.
    pub estimate: Option<Estimate>,
    /// Time of our last change of its limit.
    pub changed_us: Option<u64>,
    /// Why its share was not written, or not all of it.
    pub left_out: Option<BoundBy>,
    /// The reason why it is held.
    pub held: Option<Held>,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: Arc<str>,
    pub(super) bidder: Bidder,
    pub(super) original: Quota,
    /// The quota that was read last.
    pub(super) present: Quota,
    /// The limit it last had from us or came with: the capacity it takes while it is held.
    pub(super) agreed_milli: u64,
    pub(super) changed_us: Option<u64>,
    /// The quota we last began to write: if the kernel has it, nobody else wrote it.
    pub(super) attempted: Option<Quota>,
    pub(super) sample_last: Option<Sample>,
    /// The change since the sample before, until a clearing takes it.
    pub(super) reading: Option<Reading>,
    /// The reading that was taken last.
    shown: Option<Reading>,
    /// Use between its last two samples, until the machine is read.
    pub(super) used_us: Option<u64>,
    pub(super) is_unreadable: bool,
    /// Whether no clearing has given it a share yet.
    pub(super) is_new: bool,
    pub(super) estimate: Option<Estimate>,
    pub(super) given: Option<Given>,
    pub(super) left_alone: Option<LeftAlone>,
    /// Number of refused writes in a row.
    pub(super) refusals: u32,
    minute: Minute,
    is_too_narrow: bool,
}

/// Need and share from the last clearing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) need_milli: u64,
    pub(super) wanted_milli: u64,
    pub(super) bound_by: BoundBy,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LeftAlone {
    pub(super) why: Held,
    pub(super) until_us: u64,
}

/// Throttling since the last judgement of the headroom (M2).
#[derive(Clone, Copy, Debug, Default)]
struct Minute {
    periods: u64,
    throttled_periods: u64,
    /// Whether a reading was missing.
    is_broken: bool,
}

impl Member {
    pub(super) fn new(
        id: Arc<str>,
        params: Params,
        (original, present): (Quota, Quota),
        settings: &Settings,
    ) -> Self {
        let limit_milli = present.milli_ceil().unwrap_or(params.max_milli);
        Self {
            id,
            bidder: Bidder::new(params, limit_milli, settings.windows),
            original,
            present,
            agreed_milli: limit_milli,
            changed_us: None,
            attempted: None,
            sample_last: None,
            reading: None,
            shown: None,
            used_us: None,
            is_unreadable: false,
            is_new: true,
            estimate: None,
            given: None,
            left_alone: None,
            refusals: 0,
            minute: Minute::default(),
            is_too_narrow: is_too_narrow(params, settings),
        }
    }

    /// Sets floor, ceiling and weight.
    pub(super) fn set_params(&mut self, params: Params, settings: &Settings) {
        self.bidder.params = params;
        self.is_too_narrow = is_too_narrow(params, settings);
        self.set_present(self.present);
    }

    /// Sets the quota that is in the kernel. Without one the limit is the ceiling.
    pub(super) fn set_present(&mut self, present: Quota) {
        self.present = present;
        let limit_milli = present.milli_ceil();
        self.bidder.limit_milli = limit_milli.unwrap_or(self.bidder.params.max_milli);
    }

    pub(super) fn wrote(&mut self, read_back: Quota, now_us: u64) {
        let before_milli = self.bidder.limit_milli;
        self.set_present(read_back);
        self.attempted = None;
        self.agreed_milli = self.bidder.limit_milli;
        // A first limit equal to the ceiling is no change.
        if self.agreed_milli != before_milli {
            self.changed_us = Some(now_us);
        }
        self.refusals = 0;
    }

    pub(super) fn measured(&self) -> Option<Measured<'_>> {
        Some(Measured {
            bidder: &self.bidder,
            estimate: self.estimate.as_ref()?,
        })
    }

    /// Takes the reading of this interval; a held pod keeps its memory.
    pub(super) fn take(&mut self, settings: &Settings) {
        let reading = self.reading.take();
        self.shown = reading.or(self.shown).filter(|_| !self.is_unreadable);
        let is_held = self.left_alone.is_some() || self.is_unreadable || self.is_too_narrow;
        let Some(reading) = reading.filter(|_| !is_held) else {
            self.estimate = None;
            self.minute.is_broken = true;
            return;
        };
        if let Some(throttled) = reading.throttled {
            let Minute {
                periods,
                throttled_periods,
                ..
            } = &mut self.minute;
            *periods = periods.saturating_add(throttled.periods);
            *throttled_periods = throttled_periods.saturating_add(throttled.throttled_periods);
        } else {
            self.minute.is_broken = true;
        }
        self.estimate = Some(self.bidder.take(reading, settings.size_block));
    }

    fn held(&self) -> Option<Held> {
        if let Some(left_alone) = self.left_alone {
            return Some(left_alone.why);
        }
        if self.is_unreadable {
            return Some(Held::Unreadable);
        }
        if self.is_too_narrow {
            return Some(Held::TooNarrow);
        }
        self.estimate.is_none().then_some(Held::Unmeasured)
    }

    pub(super) fn end_of_hold(&mut self, now_us: u64) {
        if self
            .left_alone
            .is_some_and(|left_alone| left_alone.until_us <= now_us)
        {
            self.left_alone = None;
            self.agreed_milli = self.bidder.limit_milli;
        }
    }

    /// Whether its limit was changed less than `cooldown_us` ago.
    pub(super) fn is_cooling(&self, now_us: u64, cooldown_us: u64) -> bool {
        let is_recent = |changed_us: u64| now_us.saturating_sub(changed_us) < cooldown_us;
        self.changed_us.is_some_and(is_recent)
    }

    /// Whether its limit is its need; a difference too small for a write counts as given.
    pub(super) fn has_its_need(&self) -> bool {
        let limit_milli = self.bidder.limit_milli;
        self.given.is_none_or(|given| {
            given.need_milli <= limit_milli || !act::is_worth_it(limit_milli, given.need_milli)
        })
    }

    /// Ends a minute; returns whether it was a miss.
    pub(super) fn judge(&mut self, is_whole: bool) -> bool {
        let minute = std::mem::take(&mut self.minute);
        if !is_whole || minute.is_broken {
            return false;
        }
        let permille = sense::permille(minute.throttled_periods, minute.periods);
        let before = self.bidder.headroom_permille;
        self.bidder.headroom_permille = need::next_headroom(before, permille);
        THROTTLED_PERMILLE <= permille
    }

    pub(super) fn standing(&self, left_out: Option<BoundBy>) -> Standing {
        let throttled = self.shown.and_then(|reading| reading.throttled);
        Standing {
            id: self.id.to_string(),
            bidder: self.bidder.clone(),
            original: self.original,
            used_milli: self.shown.map(|reading| reading.used_milli),
            throttled_permille: throttled.map(|throttled| throttled.permille()),
            estimate: self.estimate,
            changed_us: self.changed_us,
            left_out,
            held: self.held(),
        }
    }
}

fn is_too_narrow(params: Params, settings: &Settings) -> bool {
    clear::is_too_narrow(params.min_milli, params.max_milli, settings.quantum_milli)
}
