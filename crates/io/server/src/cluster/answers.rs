//! Converts the engine's values about runs, budgets and leases to API types.

use std::collections::{BTreeMap, BTreeSet};

use bursar_client::api::cluster::{
    Budget, BudgetCondition, BudgetStatus, CapHeadroom, CoverRow, Envelope, EnvelopeHeadroom,
    EpochStatus, MeterStatus, Relative, Run, RunClaim, RunStatus,
};
use bursar_client::api::{Explanation, ObjectRef, Who, Why};
use bursar_client::object;
use bursar_client::problem::Holder;
use bursar_engine::cluster::budget::accounts::{About, Condition, ConditionKind, MeterView};
use bursar_engine::cluster::budget::cover::{Dimension, Row, RowState};
use bursar_engine::cluster::budget::{self as plane, Class, EnvelopeId, MeterId, Promise, RunUid};
use bursar_engine::cluster::explain::{Wait, WaitReason};
use bursar_engine::cluster::{Shown, Stage};
use bursar_engine::explain::run::{RunExplanation, held_by_runs};
use bursar_engine::words::{count, hours, number};
use bursar_engine::{Reference, State};
use bursar_units::{Instant, Millis, ScopedName};

use crate::caller::Caller;
use crate::service::last_record;

/// State at an instant, as a caller may see it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) state: &'a State,
    pub(crate) now: Instant,
    pub(crate) caller: &'a Caller,
}

