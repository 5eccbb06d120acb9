//! `bursar booking`: reserve, renew, release, cancel, list and show bookings.

pub(super) mod columns;
pub(super) mod exec;
pub(super) mod limit;
mod logs;
pub(super) mod saga;

use std::time::Duration;

use bursar_client::api::query::Parameter as _;
use bursar_client::api::{
    Booking, BookingRequest, Course, End, Execution, ExecutionOutcome, ExecutionState, Isolation,
    ListBookings, NoteRequest, Page, PageSize, ReleaseRequest, RenewRequest, State, StopCause,
    Words,
};
use bursar_client::client::Mode;
use bursar_client::slot::{RELEASE_WAIT, Repeats};
use bursar_client::{Client, Code, Problem};
use bursar_engine::words;
use bursar_units::quantity::{format_cpu, format_memory};
use bursar_units::{BookingId, Instant, Label, Millis};
use serde::Serialize;

use super::{DRY_RUN, watch};
use crate::failure::{Failure, Stop, exit};
use crate::grammar::{
    BookingVerb, CancelArguments, ListFlags, Noun, ReleaseArguments, ReserveArguments,
};
use crate::layout::{Look, Meaning, REPORT_WORD, details, escaped_line};
use crate::list::Filter;
use crate::session::Session;
use crate::suggest::did_you_mean;
use columns::{lasting, outcome_words, state_word};

/// Longest wait of one request for a change of a queued booking.
const POLL: Duration = Duration::from_secs(20);

pub(super) async fn run(session: &mut Session, noun: Noun<BookingVerb>) -> Result<(), Stop> {
    match noun.verb.unwrap_or(BookingVerb::List(noun.list)) {
        BookingVerb::Reserve(arguments) => reserve(session, &arguments).await,
        BookingVerb::Renew {
            id,
            fence,
            ttl,
            dry_run,
        } => {
            let request = RenewRequest {
                fence,
                ttl_ms: ttl.map(Millis::ms),
            };
            renew(session, &id, &request, dry_run).await
        }
        BookingVerb::Release(arguments) => release(session, &arguments).await,
        BookingVerb::Cancel(arguments) => cancel(session, &arguments).await,
        BookingVerb::Note { id, text, dry_run } => note(session, &id, text, dry_run).await,
        BookingVerb::Logs(arguments) => logs::run(session, &arguments).await,
        BookingVerb::List(flags) => list(session, &flags).await,
        BookingVerb::Show { id, fence, watch } => show(session, &id, fence, watch).await,
    }
}

/// Values of `--where state=…`: states of a booking, and its ends.
const STATES: [&str; 8] = [
    State::Queued.word(),
    State::Granted.word(),
    State::Ended.word(),
    End::Released.word(),
    End::Cancelled.word(),
    End::Expired.word(),
    End::WaitOver.word(),
    End::Forced.word(),
];

/// Further values of `--where state=…`: stages of an execution that holds slots.
const STAGES: [&str; 4] = [
    ExecutionState::Starting.word(),
    ExecutionState::Running.word(),
    ExecutionState::Stopping.word(),
    ExecutionState::Stuck.word(),
];

/// Most ended bookings in a list.
const ENDED_MAX: PageSize = PageSize(1_000);

async fn reserve(session: &mut Session, arguments: &ReserveArguments) -> Result<(), Stop> {
    let client = session.client().await?;
    let id = match &arguments.id {
        Some(id) => id.clone(),
        None => session.new_id()?,
    };
    let request = BookingRequest {
        tenant: arguments.tenant.clone(),
        slots: arguments.slots,
        cpu_milli: arguments.cpu,
        memory_bytes: arguments.memory,
        gpus: arguments.gpus,
        ttl_ms: arguments.ttl.map(Millis::ms),
        wait_ms: Some(arguments.wait.ms()),
        priority: Some(arguments.priority),
        ..BookingRequest::new(arguments.class.clone())
    };
    let answer = client
        .reserve(&id, &request, Mode::dry_run_if(arguments.dry_run))
        .await;
    let booking = answer.map_err(|error| refused(error.into(), &id, arguments))?;
    print_brief(session, &booking)?;
    if booking.state != State::Queued || arguments.dry_run {
        return Ok(());
    }
    if arguments.watch {
        return follow(session, &client, booking, |state| state != State::Queued).await;
    }
    session.aside(&format!(
        "\nhint: `bursar explain booking/{id}` says why it waits\n"
    ));
    Ok(())
}

