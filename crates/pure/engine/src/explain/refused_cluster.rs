//! Texts of refusals by the cluster.

use std::collections::BTreeSet;

use bursar_units::words::number;
use bursar_units::{Label, ScopedName};

use super::refused::{Refused, plain};
use super::run::place_words;
use crate::cluster::budget::cover::Trace;
use crate::cluster::{Refusal, Run, Stage};
use crate::{Change, Command, State, spine};

/// The run of that name in a command that declares it.
pub fn submitted<'a>(command: &'a Command, name: &ScopedName) -> Option<&'a Run> {
    let Command::Spine(spine::Command::Change { changes, .. }) = command else {
        return None;
    };
    changes.iter().find_map(|change| match change {
        Change::Cluster(change) => change.run().filter(|run| run.id() == *name),
        _ => None,
    })
}

/// Text of a refusal by the cluster.
pub(super) fn of_cluster(state: &State, command: &Command, refusal: &Refusal) -> Refused {
    match refusal {
        Refusal::BudgetMistakes { mistakes } => {
            let texts = mistakes
                .iter()
                .map(|(id, mistake)| format!("budget/{id}: {mistake}"));
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
        Refusal::PolicyZero { field } => plain(
            format!("{field} was not accepted"),
            "it must be more than 0",
        ),
        Refusal::NeverCovered { run, trace, most } => {
            never_covered(run, submitted(command, run), trace, *most)
        }
        Refusal::NeverPlaced { run, flavor, .. } => {
            never_placed(state, submitted(command, run), flavor, refusal)
        }
        Refusal::WouldWait { run, .. } => {
            let detail = "it is to start at once, and it would wait";
            let known = state.clusters.run_named(run);
            let change = match known.map(|known| known.stage) {
                Some(Stage::Waiting) => "it waits already, and starts when it can",
                _ => "submit it without `now`, and it waits",
            };
            plain(format!("run {run} was not accepted"), detail).with_changes([change])
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
            let detail = format!("it has leases of {}", names.join(", "));
            plain(format!("node `{node}` is in use"), detail).with_changes([
                "mark it unschedulable and wait until its runs have ended",
                "cancel these runs",
            ])
        }
    }
}

fn never_covered(name: &ScopedName, run: Option<&Run>, trace: &Trace, most: u64) -> Refused {
    let headline = format!("{name} can never start");
    let (wanted, found) = match &trace.outcome {
        Err(failure) => (failure.wanted, failure.found),
        Ok(_) => return plain(headline, "no envelope can pay for it"),
    };
    let flavor = run.map_or_else(|| "GPUs".to_owned(), |run| run.flavor.to_string());
    let wanted = number(wanted);
    if found == 0 {
        let owner = run.map_or_else(|| "its owner".to_owned(), |run| run.owner.to_string());
        let detail =
            format!("it asks for {wanted} {flavor}, and no envelope may pay for {owner} there");
        return plain(headline, detail).with_changes([
            format!("declare an envelope of {flavor} for {owner} or its family"),
            "name a sponsor that lends to it".to_owned(),
        ]);
    }
    let found = number(found);
    let detail = format!("it asks for {wanted} {flavor} at once and may be given at most {found}");
    let change = at_most(most).unwrap_or_else(|| "ask for smaller pods".to_owned());
    plain(headline, detail).with_changes([change])
}

/// The change to a width that could start; `None` without one.
fn at_most(most: u64) -> Option<String> {
    (0 < most).then(|| format!("ask for at most {}", number(most)))
}

fn never_placed(state: &State, run: Option<&Run>, flavor: &Label, refusal: &Refusal) -> Refused {
    let Refusal::NeverPlaced {
        run: name,
        gpus,
        pod_gpus,
        declared,
        largest,
        most,
        ..
    } = refusal
    else {
        return plain("it can never start", "it fits no declared nodes");
    };
    let place = run.map_or_else(String::new, |run| place_words(&run.location));
    let asks = format!("it asks for {} {flavor}{place}", number(*gpus));
    let (detail, change) = match declared {
        0 => {
            let known = flavors(state);
            let known = if known.is_empty() {
                "no node declares GPUs with a flavor and a domain".to_owned()
            } else {
                format!("no declared node there has it; there are {known}")
            };
            (
                format!("{asks}, and {known}"),
                "correct its flavor or location".to_owned(),
            )
        }
        declared if declared < gpus => {
            let all = number(*declared);
            let detail = format!("{asks}, and all declared nodes there have {all}");
            let change = at_most(*most);
            (
                detail,
                change.unwrap_or_else(|| "ask for smaller pods".to_owned()),
            )
        }
        declared => {
            let (pods, all) = (number(*pod_gpus), number(*declared));
            let largest = number(*largest);
            let detail = format!(
                "{asks} in pods of {pods}; all declared nodes there have {all}, the largest domain fits {largest}"
            );
            let fewer = at_most(*most).unwrap_or_else(|| "ask for fewer GPUs".to_owned());
            (
                detail,
                format!("{fewer}, smaller pods or groups that may spread"),
            )
        }
    };
    plain(format!("{name} can never start"), detail).with_changes([change, "add nodes".to_owned()])
}

/// Flavors of the declared nodes on which runs are placed.
fn flavors(state: &State) -> String {
    let nodes = state.spine.inventory.iter();
    let placed = nodes.filter(|node| node.missing_labels().next().is_none() && 0 < node.gpus);
    let flavors: BTreeSet<&str> = placed.filter_map(|node| node.flavor()).collect();
    flavors.into_iter().collect::<Vec<_>>().join(", ")
}