impl View<'_> {
    /// A run with its status.
    pub(crate) fn run(&self, explained: &RunExplanation) -> Run {
        let shown = &explained.run;
        let mut run = object::run::object(&shown.run);
        let reference = Reference::Run(shown.run.id());
        run.metadata.resource_version = self.state.version(&reference);
        let wait = explained.wait.as_ref();
        let waits = wait.map(|wait| (wait.reason, wait.ahead.saturating_add(1)));
        run.status = Some(Box::new(self.run_status(shown, waits)));
        run
    }

    /// A run of a list. `places` are the positions of all waiting runs.
    pub(crate) fn listed_run(&self, shown: &Shown, places: &BTreeMap<&RunUid, u64>) -> Run {
        let mut run = object::run::object(&shown.run);
        let reference = Reference::Run(shown.run.id());
        run.metadata.resource_version = self.state.version(&reference);
        let reason = self.state.clusters.wait_reason_of(self.now, &shown.uid);
        let waits = reason.zip(places.get(&shown.uid).copied());
        run.status = Some(Box::new(self.run_status(shown, waits)));
        run
    }

    /// Status of a run; `waits` are the reason of its wait and its position in the queue.
    fn run_status(&self, shown: &Shown, waits: Option<(WaitReason, u64)>) -> RunStatus {
        let (started, end) = (shown.started, shown.end.as_ref());
        let holds = !matches!(shown.stage, Stage::Waiting | Stage::Ended);
        let stated_end = started.zip(shown.run.stated()).filter(|_| holds);
        let nodes: BTreeSet<_> = shown.pods.iter().map(|pod| pod.node.clone()).collect();
        let seats = nodes
            .iter()
            .filter_map(|node| self.state.clusters.nodes().seat(node.as_str()));
        let domains: BTreeSet<String> = seats
            .map(|(at, _)| format!("{}/{}/{}", at.region, at.cluster, at.domain))
            .collect();
        let width = shown.pods.iter().map(bursar_engine::cluster::Pod::width);
        RunStatus {
            uid: shown.uid.to_string(),
            state: shown.stage,
            since: shown.since,
            waits_for: waits.map(|(reason, _)| reason.waits_for()),
            reason: waits.map(|(reason, _)| reason),
            place: waits.map(|(_, place)| place),
            gpus: if holds { width.sum() } else { 0 },
            gpus_asked: shown.run.total_gpus,
            claims: claims(shown),
            nodes: nodes.into_iter().collect(),
            domains: domains.into_iter().collect(),
            incarnation: shown.incarnation,
            submitted_at: shown.submitted,
            started_at: started,
            stated_end: stated_end.map(|(from, length)| from.after(length)),
            stops_at: shown.ending.map(|(_, deadline)| deadline),
            ended_at: end.map(|end| end.at),
            outcome: end.map(|end| end.outcome),
            ended_by: end
                .map(|end| end.reason)
                .or(shown.ending.map(|(reason, _)| reason)),
            exit_code: end.and_then(|end| end.code),
            detail: end.and_then(|end| end.detail.clone()),
        }
    }

    /// An explanation, with the holders that the caller may see; the others are counted.
    pub(crate) fn explanation(&self, explained: &RunExplanation) -> Explanation {
        let shown = &explained.run;
        let wait = explained.wait.as_ref();
        let run = &shown.run;
        let location = &run.location;
        let place = (*location != plane::Selector::default()).then(|| location.into());
        Explanation {
            object: ObjectRef {
                kind: "Run".to_owned(),
                namespace: Some(run.namespace.to_string()),
                name: run.name.to_string(),
            },
            headline: explained.headline.clone(),
            state: shown.stage.to_string(),
            waits_for: explained.waits_for(),
            reason: wait.map(|wait| wait.reason.to_string()),
            since: Some(shown.since),
            why: wait.map(|wait| Why {
                needed: Some(wait.needed),
                free: Some(wait.free),
                location: place,
                ahead: Some(wait.ahead),
                limits: Vec::new(),
                holders: self.holders(wait),
            }),
            when: None,
            who: explained.payers.iter().map(pays).collect(),
            changes: explained.changes.clone(),
            note: wait.and_then(recalls),
            saga: None,
            record: last_record(self.state),
        }
    }

    pub(crate) fn holders(&self, wait: &Wait) -> Vec<Holder> {
        let held = held_by_runs(wait, |holder| self.caller.sees_owner(&holder.owner));
        let named = held.named.into_iter().map(|holder| Holder {
            object: Some(format!("run/{}", holder.run)),
            owner: Some(holder.owner),
            gpus: holder.gpus,
            stated_end: holder.stated_end,
            ..Holder::default()
        });
        let others = (held.others > 0).then_some(Holder {
            others: Some(held.others),
            gpus: held.others_gpus,
            ..Holder::default()
        });
        named.chain(others).collect()
    }

    /// The rows of a walk that the caller may see. Envelopes of others are shown if they may pay for
    /// the run: a run must not find out names by naming sponsors.
    pub(crate) fn trace(&self, rows: &[Row]) -> Vec<CoverRow> {
        let may_pay = |row: &Row| {
            matches!(
                row.state,
                RowState::Open | RowState::OutsideWindow | RowState::Paused | RowState::Overruns
            )
        };
        let is_seen = |row: &&Row| self.caller.sees_owner(&row.owner) || may_pay(row);
        rows.iter().filter(is_seen).map(CoverRow::from).collect()
    }

    /// A budget with its status.
    pub(crate) fn budget(&self, budget: &plane::Budget) -> Budget {
        let id = budget.id();
        let mut shown = object::budget::object(budget);
        let name = ScopedName::of(&budget.namespace, &budget.name);
        shown.metadata.resource_version = self.state.version(&Reference::Budget(name));
        let accounts = self.state.clusters.accounts();
        let meters = accounts.meters(self.now, &id);
        let relatives = accounts.relatives(&budget.owner).into_iter();
        let envelopes = budget.envelopes.iter();
        shown.status = Some(Box::new(BudgetStatus {
            family: relatives
                .map(|(relation, owner)| Relative { owner, relation })
                .collect(),
            headroom: envelopes
                .filter_map(|envelope| self.headroom(&budget.envelope_id(envelope)))
                .collect(),
            aggregate_headroom: meters.iter().filter_map(cap_headroom).collect(),
            meters: meters.iter().map(|meter| self.meter(meter)).collect(),
            conditions: accounts
                .conditions(self.now, &id)
                .iter()
                .map(|condition| self.condition(budget, condition))
                .collect(),
        }));
        shown
    }

    /// An envelope with its meter.
    pub(crate) fn envelope(
        &self,
        budget: &plane::Budget,
        envelope: &plane::Envelope,
    ) -> Option<Envelope> {
        let id = budget.envelope_id(envelope);
        let accounts = self.state.clusters.accounts();
        let meter = accounts.meter(self.now, &MeterId::Envelope(id.clone()))?;
        let place = &envelope.selector;
        Some(Envelope {
            envelope: id.to_string(),
            owner: budget.owner.clone(),
            flavor: envelope.flavor.clone(),
            selector: (*place != plane::Selector::default()).then(|| place.into()),
            paused: budget.paused,
            meter: self.meter(&meter),
            headroom: self.headroom(&id)?,
        })
    }

    fn headroom(&self, id: &EnvelopeId) -> Option<EnvelopeHeadroom> {
        let room = self.state.clusters.accounts().headroom(self.now, id)?;
        Some(EnvelopeHeadroom {
            envelope: id.to_string(),
            gpus: room.gpus,
            gpu_ms: room.gpu_ms,
            open: room.is_open,
        })
    }

    fn meter(&self, view: &MeterView) -> MeterStatus {
        let window = view.window;
        MeterStatus {
            meter: view.meter.to_string(),
            epoch: view.epoch,
            start: window.and_then(|window| window.start),
            end: window.and_then(|window| window.end),
            over: window.is_none(),
            gpus_used: view.gpus_used,
            gpus_limit: view.gpus_limit,
            accrued_gpu_ms: view.accrued_gpu_ms,
            committed_gpu_ms: view.committed_gpu_ms,
            limit_gpu_ms: view.limit_gpu_ms,
            lasts_to: self.lasts_to(view),
            closed: self
                .state
                .clusters
                .accounts()
                .closed_epochs(&view.meter)
                .iter()
                .map(|epoch| EpochStatus {
                    epoch: epoch.epoch,
                    start: epoch.start,
                    end: epoch.end,
                    accrued_gpu_ms: epoch.accrued,
                })
                .collect(),
        }
    }

    /// now + (limit − accrued) / width, rounded down; nothing while no claim accrues.
    fn lasts_to(&self, view: &MeterView) -> Option<Instant> {
        let is_open = view.window.is_some_and(|window| window.is_open(self.now));
        let limit = view.limit_gpu_ms.filter(|_| is_open)?;
        let width = view.gpus_used.saturating_sub(view.gpus_held);
        let left = limit.saturating_sub(view.accrued_gpu_ms);
        let lasts = left.checked_div(width)?;
        Some(self.now.after(Millis::from_ms(lasts)))
    }

    fn condition(&self, budget: &plane::Budget, condition: &Condition) -> BudgetCondition {
        let is_ready = condition.kind == ConditionKind::Ready;
        let is_true = is_ready || !condition.about.is_empty();
        let about = condition.about.iter().map(|about| self.about(about));
        let mut texts: Vec<String> = about.collect();
        if is_ready {
            texts.extend(without_nodes(self.state, budget));
        }
        BudgetCondition {
            kind: condition.kind,
            status: if is_true { "True" } else { "False" }.to_owned(),
            message: texts.join("; "),
        }
    }

    fn about(&self, about: &About) -> String {
        match about {
            About::Paused => "the budget is paused: nothing is taken from its envelopes".to_owned(),
            About::Meter {
                meter,
                dimension: Dimension::Gpus,
                share,
            } => {
                let (value, limit) = (number(share.value), number(share.limit));
                format!("{meter} has {value} of {limit} GPUs in use")
            }
            About::Meter { meter, share, .. } => {
                let (value, limit) = (hours(share.value), hours(share.limit));
                format!("{meter} has used {value} of {limit} GPU-hours")
            }
            About::Exhausted {
                meter,
                dimension,
                share,
            } => {
                let at = bursar_client::api::instant::format(share.at);
                let had = match dimension {
                    Dimension::Gpus => {
                        let (value, limit) = (number(share.value), number(share.limit));
                        format!("{value} of {limit} GPUs in use")
                    }
                    Dimension::Hours => {
                        let (value, limit) = (hours(share.value), hours(share.limit));
                        format!("{value} of {limit} GPU-hours used")
                    }
                };
                format!("{meter} had too little room for a start or claim at {at}, with {had}")
            }
            About::Caps(one, other) => {
                format!("{one} and {other} share envelopes, and neither contains the other")
            }
            About::Pattern(envelope, pattern) => {
                format!("{envelope} lends to `{pattern}`, which matches no known owner")
            }
            About::Loan {
                envelope,
                borrower,
                until,
            } => {
                let until = bursar_client::api::instant::format(*until);
                let borrower = if self.caller.sees_owner(borrower) {
                    borrower.as_str()
                } else {
                    "another owner"
                };
                format!(
                    "{envelope} does not lend to {borrower} any more, its loan lasts to {until}"
                )
            }
        }
    }
}

