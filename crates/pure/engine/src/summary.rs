//! The sentence people see everywhere, and the names of the stream (design 80, 4.5).
//!
//! Both are read off the events of a record. What an event does not say itself, such as the
//! class of a booking that is released, comes from the state, which remembers an ended booking
//! for a day; an older one is told without it. Fences are never told.

mod market;

use bursar_booking::execution::{Adoption, Cause, Isolation, STOPS_UNTIL_STUCK, Verdict};
use bursar_booking::{
    End, Event as BookingEvent, Limit, Outcome, Request, Scope, Standing, Submission,
};
use bursar_units::{Amount, BookingId, Dimension, Instant, Label, Millis, ObjectName};

use crate::token::{Role, Token};
use crate::words;
use crate::{Event, State, dated, spine};

/// An event as it is told to people and programs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Told {
    /// Its name in the stream: `booking.granted`.
    pub name: &'static str,
    /// What it happened to: `booking/job-1`, `limit/python`.
    pub object: String,
    /// Whose it is; a caller who may not see a tenant is not told of it.
    pub tenant: Option<Label>,
    /// The class, where it has one.
    pub class: Option<Label>,
    /// The sentence: lower case, no full stop.
    pub summary: String,
    /// The same for programs.
    pub data: Data,
}

/// What a program may want to know without reading the sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Data {
    /// Of `booking.*`.
    Booking {
        /// How many slots, where still known.
        slots: Option<u64>,
        /// How long it had waited until then.
        waited: Option<Millis>,
        /// How long it was held; of those that ended.
        held: Option<Millis>,
        /// How it ended.
        end: Option<End>,
        /// What the holder said of its work.
        outcome: Option<Outcome>,
        /// The exit code of the work.
        exit_code: Option<i32>,
    },
    /// Of `limit.changed`.
    Limit {
        /// The limit as it now stands; `None` where it was removed.
        limit: Option<Box<Limit>>,
        /// How many waiting bookings were granted in the same record.
        granted: u64,
    },
    /// Of `node.*`: what it has, unless it left.
    Node(Option<Amount>),
    /// Of `pod.*`, and of `node.*` where its market is meant.
    Market(Box<crate::market::Event>),
    /// Of `token.*`: what it allows and until when, unless it was revoked.
    Token(Option<(Vec<Role>, Instant)>),
    /// Of `ledger.*`: the sentence says it all.
    Ledger,
}

/// What a record tells, with the place of each in its events: half of the stream's id.
///
/// The state may be later than the record: all that is read from it is as true then.
pub fn told(state_after: &State, time: Instant, events: &[Event]) -> Vec<(usize, Told)> {
    let tell = |(index, (at, event))| Some((index, one(state_after, events, at, event)?));
    dated(time, events).enumerate().filter_map(tell).collect()
}

/// A sentence for every event of a record, also for those that no stream tells.
pub fn record_sentences(state_after: &State, time: Instant, events: &[Event]) -> Vec<String> {
    dated(time, events)
        .map(|(at, event)| match one(state_after, events, at, event) {
            Some(told) => told.summary,
            None => quiet(state_after, at, event),
        })
        .collect()
}

fn one(state: &State, events: &[Event], at: Instant, event: &Event) -> Option<Told> {
    match event {
        Event::Booking(event) => of_booking_event(state, events, at, event),
        Event::Market(event) => Some(market::told(event)),
        Event::Spine(event) => of_spine_event(event),
    }
}

