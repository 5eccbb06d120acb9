//! GPUs and GPU time of envelopes, caps and lending pools, added again from the events alone (B1, B3).
//!
//! A meter has the GPUs of its claims as its width. Before its width, its window or its limits change,
//! width × time in the window is added to its sum. A closed epoch must say this sum. After every
//! record no meter is above its GPU limit, none has accrued more than the highest limit of its epoch,
//! and only declared envelopes pay, inside their windows. Windows come from the calendar.

use std::collections::{BTreeMap, BTreeSet};

use bursar_units::words::{count, number};
use bursar_units::{Instant, Label};

use crate::cluster::budget::accounts::Fact;
use crate::cluster::budget::calendar::Schedule;
use crate::cluster::budget::spec::{GPU_MS_PER_HOUR, Sharing};
use crate::cluster::budget::{
    Accounts, Budget, BudgetId, CapId, Envelope, EnvelopeId, EpochClosed, MeterId, Pool, Window,
};

/// GPUs and GPU time that are paid for, and the limits.
#[derive(Clone, Default)]
pub(super) struct Meters {
    budgets: BTreeMap<BudgetId, Budget>,
    /// Budgets of each owner.
    owned: BTreeMap<Label, BTreeSet<BudgetId>>,
    /// Caps that name an envelope.
    caps: BTreeMap<EnvelopeId, BTreeSet<CapId>>,
    /// GPUs of each envelope, by pool.
    used: BTreeMap<EnvelopeId, BTreeMap<Pool, u64>>,
    by_id: BTreeMap<MeterId, Meter>,
    /// Meters whose GPUs, windows or limits changed in the record.
    touched: BTreeSet<MeterId>,
    /// First meter above its limit.
    above: Option<String>,
    /// First closed epoch or window that differs from the counts.
    wrong: Option<String>,
}

/// GPUs and GPU time of one meter.
#[derive(Clone, Default)]
struct Meter {
    gpus: u64,
    /// GPU-milliseconds of the epoch until `since`.
    accrued: u128,
    since: Instant,
    epoch: u64,
    window: Option<Window>,
    is_declared: bool,
    limits: Limits,
    /// Highest limit of GPU-milliseconds in force in this epoch; `None` is unbounded.
    hours_peak: Option<u64>,
}

/// Limits on GPUs and GPU-milliseconds.
#[derive(Clone, Copy, Default)]
struct Limits {
    gpus: Option<u64>,
    hours: Option<u64>,
}

impl Meter {
    /// Adds the time until an instant.
    fn reach(&mut self, at: Instant) {
        if let Some(window) = self.window {
            let from = window
                .start
                .map_or(self.since, |start| self.since.max(start));
            let to = window.end.map_or(at, |end| at.min(end));
            let time = u128::from(self.gpus).saturating_mul(u128::from(to.since(from).ms()));
            self.accrued = self.accrued.saturating_add(time);
        }
        self.since = self.since.max(at);
    }

    /// Sets limits and window as declared; whether its epoch may go on in that window.
    fn configure(&mut self, limits: Limits, schedule: Schedule) -> bool {
        self.is_declared = true;
        self.limits = limits;
        self.hours_peak = match (self.hours_peak, limits.hours) {
            (_, hours) if self.accrued == 0 => hours,
            (Some(peak), Some(hours)) => Some(peak.max(hours)),
            _ => None,
        };
        let next = schedule.current(self.since);
        match (self.window, next) {
            (Some(old), Some(new)) if old.end == new.end && new.start <= old.start => true,
            (Some(old), Some(new)) if old.overlaps(&new) => {
                self.window = next;
                true
            }
            (None, _) => {
                self.window = next;
                true
            }
            (Some(_), _) => false,
        }
    }
}

impl Meters {
    /// Counts of an initial state, without its claims.
    pub(super) fn of(accounts: &Accounts, now: Instant) -> Self {
        let mut meters = Self::default();
        for fact in accounts.facts() {
            match fact {
                Fact::Budget(budget) => meters.own(&budget),
                Fact::Meter(fact) => {
                    let view = accounts.meter(now, &fact.meter);
                    let meter = view.map(|view| Meter {
                        accrued: view.accrued_gpu_ms.into(),
                        since: now,
                        epoch: view.epoch,
                        window: view.window,
                        limits: Limits {
                            gpus: view.gpus_limit,
                            hours: view.limit_gpu_ms,
                        },
                        hours_peak: view
                            .limit_gpu_ms
                            .map(|hours| hours.max(view.accrued_gpu_ms)),
                        ..Meter::default()
                    });
                    meters.by_id.extend(meter.map(|meter| (fact.meter, meter)));
                }
                _ => {}
            }
        }
        let declared: Vec<MeterId> = meters.budgets.values().flat_map(parts).collect();
        for id in declared {
            if let Some(meter) = meters.by_id.get_mut(&id) {
                meter.is_declared = true;
            }
        }
        meters
    }

