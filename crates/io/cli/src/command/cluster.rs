//! `bursar run`: submits, lists, shows, watches and cancels runs.

pub(super) mod budget;
mod columns;
pub(super) mod explain;
pub(super) mod lease;
pub(super) mod names;
mod submit;
pub(super) mod trace;

use bursar_client::Code;
use bursar_client::api::cluster::{ListRuns, Run, RunAnswer, RunStatus};
use bursar_client::api::{RecordView, Since, Words};
use bursar_client::client::Mode;
use bursar_engine::cluster::{Outcome, Stage};
use bursar_engine::{Kind, Reference, words};
use bursar_units::{Instant, ScopedName};
use serde::Serialize;

use super::spine::ledger::tail;
use super::{DRY_RUN, watch};
use crate::failure::{Failure, Stop, exit};
use crate::grammar::{Noun, RunFlags, RunVerb, Scope, Until};
use crate::layout::{Look, Meaning, REPORT_WORD, details};
use crate::list::Filter;
use crate::session::Session;
use crate::suggest::did_you_mean;
use columns::{funded, nodes_words, paid_by, state_words};

/// Values of `--where state=…` beside the states: the outcomes other than `ok`.
const OUTCOMES: [&str; 2] = [Outcome::Failed.word(), Outcome::Cancelled.word()];

pub(super) async fn run(session: &mut Session, noun: Noun<RunVerb, RunFlags>) -> Result<(), Stop> {
    match noun.verb.unwrap_or(RunVerb::List(noun.list)) {
        RunVerb::Submit(arguments) => {
            let mode = Mode::dry_run_if(arguments.dry_run);
            submit::run(session, &arguments.plan, mode).await
        }
        RunVerb::Plan(arguments) => submit::run(session, &arguments, Mode::DryRun).await,
        RunVerb::List(flags) => list(session, &flags).await,
        RunVerb::Show { name, scope } => show(session, &name, &scope).await,
        RunVerb::Watch { name, scope, until } => follow(session, &name, &scope, until).await,
        RunVerb::Cancel {
            name,
            scope,
            dry_run,
        } => cancel(session, &name, &scope, Mode::dry_run_if(dry_run)).await,
    }
}

/// Lists live runs and those that ended lately.
async fn list(session: &mut Session, flags: &RunFlags) -> Result<(), Stop> {
    let filter = Filter::read::<Run>(flags.scoped.list.filter.as_deref())?;
    let state = filter.value::<Run>("state");
    let listed = match state {
        None => None,
        Some(word) if OUTCOMES.contains(&word) => Some(Stage::Ended),
        Some(word) => Some(Stage::from_word(word).ok_or_else(|| not_a_state(word))?),
    };
    let owner = names::label("owner", filter.value::<Run>("owner"))?;
    let (namespace, place) = names::listed(session, &flags.scoped)?;
    let wanted = ListRuns {
        namespace,
        owner,
        state: listed.map(|stage| Words::from([stage])),
        since: flags.all.then_some(Since::At(Instant::from_ms(0))),
    };
    let client = session.client().await?;
    let fetch = async || {
        let answer = client.runs(&wanted).await?;
        let everywhere = ListRuns {
            namespace: None,
            ..wanted.clone()
        };
        let all = client.runs(&everywhere);
        names::note_elsewhere(&place, answer.items.is_empty(), "run", all).await;
        Ok(answer)
    };
    watch::list_of(session, &flags.scoped.list, &filter, fetch, &client, &place).await
}

fn not_a_state(word: &str) -> Failure {
    let states: Vec<&str> = Stage::WORDS.into_iter().chain(OUTCOMES).collect();
    let suggestion = did_you_mean(word, states.iter().copied());
    Failure::usage(format!("`{word}` is not a state of a run{suggestion}"))
        .detail("states", states.join(", "))
}

/// A run with its records.
#[derive(Serialize)]
struct RunDetails {
    #[serde(flatten)]
    run: Run,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<RecordView>,
}

