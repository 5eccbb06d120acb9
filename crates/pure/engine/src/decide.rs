//! Decides: one function for the server, the dry run, the scenario, the simulator and the check.

use bursar_booking::decide as booking;
use bursar_journal::hash::{Hash, sha256};
use bursar_units::{BookingId, Instant, ObjectName};
use thiserror::Error;

use crate::{Command, Event, Events, State};

/// What a command came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// A booking command; its id is the command's.
    Booking(booking::Reply),
    /// A renewal is good until then, if no later word says otherwise.
    Renewed {
        /// The new deadline.
        expires: Instant,
    },
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
    Booking(#[from] booking::Refusal),
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
        Command::Genesis { ledger } => {
            if !state.ledger.is_empty() {
                return Err(Refusal::AlreadyBegun);
            }
            done(
                state,
                now,
                Event::Genesis {
                    ledger: ledger.clone(),
                },
                events,
            )
        }
        Command::Resume { wall } => done(state, now, Event::Resumed { wall: *wall }, events),
        Command::Tick { renewed } => {
            let until = |id: &BookingId| {
                renewed
                    .iter()
                    .find(|(renewed, _)| renewed == id)
                    .map(|(_, until)| *until)
            };
            in_bookings(state, events, |bookings, out| {
                booking::tick(bookings, now, until, out)
            });
            Ok(Answer::Done)
        }
        Command::Reserve { id, request } => in_bookings(state, events, |bookings, out| {
            booking::reserve(bookings, now, id, request, out)
        })
        .map(Answer::Booking)
        .map_err(Refusal::from),
        Command::Release {
            id,
            fence,
            outcome,
            exit_code,
        } => in_bookings(state, events, |bookings, out| {
            booking::release(bookings, now, id, *fence, (*outcome, *exit_code), out)
        })
        .map(Answer::Booking)
        .map_err(Refusal::from),
        Command::Renew { id, fence, ttl } => {
            let ttl = booking::renewal(&state.bookings, id, *fence, *ttl)?;
            Ok(Answer::Renewed {
                expires: now.after(ttl),
            })
        }
        Command::Cancel { id } => in_bookings(state, events, |bookings, out| {
            booking::cancel(bookings, now, id, out)
        })
        .map(Answer::Booking)
        .map_err(Refusal::from),
        Command::Force { id, reason } => in_bookings(state, events, |bookings, out| {
            booking::force(bookings, now, id, reason, out)
        })
        .map(Answer::Booking)
        .map_err(Refusal::from),
        Command::Change { changes } => in_bookings(state, events, |bookings, out| {
            booking::change(bookings, now, changes, out)
        })
        .map(Answer::Booking)
        .map_err(Refusal::from),
        Command::CreateToken { token } => match state.tokens.get(token.name.as_str()) {
            Some(_) => Err(Refusal::TokenExists {
                name: token.name.clone(),
            }),
            None => done(
                state,
                now,
                Event::TokenCreated {
                    token: token.clone(),
                },
                events,
            ),
        },
        Command::RevokeToken { name } => match state.tokens.get(name.as_str()) {
            None => Err(Refusal::NoSuchToken { name: name.clone() }),
            Some(_) => done(
                state,
                now,
                Event::TokenRevoked { name: name.clone() },
                events,
            ),
        },
        Command::RotateKey { key, idempotency } => {
            let body = sha256(b"rotate-key");
            if is_repeat(state, now, idempotency.as_ref(), body)? {
                return Ok(Answer::Unchanged);
            }
            keyed(state, now, idempotency.as_ref(), body, events);
            done(state, now, Event::KeyRotated { key: key.clone() }, events)
        }
        Command::Anchor { record, sha256 } => done(
            state,
            now,
            Event::Anchored {
                record: *record,
                sha256: *sha256,
            },
            events,
        ),
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
            done(state, now, Event::Pruned { below: *below }, events)
        }
        Command::Restore { .. } => {
            let generation = state.generation + 1;
            done(state, now, Event::Restored { generation }, events)
        }
    }
}

/// What a command would come to, on a copy of the small problem: the same function, the same
/// answer, and the state it would leave. Nothing is changed.
pub fn plan(
    state: &State,
    now: Instant,
    command: &Command,
) -> (Result<Answer, Refusal>, Events, State) {
    let mut sketch = state.sketch(command.booking_ids());
    let mut events = Events::new();
    let answer = decide(&mut sketch, now, command, &mut events);
    (answer, events, sketch)
}

fn done(
    state: &mut State,
    at: Instant,
    event: Event,
    events: &mut Events,
) -> Result<Answer, Refusal> {
    state.apply(at, &event);
    events.push((at, event));
    Ok(Answer::Done)
}

/// Lets the room of bookings decide on its own state, and takes its events over.
fn in_bookings<T>(
    state: &mut State,
    events: &mut Events,
    decide: impl FnOnce(&mut bursar_booking::Bookings, &mut booking::Events) -> T,
) -> T {
    let mut out = booking::Events::new();
    let result = decide(&mut state.bookings, &mut out);
    for (at, event) in out {
        state.time = state.time.max(at);
        events.push((at, event.into()));
    }
    result
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
        let event = Event::Keyed {
            key: key.clone(),
            body,
        };
        state.apply(at, &event);
        events.push((at, event));
    }
}