    /// A budget that is set; an earlier one of that identity is replaced.
    pub(super) fn declare(&mut self, seq: u64, at: Instant, budget: &Budget) {
        self.drop(at, &budget.id());
        self.own(budget);
        for envelope in &budget.envelopes {
            let id = budget.envelope_id(envelope);
            let schedule = Schedule {
                start: envelope.start,
                end: envelope.end,
                renew: envelope.renew,
            };
            let limits = Limits {
                gpus: Some(envelope.concurrency),
                hours: envelope.gpu_hours_max,
            };
            self.configure(seq, at, &MeterId::Envelope(id.clone()), limits, schedule);
            let pool = MeterId::Lending(id);
            let lending = envelope.lending.as_ref();
            if lending.is_some() || self.by_id.contains_key(&pool) {
                let limits = Limits {
                    gpus: lending.and_then(|lending| lending.concurrency_max),
                    hours: lending.and_then(|lending| lending.gpu_hours_max),
                };
                self.configure(seq, at, &pool, limits, schedule);
            }
        }
        for cap in &budget.aggregate_caps {
            let schedule = Schedule {
                start: cap.start,
                end: cap.end,
                renew: cap.renew,
            };
            let limits = Limits {
                gpus: cap.concurrency_max,
                hours: cap.gpu_hours_max,
            };
            let id = MeterId::Cap(budget.cap_id(cap));
            let members: BTreeSet<&EnvelopeId> = cap.envelopes.iter().collect();
            let gpus = members.into_iter().map(|id| self.gpus(id));
            let gpus = gpus.fold(0, u64::saturating_add);
            self.configure(seq, at, &id, limits, schedule);
            self.by_id.entry(id).or_default().gpus = gpus;
        }
    }

    /// A budget that is dropped. Its meters stay, for an identity that is declared again.
    pub(super) fn drop(&mut self, at: Instant, id: &BudgetId) {
        let Some(budget) = self.budgets.remove(id) else {
            return;
        };
        if let Some(owned) = self.owned.get_mut(&budget.owner) {
            owned.remove(id);
        }
        for meter in parts(&budget) {
            if let Some(meter) = self.reach(at, &meter) {
                meter.is_declared = false;
                meter.limits = Limits::default();
            }
        }
        for cap in &budget.aggregate_caps {
            let id = budget.cap_id(cap);
            for envelope in &cap.envelopes {
                if let Some(caps) = self.caps.get_mut(envelope) {
                    caps.remove(&id);
                }
            }
            if let Some(meter) = self.by_id.get_mut(&MeterId::Cap(id)) {
                meter.gpus = 0;
            }
        }
    }

    /// A closed epoch: it says what the counts say, and the next one begins.
    pub(super) fn close(&mut self, seq: u64, at: Instant, closed: &EpochClosed) {
        let Some(meter) = self.reach(at, &closed.meter) else {
            self.note(seq, &closed.meter, "is closed and was never declared");
            return;
        };
        let (epoch, accrued) = (meter.epoch, meter.accrued);
        let is_above = meter.is_above_peak();
        (meter.epoch, meter.accrued) = (epoch.saturating_add(1), 0);
        meter.window = closed.next;
        meter.hours_peak = meter.limits.hours;
        if is_above {
            self.note_above(seq, &closed.meter, accrued);
        }
        if (epoch, accrued) != (closed.epoch, closed.accrued.into()) {
            let what = format!(
                "closes epoch {} with {} GPU-ms, the records add up to {} in epoch {}",
                number(closed.epoch),
                number(closed.accrued),
                shown(accrued),
                number(epoch)
            );
            self.note(seq, &closed.meter, &what);
        }
    }

