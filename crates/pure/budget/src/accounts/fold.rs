//! The fold: methods that change the state as events say. They cannot fail.

use std::collections::BTreeSet;
use std::sync::Arc;

use bursar_units::{Instant, Millis};

use super::{Accounts, Declared, EnvelopeState, EpochClosed};
use crate::calendar::{Schedule, Window};
use crate::claim::{ClaimLine, Demoted, Funded, Promise, RunUid, Take, Terms, Work};
use crate::id::{BudgetId, CapId, EnvelopeId, MeterId};
use crate::meter::Meter;
use crate::spec::{AggregateCap, Budget, Envelope, GPU_MS_PER_HOUR};

impl Accounts {
    /// Notes the time of an event. Windows that opened until then need no deadline any more. The
    /// plane calls it for each of its events, so that an instant at which a window opens is passed.
    pub fn reach(&mut self, at: Instant) {
        self.time = self.time.max(at);
        while let Some((start, meter)) = self.openings.first().copied()
            && start <= self.time
        {
            self.openings.remove(&(start, meter));
            if let Some(meter) = self.meters.get_mut(meter) {
                meter.opening = None;
            }
        }
    }

    /// Sets the admission horizon of the policy, for promises from now on.
    pub fn set_horizon(&mut self, horizon: Millis) {
        self.horizon = horizon;
    }

    /// Declares a budget, or replaces the one of that identity. A meter that existed before goes on;
    /// a window that does not overlap the old one begins with its `epochClosed` (B3).
    pub fn set_budget(&mut self, at: Instant, budget: &Budget) {
        self.reach(at);
        let before = self.budgets.get(&budget.id()).cloned();
        let mut touched = members(budget);
        touched.extend(before.iter().flat_map(|before| members(before)));
        let claims = self.detach(at, &touched);
        if let Some(before) = before {
            self.withdraw(at, &before);
        }
        self.declare(at, budget);
        self.connect(&touched);
        self.attach(at, &claims);
        self.touch_meters(budget);
    }

    /// Removes a budget. Its meters stay, for an identity that is declared again (B3).
    pub fn drop_budget(&mut self, at: Instant, id: &BudgetId) {
        self.reach(at);
        let Some(before) = self.budgets.get(id).cloned() else {
            return;
        };
        let touched = members(&before);
        let claims = self.detach(at, &touched);
        self.withdraw(at, &before);
        self.connect(&touched);
        self.attach(at, &claims);
        self.touch_meters(&before);
    }

    /// Closes an epoch for ever and begins the next (B3).
    pub fn close_epoch(&mut self, at: Instant, closed: &EpochClosed) {
        self.reach(at);
        let Some(number) = self.meter_index.get(&closed.meter).copied() else {
            return;
        };
        let claims: Vec<u64> = match self.meters.get(number) {
            Some(meter) if meter.epoch == closed.epoch => meter.claims.iter().copied().collect(),
            _ => return,
        };
        if matches!(closed.meter, MeterId::Envelope(_)) {
            for claim in &claims {
                self.debit(at, *claim);
            }
        }
        if let Some(meter) = self.meters.get_mut(number) {
            meter.close(at, closed.next);
            meter.clear_sums();
            for claim in claims.iter().filter_map(|claim| self.claims.get(claim)) {
                meter.add(claim.gpus, claim.promise);
            }
        }
        for claim in &claims {
            self.time_claim(*claim);
        }
        self.touch(number);
    }

    /// Folds a `runFunded` event. A take opens or widens claims; a refund does the same for GPUs of
    /// the unfunded claim number `of`; an extension or an overrun sets the promise of claims.
    pub fn fund(
        &mut self,
        at: Instant,
        work: &Work,
        terms: &Terms,
        cause: Funded,
        of: Option<u64>,
        lines: &[ClaimLine],
    ) {
        self.reach(at);
        self.begin(work, terms);
        for line in lines {
            let Some((envelope, _)) = self.envelope(&line.envelope) else {
                continue;
            };
            let claim = self.claim_of(work, envelope, line.pool);
            match (cause, claim.map(|(number, _)| number)) {
                (Funded::Extension, Some(claim)) => {
                    self.promise(at, claim, Promise::Until(line.until));
                }
                (Funded::Overrun, Some(claim)) => {
                    self.promise(at, claim, Promise::Overruns(line.until));
                }
                (Funded::Extension | Funded::Overrun, None) => {}
                (Funded::Take | Funded::Refund, _) => {
                    let gpus = match of {
                        Some(of) => self.narrow_unfunded(at, work, of, line.gpus),
                        None => line.gpus,
                    };
                    let promise = Promise::Until(line.until);
                    self.widen(at, work, (envelope, line.pool), gpus, promise);
                }
            }
        }
        self.end_if_empty(work);
    }

