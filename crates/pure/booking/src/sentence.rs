//! Sentences of bookings, executions and limits, and their data in the stream.
//!
//! A sentence depends on its record alone. Events before level 2 have no [`Brief`]: their sentences
//! leave out class, amount and lengths of time.

use bursar_plane::Notice;
use bursar_units::words::{amount, count, length, number, slots, value_of};
use bursar_units::{BookingId, Dimension, Instant, Millis, ObjectName};
use serde::Serialize;

use crate::event::Brief;
use crate::execution::{Adoption, Cause, Isolation, STOPS_UNTIL_STUCK, Verdict};
use crate::words::{came_out, exit};
use crate::{Bound, End, Event, Limit, Outcome, Request, Scope, Submission};

/// Data of an event of this plane, as the stream has it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Data {
    /// Of `booking.*` and `execution.*`.
    Booking(BookingData),
    /// Of `limit.changed`.
    Limit(LimitData),
}

/// Data of an event of a booking.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BookingData {
    /// Slots that it holds or asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,
    /// Time from the request to the grant, or to this event before a grant.
    #[serde(skip_serializing_if = "Option::is_none", rename = "waitedMs")]
    pub waited: Option<Millis>,
    /// Time from the grant to the end.
    #[serde(skip_serializing_if = "Option::is_none", rename = "heldMs")]
    pub held: Option<Millis>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// The holder's verdict on its work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Exit code of the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Text of a note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Data of an event of a limit.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct LimitData {
    /// Slots that the limit allows after the change, where it bounds slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,
    /// Number of waiting bookings that the same record granted.
    pub granted: u64,
}

/// The notice of an event; `record` has all events of this plane in its record.
pub(crate) fn notice(at: Instant, event: &Event, record: &[&Event]) -> Notice<Data> {
    match event {
        Event::Reserved(request)
        | Event::Submitted(Submission {
            booking: request, ..
        }) => requested(request, record),
        Event::Granted { id, of, .. } => granted(id, of.as_deref()),
        Event::Renewed { id, expires, .. } => {
            let summary = format!("{id} renewed, kept for {} more", length(expires.since(at)));
            of_booking(None, id, None, summary)
        }
        Event::Ended {
            id,
            end,
            outcome,
            exit_code,
            reason,
            of,
            ..
        } => {
            let result = Work {
                outcome: *outcome,
                exit_code: *exit_code,
            };
            ended(id, *end, result, reason.as_deref(), of.as_deref())
        }
        Event::Started { id, isolation, of } => {
            let unkept = match isolation {
                Isolation::Cgroup => "",
                Isolation::None => ", not kept apart (isolation: none)",
            };
            let summary = format!("{id} runs{unkept}");
            of_booking(Some("execution.started"), id, of.as_deref(), summary)
        }
        Event::Adopted(Adoption { booking, .. }) => Notice {
            stream: Some("execution.adopted"),
            summary: format!(
                "{} adopted: {}; it was found running after a restore",
                booking.id,
                asked(booking)
            ),
            ..of_request(booking)
        },
        Event::Stopping { id, cause, of, .. } => {
            let why = match cause {
                Cause::Cancelled => "cancelled",
                Cause::TimedOut => "it ran for as long as it may",
                Cause::NotStarted => "it did not start in time",
            };
            let summary = format!("{id} is stopped: {why}");
            of_booking(Some("execution.stopping"), id, of.as_deref(), summary)
        }
        Event::StopFailed { id, attempt, of } if *attempt >= STOPS_UNTIL_STUCK => {
            let stops = count((*attempt).into(), "stop");
            let summary = format!("{id} is stuck: {stops} failed, it keeps its slot");
            of_booking(Some("execution.stuck"), id, of.as_deref(), summary)
        }
        Event::StopFailed { id, attempt, of } => {
            let summary = format!("{id} does not end, stop {attempt} failed");
            of_booking(None, id, of.as_deref(), summary)
        }
        Event::Exited {
            id,
            verdict,
            exit_code,
            signal,
            is_out_of_memory,
            reason,
            of,
        } => {
            let how = exit(*exit_code, *signal, *is_out_of_memory, reason.as_deref());
            exited(id, *verdict, *exit_code, &how, of.as_deref())
        }
        Event::Noted { id, text, of } => {
            let summary = format!("{id} has a note: {text}");
            Notice {
                data: Data::Booking(BookingData {
                    note: Some(text.clone()),
                    ..data(of.as_deref())
                }),
                ..of_booking(Some("booking.noted"), id, of.as_deref(), summary)
            }
        }
        Event::LimitSet(limit) => limit_set(limit, record),
        Event::LimitDropped { name } => of_limit(name, None, "removed", record),
        Event::Unsettled { more, .. } => {
            let summary = match more {
                true => "the record is full, further grants follow in the next",
                false => "every grant that was due is made",
            };
            let data = Data::Booking(BookingData::default());
            Notice {
                stream: None,
                ..Notice::new("", "ledger".to_owned(), summary.to_owned(), data)
            }
        }
    }
}