async fn show(session: &mut Session, name: &str, scope: &Scope) -> Result<(), Stop> {
    let name = names::run(session, name, scope)?;
    let client = session.client().await?;
    let run = match client.run(&name).await {
        Ok(run) => run,
        Err(error) => return Err(names::not_here(error, Kind::Run, &name)),
    };
    // Only readers of the ledger see the records.
    let history = match tail::history(&client, &Reference::Run(name.clone())).await {
        Err(Stop::Failed(failure)) if is_not_allowed(&failure) => Vec::new(),
        other => other?,
    };
    let shown = RunDetails { run, history };
    let columns = session.console.columns();
    session.show(&shown, &format!("run/{name}"), |look| {
        let lines = shown.history.iter();
        let history: String = lines
            .map(|record| tail::text(record, look, columns))
            .collect();
        let text = full(&name, &shown.run, look);
        if history.is_empty() {
            text
        } else {
            format!("{text}\n{history}")
        }
    })
}

fn is_not_allowed(failure: &Failure) -> bool {
    let code = failure.problem.as_ref().map(|problem| problem.code);
    code == Some(Code::NotAllowed)
}

fn full(name: &ScopedName, run: &Run, look: &Look) -> String {
    let subject = look.paint(Meaning::Subject, &format!("run {name}"));
    let mut lines = Vec::new();
    let mut add = |word: &str, text: Option<String>| {
        lines.extend(text.map(|text| (word.to_owned(), text)));
    };
    let spec = &run.spec;
    add("owner", spec.owner.as_ref().map(ToString::to_string));
    add("needs", Some(submit::needs(spec)));
    add("pods", spec.pod_gpus.map(|gpus| format!("of {gpus}")));
    let priority = spec.priority.filter(|priority| *priority != 0);
    add("priority", priority.map(|priority| priority.to_string()));
    add("expects", spec.expected_duration.clone());
    let longest = spec.max_duration.as_ref();
    add(
        "at most",
        longest.map(|length| format!("{length}, then it is stopped")),
    );
    add("grace", spec.grace.clone());
    let Some(status) = run.status.as_deref() else {
        return format!("{subject}\n{}", details(&lines, REPORT_WORD));
    };
    add(
        "paid by",
        Some(paid_by(&status.claims)).filter(|text| !text.is_empty()),
    );
    add(
        "funded",
        Some(funded(&status.claims)).filter(|text| !text.is_empty()),
    );
    add(
        "where",
        Some(where_words(status)).filter(|text| !text.is_empty()),
    );
    let moment = |at: Option<Instant>| at.map(|at| look.moment(at));
    add("asked", Some(look.moment(status.submitted_at)));
    let place = status.place.filter(|_| status.state == Stage::Waiting);
    add(
        "place",
        place.map(|place| format!("{} in the queue", words::number(place))),
    );
    add(
        "reason",
        status.reason.map(|reason| reason.word().to_owned()),
    );
    add("started", moment(status.started_at));
    let end = status.stated_end.filter(|_| status.stops_at.is_none());
    add("ends", moment(end));
    add("stops", moment(status.stops_at));
    add("ended", moment(status.ended_at));
    add(
        "cause",
        status.ended_by.map(|reason| reason.word().to_owned()),
    );
    add("exit", status.exit_code.map(|code| code.to_string()));
    add("detail", status.detail.clone());
    add("uid", Some(status.uid.clone()));
    let state = state_words(status);
    format!("{subject} {state}\n{}", details(&lines, REPORT_WORD))
}

/// `a01–a04 in rack-a`.
fn where_words(status: &RunStatus) -> String {
    if status.nodes.is_empty() {
        return String::new();
    }
    let domains = status.domains.iter();
    let domains = domains.map(|place| place.rsplit('/').next().unwrap_or(place));
    let domains: Vec<&str> = domains.collect();
    let nodes = nodes_words(&status.nodes);
    if domains.is_empty() {
        return nodes;
    }
    format!("{nodes} in {}", domains.join(", "))
}