/// Envelopes that pay for nothing now, because no declared node has their flavor at their place:
/// `no node has the flavor h300 (rai/q4/h300)`.
pub(crate) fn without_nodes(state: &State, budget: &plane::Budget) -> Vec<String> {
    let nodes = state.clusters.nodes();
    let anywhere = plane::Selector::default();
    let unmatched = budget.envelopes.iter().filter_map(|envelope| {
        let (flavor, place) = (&envelope.flavor, &envelope.selector);
        let id = budget.envelope_id(envelope);
        if nodes.declared_gpus(flavor, &anywhere) == 0 {
            return Some(format!("no node has the flavor {flavor} ({id})"));
        }
        let is_empty = nodes.declared_gpus(flavor, place) == 0;
        is_empty.then(|| format!("no node with {flavor} is in {place} ({id})"))
    });
    unmatched.collect()
}

fn claims(shown: &Shown) -> Vec<RunClaim> {
    let funded = shown.claims.iter().map(|claim| RunClaim {
        envelope: Some(claim.id.envelope.to_string()),
        pool: Some(claim.id.pool),
        class: claim.id.pool.class(),
        gpus: claim.gpus,
        until: claim.promise.until(),
        overruns: matches!(claim.promise, Promise::Overruns(_)),
    });
    let unfunded = shown.unfunded.iter().map(|claim| RunClaim {
        envelope: None,
        pool: None,
        class: Class::Unfunded,
        gpus: claim.gpus,
        until: None,
        overruns: false,
    });
    funded.chain(unfunded).collect()
}

