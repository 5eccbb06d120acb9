//! Reads for answers, metrics and conditions.

use std::collections::{BTreeMap, BTreeSet};

use bursar_units::{Instant, Label, vocabulary};

use super::fold::declared_meters;
use super::usage::{Debit, UsageRow, UsageTotal, debit};
use super::{Accounts, ClaimState};
use crate::calendar::{Window, days_between};
use crate::claim::{Claim, Class, Pool, Promise, RunUid, Unfunded, Work};
use crate::cover::{Dimension, Relation};
use crate::id::{BudgetId, CapId, EnvelopeId, MeterId};
use crate::meter::{ClosedEpoch, Meter, Share, product, saturated};
use crate::spec::{Budget, Pattern};

/// The most pairs of crossing caps that a condition names.
const CROSSING_MAX: usize = 20;

vocabulary! {
    /// Conditions of a budget.
    pub enum ConditionKind {
        /// Accepted and in force.
        Ready = "Ready",
        /// An envelope or a lending pool has reached 80 % of a limit.
        NearLimit = "NearLimit",
        /// A take, an extension or a claim failed on an envelope or a lending pool.
        Exhausted = "Exhausted",
        /// An aggregate cap has reached 80 % of a limit.
        CapNearLimit = "CapNearLimit",
        /// A take, an extension or a claim failed on an aggregate cap.
        CapExhausted = "CapExhausted",
        /// Two caps share envelopes, and neither contains the other.
        CrossingCaps = "CrossingCaps",
        /// A pattern matches no known owner, or a loan outlives its pattern.
        UnusedLending = "UnusedLending",
    }
}

/// A condition of a budget. It is true if it is about something; `Ready` is always true.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Condition {
    /// Kind.
    pub kind: ConditionKind,
    /// Things that make it true.
    pub about: Vec<About>,
}

/// A thing that makes a condition true.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum About {
    /// The budget is paused.
    Paused,
    /// A meter with its value and bound.
    Meter {
        /// The meter.
        meter: MeterId,
        /// The dimension.
        dimension: Dimension,
        /// The value and its limit now.
        share: Share,
    },
    /// A meter that had no room for a start, an extension or a claim.
    Exhausted {
        /// The meter.
        meter: MeterId,
        /// GPUs or hours.
        dimension: Dimension,
        /// The value and its limit when it had none, and since when.
        share: Share,
    },
    /// Two caps that cross.
    Caps(CapId, CapId),
    /// A pattern that matches no known owner.
    Pattern(EnvelopeId, Pattern),
    /// A loan that goes on although the envelope lends to its borrower no more.
    Loan {
        /// The envelope.
        envelope: EnvelopeId,
        /// The borrower.
        borrower: Label,
        /// End of its promise.
        until: Instant,
    },
}

/// A meter as answers and metrics show it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MeterView {
    /// The meter.
    pub meter: MeterId,
    /// Number of the present epoch, from 0.
    pub epoch: u64,
    /// The present window; `None` after the last one.
    pub window: Option<Window>,
    /// GPUs of claims and holds.
    pub gpus_used: u64,
    /// GPUs of holds, which are part of those used.
    pub gpus_held: u64,
    /// The most GPUs.
    pub gpus_limit: Option<u64>,
    /// GPU-milliseconds accrued in this epoch.
    pub accrued_gpu_ms: u64,
    /// GPU-milliseconds accrued and promised in this epoch.
    pub committed_gpu_ms: u64,
    /// The most GPU-milliseconds.
    pub limit_gpu_ms: Option<u64>,
}

/// Room that an envelope has left, over all its meters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Headroom {
    /// GPUs that could be taken for an instant.
    pub gpus: u64,
    /// Uncommitted GPU-milliseconds; `None` without a time limit.
    pub gpu_ms: Option<u64>,
    /// Whether it is declared, in its window and not paused.
    pub is_open: bool,
}

/// Announced percentage that makes a condition true.
#[derive(Clone, Copy)]
enum Level {
    /// The first of [`crate::meter::SHARES`].
    Near,
    /// [`crate::meter::EXHAUSTED`].
    Exhausted,
}

impl Accounts {
    /// A declared budget.
    pub fn budget(&self, id: &BudgetId) -> Option<&Budget> {
        self.budgets.get(id).map(AsRef::as_ref)
    }

    /// All declared budgets, by identity.
    pub fn budgets(&self) -> impl Iterator<Item = &Budget> {
        self.budgets.values().map(AsRef::as_ref)
    }

