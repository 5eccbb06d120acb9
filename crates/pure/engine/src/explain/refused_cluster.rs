//! Texts of refusals by the cluster.

use bursar_units::words::{count, number};

use super::refused::{Refused, plain};
use crate::cluster::Refusal;

/// Text of a refusal by the cluster.
pub(super) fn of_cluster(refusal: &Refusal) -> Refused {
    match refusal {
        Refusal::BudgetMistakes { mistakes } => {
            let texts = mistakes
                .iter()
                .map(|(id, mistake)| format!("{id}: {mistake}"));
            plain("nothing was changed", texts.collect::<Vec<_>>().join("; "))
        }
        Refusal::RunMistakes { run, mistakes } => {
            let texts = mistakes.iter().map(ToString::to_string);
            let texts = texts.collect::<Vec<_>>().join("; ");
            plain(format!("run {run} was not accepted"), texts)
        }
        Refusal::NotYet { field } => {
            let detail = "this version does not support that value yet";
            plain(format!("{field} was not accepted"), detail)
        }
        Refusal::NeverCovered { run, trace } => never_covered(run.as_str(), trace),
        Refusal::NeverPlaced {
            run,
            flavor,
            gpus,
            pod_gpus,
            declared,
            largest,
        } => {
            let (gpus, pods) = (count(*gpus, "GPU"), number(*pod_gpus));
            let (declared, largest) = (number(*declared), number(*largest));
            let detail = format!(
                "it needs {gpus} {flavor} in pods of {pods}, and all nodes at its location have {declared}; the largest domain has {largest}"
            );
            plain(format!("run {run} can never start"), detail)
                .with_changes(["ask for fewer GPUs or smaller pods", "add nodes"])
        }
        Refusal::IdReused { run, field } => {
            let detail = format!("a live run of that name has another {field}");
            plain(format!("run {run} exists"), detail)
                .with_changes(["use another name", "cancel that run first"])
        }
        Refusal::OverLimit {
            owner,
            waiting,
            max,
        } => {
            let (waiting, max) = (number(*waiting), number(*max));
            let detail = format!("{waiting} of its runs wait, at most {max} may");
            plain(format!("{owner} has too many waiting runs"), detail)
                .with_changes(["submit again when some have started", "cancel some"])
        }
        Refusal::NoSuchBudget { budget } => plain(
            format!("no budget `{budget}`"),
            "it was never declared, or is removed already",
        ),
        Refusal::NoSuchEnvelope { envelope } => {
            plain(format!("no envelope `{envelope}`"), "no budget declares it")
        }
        Refusal::NoSuchRun { run } => plain(
            format!("no run `{run}`"),
            "it was never submitted, or its end is forgotten",
        ),
        Refusal::NotLive { uid, incarnation } => {
            let detail = format!("incarnation {incarnation} of {uid} holds no GPUs");
            plain("the report was not taken", detail)
        }
        Refusal::NodeInUse { node, runs } => {
            let names = runs.iter().map(ToString::to_string).collect::<Vec<_>>();
            let detail = format!("{} runs there: {}", runs.len(), names.join(", "));
            plain(format!("node `{node}` is in use"), detail).with_changes([
                "mark it unschedulable and wait until its runs have ended",
                "cancel these runs",
            ])
        }
    }
}

fn never_covered(run: &str, trace: &crate::cluster::budget::cover::Trace) -> Refused {
    let detail = match &trace.outcome {
        Err(failure) => {
            let (reason, found) = (failure.reason, number(failure.found));
            let wanted = count(failure.wanted, "GPU");
            format!("{reason}: of {wanted}, {found} find a payer even on empty meters")
        }
        Ok(_) => "no envelope can pay for it".to_owned(),
    };
    plain(format!("run {run} can never be paid for"), detail).with_changes([
        "ask for fewer GPUs",
        "name a sponsor that lends to its owner",
        "raise the envelopes",
    ])
}