    /// Folds a `runDemoted` event: the GPUs of each line become an unfunded claim.
    pub fn demote(&mut self, at: Instant, work: &Work, cause: Demoted, lines: &[ClaimLine]) {
        self.reach(at);
        for line in lines {
            let Some((envelope, _)) = self.envelope(&line.envelope) else {
                continue;
            };
            let Some((claim, state)) = self.claim_of(work, envelope, line.pool) else {
                continue;
            };
            let gpus = line.gpus.min(state.gpus);
            self.narrow(at, claim, gpus);
            self.open(at, work, gpus, Some(cause));
        }
    }

    /// Adds GPUs that start without a payer.
    pub fn open_unfunded(&mut self, at: Instant, work: &Work, terms: &Terms, gpus: u64) {
        self.reach(at);
        self.begin(work, terms);
        self.open(at, work, gpus, None);
        self.end_if_empty(work);
    }

    /// Folds GPUs that closed. They leave unfunded claims first, then the newest funded (A1); of
    /// several unfunded claims the newest first.
    pub fn close(&mut self, at: Instant, work: &Work, gpus: u64) {
        self.reach(at);
        let mut left = gpus;
        while 0 < left {
            let state = self.works.get(work);
            let Some(number) = state.and_then(|s| s.unfunded.last()).map(|c| c.number) else {
                break;
            };
            left -= self.narrow_unfunded(at, work, number, left).min(left);
        }
        while 0 < left {
            let Some((number, gpus)) = self.newest(work) else {
                break;
            };
            self.narrow(at, number, left);
            left -= gpus.min(left);
        }
        self.end_if_empty(work);
    }

    fn newest(&self, work: &Work) -> Option<(u64, u64)> {
        let numbers = self.works.get(work)?.claims.iter().rev();
        let mut claims = numbers.filter_map(|number| Some((*number, self.claims.get(number)?)));
        let funded = claims.find(|(_, claim)| !matches!(claim.promise, Promise::Held { .. }));
        funded.map(|(number, claim)| (number, claim.gpus))
    }

    /// Adds a hold: it encumbers its GPUs for a duration and accrues nothing (B2).
    pub fn hold(
        &mut self,
        at: Instant,
        work: &Work,
        terms: &Terms,
        duration: Millis,
        takes: &[Take],
    ) {
        self.reach(at);
        self.begin(work, terms);
        for take in takes {
            if let Some((envelope, _)) = self.envelope(&take.envelope) {
                let since = at;
                let promise = Promise::Held { since, duration };
                self.widen(at, work, (envelope, take.pool), take.gpus, promise);
            }
        }
        self.end_if_empty(work);
    }

    /// Removes the holds of a work: dropped, or about to become claims.
    pub fn drop_hold(&mut self, at: Instant, work: &Work) {
        self.reach(at);
        let Some(state) = self.works.get(work) else {
            return;
        };
        for number in state.claims.clone() {
            let claim = self.claims.get(&number);
            if claim.is_some_and(|claim| matches!(claim.promise, Promise::Held { .. })) {
                self.narrow(at, number, u64::MAX);
            }
        }
        self.end_if_empty(work);
    }

    /// Sets the hard end of a run. No promise goes beyond it.
    pub fn set_hard_end(&mut self, at: Instant, run: &RunUid, hard_end: Option<Instant>) {
        self.reach(at);
        let first = Work {
            run: run.clone(),
            incarnation: 0,
        };
        let of_run = self.works.range_mut(first..);
        let mut claims = Vec::new();
        for (_, state) in of_run.take_while(|(work, _)| work.run == *run) {
            state.terms.hard_end = hard_end;
            claims.extend(state.claims.iter().copied());
        }
        for number in claims {
            let promise = self.claims.get(&number).map(|claim| claim.promise);
            if let (Some(Promise::Until(end)), Some(hard_end)) = (promise, hard_end)
                && hard_end.max(at) < end
            {
                self.promise(at, number, Promise::Until(hard_end.max(at)));
            }
        }
    }

    /// Takes the claims of some envelopes off all their meters.
    fn detach(&mut self, at: Instant, envelopes: &BTreeSet<EnvelopeId>) -> Vec<u64> {
        let known = envelopes.iter().filter_map(|id| self.envelope(id));
        let own = known.filter_map(|(_, envelope)| envelope.meters.first());
        let own = own.filter_map(|meter| self.meters.get(*meter));
        let claims: Vec<u64> = own.flat_map(|meter| meter.claims.iter().copied()).collect();
        for number in &claims {
            let Some(claim) = self.claims.get(number) else {
                continue;
            };
            let (gpus, promise) = (claim.gpus, claim.promise);
            let meters: Vec<usize> = self.charged(claim.envelope, claim.pool).collect();
            for meter in meters {
                if let Some(meter) = self.meters.get_mut(meter) {
                    meter.accrue(at);
                    meter.remove(gpus, promise);
                    meter.claims.remove(number);
                }
            }
        }
        claims
    }