    /// The owner that declares an envelope.
    pub fn owner(&self, envelope: &EnvelopeId) -> Option<&Label> {
        self.envelope_owner(self.envelope(envelope)?.0)
    }

    /// The owners and parents that budgets name, by name.
    pub fn owners(&self) -> impl Iterator<Item = &Label> {
        self.family.known()
    }

    /// The relatives of an owner in the order of D3, without places.
    pub fn relatives(&self, owner: &Label) -> Vec<(Relation, Label)> {
        let kin = self.family.find(owner).and_then(|o| self.family.kin(o));
        let Some(kin) = kin else { return Vec::new() };
        let tiers = [
            (Relation::Sibling, &kin.siblings),
            (Relation::Ancestor, &kin.ancestors),
            (Relation::Cousin, &kin.cousins),
        ];
        let to_name = |number: &usize| Some(self.family.owner(*number)?.name.clone());
        let people = |(relation, list): (Relation, &Vec<usize>)| -> Vec<_> {
            let names = list.iter().filter_map(to_name);
            names.map(|name| (relation, name)).collect()
        };
        tiers.into_iter().flat_map(people).collect()
    }

    /// The funded claims and holds of an incarnation, oldest first.
    pub fn claims(&self, work: &Work) -> Vec<Claim> {
        let numbers = self.works.get(work).into_iter().flat_map(|w| &w.claims);
        let claims = numbers.filter_map(|n| self.to_claim(*n, self.claims.get(n)?));
        claims.collect()
    }

    /// The funded claims and holds on a meter, oldest first.
    pub fn claims_on(&self, meter: &MeterId) -> Vec<Claim> {
        let numbers = self.meter_state(meter).into_iter().flat_map(|m| &m.claims);
        let claims = numbers.filter_map(|n| self.to_claim(*n, self.claims.get(n)?));
        claims.collect()
    }

    fn to_claim(&self, number: u64, claim: &ClaimState) -> Option<Claim> {
        Some(Claim {
            id: self.claim_id(claim)?,
            owner: self.owner_of(&claim.work)?.clone(),
            number,
            gpus: claim.gpus,
            promise: claim.promise,
            ends: claim.due,
        })
    }

    /// Number of the last claim, funded or not.
    pub fn last_claim(&self) -> u64 {
        self.number
    }

    /// The unfunded claims of an incarnation, earliest demotion first.
    pub fn unfunded(&self, work: &Work) -> Vec<Unfunded> {
        let list = self.works.get(work).into_iter().flat_map(|w| &w.unfunded);
        list.map(|claim| Unfunded {
            work: work.clone(),
            number: claim.number,
            gpus: claim.gpus,
            since: claim.since,
            cause: claim.cause,
        })
        .collect()
    }

    /// Incarnations with unfunded claims, by UID. Refunding goes by submission, which the plane
    /// knows (B5).
    pub fn unfunded_work(&self) -> impl Iterator<Item = &Work> {
        self.unfunded.iter()
    }

    /// GPUs of an incarnation: funded and unfunded claims, without holds (A1).
    pub fn gpus(&self, work: &Work) -> u64 {
        let Some(state) = self.works.get(work) else {
            return 0;
        };
        let claims = state.claims.iter().filter_map(|n| self.claims.get(n));
        let funded = claims.filter(|claim| !matches!(claim.promise, Promise::Held { .. }));
        let funded = funded.map(|claim| claim.gpus);
        let unfunded = state.unfunded.iter().map(|claim| claim.gpus);
        funded.chain(unfunded).fold(0, u64::saturating_add)
    }

    /// One meter.
    pub fn meter(&self, now: Instant, id: &MeterId) -> Option<MeterView> {
        Some(self.to_view(now, self.meter_state(id)?))
    }

    /// The epochs of a meter that are over, oldest first.
    pub fn closed_epochs(&self, id: &MeterId) -> &[ClosedEpoch] {
        let meter = self.meter_state(id);
        meter.map_or(&[], |meter| meter.closed.as_slice())
    }

    /// The declared meters of a budget: each envelope with its lending pool, then the caps.
    pub fn meters(&self, now: Instant, id: &BudgetId) -> Vec<MeterView> {
        let Some(budget) = self.budget(id) else {
            return Vec::new();
        };
        let meters = self.declared_meters(budget);
        meters.map(|meter| self.to_view(now, meter)).collect()
    }

    /// The meters of a budget that are there: an envelope that never lent has no pool.
    fn declared_meters(&self, budget: &Budget) -> impl Iterator<Item = &Meter> {
        declared_meters(budget).filter_map(|meter| self.meter_state(&meter))
    }

