//! Decides: one function for the server, the dry run, the scenario, the simulator and the check.

use bursar_booking::{Bookings, decide as booking, execution};
use bursar_journal::hash::{Hash, sha256};
use bursar_units::{BookingId, Instant, ObjectName};
use thiserror::Error;

use crate::market;
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
    let event = match command {
        Command::Genesis { .. } if !state.ledger.is_empty() => return Err(Refusal::AlreadyBegun),
        Command::Genesis { ledger } => Event::Genesis {
            ledger: ledger.clone(),
        },
        Command::Level { n } if *n <= state.level => return Ok(Answer::Unchanged),
        Command::Level { n } => {
            emit(state, now, Event::Level { n: *n }, events);
            let shipped = booking::missing_shipped(&state.bookings);
            in_bookings(state, events, |bookings, out| {
                booking::change(bookings, now, &shipped, out)
            })?;
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
            let mut out = booking::Events::new();
            booking::tick(&mut state.bookings, now, until, &mut out);
            take_over(state, out, events);
            return Ok(Answer::Done);
        }
        Command::Renew { id, fence, ttl } => {
            let ttl = booking::renewal(&state.bookings, id, *fence, *ttl)?;
            return Ok(Answer::Renewed {
                expires: now.after(ttl),
            });
        }
        Command::Reserve { id, request } => {
            return in_bookings(state, events, |bookings, out| {
                booking::reserve(bookings, now, id, request, out)
            });
        }
        Command::Release {
            id,
            fence,
            outcome,
            exit_code,
        } => {
            return in_bookings(state, events, |bookings, out| {
                booking::release(bookings, now, id, *fence, (*outcome, *exit_code), out)
            });
        }
        Command::Started { id, isolation } => {
            return in_bookings(state, events, |bookings, out| {
                execution::started(bookings, now, id, *isolation, out)
            });
        }
        Command::Adopt {
            id,
            request,
            fence,
            isolation,
        } => {
            return in_bookings(state, events, |bookings, out| {
                execution::adopt(bookings, now, id, request, (*fence, *isolation), out)
            });
        }
        Command::Exited { id, exit } => {
            return in_bookings(state, events, |bookings, out| {
                execution::exited(bookings, now, id, exit, out)
            });
        }
        Command::StopFailed { id, attempt } => {
            return in_bookings(state, events, |bookings, out| {
                execution::stop_failed(bookings, now, id, *attempt, out)
            });
        }
        Command::Cancel { id } => {
            return in_bookings(state, events, |bookings, out| {
                booking::cancel(bookings, now, id, out)
            });
        }
        Command::Force { id, reason } => {
            return in_bookings(state, events, |bookings, out| {
                booking::force(bookings, now, id, reason, out)
            });
        }
        Command::Change { changes } => {
            return in_bookings(state, events, |bookings, out| {
                booking::change(bookings, now, changes, out)
            });
        }
        Command::ReportMarket { node, report } => {
            let changes = market::decide(&state.markets, now, node, report)?;
            if changes.is_empty() {
                return Ok(Answer::Unchanged);
            }
            for change in changes {
                emit(state, now, change.into(), events);
            }
            return Ok(Answer::Done);
        }
        Command::CreateToken { token } => match state.tokens.get(token.name.as_str()) {
            Some(_) => {
                return Err(Refusal::TokenExists {
                    name: token.name.clone(),
                });
            }
            None => Event::TokenCreated {
                token: token.clone(),
            },
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
    emit(state, now, event, events);
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
        Command::Reserve { request, .. } => {
            request.order().and_then(|order| order.retry_of.clone())
        }
        _ => None,
    };
    let named = command.booking_ids().iter().cloned();
    let mut sketch = state.sketch(&named.chain(retried).collect::<Vec<_>>());
    match command {
        // A report is refused by how many nodes there are as well.
        Command::ReportMarket { .. } => sketch.markets = state.markets.clone(),
        // No holder has the fence that a program was given.
        Command::Adopt { .. } => sketch.bookings = state.bookings.clone(),
        _ => {}
    }
    let mut events = Events::new();
    let answer = decide(&mut sketch, now, command, &mut events);
    (answer, events, sketch)
}

fn emit(state: &mut State, at: Instant, event: Event, events: &mut Events) {
    state.apply(at, &event);
    events.push((at, event));
}

/// Lets the room of bookings decide on its own state, and takes its events over.
fn in_bookings(
    state: &mut State,
    events: &mut Events,
    decide: impl FnOnce(&mut Bookings, &mut booking::Events) -> Result<booking::Reply, booking::Refusal>,
) -> Result<Answer, Refusal> {
    let mut out = booking::Events::new();
    let reply = decide(&mut state.bookings, &mut out)?;
    take_over(state, out, events);
    Ok(Answer::Booking(reply))
}

fn take_over(state: &mut State, out: booking::Events, events: &mut Events) {
    for (at, event) in out {
        state.time = state.time.max(at);
        events.push((at, event.into()));
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
        let event = Event::Keyed {
            key: key.clone(),
            body,
        };
        state.apply(at, &event);
        events.push((at, event));
    }
}