fn of_spine_event(event: &spine::Event) -> Option<Told> {
    use spine::Event;

    Some(match event {
        Event::Genesis { ledger, .. } => {
            ledger_told("ledger.begun", format!("ledger {ledger} begun"))
        }
        Event::Level { n } => ledger_told(
            "ledger.upgraded",
            format!("the records of level {} begin", words::number(*n)),
        ),
        Event::Resumed { .. } => ledger_told(
            "ledger.resumed",
            "a term began, every holder has its full ttl".to_owned(),
        ),
        Event::KeyRotated { .. } => ledger_told(
            "ledger.rekeyed",
            "a further key signs checkpoints, the one before it for 30 days more".to_owned(),
        ),
        Event::Anchored { record, .. } => ledger_told(
            "ledger.anchored",
            format!("snapshot of record {} anchored", words::number(*record)),
        ),
        Event::Pruned { below } => ledger_told(
            "ledger.pruned",
            format!("payloads of {} forgotten", words::count(*below, "record")),
        ),
        Event::Restored {
            generation,
            tokens_ended,
            ..
        } => ledger_told(
            "ledger.restored",
            format!(
                "ledger restored from a copy, generation {}{}",
                words::number(*generation),
                if *tokens_ended {
                    ", all tokens ended"
                } else {
                    ""
                }
            ),
        ),
        Event::TokenCreated(token) => token_created(token),
        Event::TokenRevoked { name } => Told {
            summary: format!("token {name} revoked"),
            ..about(("token.revoked", "token"), name, Data::Token(None))
        },
        Event::NodeSet(node) => {
            let (name, capacity) = (&node.name, node.capacity());
            Told {
                summary: format!("node {name} joined: {}", words::resources(&capacity)),
                ..about(("node.joined", "node"), name, Data::Node(Some(capacity)))
            }
        }
        Event::NodeDropped { name } => Told {
            summary: format!("node {name} left"),
            ..about(("node.lost", "node"), name, Data::Node(None))
        },
        Event::Keyed { .. } => return None,
    })
}

/// What the stream does not tell: evidence and bookkeeping.
fn quiet(state: &State, at: Instant, event: &Event) -> String {
    match event {
        Event::Spine(spine::Event::Keyed { key, .. }) => format!("done once under key {key}"),
        Event::Booking(BookingEvent::Renewed { id, expires, .. }) => {
            format!(
                "{id} renewed, kept for {} more",
                words::length(expires.since(at))
            )
        }
        Event::Booking(BookingEvent::StopFailed { id, attempt }) => {
            format!("{id} does not end, stop {attempt} failed")
        }
        Event::Booking(BookingEvent::Unsettled { more: true, .. }) => {
            "the record is full, further grants follow in the next".to_owned()
        }
        Event::Booking(BookingEvent::Unsettled { more: false, .. }) => {
            "every grant that was due is made".to_owned()
        }
        Event::Booking(
            BookingEvent::Reserved(request)
            | BookingEvent::Submitted(Submission {
                booking: request, ..
            }),
        ) => {
            format!("{} asked for {}", request.id, asked(request))
        }
        other => one(state, &[], at, other)
            .map(|told| told.summary)
            .unwrap_or_default(),
    }
}

fn of_booking_event(
    state: &State,
    events: &[Event],
    at: Instant,
    event: &BookingEvent,
) -> Option<Told> {
    Some(match event {
        BookingEvent::Reserved(request)
        | BookingEvent::Submitted(Submission {
            booking: request, ..
        }) => return came_in(events, request),
        BookingEvent::Granted { id, .. } => granted(state, at, id),
        BookingEvent::Ended {
            id,
            end,
            outcome,
            exit_code,
            reason,
            ..
        } => {
            let said = Said {
                outcome: *outcome,
                exit_code: *exit_code,
                reason: reason.as_deref(),
            };
            ended(state, at, id, *end, said)
        }
        BookingEvent::Started { id, isolation } => {
            let unkept = match isolation {
                Isolation::Cgroup => "",
                Isolation::None => ", not kept apart (isolation: none)",
            };
            of_execution(state, at, "execution.started", id, &format!("runs{unkept}"))
        }
        BookingEvent::Adopted(Adoption { booking, .. }) => {
            let says = format!(
                "adopted: {}; it was found running after a restore",
                asked(booking)
            );
            of_execution(state, at, "execution.adopted", &booking.id, &says)
        }
        BookingEvent::Stopping { id, cause, .. } => {
            let why = match cause {
                Cause::Cancelled => "is stopped: cancelled",
                Cause::TimedOut => "is stopped: it ran for as long as it may",
                Cause::NotStarted => "is stopped: it did not start in time",
            };
            of_execution(state, at, "execution.stopping", id, why)
        }
        BookingEvent::StopFailed { id, attempt } if *attempt >= STOPS_UNTIL_STUCK => {
            let says = format!(
                "is stuck: {} failed, it keeps its slot",
                words::count((*attempt).into(), "stop")
            );
            of_execution(state, at, "execution.stuck", id, &says)
        }
        BookingEvent::Exited {
            id,
            verdict,
            exit_code,
            signal,
            is_out_of_memory,
            reason,
        } => {
            let how = words::exit(*exit_code, *signal, *is_out_of_memory, reason.as_deref());
            exited(state, at, id, (*verdict, *exit_code), &how)
        }
        BookingEvent::LimitSet(limit) => limit_set(events, limit),
        BookingEvent::LimitDropped { name } => {
            let granted = grants_in(events);
            Told {
                summary: format!("limit {name} removed{}", and_granted(granted)),
                ..about(
                    ("limit.changed", "limit"),
                    name,
                    Data::Limit {
                        limit: None,
                        granted,
                    },
                )
            }
        }
        BookingEvent::Renewed { .. }
        | BookingEvent::StopFailed { .. }
        | BookingEvent::Unsettled { .. } => return None,
    })
}

