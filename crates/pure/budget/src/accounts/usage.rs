//! Used GPU time: per (owner, envelope, class, UTC day) for ever, and per (payer, epoch, UTC day) of
//! a run while it is remembered. Both are rectangles, as in the meters; nothing is sampled.

use std::collections::BTreeMap;
use std::sync::Arc;

use bursar_units::{Instant, Label, whole};
use serde::{Deserialize, Serialize};

use crate::calendar::{day, day_start};
use crate::claim::{Class, RunUid};
use crate::id::EnvelopeId;
use crate::meter::{product, saturated};

/// GPU time of an owner's runs in one day.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct UsageRow {
    /// Owner of the runs.
    pub owner: Label,
    /// Envelope that paid; `None` for unfunded time.
    pub envelope: Option<EnvelopeId>,
    /// Class of the time.
    pub class: Class,
    /// UTC day, counted from 1970-01-01.
    pub day: u64,
    /// GPU-milliseconds.
    pub gpu_ms: u64,
}

/// GPU time of an owner's runs since the first record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UsageTotal {
    /// Owner of the runs.
    pub owner: Label,
    /// Envelope that paid; `None` for unfunded time.
    pub envelope: Option<EnvelopeId>,
    /// Class of the time.
    pub class: Class,
    /// GPU-milliseconds.
    pub gpu_ms: u64,
}

/// GPU time of a run in one day, by payer and epoch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Debit {
    /// Envelope that paid; absent for unfunded time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<EnvelopeId>,
    /// Class of the time.
    pub class: Class,
    /// Epoch of the envelope's meter; 0 for unfunded time.
    #[serde(with = "whole")]
    pub epoch: u64,
    /// UTC day, counted from 1970-01-01.
    #[serde(with = "whole")]
    pub day: u64,
    /// GPU-milliseconds.
    #[serde(with = "whole", rename = "gpuMs")]
    pub gpu_ms: u64,
}

/// Owner, envelope that paid, class.
pub(super) type UsageKey = (Label, Option<EnvelopeId>, Class);

#[derive(Clone, Debug, Default)]
pub(super) struct Usage(BTreeMap<UsageKey, Account>);

#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    gpus: u64,
    since: Instant,
    /// GPU-milliseconds by day, until `since`; shared with copies of the state.
    days: Arc<BTreeMap<u64, u128>>,
    /// Sum of the days.
    total: u128,
}

impl Account {
    pub(super) fn new(gpus: u64, since: Instant, days: BTreeMap<u64, u128>) -> Self {
        Self {
            gpus,
            since,
            total: days.values().sum(),
            days: Arc::new(days),
        }
    }

    pub(super) fn days(&self) -> &BTreeMap<u64, u128> {
        &self.days
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    fn accrue(&mut self, at: Instant) {
        for (day, gpu_ms) in self.fresh(at) {
            *Arc::make_mut(&mut self.days).entry(day).or_default() += gpu_ms;
            self.total += gpu_ms;
        }
        self.since = self.since.max(at);
    }

    /// GPU-milliseconds since the last change, by day.
    fn fresh(&self, at: Instant) -> impl Iterator<Item = (u64, u128)> + use<> {
        let gpus = self.gpus;
        let days = days_between(self.since, at).filter(move |_| 0 < gpus);
        days.map(move |(day, length)| (day, product(gpus, length)))
    }

    /// GPU-milliseconds by day. Of the stored days only the last can have more since.
    fn rows(&self, now: Instant) -> impl Iterator<Item = (u64, u128)> {
        let last = self.days.last_key_value().map(|(day, _)| *day);
        let joins = move |day: u64| last == Some(day);
        let joined = self.fresh(now).find(|(day, _)| joins(*day));
        let joined = joined.map_or(0, |(_, gpu_ms)| gpu_ms);
        let stored = self.days.iter().map(move |(day, gpu_ms)| {
            let more = if joins(*day) { joined } else { 0 };
            (*day, gpu_ms + more)
        });
        stored.chain(self.fresh(now).filter(move |(day, _)| !joins(*day)))
    }
}

impl Usage {
    pub(super) fn add(&mut self, at: Instant, key: UsageKey, gpus: u64) {
        let account = self.0.entry(key).or_default();
        account.accrue(at);
        account.gpus = account.gpus.saturating_add(gpus);
    }

