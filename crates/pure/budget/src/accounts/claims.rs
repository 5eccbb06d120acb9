//! Claims in the state: their GPUs on meters, their deadlines, their debits.

use bursar_units::{Instant, Label};

use super::usage::UsageKey;
use super::{Accounts, ClaimState, Kind, WorkState};
use crate::calendar::days_between;
use crate::claim::{Class, Demoted, Pool, Promise, Terms, Work};
use crate::meter::product;

impl Accounts {
    /// Opens a claim, or widens the one that is there.
    pub(super) fn widen(
        &mut self,
        at: Instant,
        work: &Work,
        (envelope, pool): (usize, Pool),
        gpus: u64,
        promise: Promise,
    ) {
        if gpus == 0 {
            return;
        }
        let is_hold = matches!(promise, Promise::Held { .. });
        let present = self.claim_of(work, envelope, pool).filter(|_| !is_hold);
        if let Some((number, claim)) = present {
            let promise = claim.promise;
            self.debit(at, number);
            self.meters_add(at, (envelope, pool), gpus, promise);
            if let Some(claim) = self.claims.get_mut(&number) {
                claim.gpus = claim.gpus.saturating_add(gpus);
            }
        } else {
            let number = self.next_number();
            let claim = ClaimState {
                work: work.clone(),
                envelope,
                pool,
                gpus,
                promise,
                since: at,
                due: None,
            };
            self.insert_claim(at, number, claim);
        }
        if !is_hold {
            self.count(at, work, (envelope, pool), gpus, Usage::More);
        }
    }

    /// Stores a claim and charges its meters.
    pub(super) fn insert_claim(&mut self, at: Instant, number: u64, claim: ClaimState) {
        let (payer, gpus, promise) = ((claim.envelope, claim.pool), claim.gpus, claim.promise);
        if let Some(work) = self.works.get_mut(&claim.work) {
            work.claims.push(number);
            work.claims.sort_unstable();
        }
        self.claims.insert(number, claim);
        self.meters_add(at, payer, gpus, promise);
        let meters: Vec<usize> = self.charged(payer.0, payer.1).collect();
        for meter in meters {
            if let Some(meter) = self.meters.get_mut(meter) {
                meter.claims.insert(number);
            }
        }
        self.time_claim(number);
    }

    /// Takes GPUs off a claim; the claim goes with its last GPU.
    pub(super) fn narrow(&mut self, at: Instant, number: u64, gpus: u64) {
        self.debit(at, number);
        let Some(claim) = self.claims.get(&number) else {
            return;
        };
        let (payer, promise) = ((claim.envelope, claim.pool), claim.promise);
        let (gpus, work) = (gpus.min(claim.gpus), claim.work.clone());
        let is_last = gpus == claim.gpus;
        self.meters_remove(at, payer, gpus, promise);
        let meters: Vec<usize> = self.charged(payer.0, payer.1).collect();
        for meter in meters {
            self.rearm(meter);
        }
        if !matches!(promise, Promise::Held { .. }) {
            self.count(at, &work, payer, gpus, Usage::Less);
        }
        if is_last {
            self.remove_claim(number, payer);
        } else if let Some(claim) = self.claims.get_mut(&number) {
            claim.gpus -= gpus;
        }
    }

    fn remove_claim(&mut self, number: u64, (envelope, pool): (usize, Pool)) {
        let meters: Vec<usize> = self.charged(envelope, pool).collect();
        for meter in meters {
            if let Some(meter) = self.meters.get_mut(meter) {
                meter.claims.remove(&number);
            }
        }
        let Some(claim) = self.claims.remove(&number) else {
            return;
        };
        if let Some(due) = claim.due {
            self.deadlines.remove(&(due, Kind::PromiseEnd, number));
        }
        if let Some(work) = self.works.get_mut(&claim.work) {
            work.claims.retain(|other| *other != number);
        }
    }

    /// Sets the promise of a claim.
    pub(super) fn promise(&mut self, at: Instant, number: u64, promise: Promise) {
        let Some(claim) = self.claims.get_mut(&number) else {
            return;
        };
        let (payer, gpus) = ((claim.envelope, claim.pool), claim.gpus);
        let before = std::mem::replace(&mut claim.promise, promise);
        self.meters_remove(at, payer, gpus, before);
        self.meters_add(at, payer, gpus, promise);
        self.time_claim(number);
    }

    fn meters_add(&mut self, at: Instant, payer: (usize, Pool), gpus: u64, promise: Promise) {
        let meters: Vec<usize> = self.charged(payer.0, payer.1).collect();
        for number in meters {
            if let Some(meter) = self.meters.get_mut(number) {
                meter.accrue(at);
                meter.add(gpus, promise);
            }
            self.touch(number);
        }
    }

    fn meters_remove(&mut self, at: Instant, payer: (usize, Pool), gpus: u64, promise: Promise) {
        let meters: Vec<usize> = self.charged(payer.0, payer.1).collect();
        for number in meters {
            if let Some(meter) = self.meters.get_mut(number) {
                meter.accrue(at);
                meter.remove(gpus, promise);
            }
            self.touch(number);
        }
    }