    /// GPUs that an envelope pays for from now on.
    pub(super) fn add(&mut self, at: Instant, envelope: &EnvelopeId, pool: Pool, gpus: u64) {
        let used = self.used.entry(envelope.clone()).or_default();
        let used = used.entry(pool).or_default();
        *used = used.saturating_add(gpus);
        for id in self.charged(envelope, pool) {
            if let Some(meter) = self.reach(at, &id) {
                meter.gpus = meter.gpus.saturating_add(gpus);
            }
        }
    }

    /// GPUs that an envelope pays for no more.
    pub(super) fn remove(&mut self, at: Instant, envelope: &EnvelopeId, pool: Pool, gpus: u64) {
        let used = self.used.get_mut(envelope);
        if let Some(used) = used.and_then(|used| used.get_mut(&pool)) {
            *used = used.saturating_sub(gpus);
        }
        for id in self.charged(envelope, pool) {
            if let Some(meter) = self.reach(at, &id) {
                meter.gpus = meter.gpus.saturating_sub(gpus);
            }
        }
    }

    /// Whether an envelope may pay for work of an owner by a right (D4).
    pub(super) fn permits(&self, envelope: &EnvelopeId, pool: Pool, owner: &Label) -> bool {
        let Some((payer, spec)) = self.envelope(envelope) else {
            return false;
        };
        match pool {
            Pool::Own => payer == owner,
            Pool::Family => {
                payer != owner && spec.sharing == Sharing::Family && self.is_kin(owner, payer)
            }
            Pool::Lent => spec.lends_to(owner),
        }
    }

    /// First meter above its limit.
    pub(super) fn above(&self) -> Option<&String> {
        self.above.as_ref()
    }

    /// First closed epoch or window that differs from the counts.
    pub(super) fn wrong(&self) -> Option<&String> {
        self.wrong.as_ref()
    }

    /// Checks the meters that the record changed.
    pub(super) fn end_record(&mut self, seq: u64) {
        for id in std::mem::take(&mut self.touched) {
            let Some(meter) = self.by_id.get(&id) else {
                continue;
            };
            let (gpus, accrued) = (meter.gpus, meter.accrued);
            let is_open = meter.is_declared && meter.is_open();
            let is_envelope = matches!(id, MeterId::Envelope(_));
            if meter.is_above_peak() {
                self.note_above(seq, &id, accrued);
            } else if let Some(max) = meter.limits.gpus.filter(|max| *max < gpus) {
                let (gpus, max) = (count(gpus, "GPU"), number(max));
                self.exceed(seq, &id, &format!("pays for {gpus}, its limit is {max}"));
            } else if is_envelope && !is_open && 0 < gpus {
                let gpus = count(gpus, "GPU");
                self.exceed(seq, &id, &format!("pays for {gpus} outside its window"));
            }
        }
    }

    /// The first meter of a state that differs from the counts.
    pub(super) fn unlike(&mut self, accounts: &Accounts, now: Instant) -> Option<String> {
        self.by_id.iter_mut().find_map(|(id, meter)| {
            meter.reach(now);
            let view = accounts.meter(now, id);
            let state = view.map_or((0, 0, 0), |view| {
                (view.epoch, view.accrued_gpu_ms.into(), view.gpus_used)
            });
            let counted = (meter.epoch, meter.accrued, meter.gpus);
            (state != counted).then(|| {
                format!(
                    "{} has accrued {} GPU-ms in the state, {} in the records",
                    named(id),
                    shown(state.1),
                    shown(counted.1)
                )
            })
        })
    }

    fn own(&mut self, budget: &Budget) {
        let owned = self.owned.entry(budget.owner.clone()).or_default();
        owned.insert(budget.id());
        for cap in &budget.aggregate_caps {
            for envelope in &cap.envelopes {
                let caps = self.caps.entry(envelope.clone()).or_default();
                caps.insert(budget.cap_id(cap));
            }
        }
        self.budgets.insert(budget.id(), budget.clone());
    }

    fn configure(
        &mut self,
        seq: u64,
        at: Instant,
        id: &MeterId,
        limits: Limits,
        schedule: Schedule,
    ) {
        let limits = Limits {
            hours: limits
                .hours
                .map(|hours| hours.saturating_mul(GPU_MS_PER_HOUR)),
            ..limits
        };
        self.by_id.entry(id.clone()).or_default();
        let is_kept = self
            .reach(at, id)
            .is_none_or(|meter| meter.configure(limits, schedule));
        if !is_kept {
            self.note(seq, id, "moves its window and does not close its epoch");
        }
    }

