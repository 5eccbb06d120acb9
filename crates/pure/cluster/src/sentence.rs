//! Sentences of the events: one line each, in lower case, from the event alone.

use bursar_budget::cover::Dimension;
use bursar_budget::{BudgetId, ClaimLine, Demoted, Funded, MeterId};
use bursar_plane::Notice;
use bursar_units::words::{count, gpu_hours, number};
use bursar_units::{DEFAULT_NAMESPACE, ObjectName, ScopedName};

use crate::{Event, Pod, Who};

/// The notice of an event.
pub(crate) fn notice(event: &Event) -> Notice<Box<Event>> {
    let (stream, object, summary) = match event {
        Event::PolicySet(policy) => {
            let summary = format!("the policy was recorded: mode {}", policy.mode);
            ("policy.changed", "policy".to_owned(), summary)
        }
        Event::BudgetSet(budget) => {
            let envelopes = u64::try_from(budget.envelopes.len()).unwrap_or(u64::MAX);
            let paused = if budget.paused { ", paused" } else { "" };
            let (id, owner) = (budget.id(), &budget.owner);
            let summary = format!(
                "budget {id} of {owner} set: {}{paused}",
                count(envelopes, "envelope")
            );
            ("budget.changed", format!("budget/{id}"), summary)
        }
        Event::BudgetDropped { budget } => {
            let summary = format!("budget {budget} removed, its meters are kept");
            ("budget.removed", format!("budget/{budget}"), summary)
        }
        Event::EpochClosed { epoch, .. } => {
            let (meter, hours) = (&epoch.meter, gpu_hours(epoch.accrued));
            let summary = format!("epoch {} of {meter} closed: {hours} used", epoch.epoch);
            ("envelope.renewed", meter_object(meter), summary)
        }
        Event::MeterNear { near, .. } => {
            let meter = &near.meter;
            let dimension = match near.dimension {
                Dimension::Gpus => "GPUs",
                Dimension::Hours => "GPU-hours",
            };
            if near.percent >= 100 {
                let summary = format!("{meter} has too few {dimension} left for a run");
                ("envelope.exhausted", meter_object(meter), summary)
            } else {
                let summary = format!("{meter} has reached {} % of its {dimension}", near.percent);
                ("envelope.near", meter_object(meter), summary)
            }
        }
        Event::PassUnfinished { .. } => (
            "",
            "cluster".to_owned(),
            "waiting runs are still to be tried".to_owned(),
        ),
        Event::PassFinished {} => {
            let summary = "waiting runs were tried, none could start".to_owned();
            ("", "cluster".to_owned(), summary)
        }
        event => of_run(event),
    };
    let notice = Notice::new(stream, object, summary, Box::new(event.clone()));
    Notice {
        stream: notice.stream.filter(|stream| !stream.is_empty()),
        ..notice
    }
}

/// Name of a budget as a namespaced name.
pub(crate) fn scoped(budget: &BudgetId) -> ScopedName {
    let default = || {
        let name = ObjectName::known(DEFAULT_NAMESPACE);
        ScopedName::of(&name, &name)
    };
    ScopedName::new(budget.as_str()).unwrap_or_else(|_| default())
}

fn of_run(event: &Event) -> (&'static str, String, String) {
    let who = event.who();
    let run = who.as_ref().map_or("", |Who { run, .. }| run.as_str());
    let (stream, predicate) = match event {
        Event::RunSubmitted { run, .. } => {
            let gpus = gpus(run.total_gpus);
            (
                "run.submitted",
                format!("submitted by {}: {gpus} {}", run.owner, run.flavor),
            )
        }
        Event::RunEdited { edit, .. } => {
            let length = edit.max_duration;
            let length = length.map_or("no hard limit".to_owned(), |max| format!("at most {max}"));
            (
                "run.edited",
                format!("edited: priority {}, {length}", edit.priority),
            )
        }
        Event::RunFunded { claims, cause, .. } => ("run.funded", funded(claims, *cause)),
        Event::RunDemoted { claims, cause, .. } => {
            let cause = match cause {
                Demoted::PromiseEnd => "its promise ended and is not renewed",
                Demoted::Depletion => "the hours are used up",
                Demoted::Refit => "the claim does not fit any more",
                Demoted::Recall => "the owner of the envelope needs them",
            };
            let payers = payers(claims);
            (
                "run.demoted",
                format!("goes on unfunded, {payers} does not pay: {cause}"),
            )
        }
        Event::LeasesOpened { pods, .. } => {
            let width = gpus(pods.iter().map(Pod::width).sum());
            let nodes: std::collections::BTreeSet<&str> =
                pods.iter().map(|pod| pod.node.as_str()).collect();
            let nodes = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
            (
                "lease.opened",
                format!("holds {width} on {}", count(nodes, "node")),
            )
        }
        Event::LeasesClosed {
            gpus: width,
            reason,
            ..
        } => (
            "lease.closed",
            format!("gave back {}: {}", gpus(*width), reason.text()),
        ),
        Event::RunEnding { reason, .. } => {
            ("run.ending", format!("is being stopped: {}", reason.text()))
        }
        Event::RunRunning { .. } => ("run.started", "runs".to_owned()),
        Event::RunEnded {
            outcome,
            reason,
            code,
            detail,
            ..
        } => {
            let code = code
                .map(|code| format!(", exit code {code}"))
                .unwrap_or_default();
            let detail = detail
                .as_ref()
                .map(|detail| format!(", {detail}"))
                .unwrap_or_default();
            (
                "run.ended",
                format!("ended {outcome}: {}{code}{detail}", reason.text()),
            )
        }
        _ => ("", String::new()),
    };
    (stream, format!("run/{run}"), format!("{run} {predicate}"))
}

fn funded(claims: &[ClaimLine], cause: Funded) -> String {
    let payers = payers(claims);
    match cause {
        Funded::Take => format!("is paid by {payers}"),
        Funded::Refund => format!("is paid again, by {payers}"),
        Funded::Extension => format!("is promised more time by {payers}"),
        Funded::Overrun => format!("overruns its promise, {payers} pays from uncommitted time"),
    }
}

fn payers(claims: &[ClaimLine]) -> String {
    let lines = claims.iter().map(|claim| {
        let (envelope, class) = (&claim.envelope, claim.pool.class());
        format!("{envelope} ({} {class})", number(claim.gpus))
    });
    lines.collect::<Vec<_>>().join(", ")
}

fn gpus(width: u64) -> String {
    count(width, "GPU")
}

fn meter_object(meter: &MeterId) -> String {
    match meter {
        MeterId::Envelope(id) | MeterId::Lending(id) => format!("envelope/{id}"),
        MeterId::Cap(cap) => format!("budget/{}", cap.budget()),
    }
}
