//! Edits of budgets: the epochs that they close, the meters that they tighten.

use std::collections::{BTreeMap, BTreeSet};

use bursar_units::Instant;

use super::fold::{AfterEdit, after_edit, cap_schedule, declared_meters, envelope_schedule};
use super::{Accounts, EpochClosed};
use crate::calendar::{Schedule, Window};
use crate::id::{BudgetId, EnvelopeId, MeterId};
use crate::meter::saturated;
use crate::spec::{Budget, Envelope};

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
                && matches!(after_edit(meter.window, next), AfterEdit::Closed)
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
        self.budget(id)
            .into_iter()
            .flat_map(declared_meters)
            .collect()
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
