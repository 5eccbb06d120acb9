//! Edits of budgets: their mistakes, the epochs that they close, the meters that they tighten.

use std::collections::{BTreeMap, BTreeSet};

use bursar_units::{Instant, Label};

use super::fold::{cap_schedule, envelope_schedule, kept, meters_of};
use super::{Accounts, EpochClosed};
use crate::calendar::{Schedule, Window};
use crate::family::Family;
use crate::id::{BudgetId, EnvelopeId, MeterId};
use crate::meter::saturated;
use crate::spec::{AggregateCap, Budget, EDGES_MAX, Envelope, Found, Mistake, Wrong};

/// Consequences of a budget that is set.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Edit {
    /// Epochs that it closes, by meter: the new window does not overlap the old one.
    pub closed: Vec<EpochClosed>,
    /// Meters to refit after it (B4).
    pub refit: BTreeSet<MeterId>,
}

/// The declaration of one meter.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Limits {
    gpus: Option<u64>,
    hours: Option<u64>,
    schedule: Schedule,
    /// Members of a cap.
    members: BTreeSet<EnvelopeId>,
}

impl Accounts {
    /// The consequences of setting a budget, on the state before it.
    pub fn edit(&self, at: Instant, budget: &Budget) -> Edit {
        let before = self.budget(&budget.id()).map(limits).unwrap_or_default();
        let after = limits(budget);
        let mut edit = Edit::default();
        for (id, new) in &after {
            let meter = self.meter_state(id);
            let next = new.schedule.current(at);
            if let Some(meter) = meter
                && kept(meter.window, next).is_none()
            {
                edit.closed.push(EpochClosed {
                    meter: id.clone(),
                    epoch: meter.epoch,
                    accrued: saturated(meter.accrued(at)),
                    next,
                });
            }
            if before.get(id).is_none_or(|old| is_tighter(old, new)) {
                edit.refit.insert(id.clone());
            }
        }
        let gone = before.into_keys().filter(|id| !after.contains_key(id));
        edit.refit.extend(gone);
        edit
    }

    /// The meters to refit after a budget is dropped.
    pub fn removal(&self, id: &BudgetId) -> BTreeSet<MeterId> {
        self.budget(id).map(meters_of).unwrap_or_default()
    }

    /// The epochs that `budget rotate` closes: that of the envelope and of its lending pool. The
    /// end of the window stays (B3). Empty if the envelope is not declared or not open.
    pub fn rotate(&self, at: Instant, envelope: &EnvelopeId) -> Vec<EpochClosed> {
        let meters = [
            MeterId::Envelope(envelope.clone()),
            MeterId::Lending(envelope.clone()),
        ];
        let meters = meters.iter().filter_map(|id| self.meter_state(id));
        let open = meters.filter_map(|meter| {
            let window = meter.window?;
            let is_open = meter.is_declared && window.is_open(at);
            is_open.then(|| EpochClosed {
                meter: meter.id.clone(),
                epoch: meter.epoch,
                accrued: saturated(meter.accrued(at)),
                next: Some(Window {
                    start: Some(at),
                    end: window.end,
                }),
            })
        });
        open.collect()
    }

    /// The mistakes of budgets that are set and dropped together, as far as they need the other
    /// budgets: cycles, families that are too deep, and envelopes of caps.
    pub fn mistakes(&self, set: &[&Budget], dropped: &[&BudgetId]) -> Vec<(BudgetId, Mistake)> {
        let mut budgets: BTreeMap<BudgetId, &Budget> = BTreeMap::new();
        budgets.extend(self.budgets.iter().map(|(id, b)| (id.clone(), b.as_ref())));
        dropped.iter().for_each(|id| drop(budgets.remove(*id)));
        budgets.extend(set.iter().map(|budget| (budget.id(), *budget)));
        let mut family = Family::default();
        for budget in budgets.values() {
            family.link(&budget.owner, &budget.parents);
        }
        let mut list = Vec::new();
        for budget in set {
            let mut found = Found::default();
            check_parents(budget, &family, &mut found);
            check_caps(budget, &budgets, &family, &mut found);
            let id = budget.id();
            list.extend(found.0.into_iter().map(|mistake| (id.clone(), mistake)));
        }
        list
    }
}

fn check_parents(budget: &Budget, family: &Family, found: &mut Found) {
    for (number, parent) in budget.parents.iter().enumerate() {
        let path = || format!("spec.parents[{number}]");
        if *parent == budget.owner {
            continue;
        }
        if let Some(owners) = way_up(family, parent, &budget.owner) {
            let owners = [budget.owner.clone()].into_iter().chain(owners).collect();
            found.add(path(), Wrong::Cycle { owners });
        } else if is_deeper(family, parent, EDGES_MAX - 1) {
            found.add(path(), Wrong::TooDeep { max: EDGES_MAX });
        }
    }
}