    /// Debits the time of a claim to its run until an instant.
    pub(super) fn debit(&mut self, at: Instant, number: u64) {
        let Some(claim) = self.claims.get_mut(&number) else {
            return;
        };
        let days = days_between(claim.since, at);
        claim.since = claim.since.max(at);
        if matches!(claim.promise, Promise::Held { .. }) {
            return;
        }
        let Some(envelope) = self.envelopes.get(claim.envelope) else {
            return;
        };
        let own = envelope.meters.first().and_then(|m| self.meters.get(*m));
        let epoch = own.map_or(0, |meter| meter.epoch);
        for (day, length) in days {
            let key = (Some(envelope.id.clone()), claim.pool.class(), epoch, day);
            let gpu_ms = product(claim.gpus, length);
            self.debits.add(&claim.work.run, key, gpu_ms);
        }
    }

    /// Sets the deadline of a promise. It exists only where a meter has a time limit or the pool is
    /// not Own (B2).
    pub(super) fn time_claim(&mut self, number: u64) {
        let Some(claim) = self.claims.get(&number) else {
            return;
        };
        let is_timed = claim.pool != Pool::Own || self.is_metered(claim);
        let due = match claim.promise {
            Promise::Until(end) if is_timed => Some(end),
            _ => None,
        };
        let before = claim.due;
        if before == due {
            return;
        }
        if let Some(before) = before {
            self.deadlines.remove(&(before, Kind::PromiseEnd, number));
        }
        if let Some(due) = due {
            self.deadlines.insert((due, Kind::PromiseEnd, number));
        }
        if let Some(claim) = self.claims.get_mut(&number) {
            claim.due = due;
        }
    }

    /// Whether a meter of the claim has a time limit in force.
    fn is_metered(&self, claim: &ClaimState) -> bool {
        self.charged(claim.envelope, claim.pool).any(|meter| {
            let meter = self.meters.get(meter);
            meter.is_some_and(|meter| meter.time_limit_in_force().is_some())
        })
    }

    /// Adds an unfunded claim.
    pub(super) fn open(&mut self, at: Instant, work: &Work, gpus: u64, cause: Option<Demoted>) {
        if gpus == 0 || !self.works.contains_key(work) {
            return;
        }
        let number = self.next_number();
        if let Some(state) = self.works.get_mut(work) {
            state.unfunded.push(super::UnfundedState {
                number,
                gpus,
                since: at,
                debited: at,
                cause,
            });
        }
        self.unfunded.insert(work.clone());
        self.count_unfunded(at, work, gpus, Usage::More);
    }

    /// Takes GPUs off an unfunded claim; returns how many it had, at most `less`.
    pub(super) fn narrow_unfunded(
        &mut self,
        at: Instant,
        work: &Work,
        number: u64,
        less: u64,
    ) -> u64 {
        let Some(state) = self.works.get_mut(work) else {
            return 0;
        };
        let Some(claim) = state.unfunded.iter_mut().find(|c| c.number == number) else {
            return 0;
        };
        let taken = less.min(claim.gpus);
        let (gpus, days) = (claim.gpus, days_between(claim.debited, at));
        claim.debited = claim.debited.max(at);
        claim.gpus -= taken;
        state.unfunded.retain(|claim| 0 < claim.gpus);
        if state.unfunded.is_empty() {
            self.unfunded.remove(work);
        }
        for (day, length) in days {
            let key = (None, Class::Unfunded, 0, day);
            self.debits.add(&work.run, key, product(gpus, length));
        }
        self.count_unfunded(at, work, taken, Usage::Less);
        taken
    }

    /// Remembers the terms of an incarnation.
    pub(super) fn begin(&mut self, work: &Work, terms: &Terms) {
        if let Some(state) = self.works.get_mut(work) {
            state.terms = terms.clone();
            return;
        }
        let state = WorkState {
            terms: terms.clone(),
            claims: Vec::new(),
            unfunded: Vec::new(),
        };
        self.works.insert(work.clone(), state);
    }

    /// Forgets an incarnation without claims.
    pub(super) fn end_if_empty(&mut self, work: &Work) {
        let state = self.works.get(work);
        if state.is_some_and(|state| state.claims.is_empty() && state.unfunded.is_empty()) {
            self.works.remove(work);
        }
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn count(&mut self, at: Instant, work: &Work, payer: (usize, Pool), gpus: u64, way: Usage) {
        let envelope = self.envelopes.get(payer.0).map(|e| e.id.clone());
        if let Some(owner) = self.owner_of(work).cloned() {
            self.count_in(at, (owner, envelope, payer.1.class()), gpus, way);
        }
    }

    fn count_unfunded(&mut self, at: Instant, work: &Work, gpus: u64, way: Usage) {
        if let Some(owner) = self.owner_of(work).cloned() {
            self.count_in(at, (owner, None, Class::Unfunded), gpus, way);
        }
    }

    fn count_in(&mut self, at: Instant, key: UsageKey, gpus: u64, way: Usage) {
        match way {
            Usage::More => self.usage.add(at, key, gpus),
            Usage::Less => self.usage.remove(at, key, gpus),
        }
    }

    /// The name of the owner of an envelope, if a budget declares it.
    pub(super) fn envelope_owner(&self, envelope: usize) -> Option<&Label> {
        let declared = self.envelopes.get(envelope)?.declared.as_ref()?;
        Some(&declared.owner_name)
    }
}

/// Direction of a change in usage.
#[derive(Clone, Copy)]
enum Usage {
    More,
    Less,
}