    /// Puts claims on the meters that they are charged to now. A promise that ended before it had a
    /// deadline ends now.
    pub(super) fn attach(&mut self, at: Instant, claims: &[u64]) {
        for number in claims {
            let Some(claim) = self.claims.get(number) else {
                continue;
            };
            let (gpus, promise) = (claim.gpus, claim.promise);
            let (envelope, pool) = (claim.envelope, claim.pool);
            let meters: Vec<usize> = self.charged(envelope, pool).collect();
            for meter in &meters {
                if let Some(meter) = self.meters.get_mut(*meter) {
                    meter.accrue(at);
                    meter.add(gpus, promise);
                    meter.claims.insert(*number);
                }
            }
            self.time_claim(*number);
            for meter in meters {
                self.touch(meter);
            }
            let due = self.claims.get(number).and_then(|claim| claim.due);
            if due.is_some_and(|due| due < at) {
                self.promise(at, *number, Promise::Until(at));
            }
        }
    }

    fn withdraw(&mut self, at: Instant, budget: &Budget) {
        let id = budget.id();
        for envelope in &budget.envelopes {
            let number = self.intern_envelope(&id.envelope(&envelope.name));
            let Some(state) = self.envelopes.get_mut(number) else {
                continue;
            };
            let meters = [state.meters.first().copied(), state.lending];
            if let Some(declared) = state.declared.take() {
                let (owner, spec) = (declared.owner, &declared.spec);
                self.family
                    .take(owner, &spec.flavor, &spec.selector, number);
            }
            for meter in meters.into_iter().flatten() {
                self.undeclare(at, meter);
            }
        }
        for cap in &budget.aggregate_caps {
            let cap_id = id.cap(&cap.name);
            let meter = self.intern_meter(MeterId::Cap(cap_id.clone()));
            self.undeclare(at, meter);
            self.unname(cap, &cap_id);
        }
        self.family.unlink(&budget.owner, &budget.parents);
        self.budgets.remove(&id);
    }

    fn unname(&mut self, cap: &AggregateCap, id: &CapId) {
        for envelope in &cap.envelopes {
            if let Some(caps) = self.caps.get_mut(envelope) {
                caps.remove(id);
                if caps.is_empty() {
                    self.caps.remove(envelope);
                }
            }
        }
    }

    fn undeclare(&mut self, at: Instant, meter: usize) {
        if let Some(meter) = self.meters.get_mut(meter) {
            meter.accrue(at);
            meter.is_declared = false;
            (meter.gpus_limit, meter.time_limit) = (None, None);
        }
        self.touch(meter);
    }

    /// Declares the parts of a budget, without the meters of its envelopes' caps.
    pub(super) fn declare(&mut self, at: Instant, budget: &Budget) {
        let id = budget.id();
        self.family.link(&budget.owner, &budget.parents);
        let owner = self.family.intern(&budget.owner);
        for envelope in &budget.envelopes {
            let envelope_id = id.envelope(&envelope.name);
            let number = self.intern_envelope(&envelope_id);
            let declared = Declared {
                owner,
                owner_name: budget.owner.clone(),
                is_paused: budget.paused,
                spec: Arc::new(envelope.clone()),
            };
            self.family
                .put(owner, &envelope.flavor, &envelope.selector, number);
            if let Some(state) = self.envelopes.get_mut(number) {
                state.declared = Some(declared);
            }
            self.configure_envelope(at, number, &envelope_id, envelope);
        }
        for cap in &budget.aggregate_caps {
            let cap_id = id.cap(&cap.name);
            for envelope in &cap.envelopes {
                let caps = self.caps.entry(envelope.clone()).or_default();
                caps.insert(cap_id.clone());
            }
            let meter = self.intern_meter(MeterId::Cap(cap_id));
            let limits = (cap.concurrency_max, cap.gpu_hours_max);
            self.configure(at, meter, limits, cap_schedule(cap));
        }
        self.budgets.insert(id, Arc::new(budget.clone()));
    }

    fn configure_envelope(&mut self, at: Instant, number: usize, id: &EnvelopeId, spec: &Envelope) {
        let schedule = envelope_schedule(spec);
        let own = self.intern_meter(MeterId::Envelope(id.clone()));
        let limits = (Some(spec.concurrency), spec.gpu_hours_max);
        self.configure(at, own, limits, schedule);
        self.configure_pool(at, number, id, spec);
    }