/// Prints a run whenever it changes, until the event.
async fn follow(
    session: &mut Session,
    name: &str,
    scope: &Scope,
    until: Until,
) -> Result<(), Stop> {
    let name = names::run(session, name, scope)?;
    let client = session.client().await?;
    let mut changes = watch::Changes::open(&client).await?;
    let mut last = None;
    loop {
        let run = match client.run(&name).await {
            Ok(run) => run,
            Err(error) => return Err(names::not_here(error, Kind::Run, &name)),
        };
        if last.as_ref() != Some(&run) {
            session.show(&run, &format!("run/{name}"), |look| line(&name, &run, look))?;
        }
        let status = run.status.as_deref();
        if let Some(status) = status.filter(|status| status.state == Stage::Ended) {
            return match status.outcome {
                Some(Outcome::Ok) => Ok(()),
                _ => Err(Stop::Exit(exit::REFUSED)),
            };
        }
        let is_started = status.is_some_and(|status| status.state != Stage::Waiting);
        if until == Until::Started && is_started {
            return Ok(());
        }
        if session.is_virtual() {
            let message = "a scenario has no event to watch for: use `run show`";
            return Err(Failure::usage(message).into());
        }
        last = Some(run);
        changes.changed().await?;
    }
}

/// `Mon 16 Nov 10:00:00  run speech/asr-xl running, 24/24 GPUs, 24 Owned`.
fn line(name: &ScopedName, run: &Run, look: &Look) -> String {
    let subject = look.paint(Meaning::Subject, &format!("run {name}"));
    let Some(status) = run.status.as_deref() else {
        return format!("{subject}\n");
    };
    let at = look.to_the_second(status.ended_at.unwrap_or(look.now));
    let state = state_words(status);
    if status.state == Stage::Ended {
        let code = status.exit_code;
        let code = code.map(|code| format!(", exit code {code}"));
        let code = code.unwrap_or_default();
        return format!("{at}  {subject} {state}{code}\n");
    }
    let gpus = format!("{}/{} GPUs", status.gpus, status.gpus_asked);
    let funded = match funded(&status.claims) {
        text if text.is_empty() => text,
        text => format!(", {text}"),
    };
    format!("{at}  {subject} {state}, {gpus}{funded}\n")
}

async fn cancel(session: &mut Session, name: &str, scope: &Scope, mode: Mode) -> Result<(), Stop> {
    let name = names::run(session, name, scope)?;
    let client = session.client().await?;
    let answer = match client.cancel_run(&name, mode).await {
        Ok(answer) => answer,
        Err(error) => return Err(names::not_here(error, Kind::Run, &name)),
    };
    session.show(&answer, &format!("run/{name}"), |look| {
        cancelled(&name, &answer, look)
    })
}

fn cancelled(name: &ScopedName, answer: &RunAnswer, look: &Look) -> String {
    let subject = look.paint(Meaning::Subject, &format!("run {name}"));
    let is_dry = answer.dry_run == Some(true);
    let record = format!(" (record {})", words::number(answer.record));
    let status = answer.run.status.as_deref();
    let is_stopping = status.is_some_and(|status| status.state == Stage::Ending);
    let is_same = answer.change == bursar_client::api::ChangeKind::Unchanged;
    let kill = status.and_then(|status| status.stops_at);
    let kill = kill.map(|at| format!(", killed {} at the latest", look.coming(at)));
    let kill = kill.unwrap_or_default();
    match (is_stopping, is_dry, is_same) {
        (true, true, _) => format!("{subject} would be stopped{kill}\n{DRY_RUN}"),
        (true, false, true) => format!("{subject} is being stopped already{kill}\n"),
        (true, false, false) => format!("{subject} is being stopped{kill}{record}\n"),
        (false, _, true) => {
            let state = status.map(state_words).unwrap_or_default();
            format!("{subject} had ended already: {state}\n")
        }
        (false, true, false) => format!("{subject} would be cancelled\n{DRY_RUN}"),
        (false, false, false) => format!("{subject} cancelled{record}\n"),
    }
}