/// A request that was granted at once or waits; one that is granted in the same record is told as that.
fn came_in(events: &[Event], request: &Request) -> Option<Told> {
    let id = &request.id;
    let (name, says, waited) = match request.fence {
        Some(_) => ("booking.granted", "granted:", Some(Millis::ZERO)),
        None if is_granted_in(events, id) => return None,
        None => ("booking.queued", "waits for", None),
    };
    let summary = format!("{id} {says} {}", asked(request));
    let data = booking_data(Some(request), waited);
    Some(of_booking(name, id, Some(request), summary, data))
}

fn granted(state: &State, at: Instant, id: &BookingId) -> Told {
    let request = state.bookings.request(id);
    let waited = times(state, id).map(|(asked_at, _)| at.since(asked_at));
    let after = waited.map(|waited| format!(" after {}", words::length(waited)));
    let what = request
        .as_ref()
        .map(|request| format!(": {}", asked(request)));
    let summary = format!(
        "{id} granted{}{}",
        after.unwrap_or_default(),
        what.unwrap_or_default()
    );
    let data = booking_data(request.as_ref(), waited);
    of_booking("booking.granted", id, request.as_ref(), summary, data)
}

fn of_execution(
    state: &State,
    at: Instant,
    name: &'static str,
    id: &BookingId,
    says: &str,
) -> Told {
    let request = state.bookings.request(id);
    let waited =
        times(state, id).map(|(asked_at, granted_at)| granted_at.unwrap_or(at).since(asked_at));
    let data = booking_data(request.as_ref(), waited);
    of_booking(name, id, request.as_ref(), format!("{id} {says}"), data)
}

/// The slot of an execution is free in the same record that says how it came out.
fn exited(
    state: &State,
    at: Instant,
    id: &BookingId,
    (verdict, exit_code): (Verdict, Option<i32>),
    how: &str,
) -> Told {
    let said = Said {
        outcome: verdict.outcome(),
        exit_code,
        reason: None,
    };
    let told = ended(state, at, id, End::Released, said);
    let held = match &told.data {
        Data::Booking {
            held: Some(held), ..
        } => format!(" after {}", words::length(*held)),
        _ => String::new(),
    };
    let slots = state.bookings.request(id).map(|request| {
        let slots = words::slots(request.slots, Some(&request.class));
        format!(", {slots} released")
    });
    Told {
        summary: format!(
            "{id} {}{}",
            words::came_out(verdict, &held, how),
            slots.unwrap_or_default()
        ),
        ..told
    }
}

/// What was said when a booking ended.
#[derive(Clone, Copy)]
struct Said<'a> {
    outcome: Option<Outcome>,
    exit_code: Option<i32>,
    reason: Option<&'a str>,
}