    /// Configures the lending pool of an envelope that lends, or that lent before.
    pub(super) fn configure_pool(
        &mut self,
        at: Instant,
        number: usize,
        id: &EnvelopeId,
        spec: &Envelope,
    ) {
        let pool = MeterId::Lending(id.clone());
        if spec.lending.is_some() || self.meter_index.contains_key(&pool) {
            let meter = self.intern_meter(pool);
            let lending = spec.lending.as_ref();
            let gpus = lending.and_then(|lending| lending.concurrency_max);
            let hours = lending.and_then(|lending| lending.gpu_hours_max);
            self.configure(at, meter, (gpus, hours), envelope_schedule(spec));
            if let Some(state) = self.envelopes.get_mut(number) {
                state.lending = Some(meter);
            }
        }
    }

    fn configure(
        &mut self,
        at: Instant,
        meter: usize,
        (gpus, hours): (Option<u64>, Option<u64>),
        schedule: Schedule,
    ) {
        let Some(meter) = self.meters.get_mut(meter) else {
            return;
        };
        meter.accrue(at);
        meter.is_declared = true;
        meter.gpus_limit = gpus;
        meter.time_limit = hours.map(|hours| hours.saturating_mul(GPU_MS_PER_HOUR));
        meter.schedule = schedule;
        if let AfterEdit::Kept(window) = after_edit(meter.window, schedule.current(at)) {
            meter.window = window;
        }
    }

    /// Connects envelopes with the caps that name them.
    pub(super) fn connect(&mut self, envelopes: &BTreeSet<EnvelopeId>) {
        for id in envelopes {
            let caps: Vec<CapId> = self.caps.get(id).into_iter().flatten().cloned().collect();
            let number = self.intern_envelope(id);
            let mut meters = vec![self.intern_meter(MeterId::Envelope(id.clone()))];
            meters.extend(
                caps.into_iter()
                    .map(|cap| self.intern_meter(MeterId::Cap(cap))),
            );
            if let Some(state) = self.envelopes.get_mut(number) {
                state.meters = meters;
            }
        }
    }

    fn touch_meters(&mut self, budget: &Budget) {
        for meter in declared_meters(budget) {
            if let Some(number) = self.meter_index.get(&meter).copied() {
                self.rearm(number);
            }
        }
    }

    pub(super) fn intern_envelope(&mut self, id: &EnvelopeId) -> usize {
        if let Some(number) = self.envelope_index.get(id) {
            return *number;
        }
        let own = self.intern_meter(MeterId::Envelope(id.clone()));
        let number = self.envelopes.len();
        self.envelopes.push(EnvelopeState {
            id: id.clone(),
            declared: None,
            meters: vec![own],
            lending: None,
        });
        self.envelope_index.insert(id.clone(), number);
        number
    }

    pub(super) fn intern_meter(&mut self, id: MeterId) -> usize {
        if let Some(number) = self.meter_index.get(&id) {
            return *number;
        }
        let number = self.meters.len();
        self.meters.push(Meter::new(id.clone()));
        self.meter_index.insert(id, number);
        number
    }
}

/// The epoch of a meter after an edit of its window (B3).
pub(super) enum AfterEdit {
    /// It goes on in this window; `None` for a meter without one.
    Kept(Option<Window>),
    /// It has to be closed first: the new window does not overlap the old one, or is over.
    Closed,
}

pub(super) fn after_edit(old: Option<Window>, new: Option<Window>) -> AfterEdit {
    match (old, new) {
        (None, new) => AfterEdit::Kept(new),
        (Some(old), Some(new)) if old.end == new.end && new.start <= old.start => {
            AfterEdit::Kept(Some(old))
        }
        (Some(old), Some(new)) if old.overlaps(&new) => AfterEdit::Kept(Some(new)),
        (Some(_), _) => AfterEdit::Closed,
    }
}

pub(super) fn envelope_schedule(spec: &Envelope) -> Schedule {
    Schedule {
        start: spec.start,
        end: spec.end,
        renew: spec.renew,
    }
}

pub(super) fn cap_schedule(cap: &AggregateCap) -> Schedule {
    Schedule {
        start: cap.start,
        end: cap.end,
        renew: cap.renew,
    }
}

/// The envelopes that a budget declares or caps.
pub(super) fn members(budget: &Budget) -> BTreeSet<EnvelopeId> {
    let id = budget.id();
    let own = budget.envelopes.iter().map(|e| id.envelope(&e.name));
    let capped = budget.aggregate_caps.iter().flat_map(|cap| &cap.envelopes);
    own.chain(capped.cloned()).collect()
}

/// The meters that a budget declares: each envelope with its lending pool, then the caps.
pub(super) fn declared_meters(budget: &Budget) -> impl Iterator<Item = MeterId> {
    let own = budget.envelopes.iter().flat_map(|e| {
        let envelope = budget.envelope_id(e);
        [
            MeterId::Envelope(envelope.clone()),
            MeterId::Lending(envelope),
        ]
    });
    let caps = budget.aggregate_caps.iter();
    own.chain(caps.map(|cap| MeterId::Cap(budget.cap_id(cap))))
}