    /// The meters that an envelope's GPUs are charged to (B1).
    fn charged(&self, envelope: &EnvelopeId, pool: Pool) -> Vec<MeterId> {
        let own = MeterId::Envelope(envelope.clone());
        let lending = (pool == Pool::Lent).then(|| MeterId::Lending(envelope.clone()));
        let caps = self.caps.get(envelope).into_iter().flatten().cloned();
        let meters = [own].into_iter().chain(lending);
        meters.chain(caps.map(MeterId::Cap)).collect()
    }

    /// A meter that has added its time until an instant, and that is checked with its record.
    fn reach(&mut self, at: Instant, id: &MeterId) -> Option<&mut Meter> {
        let meter = self.by_id.get_mut(id)?;
        meter.reach(at);
        self.touched.insert(id.clone());
        Some(meter)
    }

    /// GPUs that an envelope pays for, of all pools.
    fn gpus(&self, id: &EnvelopeId) -> u64 {
        let pools = self.used.get(id).into_iter().flat_map(BTreeMap::values);
        pools.copied().fold(0, u64::saturating_add)
    }

    /// The declaration of an envelope, with its owner.
    fn envelope(&self, id: &EnvelopeId) -> Option<(&Label, &Envelope)> {
        let budget = self.budgets.get(&id.budget())?;
        let mut envelopes = budget.envelopes.iter();
        let spec = envelopes.find(|envelope| envelope.name.as_str() == id.name())?;
        Some((&budget.owner, spec))
    }

    /// Whether an owner is a sibling, an ancestor or a cousin of another one (D3).
    fn is_kin(&self, of: &Label, kin: &Label) -> bool {
        let parents = |owners: &BTreeSet<Label>| -> BTreeSet<Label> {
            let owned = owners.iter().filter_map(|owner| self.owned.get(owner));
            let budgets = owned.flatten().filter_map(|id| self.budgets.get(id));
            budgets.flat_map(|budget| budget.parents.clone()).collect()
        };
        let own = parents(&BTreeSet::from([of.clone()]));
        let other = parents(&BTreeSet::from([kin.clone()]));
        let is_near = !own.is_disjoint(&other) || !parents(&own).is_disjoint(&parents(&other));
        let (mut above, mut next) = (BTreeSet::new(), own);
        while !next.is_empty() {
            next.retain(|owner| above.insert(owner.clone()));
            next = parents(&next);
        }
        is_near || above.contains(kin)
    }

    fn note_above(&mut self, seq: u64, id: &MeterId, accrued: u128) {
        let accrued = shown(accrued);
        let what = format!("has accrued {accrued} GPU-ms, more than its limit of this epoch");
        self.exceed(seq, id, &what);
    }

    fn exceed(&mut self, seq: u64, id: &MeterId, what: &str) {
        let text = format!("record {}: {} {what}", number(seq), named(id));
        self.above.get_or_insert(text);
    }

    fn note(&mut self, seq: u64, id: &MeterId, what: &str) {
        let text = format!("record {}: {} {what}", number(seq), named(id));
        self.wrong.get_or_insert(text);
    }
}

impl Meter {
    fn is_open(&self) -> bool {
        self.window.is_some_and(|window| window.is_open(self.since))
    }

    fn is_above_peak(&self) -> bool {
        let peak = self.hours_peak.map(u128::from);
        peak.is_some_and(|peak| peak < self.accrued)
    }
}

/// The meters that a budget may declare.
fn parts(budget: &Budget) -> Vec<MeterId> {
    let envelopes = budget.envelopes.iter().flat_map(|envelope| {
        let id = budget.envelope_id(envelope);
        [MeterId::Envelope(id.clone()), MeterId::Lending(id)]
    });
    let caps = budget.aggregate_caps.iter();
    let caps = caps.map(|cap| MeterId::Cap(budget.cap_id(cap)));
    envelopes.chain(caps).collect()
}

fn named(id: &MeterId) -> String {
    match id {
        MeterId::Envelope(id) => format!("envelope {id}"),
        MeterId::Cap(id) => format!("cap {id}"),
        MeterId::Lending(id) => format!("lending pool of {id}"),
    }
}

/// A number of GPU-milliseconds.
fn shown(value: u128) -> String {
    number(u64::try_from(value).unwrap_or(u64::MAX))
}