/// A request that was granted at once or waits. One that the same record grants later is not
/// streamed: its grant is.
fn requested(request: &Request, record: &[&Event]) -> Notice<Data> {
    let id = &request.id;
    let is_grant =
        |event: &&Event| matches!(event, Event::Granted { id: granted, .. } if granted == id);
    let (stream, verb, waited) = match request.fence {
        Some(_) => (Some("booking.granted"), "granted:", Some(Millis::ZERO)),
        None if record.iter().any(is_grant) => (None, "asked for", None),
        None => (Some("booking.queued"), "waits for", None),
    };
    Notice {
        stream,
        summary: format!("{id} {verb} {}", asked(request)),
        data: Data::Booking(BookingData {
            slots: Some(request.slots),
            waited,
            ..BookingData::default()
        }),
        ..of_request(request)
    }
}

fn granted(id: &BookingId, of: Option<&Brief>) -> Notice<Data> {
    let after = of.map(|of| {
        let (waited, amount) = (length(of.waited), amount(&of.amount(), Some(&of.class)));
        format!(" after {waited}: {amount} for {}", of.tenant)
    });
    let summary = format!("{id} granted{}", after.unwrap_or_default());
    of_booking(Some("booking.granted"), id, of, summary)
}

/// The holder's report on its work.
#[derive(Clone, Copy)]
struct Work {
    outcome: Option<Outcome>,
    exit_code: Option<i32>,
}

fn ended(
    id: &BookingId,
    end: End,
    work: Work,
    reason: Option<&str>,
    of: Option<&Brief>,
) -> Notice<Data> {
    let held = of.and_then(|of| of.held);
    let was_queued = of.is_some() && held.is_none();
    let stream = match end {
        // A booking that was forced out of the queue held nothing that could be released.
        End::Forced if was_queued => "booking.cancelled",
        End::Released | End::Forced => "booking.released",
        End::Expired => "booking.expired",
        End::WaitOver => "booking.refused",
        End::Cancelled => "booking.cancelled",
    };
    let after = of.map(|of| format!(" after {}", length(held.unwrap_or(of.waited))));
    let after = after.unwrap_or_default();
    let reason = reason.map(|reason| format!(": {reason}"));
    let reason = reason.unwrap_or_default();
    let allowed = of.and_then(|of| Some((of, length(of.allowed?))));
    let text = match (end, of, allowed) {
        (End::Released, Some(of), _) => {
            let what = slots(of.slots, Some(&of.class));
            format!("released {what}{after}{}", work_words(work))
        }
        (End::Released, None, _) => format!("released{}", work_words(work)),
        (End::Forced, ..) if was_queued => {
            format!("taken out of the queue by an operator{after}{reason}")
        }
        (End::Forced, None, _) => format!("ended by an operator{reason}"),
        (End::Forced, ..) => format!("taken back by an operator{after}{reason}"),
        (End::Expired, _, Some((_, ttl))) => format!("expired{after}: not renewed within {ttl}"),
        (End::Expired, ..) => format!("expired{after}: not renewed in time"),
        (End::WaitOver, _, Some((of, wait))) => {
            format!("refused: no {} slot came free within {wait}", of.class)
        }
        (End::WaitOver, ..) => "refused: its wait is over".to_owned(),
        (End::Cancelled, Some(of), _) => format!("cancelled after waiting {}", length(of.waited)),
        (End::Cancelled, None, _) => "cancelled while it waited".to_owned(),
    };
    Notice {
        data: Data::Booking(BookingData {
            end: Some(end),
            outcome: work.outcome,
            exit_code: work.exit_code,
            ..data(of)
        }),
        ..of_booking(Some(stream), id, of, format!("{id} {text}"))
    }
}

/// The record that says how an execution ended frees its slot, too.
fn exited(
    id: &BookingId,
    verdict: Verdict,
    exit_code: Option<i32>,
    how: &str,
    of: Option<&Brief>,
) -> Notice<Data> {
    let work = Work {
        outcome: verdict.outcome(),
        exit_code,
    };
    let held = of.and_then(|of| of.held);
    let after = held.map(|held| format!(" after {}", length(held)));
    let freed = of.map(|of| format!(", {} released", slots(of.slots, Some(&of.class))));
    Notice {
        summary: format!(
            "{id} {}{}",
            came_out(verdict, &after.unwrap_or_default(), how),
            freed.unwrap_or_default()
        ),
        ..ended(id, End::Released, work, None, of)
    }
}

