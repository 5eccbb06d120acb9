//! Used GPU time: per (owner, envelope, class, UTC day) for ever, and per run while it is
//! remembered. Both are rectangles, as in the meters; nothing is sampled.

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

/// GPU time of a run by payer and epoch.
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
    pub(super) gpus: u64,
    pub(super) since: Instant,
    /// GPU-milliseconds by day, until `since`.
    pub(super) days: BTreeMap<u64, u128>,
}

impl Account {
    fn accrue(&mut self, at: Instant) {
        while self.since < at && 0 < self.gpus {
            let today = day(self.since);
            let until = day_start(today + 1).min(at);
            let length = until.since(self.since).ms();
            *self.days.entry(today).or_default() += product(self.gpus, length);
            if length == 0 {
                break;
            }
            self.since = until;
        }
        self.since = self.since.max(at);
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
        self.0
            .iter()
            .flat_map(move |((owner, envelope, class), account)| {
                let mut account = account.clone();
                account.accrue(now);
                account.days.into_iter().map(|(day, gpu_ms)| UsageRow {
                    owner: owner.clone(),
                    envelope: envelope.clone(),
                    class: *class,
                    day,
                    gpu_ms: saturated(gpu_ms),
                })
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

type DebitKey = (Option<EnvelopeId>, Class, u64);

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

pub(super) fn debit((envelope, class, epoch): &DebitKey, gpu_ms: u128) -> Debit {
    Debit {
        envelope: envelope.clone(),
        class: *class,
        epoch: *epoch,
        gpu_ms: saturated(gpu_ms),
    }
}