    fn to_view(&self, now: Instant, meter: &Meter) -> MeterView {
        MeterView {
            meter: meter.id.clone(),
            epoch: meter.epoch,
            window: meter.window,
            gpus_used: meter.gpus(),
            gpus_held: meter.gpus_held(),
            gpus_limit: meter.gpus_limit,
            accrued_gpu_ms: saturated(meter.accrued(now)),
            committed_gpu_ms: saturated(self.committed(now, meter)),
            limit_gpu_ms: meter.time_limit,
        }
    }

    /// Committed time. On a meter without a time limit promises may have ended without a decision,
    /// so its claims are added one by one.
    fn committed(&self, now: Instant, meter: &Meter) -> u128 {
        if meter.time_limit_in_force().is_some() {
            return meter.committed(now);
        }
        let claims = meter.claims.iter().filter_map(|n| self.claims.get(n));
        let promised = claims.map(|claim| product(claim.gpus, meter.length(claim.promise, now)));
        meter.accrued(now) + promised.sum::<u128>()
    }

    /// The room that an envelope has left, over its own meter and its caps.
    pub fn headroom(&self, now: Instant, id: &EnvelopeId) -> Option<Headroom> {
        let (_, envelope) = self.envelope(id)?;
        let meters = envelope.meters.iter().filter_map(|m| self.meters.get(*m));
        let mut headroom = Headroom {
            gpus: u64::MAX,
            gpu_ms: None,
            is_open: self.is_open(envelope, now)
                && envelope.declared.as_ref().is_some_and(|d| !d.is_paused),
        };
        for meter in meters {
            if let Some(limit) = meter.gpus_limit {
                headroom.gpus = headroom.gpus.min(limit.saturating_sub(meter.gpus()));
            }
            if let Some(limit) = meter.time_limit_in_force() {
                let left = saturated(u128::from(limit).saturating_sub(meter.committed(now)));
                headroom.gpu_ms = Some(headroom.gpu_ms.map_or(left, |least| least.min(left)));
            }
        }
        Some(headroom)
    }

    /// Used GPU time by owner, envelope, class and UTC day.
    pub fn usage(&self, now: Instant) -> impl Iterator<Item = UsageRow> {
        self.usage.rows(now)
    }

    /// Used GPU time by owner, envelope and class, over all days.
    pub fn usage_totals(&self, now: Instant) -> impl Iterator<Item = UsageTotal> {
        self.usage.totals(now)
    }

    /// The GPU time of a run by payer, epoch and day.
    pub fn debits(&self, now: Instant, run: &RunUid) -> Vec<Debit> {
        let mut debits = self.debits.of(run);
        let first = Work {
            run: run.clone(),
            incarnation: 0,
        };
        let of_run = self.works.range(first..);
        for (_, state) in of_run.take_while(|(work, _)| work.run == *run) {
            for claim in state.claims.iter().filter_map(|n| self.claims.get(n)) {
                let Some(envelope) = self.envelopes.get(claim.envelope) else {
                    continue;
                };
                let own = envelope.meters.first().and_then(|m| self.meters.get(*m));
                let epoch = own.map_or(0, |meter| meter.epoch);
                if matches!(claim.promise, Promise::Held { .. }) {
                    continue;
                }
                for (day, length) in days_between(claim.since, now) {
                    let key = (Some(envelope.id.clone()), claim.pool.class(), epoch, day);
                    *debits.entry(key).or_default() += product(claim.gpus, length);
                }
            }
            for claim in &state.unfunded {
                for (day, length) in days_between(claim.debited, now) {
                    let key = (None, Class::Unfunded, 0, day);
                    *debits.entry(key).or_default() += product(claim.gpus, length);
                }
            }
        }
        let list = debits.iter();
        list.map(|(key, gpu_ms)| debit(key, *gpu_ms)).collect()
    }

    /// The conditions of a budget, one of each kind, in order.
    pub fn conditions(&self, now: Instant, id: &BudgetId) -> Vec<Condition> {
        let Some(budget) = self.budget(id) else {
            return Vec::new();
        };
        let about = |kind| match kind {
            ConditionKind::Ready if budget.paused => vec![About::Paused],
            ConditionKind::Ready => Vec::new(),
            ConditionKind::NearLimit => self.announced(now, budget, Level::Near, is_not_cap),
            ConditionKind::Exhausted => self.announced(now, budget, Level::Exhausted, is_not_cap),
            ConditionKind::CapNearLimit => self.announced(now, budget, Level::Near, is_cap),
            ConditionKind::CapExhausted => self.announced(now, budget, Level::Exhausted, is_cap),
            ConditionKind::CrossingCaps => self.crossing(budget),
            ConditionKind::UnusedLending => self.unused_lending(budget),
        };
        let condition = |kind| Condition {
            kind,
            about: about(kind),
        };
        ConditionKind::ALL.into_iter().map(condition).collect()
    }

