//! Used GPU time: per (owner, envelope, class, UTC day) for ever, and per (payer, epoch, UTC day) of
//! a run while it is remembered. Both are rectangles, as in the meters; nothing is sampled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bursar_units::{Instant, Label, whole};
use serde::{Deserialize, Serialize};

use crate::calendar::days_between;
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

/// The most runs whose debits a copy of the state copies.
const RECENT_MAX: usize = 256;

type RunDebits = Arc<BTreeMap<DebitKey, u128>>;

/// Debits by run. Which of the two maps has a run cannot be seen from outside.
#[derive(Clone, Debug, Default)]
pub(super) struct Debits {
    /// Runs that were debited since the last merge; they replace those in `others`.
    recent: BTreeMap<RunUid, RunDebits>,
    /// Shared with copies of the state.
    others: Arc<BTreeMap<RunUid, RunDebits>>,
}

impl Debits {
    pub(super) fn add(&mut self, run: &RunUid, key: DebitKey, gpu_ms: u128) {
        if gpu_ms == 0 {
            return;
        }
        if let Some(debits) = self.recent.get_mut(run) {
            *Arc::make_mut(debits).entry(key).or_default() += gpu_ms;
            return;
        }
        if RECENT_MAX <= self.recent.len() {
            Arc::make_mut(&mut self.others).extend(std::mem::take(&mut self.recent));
        }
        let mut debits = self.others.get(run).cloned().unwrap_or_default();
        *Arc::make_mut(&mut debits).entry(key).or_default() += gpu_ms;
        self.recent.insert(run.clone(), debits);
    }

    fn get(&self, run: &RunUid) -> Option<&RunDebits> {
        self.recent.get(run).or_else(|| self.others.get(run))
    }

    pub(super) fn of(&self, run: &RunUid) -> BTreeMap<DebitKey, u128> {
        let debits = self.get(run).map(AsRef::as_ref);
        debits.cloned().unwrap_or_default()
    }

    pub(super) fn forget(&mut self, run: &RunUid) {
        self.recent.remove(run);
        if self.others.contains_key(run) {
            Arc::make_mut(&mut self.others).remove(run);
        }
    }

    /// By run.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&RunUid, Debit)> {
        let runs: BTreeSet<&RunUid> = self.recent.keys().chain(self.others.keys()).collect();
        let debits = runs
            .into_iter()
            .filter_map(|run| Some((run, self.get(run)?)));
        debits.flat_map(|(run, debits)| {
            let list = debits.iter().map(|(key, gpu_ms)| debit(key, *gpu_ms));
            list.map(move |debit| (run, debit))
        })
    }
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::{Debits, RECENT_MAX};
    use crate::claim::{Class, RunUid};

    #[test]
    fn a_copy_of_the_debits_shares_all_runs_but_the_recent_and_both_go_on_alone() {
        let run =
            |number: u64| RunUid::new(&format!("run-{:05}", number * 7_919 % 10_000)).unwrap();
        let key = |day: u64| (None, Class::Unfunded, 0, day);
        let (mut debits, mut naive) = (Debits::default(), BTreeMap::new());
        let mut add = |debits: &mut Debits, number: u64, day: u64| {
            debits.add(&run(number), key(day), 3);
            *naive.entry((run(number), day)).or_insert(0) += 3;
        };
        for number in 0..10_000 {
            add(&mut debits, number, 1);
            add(&mut debits, number / 3, 2);
        }
        let mut copy = debits.clone();
        assert!(copy.recent.len() <= RECENT_MAX && Arc::ptr_eq(&copy.others, &debits.others));
        copy.add(&run(4), key(9), 1);
        copy.forget(&run(5));
        let list = debits.iter();
        let list: Vec<_> = list
            .map(|(run, d)| ((run.clone(), d.day), d.gpu_ms))
            .collect();
        assert_eq!(list, naive.into_iter().collect::<Vec<_>>());
        assert_eq!((copy.of(&run(4)).len(), copy.of(&run(5)).len()), (3, 0));
    }
}
