//! Runs: submission, plan, cancel, and reads.

use bursar_client::api::cluster::{ListRuns, Run, RunAnswer};
use bursar_client::api::{ChangeKind, Explanation, ListAnswer, Wait};
use bursar_client::object::Object;
use bursar_client::{Code, Problem};
use bursar_engine::cluster::budget::RunUid;
use bursar_engine::cluster::{Change as ClusterChange, Command as ClusterCommand, Listed, Stage};
use bursar_engine::explain::run::{RunExplanation, run as explain_run};
use bursar_engine::{Answer as EngineAnswer, Change, Command, Reference, State, spine};
use bursar_ledger::intake::Outcome;
use bursar_units::ScopedName;

use super::answers::View;
use super::effect::only_run;
use super::{ended_since, note_covers, sight};
use crate::caller::Caller;
use crate::service::refusal::of_refusal;
use crate::service::{Answer, ObjectChange, Service, WriteMode, WriteOptions, last_record};
use crate::spine::declared::{Prepared, page, set_run};

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of a view is not general over its lifetime"
)]
impl Service {
    pub(crate) async fn runs(
        &self,
        caller: &Caller,
        filter: ListRuns,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Answer<ListAnswer<Run>>, Problem> {
        let (ledger, caller) = (self.ledger.clone(), caller.clone());
        let read = move || {
            let now = ledger.now();
            let state = ledger.view().read();
            let (record, view) = (
                last_record(&state),
                View {
                    state: &state,
                    now,
                    caller: &caller,
                },
            );
            let since = ended_since(filter.since, now);
            let wanted = sight::runs(&state, &caller).filter(|listed| {
                is_wanted(&filter, listed) && listed.ended.is_none_or(|ended| since <= ended)
            });
            let mut all: Vec<(String, &RunUid)> =
                wanted.map(|listed| (key(&listed), listed.uid)).collect();
            all.sort_by(|(a, _), (b, _)| a.cmp(b));
            let after = cursor.as_deref();
            let page = page(all.into_iter(), |(key, _)| key, limit, after, record);
            let items = page.items.into_iter();
            let places = state.clusters.places();
            let items = items.filter_map(|(_, uid)| state.clusters.run(uid));
            let items = items.map(|shown| view.listed_run(&shown, &places));
            let body = ListAnswer {
                items: items.collect(),
                next_cursor: page.next_cursor,
                record,
            };
            Answer::ok(record, body)
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|_| Problem::new(Code::Internal, "listing runs panicked"))
    }

    /// A run; with `wait`, as soon as its state has changed.
    pub(crate) async fn run(
        &self,
        caller: &Caller,
        name: &ScopedName,
        wait: Option<Wait>,
    ) -> Result<Answer<Run>, Problem> {
        let mut first = None;
        let is_done = |answer: &Answer<Run>| {
            let status = answer.body.status.as_ref();
            let state = status.map(|status| (status.uid.clone(), status.state));
            let is_ended = status.is_some_and(|status| status.state == Stage::Ended);
            is_ended || *first.get_or_insert_with(|| state.clone()) != state
        };
        let read = || self.explained(caller, name, |view, explained| view.run(explained));
        let object = Reference::Run(name.clone());
        self.wait_until(&object, wait, read, is_done).await
    }

    /// Explanation of a run.
    pub(crate) fn explain_run(
        &self,
        caller: &Caller,
        name: &ScopedName,
    ) -> Result<Answer<Explanation>, Problem> {
        self.explained(caller, name, |view, explained| view.explanation(explained))
    }

    fn explained<T>(
        &self,
        caller: &Caller,
        name: &ScopedName,
        show: impl FnOnce(&View<'_>, &RunExplanation) -> T,
    ) -> Result<Answer<T>, Problem> {
        let now = self.ledger.now();
        let state = self.ledger.view().read();
        let shown = sight::run(&state, caller, name)?;
        let view = View {
            state: &state,
            now,
            caller,
        };
        let explained = explain_run(&state.clusters, now, shown);
        Ok(Answer::ok(last_record(&state), show(&view, &explained)))
    }

    /// Submits or edits a run, or plans it. With `now` it is refused if it has to wait.
    pub(crate) async fn put_run(
        &self,
        caller: &Caller,
        object: Object,
        options: WriteOptions,
        now: bool,
    ) -> Result<Answer<RunAnswer>, Problem> {
        let mut command = Prepared::new(caller, vec![ObjectChange::Set(object)], &options)?.command;
        if now {
            start_at_once(&mut command);
        }
        self.run_answer(caller, command, options.mode).await
    }

    /// Ends the wait of a run, or stops it.
    pub(crate) async fn cancel_run(
        &self,
        caller: &Caller,
        name: ScopedName,
        mode: WriteMode,
    ) -> Result<Answer<RunAnswer>, Problem> {
        let shown = sight::run(&self.ledger.view().read(), caller, &name)?;
        caller.require_owner(&shown.run.owner)?;
        let uid = Some(shown.uid);
        let command = ClusterCommand::CancelRun { run: name, uid };
        self.run_answer(caller, command.into(), mode).await
    }

    async fn run_answer(
        &self,
        caller: &Caller,
        command: Command,
        mode: WriteMode,
    ) -> Result<Answer<RunAnswer>, Problem> {
        let (outcome, after) = self.carry_out(caller, &command, mode).await?;
        self.with_state(after.as_ref(), |state| {
            if mode == WriteMode::Real {
                note_covers(
                    &self.metrics,
                    state,
                    outcome.time,
                    &command,
                    &outcome.result,
                );
            }
            answer(caller, state, &command, &outcome, mode)
        })
    }
}

fn answer(
    caller: &Caller,
    state: &State,
    command: &Command,
    outcome: &Outcome,
    mode: WriteMode,
) -> Result<Answer<RunAnswer>, Problem> {
    let (now, record) = (outcome.time, outcome.record);
    let result = outcome.result.as_ref();
    let answer = result.map_err(|refusal| of_refusal(state, record, caller, command, refusal))?;
    let internal = || Problem::new(Code::Internal, "a run was answered as another command");
    let shown = only_run(answer).ok_or_else(internal)?;
    let change = change_of(answer);
    let view = View { state, now, caller };
    let explained = explain_run(&state.clusters, now, shown.clone());
    let rows = explained.wait.as_ref().map(|wait| wait.trace.as_slice());
    let events = match mode {
        WriteMode::Real => Vec::new(),
        WriteMode::DryRun => {
            let events = outcome.events.iter();
            // An event is written as in the journal.
            events
                .filter_map(|event| serde_json::value::to_raw_value(event).ok())
                .collect()
        }
    };
    let body = RunAnswer {
        run: view.run(&explained),
        change,
        explanation: view.explanation(&explained),
        takes: explained.takes(),
        trace: view.trace(rows.unwrap_or_default()),
        events,
        record,
        dry_run: (mode == WriteMode::DryRun).then_some(true),
    };
    Ok(Answer {
        status: if change == ChangeKind::Created {
            201
        } else {
            200
        },
        record,
        body,
    })
}

fn change_of(answer: &EngineAnswer) -> ChangeKind {
    match answer {
        EngineAnswer::Changed(changed) => changed.first().map_or(ChangeKind::Unchanged, set_run),
        EngineAnswer::Run { changed: true, .. } => ChangeKind::Changed,
        _ => ChangeKind::Unchanged,
    }
}

/// Makes a submission that is refused if its run would wait.
fn start_at_once(command: &mut Command) {
    let Command::Spine(spine::Command::Change { changes, .. }) = command else {
        return;
    };
    for change in changes {
        if let Change::Cluster(ClusterChange::SetRun(run)) = change {
            *change = ClusterChange::StartRun(run.clone()).into();
        }
    }
}

fn is_wanted(filter: &ListRuns, listed: &Listed<'_>) -> bool {
    let run = listed.run;
    filter
        .namespace
        .as_ref()
        .is_none_or(|wanted| *wanted == run.namespace)
        && filter
            .owner
            .as_ref()
            .is_none_or(|wanted| *wanted == run.owner)
        && filter
            .state
            .as_ref()
            .is_none_or(|wanted| wanted.0.contains(&listed.stage))
}

/// Position in lists, by name and submission. A space sorts before every character of names.
fn key(listed: &Listed<'_>) -> String {
    let (name, submitted) = (listed.run.id(), listed.submitted.ms());
    format!("{name} {submitted:015} {}", listed.uid)
}
