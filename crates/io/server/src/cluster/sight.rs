//! Owners of the objects and events of the cluster.

use std::collections::BTreeSet;

use bursar_client::{Code, Problem, nearest};
use bursar_engine::State;
use bursar_engine::cluster::budget::{Budget, BudgetId};
use bursar_engine::cluster::{Event, Listed, Shown};
use bursar_units::{Label, ScopedName};

use crate::caller::Caller;

/// Runs that the caller may see: live ones by submission, then ended ones.
pub(crate) fn runs<'a>(state: &'a State, caller: &Caller) -> impl Iterator<Item = Listed<'a>> {
    let runs = state.clusters.listed();
    runs.filter(|listed| caller.sees_owner(&listed.run.owner))
}

/// The newest run of a name, or the problem that there is none that the caller may see.
pub(crate) fn run(state: &State, caller: &Caller, name: &ScopedName) -> Result<Shown, Problem> {
    let found = state.clusters.run_named(name);
    let found = found.filter(|shown| caller.sees_owner(&shown.run.owner));
    found.ok_or_else(|| {
        let mut problem = not_found("run", name);
        add_near_runs(&mut problem, state, caller, name);
        problem
    })
}

/// Adds the nearest name of a run that was not found, and the namespaces that have its name.
pub(crate) fn add_near_runs(
    problem: &mut Problem,
    state: &State,
    caller: &Caller,
    name: &ScopedName,
) {
    let known = state.clusters.listed().take(VISIBLE_MAX);
    let known = known.filter(|listed| caller.sees_owner(&listed.run.owner));
    add_near(problem, name, known.map(|listed| listed.run.id()));
}

/// Budgets that the caller may see, by identity.
pub(crate) fn budgets<'a>(state: &'a State, caller: &Caller) -> impl Iterator<Item = &'a Budget> {
    let budgets = state.clusters.accounts().budgets();
    budgets.filter(|budget| caller.sees_owner(&budget.owner))
}

pub(crate) fn budget<'a>(
    state: &'a State,
    caller: &Caller,
    id: &BudgetId,
) -> Result<&'a Budget, Problem> {
    let found = state.clusters.accounts().budget(id);
    let found = found.filter(|budget| caller.sees_owner(&budget.owner));
    found.ok_or_else(|| {
        let name = ScopedName::new(id.as_str());
        let none = |_| Problem::new(Code::NotFound, format!("no budget `{id}`"));
        let mut problem = name.map_or_else(none, |name| not_found("budget", &name));
        add_near_budgets(&mut problem, state, caller, id);
        problem
    })
}

/// Adds the nearest name of a budget that was not found, and the namespaces that have its name.
pub(crate) fn add_near_budgets(
    problem: &mut Problem,
    state: &State,
    caller: &Caller,
    id: &BudgetId,
) {
    let known = state.clusters.accounts().budgets().take(VISIBLE_MAX);
    let known = known.filter(|budget| caller.sees_owner(&budget.owner));
    let names = known.map(|budget| ScopedName::of(&budget.namespace, &budget.name));
    if let Ok(name) = ScopedName::new(id.as_str()) {
        add_near(problem, &name, names);
    }
}

fn not_found(kind: &str, name: &ScopedName) -> Problem {
    let (namespace, name) = (name.namespace(), name.name());
    Problem::new(
        Code::NotFound,
        format!("no {kind} `{name}` in namespace {namespace}"),
    )
}

/// The name that is suggested is a full one, unless it is in the same namespace.
fn add_near(problem: &mut Problem, name: &ScopedName, known: impl Iterator<Item = ScopedName>) {
    let known: BTreeSet<ScopedName> = known.collect();
    let near = nearest(name.as_str(), known.iter().map(ScopedName::as_str));
    let in_place = |near: &str| {
        let place = near.strip_prefix(name.namespace());
        let bare = place.and_then(|rest| rest.strip_prefix('/'));
        bare.unwrap_or(near).to_owned()
    };
    problem.suggestion = near.map(in_place);
    let same = known
        .iter()
        .filter(|other| other.name() == name.name() && other.namespace() != name.namespace());
    problem.namespaces = same.map(|other| other.namespace().to_owned()).collect();
}

/// Runs or budgets that are compared with a name that was not found.
const VISIBLE_MAX: usize = 1_000;

/// The owner of an event, as far as the state knows it; `None` if it belongs to the server.
pub(crate) fn event_owner(state: &State, event: &Event) -> Option<Label> {
    let of_budget = |id: &BudgetId| {
        let budget = state.clusters.accounts().budget(id);
        budget.map(|budget| budget.owner.clone())
    };
    match event {
        Event::BudgetSet(budget) => Some(budget.owner.clone()),
        Event::BudgetDropped { budget } => of_budget(budget),
        Event::EpochClosed { epoch, .. } => of_budget(&epoch.meter.budget()),
        Event::MeterNear { near, .. } => of_budget(&near.meter.budget()),
        event => event.who().map(|who| who.owner),
    }
}

/// The namespace of an event of a run or budget.
pub(crate) fn event_namespace(event: &Event) -> Option<String> {
    Some(match event {
        Event::BudgetSet(budget) => budget.namespace.to_string(),
        Event::BudgetDropped { budget } => budget.namespace().to_owned(),
        Event::EpochClosed { epoch, .. } => epoch.meter.budget().namespace().to_owned(),
        Event::MeterNear { near, .. } => near.meter.budget().namespace().to_owned(),
        event => event.who()?.run.namespace().to_owned(),
    })
}