fn work_words(work: Work) -> String {
    let outcome = match work.outcome {
        Some(Outcome::Ok) => ", ok",
        Some(Outcome::Failed) => ", failed",
        None => "",
    };
    let code = work.exit_code.map(|code| match work.outcome {
        Some(_) => format!(" with exit code {code}"),
        None => format!(", exit code {code}"),
    });
    format!("{outcome}{}", code.unwrap_or_default())
}

fn limit_set(limit: &Limit, record: &[&Event]) -> Notice<Data> {
    let is_paused = limit.slots == Some(0) || limit.gpus == Some(0);
    let verb = if is_paused { "paused" } else { "set" };
    let text = format!("{verb}: {}", bounds_words(limit));
    Notice {
        class: match &limit.class {
            Some(Scope::Named(class)) => Some(class.clone()),
            _ => None,
        },
        ..of_limit(&limit.name, Some(limit), &text, record)
    }
}

fn of_limit(
    name: &ObjectName,
    limit: Option<&Limit>,
    text: &str,
    record: &[&Event],
) -> Notice<Data> {
    let grants = record
        .iter()
        .filter(|event| matches!(event, Event::Granted { .. }));
    let granted = u64::try_from(grants.count()).unwrap_or(u64::MAX);
    let and_granted = match granted {
        0 => String::new(),
        _ => format!(", {} granted", count(granted, "waiting booking")),
    };
    let slots = limit.and_then(|limit| limit.slots);
    let data = Data::Limit(LimitData { slots, granted });
    let summary = format!("limit {name} {text}{and_granted}");
    Notice::new("limit.changed", format!("limit/{name}"), summary, data)
}

/// The bounds of a limit: `120 slots, cpu 60, memory 80% for each tenant`.
fn bounds_words(limit: &Limit) -> String {
    let share = |dimension: Dimension, bound: Bound| match bound {
        Bound::Exactly(size) => value_of(dimension, size),
        Bound::Percent(percent) => format!("{} {percent}%", dimension.word()),
    };
    let exactly = |dimension| move |size| value_of(dimension, size);
    let weight = |weight| format!("weight {}", number(weight));
    let parts = [
        limit.slots.map(exactly(Dimension::Slots)),
        limit.cpu.map(|bound| share(Dimension::Cpu, bound)),
        limit.memory.map(|bound| share(Dimension::Memory, bound)),
        limit.gpus.map(exactly(Dimension::Gpus)),
        limit.weight.map(weight),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let bounds = if parts.is_empty() {
        "no bound".to_owned()
    } else {
        parts.join(", ")
    };
    format!("{bounds}{}", scope_words(limit))
}

/// The scope of a limit: ` for class python`, ` for each tenant`; empty for everything.
fn scope_words(limit: &Limit) -> String {
    let one = |word: &str, scope: &Option<Scope>| match scope {
        None => None,
        Some(Scope::Each) => Some(format!("each {word}")),
        Some(Scope::Named(label)) => Some(format!("{word} {label}")),
    };
    let parts = [one("class", &limit.class), one("tenant", &limit.tenant)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(" for {}", parts.join(" and "))
    }
}

fn asked(request: &Request) -> String {
    let amount = amount(&request.amount(), Some(&request.class));
    format!("{amount} for {}", request.tenant)
}

fn of_request(request: &Request) -> Notice<Data> {
    Notice {
        stream: None,
        object: format!("booking/{}", request.id),
        tenant: Some(request.tenant.clone()),
        class: Some(request.class.clone()),
        summary: String::new(),
        data: Data::Booking(BookingData {
            slots: Some(request.slots),
            ..BookingData::default()
        }),
    }
}

fn of_booking(
    stream: Option<&'static str>,
    id: &BookingId,
    of: Option<&Brief>,
    summary: String,
) -> Notice<Data> {
    Notice {
        stream,
        object: format!("booking/{id}"),
        tenant: of.map(|of| of.tenant.clone()),
        class: of.map(|of| of.class.clone()),
        summary,
        data: Data::Booking(data(of)),
    }
}

fn data(of: Option<&Brief>) -> BookingData {
    BookingData {
        slots: of.map(|of| of.slots),
        waited: of.map(|of| of.waited),
        held: of.and_then(|of| of.held),
        ..BookingData::default()
    }
}