/// `a start would recall 16 GPUs of its envelopes from its family`.
fn recalls(wait: &Wait) -> Option<String> {
    let gpus = count(wait.recalled, "GPU");
    (0 < wait.recalled).then(|| format!("a start would recall {gpus} from its family"))
}

fn pays(payer: &bursar_engine::explain::run::RunPayer) -> Who {
    Who::Pays {
        envelope: payer.envelope.as_ref().map(ToString::to_string),
        gpus: payer.gpus,
        class: payer.class,
        held_gpu_ms: payer.held_gpu_ms,
        gpus_free: payer.gpus_free,
        gpus_limit: payer.gpus_limit,
        bound: payer.bound.clone(),
    }
}

fn cap_headroom(view: &MeterView) -> Option<CapHeadroom> {
    let MeterId::Cap(cap) = &view.meter else {
        return None;
    };
    let gpus = view.gpus_limit;
    // As for an envelope: after the last window no limit of hours is in force.
    let gpu_ms = view.limit_gpu_ms.filter(|_| view.window.is_some());
    Some(CapHeadroom {
        cap: cap.to_string(),
        gpus: gpus.map(|limit| limit.saturating_sub(view.gpus_used)),
        gpu_ms: gpu_ms.map(|limit| limit.saturating_sub(view.committed_gpu_ms)),
    })
}