async fn renew(
    session: &mut Session,
    id: &BookingId,
    request: &RenewRequest,
    dry_run: bool,
) -> Result<(), Stop> {
    let client = session.client().await?;
    let booking = client.renew(id, request, Mode::dry_run_if(dry_run)).await?;
    let would = if dry_run {
        "would be renewed"
    } else {
        "renewed"
    };
    session.show(&booking, &format!("booking/{id}"), |look| {
        let expires = booking.expires_at.map(|at| look.moment(at));
        let expires = expires.map(|text| ("expires".to_owned(), text));
        let lines = details(expires.as_slice(), REPORT_WORD);
        let text = format!("booking {id} {would}\n{lines}");
        if dry_run { text + DRY_RUN } else { text }
    })
}

/// Releases a booking. Retries for some seconds while the server is away: without the release, a
/// restart of one second would cost the whole ttl.
async fn release(session: &mut Session, arguments: &ReleaseArguments) -> Result<(), Stop> {
    let request = ReleaseRequest {
        fence: arguments.fence,
        outcome: arguments.outcome,
        exit_code: arguments.exit_code,
        force: arguments.force,
        reason: arguments.reason.clone(),
    };
    let id = &arguments.id;
    let most = RELEASE_WAIT.min(Duration::from_millis(session.common.timeout.ms()));
    let mut repeats = Repeats::until(tokio::time::Instant::now() + most);
    let mut is_announced = false;
    let client = loop {
        let failure = match session.client().await {
            Ok(client) => break client,
            Err(Stop::Failed(failure)) if failure.exit == exit::UNAVAILABLE => failure,
            Err(stop) => return Err(stop),
        };
        if arguments.dry_run {
            return Err(Stop::Failed(failure));
        }
        if !repeats.again().await {
            return Err(unanswered(*failure, id).into());
        }
        if !is_announced {
            is_announced = true;
            let most = lasting(u64::try_from(most.as_millis()).unwrap_or(u64::MAX));
            session.aside(&format!("{}: waiting up to {most}\n", failure.message));
        }
    };
    let booking = if arguments.dry_run {
        client.release(id, &request, Mode::DryRun).await?
    } else {
        let answer = repeats.release(&client, id, &request).await;
        answer.map_err(|error| match error.into() {
            Stop::Failed(failure) if failure.exit == exit::UNAVAILABLE => {
                unanswered(*failure, id).into()
            }
            stop => stop,
        })?
    };
    let word = if arguments.force {
        "taken back"
    } else {
        "released"
    };
    ended(session, &booking, word, arguments.dry_run)
}

/// Failure of a release without an answer.
fn unanswered(failure: Failure, id: &BookingId) -> Failure {
    failure.detail(
        "effect",
        format!("booking {id} is not known to be released; repeat this, or its ttl ends it"),
    )
}

async fn cancel(session: &mut Session, arguments: &CancelArguments) -> Result<(), Stop> {
    let client = session.client().await?;
    let booking = client
        .cancel(&arguments.id, Mode::dry_run_if(arguments.dry_run))
        .await?;
    ended(session, &booking, "cancelled", arguments.dry_run)
}

async fn note(
    session: &mut Session,
    id: &BookingId,
    text: String,
    dry_run: bool,
) -> Result<(), Stop> {
    let client = session.client().await?;
    let request = NoteRequest { text };
    let booking = client.note(id, &request, Mode::dry_run_if(dry_run)).await?;
    session.show(&booking, &format!("booking/{id}"), |look| {
        let subject = look.paint(Meaning::Subject, &format!("booking {id}"));
        let record = booking.record.map(words::number).unwrap_or_default();
        match (booking.applied, dry_run) {
            (Some(false), _) => format!("{subject} has this note already\n"),
            (_, true) => format!("{subject} would be noted\n{DRY_RUN}"),
            (_, false) => format!("{subject} noted (record {record})\n"),
        }
    })
}