fn ended(state: &State, at: Instant, id: &BookingId, end: End, said: Said<'_>) -> Told {
    let request = state.bookings.request(id);
    let times = times(state, id);
    let held = times
        .and_then(|(_, granted_at)| granted_at)
        .map(|since| at.since(since));
    let waited = times.map(|(asked_at, granted_at)| granted_at.unwrap_or(at).since(asked_at));
    let name = match end {
        // One that was forced out of the queue never held anything that could be released.
        End::Forced if times.is_some() && held.is_none() => "booking.cancelled",
        End::Released | End::Forced => "booking.released",
        End::Expired => "booking.expired",
        End::WaitOver => "booking.refused",
        End::Cancelled => "booking.cancelled",
    };
    let what = request
        .as_ref()
        .map(|request| (request, held.or(waited).unwrap_or_default()));
    let summary = format!("{id} {}", ended_words(end, what, held.is_some(), said));
    let data = Data::Booking {
        slots: request.as_ref().map(|request| request.slots),
        waited,
        held,
        end: Some(end),
        outcome: said.outcome,
        exit_code: said.exit_code,
    };
    of_booking(name, id, request.as_ref(), summary, data)
}

fn ended_words(
    end: End,
    known: Option<(&Request, Millis)>,
    was_held: bool,
    said: Said<'_>,
) -> String {
    let after = known.map(|(_, length)| words::length(length));
    let after = after
        .map(|length| format!(" after {length}"))
        .unwrap_or_default();
    let reason = said
        .reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    match (end, known) {
        (End::Released, Some((request, _))) => {
            let what = words::slots(request.slots, Some(&request.class));
            format!("released {what}{after}{}", outcome_words(said))
        }
        (End::Released, None) => format!("released{}", outcome_words(said)),
        (End::Forced, Some(_)) if !was_held => {
            format!("taken out of the queue by an operator{after}{reason}")
        }
        (End::Forced, _) => format!("taken back by an operator{after}{reason}"),
        (End::Expired, Some((request, _))) => {
            format!(
                "expired{after}: not renewed within {}",
                words::length(request.ttl)
            )
        }
        (End::Expired, None) => "expired: not renewed in time".to_owned(),
        (End::WaitOver, Some((request, _))) => {
            let (class, wait) = (&request.class, words::length(request.wait));
            format!("refused: no {class} slot came free within {wait}")
        }
        (End::WaitOver, None) => "refused: its wait is over".to_owned(),
        (End::Cancelled, Some((_, waited))) => {
            format!("cancelled after waiting {}", words::length(waited))
        }
        (End::Cancelled, None) => "cancelled while it waited".to_owned(),
    }
}

fn outcome_words(said: Said<'_>) -> String {
    let outcome = match said.outcome {
        Some(Outcome::Ok) => ", ok",
        Some(Outcome::Failed) => ", failed",
        None => "",
    };
    let code = said.exit_code.map(|code| match said.outcome {
        Some(_) => format!(" with exit code {code}"),
        None => format!(", exit code {code}"),
    });
    format!("{outcome}{}", code.unwrap_or_default())
}

fn limit_set(events: &[Event], limit: &Limit) -> Told {
    let name = &limit.name;
    let granted = grants_in(events);
    let bounds = bounds_words(limit);
    let is_paused = limit.slots == Some(0) || limit.gpus == Some(0);
    let verb = if is_paused { "paused" } else { "set" };
    let data = Data::Limit {
        limit: Some(Box::new(limit.clone())),
        granted,
    };
    let class = match &limit.class {
        Some(Scope::Named(class)) => Some(class.clone()),
        _ => None,
    };
    Told {
        summary: format!("limit {name} {verb}: {bounds}{}", and_granted(granted)),
        class,
        ..about(("limit.changed", "limit"), name, data)
    }
}

