//! Decides: one function for the server, the dry run, the scenario, the simulator and the check.

use bursar_booking::decide as rules;
use bursar_journal::hash::{Hash, sha256};
use bursar_units::{BookingId, Instant, ObjectName};
use thiserror::Error;

use crate::explain::{Changed, Previous};
use crate::{Command, Event, Events, State, booking, market, spine};

/// What a command came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// A booking command; its id is the command's.
    Booking(rules::Reply),
    /// Changes of declared objects, one for each that the command names, in its order.
    Changed(Vec<Changed>),
    /// Done, and on record.
    Done,
    /// It was so already, or it was done before under the same key.
    Unchanged,
}

/// Why a command was refused.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Refusal {
    /// By the rules of bookings.
    #[error(transparent)]
    Booking(#[from] rules::Refusal),
    /// A report on a market.
    #[error(transparent)]
    Market(#[from] market::Refusal),
    /// A token of that name exists.
    #[error("a token of that name exists")]
    TokenExists {
        /// Its name.
        name: ObjectName,
    },
    /// No token of that name.
    #[error("no such token")]
    NoSuchToken {
        /// Its name.
        name: ObjectName,
    },
    /// The key was used for another action.
    #[error("the key was used for another action")]
    KeyReused,
    /// Only what an anchored snapshot covers may be forgotten.
    #[error("records may be pruned only below the newest anchored snapshot")]
    NotAnchored {
        /// The first record that must stay.
        below_max: u64,
    },
    /// A ledger begins once.
    #[error("the ledger has begun already")]
    AlreadyBegun,
}

/// Answers a command. On success its events have been applied to `state` and pushed; on a
/// refusal neither. The caller adds one to `state.head` when it makes a record of them.
pub fn decide(
    state: &mut State,
    now: Instant,
    command: &Command,
    events: &mut Events,
) -> Result<Answer, Refusal> {
    match command {
        Command::Booking(command) => {
            let mut out = rules::Events::new(now);
            let reply = rules::decide(&mut state.bookings, now, command, &mut out)?;
            take_over(state, now, out, events);
            Ok(Answer::Booking(reply))
        }
        Command::Market(market::Command::ReportMarket(report)) => {
            let changes = market::decide(&state.markets, now, report)?;
            if changes.is_empty() {
                return Ok(Answer::Unchanged);
            }
            for change in changes {
                emit(state, now, change.into(), events);
            }
            Ok(Answer::Done)
        }
        Command::Spine(command) => decide_spine(state, now, command, events),
    }
}

fn decide_spine(
    state: &mut State,
    now: Instant,
    command: &spine::Command,
    events: &mut Events,
) -> Result<Answer, Refusal> {
    use spine::{Command, Event};

    let event = match command {
        Command::Genesis { .. } if !state.ledger.is_empty() => return Err(Refusal::AlreadyBegun),
        Command::Genesis { ledger, format } => Event::Genesis {
            ledger: ledger.clone(),
            format: *format,
        },
        Command::Level { n } if *n <= state.level => return Ok(Answer::Unchanged),
        Command::Level { n } => {
            emit(state, now, Event::Level { n: *n }.into(), events);
            let shipped = rules::missing_shipped(&state.bookings);
            change(state, now, &shipped, events)?;
            return Ok(Answer::Done);
        }
        Command::Resume { wall } => Event::Resumed { wall: *wall },
        Command::Tick { renewed } => {
            let until = |id: &BookingId| {
                renewed
                    .iter()
                    .find(|(renewed, _)| renewed == id)
                    .map(|(_, until)| *until)
            };
            let mut out = rules::Events::new(now);
            rules::tick(&mut state.bookings, now, until, &mut out);
            take_over(state, now, out, events);
            return Ok(Answer::Done);
        }
        Command::Change { changes } => return change(state, now, changes, events),
        Command::CreateToken(token) => match state.tokens.get(token.name.as_str()) {
            Some(_) => {
                return Err(Refusal::TokenExists {
                    name: token.name.clone(),
                });
            }
            None => Event::TokenCreated(token.clone()),
        },
        Command::RevokeToken { name } => match state.tokens.get(name.as_str()) {
            None => return Err(Refusal::NoSuchToken { name: name.clone() }),
            Some(_) => Event::TokenRevoked { name: name.clone() },
        },
        Command::RotateKey { key, idempotency } => {
            let body = sha256(b"rotate-key");
            if is_repeat(state, now, idempotency.as_ref(), body)? {
                return Ok(Answer::Unchanged);
            }
            keyed(state, now, idempotency.as_ref(), body, events);
            Event::KeyRotated { key: key.clone() }
        }
        Command::Anchor { record, sha256 } => Event::Anchored {
            record: *record,
            sha256: *sha256,
        },
        Command::Prune { below, idempotency } => {
            let body = sha256(format!("prune {below}").as_bytes());
            let is_done = is_repeat(state, now, idempotency.as_ref(), body)?;
            if is_done || *below <= state.pruned_below {
                return Ok(Answer::Unchanged);
            }
            let below_max = state.anchor.map_or(0, |(record, _)| record + 1);
            if *below > below_max {
                return Err(Refusal::NotAnchored { below_max });
            }
            keyed(state, now, idempotency.as_ref(), body, events);
            Event::Pruned { below: *below }
        }
        Command::Restore {
            fence,
            replaces,
            end_tokens,
            ..
        } => Event::Restored {
            generation: state.generation.max(replaces.unwrap_or(0)) + 1,
            fence: fence.map(|least| least.max(state.bookings.next_fence())),
            tokens_ended: *end_tokens,
        },
    };
    emit(state, now, event.into(), events);
    Ok(Answer::Done)
}

/// What a command would come to, on a copy of the small problem: the same function, the same
/// answer, and the state it would leave. Nothing is changed.
pub fn plan(
    state: &State,
    now: Instant,
    command: &Command,
) -> (Result<Answer, Refusal>, Events, State) {
    let retried = match command {
        Command::Booking(booking::Command::Submit(execution)) => execution.order.retry_of.clone(),
        _ => None,
    };
    let named = command.booking_id().cloned().into_iter();
    let mut sketch = state.sketch(&named.chain(retried).collect::<Vec<_>>());
    match command {
        // A report is refused by how many nodes there are as well.
        Command::Market(_) => sketch.markets = state.markets.clone(),
        // No holder has the fence that a program was given.
        Command::Booking(booking::Command::Adopt(_)) => sketch.bookings = state.bookings.clone(),
        Command::Booking(_) | Command::Spine(_) => {}
    }
    let mut events = Events::new();
    let answer = decide(&mut sketch, now, command, &mut events);
    (answer, events, sketch)
}

fn emit(state: &mut State, at: Instant, event: Event, events: &mut Events) {
    state.apply(at, &event);
    events.push(event);
}

/// Lets the rules of bookings change what is declared.
fn change(
    state: &mut State,
    now: Instant,
    changes: &[rules::Change],
    events: &mut Events,
) -> Result<Answer, Refusal> {
    let previous: Vec<Previous> = changes
        .iter()
        .map(|change| Previous::of(&state.bookings, change))
        .collect();
    let mut out = rules::Events::new(now);
    rules::change(&mut state.bookings, now, changes, &mut out)?;
    take_over(state, now, out, events);
    let pairs = changes.iter().zip(previous);
    let of_pair = |(change, previous)| Changed::new(change, previous, events, state);
    Ok(Answer::Changed(pairs.map(of_pair).collect()))
}

/// Takes over the events of bookings, which they have applied to themselves.
fn take_over(state: &mut State, now: Instant, out: rules::Events, events: &mut Events) {
    for event in out.into_list() {
        state.time = state.time.max(event.time().unwrap_or(now));
        events.push(event.into());
    }
}

fn is_repeat(
    state: &State,
    now: Instant,
    key: Option<&BookingId>,
    body: Hash,
) -> Result<bool, Refusal> {
    match key.and_then(|key| state.idempotency.get(key)) {
        Some((done, _)) if done.after(crate::state::KEYS_KEPT) <= now => Ok(false),
        Some((_, present)) if *present != body => Err(Refusal::KeyReused),
        Some(_) => Ok(true),
        None => Ok(false),
    }
}

fn keyed(state: &mut State, at: Instant, key: Option<&BookingId>, body: Hash, events: &mut Events) {
    if let Some(key) = key {
        let key = key.clone();
        emit(state, at, spine::Event::Keyed { key, body }.into(), events);
    }
}