/// Lists holders and the queue. Ended bookings, the newest [`ENDED_MAX`], are fetched for
/// `--where state=…` and for `--watch`, which also prints bookings that end.
async fn list(session: &mut Session, flags: &ListFlags) -> Result<(), Stop> {
    let filter = Filter::read::<Booking>(flags.filter.as_deref())?;
    let state = filter.value::<Booking>("state");
    let is_known = |word: &&str| STATES.contains(word) || STAGES.contains(word);
    if let Some(word) = state.filter(|word| !is_known(word)) {
        let suggestion = did_you_mean(word, STATES.into_iter().chain(STAGES));
        let message = format!("`{word}` is not a state of a booking{suggestion}");
        return Err(Failure::usage(message)
            .detail("states", STATES.join(", "))
            .detail("executions", STAGES.join(", "))
            .into());
    }
    let client = session.client().await?;
    let live: Option<Words<State>> = match state {
        None => Some([State::Queued, State::Granted].into()),
        Some("queued") => Some([State::Queued].into()),
        Some("granted") => Some([State::Granted].into()),
        Some(word) if STAGES.contains(&word) => Some([State::Granted].into()),
        Some(_) => None,
    };
    let label = |key| -> Result<Option<Label>, Stop> {
        match filter.value::<Booking>(key) {
            Some(text) => Ok(Some(Label::read(key, text)?)),
            None => Ok(None),
        }
    };
    let (class, tenant) = (label("class")?, label("tenant")?);
    let within = |state| ListBookings {
        class: class.clone(),
        tenant: tenant.clone(),
        state,
        ..ListBookings::default()
    };
    let newest = Page {
        limit: Some(ENDED_MAX),
        cursor: None,
    };
    let ended = within(Some([State::Ended].into()));
    let wants_ended = flags.watch && state.is_none();
    let fetch = async || {
        if live.is_none() {
            return client.bookings(&ended, &newest).await;
        }
        let mut list = client.all_bookings(&within(live.clone())).await?;
        if wants_ended {
            list.items
                .extend(client.bookings(&ended, &newest).await?.items);
        }
        Ok(list)
    };
    watch::list(session, flags, &filter, fetch, &client).await
}

async fn show(
    session: &mut Session,
    id: &BookingId,
    fence: Option<u64>,
    watch: bool,
) -> Result<(), Stop> {
    let client = session.client().await?;
    let booking = match fence {
        Some(fence) => client.booking_fence(id, fence).await?,
        None => client.booking(id).await?,
    };
    let execution = match booking.execution {
        Some(_) => Some(client.execution(id).await?),
        None => None,
    };
    print_full(session, &booking, execution.as_ref())?;
    if watch {
        // Also for an ended booking: the exit code depends on its outcome.
        return follow(session, &client, booking, |state| state == State::Ended).await;
    }
    Ok(())
}

/// Prints a booking whenever it changes, until `is_end`.
async fn follow(
    session: &mut Session,
    client: &Client,
    mut last: Booking,
    is_end: fn(State) -> bool,
) -> Result<(), Stop> {
    let id = last.id.clone();
    if session.is_virtual() && last.state == State::Granted {
        return Err(Failure::usage("a scenario has no end to watch for: leave out `-w`").into());
    }
    let mut events = watch::Changes::open(client).await?;
    while !is_end(last.state) {
        let next = client.booking_wait(&id, POLL).await?;
        let is_same = state_word(&next) == state_word(&last);
        if !is_same {
            print_brief(session, &next)?;
        } else if next.state == State::Granted {
            // The server's wait returns at once for a held booking; its end comes as an event.
            events.changed().await?;
        }
        last = next;
    }
    let outcome = last.execution.as_ref().map(|course| course.outcome);
    match (last.state, last.end, outcome) {
        (State::Ended, _, Some(Some(ExecutionOutcome::Completed)))
        | (State::Ended, Some(End::Released), None)
        | (State::Granted | State::Queued, _, _) => Ok(()),
        _ => Err(Stop::Exit(exit::REFUSED)),
    }
}