/// The bounds of a limit: `120 slots, cpu 60, memory 80% for each tenant`.
pub fn bounds_words(limit: &Limit) -> String {
    use bursar_booking::Bound;
    let share = |dimension: Dimension, bound: Bound| match bound {
        Bound::Exactly(size) => words::value_of(dimension, size),
        Bound::Percent(percent) => format!("{} {percent}%", dimension.word()),
    };
    let parts: Vec<String> = [
        limit
            .slots
            .map(|slots| words::value_of(Dimension::Slots, slots)),
        limit.cpu.map(|bound| share(Dimension::Cpu, bound)),
        limit.memory.map(|bound| share(Dimension::Memory, bound)),
        limit
            .gpus
            .map(|gpus| words::value_of(Dimension::Gpus, gpus)),
        limit
            .weight
            .map(|weight| format!("weight {}", words::number(weight))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let bounds = if parts.is_empty() {
        "no bound".to_owned()
    } else {
        parts.join(", ")
    };
    format!("{bounds}{}", scope_words(limit))
}

/// Whom a limit speaks of: ` for class python`, ` for each tenant`; nothing for everything.
fn scope_words(limit: &Limit) -> String {
    let one = |word: &str, scope: &Option<Scope>| match scope {
        None => None,
        Some(Scope::Each) => Some(format!("each {word}")),
        Some(Scope::Named(label)) => Some(format!("{word} {label}")),
    };
    let parts: Vec<String> = [one("class", &limit.class), one("tenant", &limit.tenant)]
        .into_iter()
        .flatten()
        .collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(" for {}", parts.join(" and "))
    }
}

fn token_created(token: &Token) -> Told {
    let roles: Vec<Role> = token.roles.iter().copied().collect();
    let role_words: Vec<&str> = roles.iter().map(|role| role.word()).collect();
    let tenants: Vec<&str> = token.tenants.iter().map(Label::as_str).collect();
    let whose = if tenants.is_empty() {
        String::new()
    } else {
        format!(" for {}", tenants.join(", "))
    };
    Told {
        summary: format!(
            "token {} created: may {}{whose}",
            token.name,
            role_words.join(", ")
        ),
        ..about(
            ("token.created", "token"),
            &token.name,
            Data::Token(Some((roles, token.expires))),
        )
    }
}

/// A told thing that belongs to no tenant and no class, its sentence still to be written.
fn about((event, kind): (&'static str, &str), name: &ObjectName, data: Data) -> Told {
    let object = format!("{kind}/{name}");
    Told {
        name: event,
        object,
        tenant: None,
        class: None,
        summary: String::new(),
        data,
    }
}

fn ledger_told(name: &'static str, summary: String) -> Told {
    let object = "ledger".to_owned();
    Told {
        name,
        object,
        tenant: None,
        class: None,
        summary,
        data: Data::Ledger,
    }
}

fn of_booking(
    name: &'static str,
    id: &BookingId,
    request: Option<&Request>,
    summary: String,
    data: Data,
) -> Told {
    Told {
        name,
        object: format!("booking/{id}"),
        tenant: request.map(|request| request.tenant.clone()),
        class: request.map(|request| request.class.clone()),
        summary,
        data,
    }
}

fn booking_data(request: Option<&Request>, waited: Option<Millis>) -> Data {
    let slots = request.map(|request| request.slots);
    Data::Booking {
        slots,
        waited,
        held: None,
        end: None,
        outcome: None,
        exit_code: None,
    }
}

fn asked(request: &Request) -> String {
    format!(
        "{} for {}",
        words::amount(&request.amount(), Some(&request.class)),
        request.tenant
    )
}

/// When a booking was asked for and when it was granted, as far as the state remembers.
fn times(state: &State, id: &BookingId) -> Option<(Instant, Option<Instant>)> {
    Some(match state.bookings.standing(id)? {
        Standing::Queued { since, .. } => (since, None),
        Standing::Granted(granted) => (granted.queued_at, Some(granted.granted_at)),
        Standing::Ended(ended) => (ended.queued_at(), ended.granted().map(|(at, _)| at)),
    })
}

fn is_granted_in(events: &[Event], id: &BookingId) -> bool {
    events.iter().any(|event| {
        matches!(event, Event::Booking(BookingEvent::Granted { id: granted, .. }) if granted == id)
    })
}

fn grants_in(events: &[Event]) -> u64 {
    let is_grant = |event: &Event| matches!(event, Event::Booking(BookingEvent::Granted { .. }));
    let count = events.iter().filter(|event| is_grant(event)).count();
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn and_granted(granted: u64) -> String {
    match granted {
        0 => String::new(),
        _ => format!(", {} granted", words::count(granted, "waiting booking")),
    }
}