    /// Meters of a budget of which a level is announced.
    fn announced(
        &self,
        now: Instant,
        budget: &Budget,
        level: Level,
        wanted: fn(&MeterId) -> bool,
    ) -> Vec<About> {
        let mut list = Vec::new();
        let meters = self.declared_meters(budget);
        for meter in meters.filter(|meter| wanted(&meter.id)) {
            for dimension in Dimension::ALL {
                let announced = meter.announced(dimension);
                let id = meter.id.clone();
                let about = match level {
                    Level::Near => announced.first().copied().flatten().and_then(|_| {
                        let share = meter.share(dimension, now)?;
                        Some(About::Meter {
                            meter: id,
                            dimension,
                            share,
                        })
                    }),
                    Level::Exhausted => {
                        let share = announced.last().copied().flatten();
                        share.map(|share| About::Exhausted {
                            meter: id,
                            dimension,
                            share,
                        })
                    }
                };
                list.extend(about);
            }
        }
        list
    }

    /// Pairs of a cap of the budget and any cap that share envelopes, neither of which contains the
    /// other; the first [`CROSSING_MAX`]. Caps with the same members do not cross, so one of them
    /// stands for all.
    fn crossing<'a>(&'a self, budget: &'a Budget) -> Vec<About> {
        let mut sets: Vec<(CapId, BTreeSet<&EnvelopeId>)> = Vec::new();
        let mut known: BTreeSet<BTreeSet<&EnvelopeId>> = BTreeSet::new();
        let mut add = |budget: &'a Budget| {
            for cap in &budget.aggregate_caps {
                let members: BTreeSet<&EnvelopeId> = cap.envelopes.iter().collect();
                if known.insert(members.clone()) {
                    sets.push((budget.cap_id(cap), members));
                }
            }
            sets.len()
        };
        let own = add(budget);
        let members = budget.aggregate_caps.iter().flat_map(|cap| &cap.envelopes);
        let naming = members.filter_map(|member| self.caps.get(member)).flatten();
        let others: BTreeSet<BudgetId> = naming.map(CapId::budget).collect();
        for other in others.iter().filter(|other| **other != budget.id()) {
            self.budget(other).map(&mut add);
        }
        let mut by_member: BTreeMap<&EnvelopeId, Vec<usize>> = BTreeMap::new();
        for (number, (_, members)) in sets.iter().enumerate() {
            for member in members {
                by_member.entry(member).or_default().push(number);
            }
        }
        let mut list = Vec::new();
        for (number, (one, members)) in sets.iter().take(own).enumerate() {
            let mut shared: BTreeMap<usize, usize> = BTreeMap::new();
            let naming = members.iter().filter_map(|member| by_member.get(member));
            for other in naming.flatten().filter(|other| number < **other) {
                *shared.entry(*other).or_default() += 1;
            }
            for (other, shared) in shared {
                let Some((other, others)) = sets.get(other) else {
                    continue;
                };
                if shared < members.len().min(others.len()) {
                    list.push(About::Caps(one.clone(), other.clone()));
                    if CROSSING_MAX <= list.len() {
                        return list;
                    }
                }
            }
        }
        list
    }

    fn unused_lending(&self, budget: &Budget) -> Vec<About> {
        let mut list = Vec::new();
        for envelope in &budget.envelopes {
            let id = budget.envelope_id(envelope);
            let patterns = envelope.lending.iter().flat_map(|lending| &lending.to);
            for pattern in patterns {
                if !self.family.known().any(|owner| pattern.matches(owner)) {
                    list.push(About::Pattern(id.clone(), pattern.clone()));
                }
            }
            for claim in self.claims_on(&MeterId::Lending(id.clone())) {
                let is_loan = claim.id.pool == Pool::Lent && !envelope.lends_to(&claim.owner);
                if let Some(until) = claim.promise.until().filter(|_| is_loan) {
                    list.push(About::Loan {
                        envelope: id.clone(),
                        borrower: claim.owner,
                        until,
                    });
                }
            }
        }
        list
    }
}

fn is_cap(meter: &MeterId) -> bool {
    matches!(meter, MeterId::Cap(_))
}

fn is_not_cap(meter: &MeterId) -> bool {
    !is_cap(meter)
}