fn print_brief(session: &mut Session, booking: &Booking) -> Result<(), Stop> {
    let name = format!("booking/{}", booking.id);
    session.show(booking, &name, |look| brief(booking, look))
}

fn print_full(
    session: &mut Session,
    booking: &Booking,
    execution: Option<&Execution>,
) -> Result<(), Stop> {
    let name = format!("booking/{}", booking.id);
    let bounds = execution.map(Bounds::of);
    let details = Details { booking, bounds };
    session.show(&details, &name, |look| {
        full(booking, details.bounds.as_ref(), look)
    })
}

/// A booking with the bounds of its execution, which only the execution has.
#[derive(Serialize)]
struct Details<'a> {
    #[serde(flatten)]
    booking: &'a Booking,
    #[serde(flatten)]
    bounds: Option<Bounds>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bounds {
    #[serde(skip_serializing_if = "Option::is_none")]
    pids: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_time_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_ms: Option<u64>,
}

impl Bounds {
    fn of(execution: &Execution) -> Self {
        Self {
            pids: execution.pids,
            start_timeout_ms: execution.start_timeout_ms,
            max_time_ms: execution.max_time_ms,
            grace_ms: execution.grace_ms,
        }
    }

    /// `cpu 500m, memory 256Mi, 64 processes`.
    fn limits(&self, booking: &Booking) -> String {
        let cpu = booking.cpu_limit_milli.or(booking.cpu_milli);
        let memory = booking.memory_limit_bytes.or(booking.memory_bytes);
        let parts = [
            cpu.map(|cpu| format!("cpu {}", format_cpu(cpu))),
            memory.map(|memory| format!("memory {}", format_memory(memory))),
            self.pids
                .map(|pids| format!("{} processes", words::number(u64::from(pids)))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            "none".to_owned()
        } else {
            parts.join(", ")
        }
    }

    /// `1m to start, 1h to run, 10s to stop`.
    fn times(&self) -> String {
        let parts = [
            self.start_timeout_ms.map(|ms| (ms, "to start")),
            self.max_time_ms.map(|ms| (ms, "to run")),
            self.grace_ms.map(|ms| (ms, "to stop")),
        ];
        let parts = parts.into_iter().flatten();
        let parts = parts.map(|(ms, what)| format!("{} {what}", lasting(ms)));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Report of a change: the result in the first line, then the numbers.
fn brief(booking: &Booking, look: &Look) -> String {
    let dry_run = booking.dry_run == Some(true);
    let would = if dry_run { "would be " } else { "" };
    let subject = look.paint(Meaning::Subject, &format!("booking {}", booking.id));
    let record = match booking.record {
        Some(record) if !dry_run => format!(" (record {})", words::number(record)),
        _ => String::new(),
    };
    let mut lines = Vec::new();
    let first = match booking.state {
        State::Granted => {
            let expires = booking
                .expires_at
                .map(|at| look.moment(at) + ", unless renewed");
            lines.extend(expires.map(|text| ("expires".to_owned(), text)));
            let fence = booking.fence.filter(|_| !dry_run);
            let fence = fence.map(|fence| format!(", fence {fence}"));
            let fence = fence.unwrap_or_default();
            format!("{subject} {would}granted{fence}{record}\n")
        }
        State::Queued => {
            lines.push(("when".to_owned(), estimate(booking)));
            let waits = booking
                .wait_until
                .map(|at| format!("until {}", look.moment(at)));
            lines.extend(waits.map(|text| ("waits".to_owned(), text)));
            let ahead = match booking.ahead {
                None => String::new(),
                Some(0) => ", nobody ahead of it".to_owned(),
                Some(ahead) => format!(", {} ahead of it", words::number(ahead)),
            };
            format!("{subject} {would}queued{ahead}{record}\n")
        }
        State::Ended => format!("{subject} has ended: {}{record}\n", end_words(booking)),
    };
    let text = first + &details(&lines, REPORT_WORD);
    if dry_run { text + DRY_RUN } else { text }
}

pub(super) fn estimate(booking: &Booking) -> String {
    match (booking.estimate_ms, &booking.rests_on) {
        (Some(ms), Some(basis)) => format!("{} (rests on the {basis})", words::about(ms)),
        (Some(ms), None) => words::about(ms),
        (None, Some(basis)) => format!("unknown ({basis})"),
        (None, None) => "unknown (too few have ended to tell)".to_owned(),
    }
}

pub(super) fn end_words(booking: &Booking) -> String {
    let reason = booking.reason.as_deref();
    let reason = reason.map(|reason| format!(", {}", escaped_line(reason)));
    if let Some(outcome) = outcome_words(booking) {
        return outcome + &reason.unwrap_or_default();
    }
    let outcome = booking.outcome;
    let outcome = outcome.map(|outcome| format!(", {}", outcome.word()));
    let code = booking.exit_code.map(|code| format!(", exit {code}"));
    [Some(state_word(booking).to_owned()), outcome, code, reason]
        .into_iter()
        .flatten()
        .collect()
}

fn full(booking: &Booking, bounds: Option<&Bounds>, look: &Look) -> String {
    let course = booking.execution.as_deref();
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut add = |word: &str, value: Option<String>| {
        lines.extend(value.map(|value| (word.to_owned(), value)));
    };
    let moment = |at: Option<Instant>| at.map(|at| look.moment(at));
    add("class", booking.class.as_ref().map(ToString::to_string));
    add("tenant", booking.tenant.as_ref().map(ToString::to_string));
    add("slots", booking.slots.map(words::number));
    add("cpu", booking.cpu_milli.map(format_cpu));
    add("memory", booking.memory_bytes.map(format_memory));
    add("gpus", booking.gpus.map(words::number));
    let priority = booking.priority.map(|priority| priority.word().to_owned());
    add("priority", priority);
    let execution = booking.execution_id.as_ref().map(ToString::to_string);
    add("execution", execution);
    add("fence", booking.fence.map(|fence| fence.to_string()));
    let not_held = "no, this fence is not the current one";
    let held = booking.held.map(|held| if held { "yes" } else { not_held });
    add("held", held.map(str::to_owned));
    add("ttl", booking.ttl_ms.map(lasting));
    add("limits", bounds.map(|bounds| bounds.limits(booking)));
    add("times", bounds.map(Bounds::times));
    add("isolation", course.and_then(isolation_words));
    let adopted = "found running after a restore, counted from then on";
    let is_adopted = course.is_some_and(|course| course.adopted);
    add("adopted", is_adopted.then(|| adopted.to_owned()));
    let retried = course.and_then(|course| course.retry_of.as_ref());
    add("retry of", retried.map(ToString::to_string));
    add("note", booking.note.clone());
    add("asked", moment(booking.queued_at));
    add("granted", moment(booking.granted_at));
    let renewals = booking.renewals.filter(|count| *count > 0);
    let renewed = renewals.map(|count| format!("{} on record", words::count(count, "time")));
    add("renewed", renewed);
    if booking.state == State::Queued {
        add("ahead", booking.ahead.map(words::number));
        add("when", Some(estimate(booking)));
        add(
            "waits",
            moment(booking.wait_until).map(|at| format!("until {at}")),
        );
    }
    let granted = Some(booking).filter(|booking| booking.state == State::Granted);
    add(
        "expires",
        moment(granted.and_then(|booking| booking.expires_at)),
    );
    add(
        "started",
        moment(course.and_then(|course| course.started_at)),
    );
    let stopping = course.and_then(|course| stopping_words(course, look));
    add("stopping", stopping);
    add("ended", moment(booking.ended_at));
    let word = match booking.state {
        State::Ended => end_words(booking),
        _ => state_word(booking).to_owned(),
    };
    let subject = look.paint(Meaning::Subject, &format!("booking {}", booking.id));
    let steps = course.map(|course| saga::lines(&course.steps, &course.compensations));
    let steps = steps.unwrap_or_default();
    format!("{subject} {word}\n{steps}{}", details(&lines, REPORT_WORD))
}

fn isolation_words(course: &Course) -> Option<String> {
    Some(match course.isolation? {
        Isolation::Cgroup => "a cgroup of its own".to_owned(),
        Isolation::None => "none: no cgroup of its own, or not every limit is enforced".to_owned(),
    })
}

/// Time and cause of the stop, and the number of failed attempts, which need an operator.
fn stopping_words(course: &Course, look: &Look) -> Option<String> {
    let since = look.moment(course.stopping_at?);
    let cause = course.cause.map(|cause| match cause {
        StopCause::Cancelled => ", somebody asked for it",
        StopCause::TimedOut => ", it ran for as long as it may",
        StopCause::NotStarted => ", it did not start in time",
    });
    let failed = course.stops_failed.filter(|count| *count > 0);
    let failed = failed.map(|count| {
        let times = words::count(u64::from(count), "time");
        format!(", failed {times}")
    });
    let (cause, failed) = (cause.unwrap_or_default(), failed.unwrap_or_default());
    Some(format!("{since}{cause}{failed}"))
}

/// Prints the end of a booking. A repeated request reports the earlier end.
fn ended(session: &mut Session, booking: &Booking, word: &str, dry_run: bool) -> Result<(), Stop> {
    let name = format!("booking/{}", booking.id);
    session.show(booking, &name, |look| {
        let subject = look.paint(Meaning::Subject, &format!("booking {}", booking.id));
        let record = booking.record;
        let record = record.map(|record| format!(" (record {})", words::number(record)));
        let record = record.unwrap_or_default();
        let is_stopping = booking.state == State::Granted && booking.execution.is_some();
        match (booking.applied, dry_run) {
            // The slot of an execution is free only when its process is gone (X1).
            (_, true) if is_stopping => format!("{subject} would be stopped\n{DRY_RUN}"),
            (Some(false), false) if is_stopping => format!("{subject} is being stopped already\n"),
            (_, false) if is_stopping => format!("{subject} is being stopped{record}\n"),
            (Some(false), _) => format!("{subject} had ended already: {}\n", end_words(booking)),
            (_, true) => format!("{subject} would be {word}\n{DRY_RUN}"),
            (_, false) => format!("{subject} {word}{record}\n"),
        }
    })
}

/// A refusal with the limit, its size, its holders and the way out (22).
fn refused(stop: Stop, id: &BookingId, arguments: &ReserveArguments) -> Stop {
    let Stop::Failed(mut failure) = stop else {
        return stop;
    };
    let Some(problem) = failure.problem.take() else {
        return Stop::Failed(failure);
    };
    let failure = match problem.code {
        Code::OverLimit => over_limit(&problem, id, arguments),
        Code::NeverFits => {
            let hint = problem.changes.first().cloned();
            let hint = hint.filter(|hint| hint.contains('`'));
            Failure { hint, ..*failure }
        }
        _ => *failure,
    };
    Failure {
        problem: Some(problem),
        ..failure
    }
    .into()
}

fn over_limit(problem: &Problem, id: &BookingId, arguments: &ReserveArguments) -> Failure {
    let failure = no_free_slot(problem);
    // The request would have waited, so the queue is full.
    if arguments.wait != Millis::ZERO {
        return failure;
    }
    let class = &arguments.class;
    let tenant = arguments.tenant.as_ref();
    let tenant = tenant.map(|tenant| format!(" --tenant {tenant}"));
    let tenant = tenant.unwrap_or_default();
    let slots = match arguments.slots {
        1 => String::new(),
        slots => format!(" --slots {slots}"),
    };
    failure.hint(format!(
        "`bursar booking reserve {class} --id {id}{tenant}{slots} --wait 5m` queues for it"
    ))
}

/// Failure of a request for which no slot is free, with the holders and the expected time.
pub(super) fn no_free_slot(problem: &Problem) -> Failure {
    let mut failure = Failure::new(problem.exit_code(), problem.detail.clone());
    if !problem.holders.is_empty() {
        failure = failure.detail("held by", super::explain::holders(&problem.holders));
    }
    if let Some(ms) = problem.retry_after_ms {
        let next = format!("a slot is expected in {}", words::about(ms));
        failure = failure.detail("next", next);
    }
    failure
}
