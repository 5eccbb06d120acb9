//! Problems of budgets, runs and nodes with leases: codes, fields and the nearest name.

use bursar_client::api::body::MISTAKES_MAX;
use bursar_client::object;
use bursar_client::problem::{FieldError, Range};
use bursar_client::{Code, Problem};
use bursar_engine::cluster::explain::Wait;
use bursar_engine::cluster::{Refusal, Run};
use bursar_engine::explain::run::{Waiting, alone};
use bursar_engine::explain::submitted;
use bursar_engine::{Command, State};

use super::answers::View;
use super::sight;
use crate::caller::Caller;

pub(crate) const fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::BudgetMistakes { .. }
        | Refusal::RunMistakes { .. }
        | Refusal::PolicyZero { .. }
        | Refusal::NotYet { .. } => Code::Invalid,
        Refusal::NeverCovered { .. } | Refusal::NeverPlaced { .. } => Code::NeverFits,
        Refusal::IdReused { .. } => Code::IdReused,
        Refusal::OverLimit { .. } => Code::OverLimit,
        Refusal::NoSuchBudget { .. }
        | Refusal::NoSuchEnvelope { .. }
        | Refusal::NoSuchRun { .. } => Code::NotFound,
        Refusal::WouldWait { .. } => Code::WouldWait,
        Refusal::NotLive { .. } | Refusal::NodeInUse { .. } => Code::Conflict,
    }
}

/// Checks whether a refusal concerns a run that the caller may not see. The caller then learns only
/// that the name is taken.
pub(crate) fn is_hidden(state: &State, caller: &Caller, refusal: &Refusal) -> bool {
    let Refusal::IdReused { run, .. } = refusal else {
        return false;
    };
    sight::run(state, caller, run).is_err()
}

/// Explains a run that was to start at once and would wait.
fn explain_wait(problem: &mut Problem, state: &State, caller: &Caller, run: &Run, wait: &Wait) {
    let now = state.spine.time;
    let view = View { state, now, caller };
    let waiting = Waiting {
        clusters: &state.clusters,
        now,
        run,
        wait,
    };
    // Without a failure money is not the reason, and the walk explains nothing.
    if wait.failure.is_some() {
        problem.trace = view.trace(&wait.trace);
        problem.note = alone(&state.clusters, run);
    }
    problem.holders = view.holders(wait);
    problem.detail = waiting.headline();
    problem.changes.extend(waiting.changes());
}

pub(crate) fn add_facts(
    problem: &mut Problem,
    state: &State,
    caller: &Caller,
    command: &Command,
    refusal: &Refusal,
) {
    match refusal {
        Refusal::BudgetMistakes { mistakes } => {
            let errors = mistakes.iter().take(MISTAKES_MAX);
            problem.errors = errors
                .map(|(id, mistake)| object::budget::field_error(id, mistake))
                .collect();
        }
        Refusal::RunMistakes { run, mistakes } => {
            let errors = mistakes.iter();
            problem.errors = errors
                .map(|mistake| object::run::field_error(run, mistake))
                .collect();
        }
        Refusal::PolicyZero { field } => {
            problem.errors = vec![FieldError::new(field, "must be more than 0")];
        }
        Refusal::NotYet { field } => {
            problem.errors = vec![FieldError::new(field, "is not supported yet")];
        }
        Refusal::WouldWait { run, wait } => {
            if let Some(run) = submitted(command, run) {
                explain_wait(problem, state, caller, run, wait);
            }
        }
        Refusal::IdReused { .. } if is_hidden(state, caller, refusal) => {}
        Refusal::IdReused { field, .. } => {
            problem.errors = vec![FieldError::new(*field, "differs from the live run")];
        }
        Refusal::OverLimit { max, .. } => {
            problem.bounds = Some(Range {
                field: "pendingMax".to_owned(),
                min: 0,
                max: *max,
                limit: None,
            });
        }
        Refusal::NoSuchBudget { budget } => {
            sight::add_near_budgets(problem, state, caller, budget);
        }
        Refusal::NoSuchRun { run } => {
            sight::add_near_runs(problem, state, caller, run);
        }
        Refusal::NeverCovered { run, trace, .. } => {
            let view = View {
                state,
                now: state.spine.time,
                caller,
            };
            problem.trace = view.trace(&trace.rows);
            let run = submitted(command, run);
            problem.note = run.and_then(|run| alone(&state.clusters, run));
        }
        Refusal::NeverPlaced { .. }
        | Refusal::NoSuchEnvelope { .. }
        | Refusal::NotLive { .. }
        | Refusal::NodeInUse { .. } => {}
    }
}