/// The owners from one up to an ancestor, both included.
fn way_up(family: &Family, from: &Label, to: &Label) -> Option<Vec<Label>> {
    let mut came_from: BTreeMap<&Label, &Label> = BTreeMap::new();
    let mut next = vec![from];
    let mut seen = BTreeSet::from([from]);
    while let Some(owner) = next.pop() {
        if owner == to {
            let mut way = vec![owner.clone()];
            let mut at = owner;
            while let Some(below) = came_from.get(at) {
                way.push((*below).clone());
                at = below;
            }
            way.reverse();
            return Some(way);
        }
        for parent in family.parents(owner) {
            if seen.insert(parent) {
                came_from.insert(parent, owner);
                next.push(parent);
            }
        }
    }
    None
}

/// Whether an owner has ancestors on more than `levels` levels.
fn is_deeper(family: &Family, owner: &Label, levels: usize) -> bool {
    let mut level: BTreeSet<&Label> = BTreeSet::from([owner]);
    for _ in 0..levels {
        level = level.into_iter().flat_map(|o| family.parents(o)).collect();
        if level.is_empty() {
            return false;
        }
    }
    true
}

fn check_caps(
    budget: &Budget,
    budgets: &BTreeMap<BudgetId, &Budget>,
    family: &Family,
    found: &mut Found,
) {
    for (number, cap) in budget.aggregate_caps.iter().enumerate() {
        for (entry, id) in cap.envelopes.iter().enumerate() {
            if let Some(wrong) = wrong_member(budget, cap, id, budgets, family) {
                let path = format!("spec.aggregateCaps[{number}].envelopes[{entry}]");
                found.add(path, wrong);
            }
        }
    }
}

fn wrong_member(
    budget: &Budget,
    cap: &AggregateCap,
    id: &EnvelopeId,
    budgets: &BTreeMap<BudgetId, &Budget>,
    family: &Family,
) -> Option<Wrong> {
    let envelope = id.clone();
    let declaring = budgets.get(&id.budget());
    let spec = declaring.and_then(|b| b.envelopes.iter().find(|e| e.name.as_str() == id.name()));
    let (Some(declaring), Some(spec)) = (declaring, spec) else {
        return Some(Wrong::NoSuchEnvelope { envelope });
    };
    if !family.descends(&declaring.owner, &budget.owner) {
        return Some(Wrong::ForeignEnvelope {
            envelope,
            owner: declaring.owner.clone(),
            of: budget.owner.clone(),
        });
    }
    let flavor = spec.flavor.clone();
    (flavor != cap.flavor).then_some(Wrong::OtherFlavor { envelope, flavor })
}

/// The declared limits of a budget, by meter.
fn limits(budget: &Budget) -> BTreeMap<MeterId, Limits> {
    let id = budget.id();
    let mut list = BTreeMap::new();
    for envelope in &budget.envelopes {
        let envelope_id = id.envelope(&envelope.name);
        let (own, lending) = envelope_limits(envelope);
        list.insert(MeterId::Envelope(envelope_id.clone()), own);
        list.insert(MeterId::Lending(envelope_id), lending);
    }
    for cap in &budget.aggregate_caps {
        let limits = Limits {
            gpus: cap.concurrency_max,
            hours: cap.gpu_hours_max,
            schedule: cap_schedule(cap),
            members: cap.envelopes.iter().cloned().collect(),
        };
        list.insert(MeterId::Cap(id.cap(&cap.name)), limits);
    }
    list
}

fn envelope_limits(envelope: &Envelope) -> (Limits, Limits) {
    let schedule = envelope_schedule(envelope);
    let limits = |gpus, hours| Limits {
        gpus,
        hours,
        schedule,
        members: BTreeSet::new(),
    };
    let lending = envelope.lending.as_ref();
    (
        limits(Some(envelope.concurrency), envelope.gpu_hours_max),
        limits(
            lending.and_then(|lending| lending.concurrency_max),
            lending.and_then(|lending| lending.gpu_hours_max),
        ),
    )
}

/// Whether a limit falls, the window moves or members join.
fn is_tighter(old: &Limits, new: &Limits) -> bool {
    let falls = |old: Option<u64>, new: Option<u64>| match (old, new) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => new < old,
    };
    falls(old.gpus, new.gpus)
        || falls(old.hours, new.hours)
        || old.schedule != new.schedule
        || !new.members.is_subset(&old.members)
}