    pub(super) fn remove(&mut self, at: Instant, key: UsageKey, gpus: u64) {
        let account = self.0.entry(key).or_default();
        account.accrue(at);
        account.gpus = account.gpus.saturating_sub(gpus);
    }

    pub(super) fn rows(&self, now: Instant) -> impl Iterator<Item = UsageRow> {
        let accounts = self.0.iter();
        accounts.flat_map(move |((owner, envelope, class), account)| {
            account.rows(now).map(|(day, gpu_ms)| UsageRow {
                owner: owner.clone(),
                envelope: envelope.clone(),
                class: *class,
                day,
                gpu_ms: saturated(gpu_ms),
            })
        })
    }

    pub(super) fn totals(&self, now: Instant) -> impl Iterator<Item = UsageTotal> {
        self.0
            .iter()
            .map(move |((owner, envelope, class), account)| {
                let fresh = account.fresh(now).map(|(_, gpu_ms)| gpu_ms);
                UsageTotal {
                    owner: owner.clone(),
                    envelope: envelope.clone(),
                    class: *class,
                    gpu_ms: saturated(account.total + fresh.sum::<u128>()),
                }
            })
    }

    pub(super) fn accounts(&self) -> impl Iterator<Item = (&UsageKey, &Account)> {
        self.0.iter()
    }

    pub(super) fn gpus(&self, key: &UsageKey) -> u64 {
        self.0.get(key).map_or(0, |account| account.gpus)
    }

    pub(super) fn restore(&mut self, key: UsageKey, account: Account) {
        self.0.insert(key, account);
    }
}

/// Envelope that paid, class, epoch, UTC day.
pub(super) type DebitKey = (Option<EnvelopeId>, Class, u64, u64);

/// Debits by run. Those of one run are shared with copies of the state.
#[derive(Clone, Debug, Default)]
pub(super) struct Debits(BTreeMap<RunUid, Arc<BTreeMap<DebitKey, u128>>>);

impl Debits {
    pub(super) fn add(&mut self, run: &RunUid, key: DebitKey, gpu_ms: u128) {
        if gpu_ms == 0 {
            return;
        }
        if let Some(debits) = self.0.get_mut(run) {
            *Arc::make_mut(debits).entry(key).or_default() += gpu_ms;
        } else {
            let debits = Arc::new(BTreeMap::from([(key, gpu_ms)]));
            self.0.insert(run.clone(), debits);
        }
    }

    pub(super) fn of(&self, run: &RunUid) -> BTreeMap<DebitKey, u128> {
        let debits = self.0.get(run).map(AsRef::as_ref);
        debits.cloned().unwrap_or_default()
    }

    pub(super) fn forget(&mut self, run: &RunUid) {
        self.0.remove(run);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&RunUid, Debit)> {
        self.0.iter().flat_map(|(run, debits)| {
            let list = debits.iter().map(|(key, gpu_ms)| debit(key, *gpu_ms));
            list.map(move |debit| (run, debit))
        })
    }
}

/// The UTC days of an interval, each with the length of its part.
pub(super) fn days_between(from: Instant, to: Instant) -> impl Iterator<Item = (u64, u64)> {
    let mut from = from;
    std::iter::from_fn(move || {
        let today = day(from);
        let until = day_start(today.saturating_add(1)).min(to);
        let length = until.since(from).ms();
        from = until;
        (0 < length).then_some((today, length))
    })
}

pub(super) fn debit((envelope, class, epoch, day): &DebitKey, gpu_ms: u128) -> Debit {
    Debit {
        envelope: envelope.clone(),
        class: *class,
        epoch: *epoch,
        day: *day,
        gpu_ms: saturated(gpu_ms),
    }
}
