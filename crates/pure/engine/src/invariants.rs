//! What must hold, checked by code that did not make it hold (style rule 6).
//!
//! [`check_record`] looks at one step and [`check`] at a state; both are linear in what is live,
//! so a simulator calls them after every record. [`check_snapshot`] writes and reads the whole
//! state and belongs beside a snapshot.

use bursar_booking::invariants as booking;
use bursar_units::{BookingId, Instant, ObjectName};
use thiserror::Error;

use crate::market::{NODES_MAX, ORIGINALS_MAX};
use crate::state::{IDEMPOTENCY_MAX, KEYS_KEPT};
use crate::{Event, State, dated, snapshot};

/// Something that must never be seen.
#[derive(Debug, Error)]
pub enum Broken {
    /// An event is older than what was folded before it (L1, L5).
    #[error("an event of {event:?} follows one of {before:?}")]
    TimeBack {
        /// The time of the event.
        event: Instant,
        /// The time of the state before it.
        before: Instant,
    },
    /// The head is not the number of records (L7).
    #[error("the head is {head} and {records} records were folded")]
    Head {
        /// What the state says.
        head: u64,
        /// How many there were.
        records: u64,
    },
    /// A signing key came in before the one that precedes it (L11).
    #[error("signing key {place} came in at {at:?}, before the key that precedes it")]
    KeyOrder {
        /// Its place, from 0.
        place: usize,
        /// When it came in.
        at: Instant,
    },
    /// A payload was forgotten that no anchored snapshot covers (L13).
    #[error("records below {below} are pruned, the anchored snapshot covers those below {covered}")]
    Pruned {
        /// The first record that keeps its payload.
        below: u64,
        /// The first record that no anchored snapshot covers.
        covered: u64,
    },
    /// An action's key is kept beyond its time (L6).
    #[error("key `{key}` of {at:?} is kept beyond its time")]
    KeyKept {
        /// The caller's key.
        key: BookingId,
        /// When it was used.
        at: Instant,
    },
    /// More keys of actions are kept than may be (L6).
    #[error("{count} keys of actions are kept")]
    KeyCount {
        /// How many.
        count: usize,
    },
    /// A snapshot of the state does not read back as the same state (L3, L12).
    #[error("the state differs from its own snapshot first in `{written}`, read as `{read}`")]
    Snapshot {
        /// The first line that differs, as written; empty where there is none.
        written: String,
        /// The same line of the state that was read.
        read: String,
    },
    /// A snapshot of the state cannot be written or read.
    #[error("the state has no snapshot")]
    NoSnapshot {
        /// What went wrong.
        #[source]
        source: snapshot::Error,
    },
    /// The market of a node is larger than it may be, or has a digest that nobody can have made
    /// (M12).
    #[error("the market of node `{node}` has {why}")]
    Market {
        /// Which node.
        node: ObjectName,
        /// What is wrong.
        why: &'static str,
    },
    /// More nodes have a market than may (M12).
    #[error("{count} nodes have a market")]
    MarketCount {
        /// How many.
        count: usize,
    },
    /// In the room of bookings.
    #[error(transparent)]
    Booking(#[from] booking::Broken),
}

/// Where a state stood before a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mark {
    time: Instant,
    head: u64,
}

impl Mark {
    /// The mark of a state.
    pub fn of(state: &State) -> Self {
        Self {
            time: state.time,
            head: state.head,
        }
    }
}

/// Checks one step: the events of a record of that time against the state before and after it.
pub fn check_record(
    before: Mark,
    of_record: Instant,
    events: &[Event],
    after: &State,
) -> Result<(), Broken> {
    let mut time = before.time;
    for (at, _) in dated(of_record, events) {
        if at < time {
            return Err(Broken::TimeBack {
                event: at,
                before: time,
            });
        }
        time = at;
    }
    if after.time != time {
        return Err(Broken::TimeBack {
            event: after.time,
            before: time,
        });
    }
    let records = before.head + 1;
    if after.head != records {
        return Err(Broken::Head {
            head: after.head,
            records,
        });
    }
    Ok(())
}

/// Checks a state.
pub fn check(state: &State) -> Result<(), Broken> {
    check_keys(state)?;
    check_idempotency(state)?;
    check_markets(state)?;
    let covered = state.anchor.map_or(0, |(record, _)| record + 1);
    if covered < state.pruned_below {
        return Err(Broken::Pruned {
            below: state.pruned_below,
            covered,
        });
    }
    Ok(booking::check(&state.bookings)?)
}

/// Checks that a snapshot of the state is the state.
pub fn check_snapshot(state: &State) -> Result<(), Broken> {
    let no_snapshot = |source| Broken::NoSnapshot { source };
    let written = snapshot::write(state).map_err(no_snapshot)?;
    let restored = snapshot::read(&written).map_err(no_snapshot)?;
    let read = snapshot::write(&restored).map_err(no_snapshot)?;
    if written == read {
        return check(&restored);
    }
    let (mut left, mut right) = (written.lines(), read.lines());
    let (written, read) = std::iter::from_fn(|| match (left.next(), right.next()) {
        (None, None) => None,
        (left, right) => Some((left.unwrap_or_default(), right.unwrap_or_default())),
    })
    .find(|(written, read)| written != read)
    .unwrap_or_default();
    Err(Broken::Snapshot {
        written: written.to_owned(),
        read: read.to_owned(),
    })
}

fn check_keys(state: &State) -> Result<(), Broken> {
    let mut latest = Instant::default();
    for (place, (at, _)) in state.keys.iter().enumerate() {
        if *at < latest {
            return Err(Broken::KeyOrder { place, at: *at });
        }
        latest = *at;
    }
    Ok(())
}

fn check_markets(state: &State) -> Result<(), Broken> {
    let count = state.markets.len();
    if count > NODES_MAX {
        return Err(Broken::MarketCount { count });
    }
    for (node, known) in state.markets.iter() {
        let facts = known.originals.len() + usize::from(known.rules.is_some());
        let why = if known.originals.len() > ORIGINALS_MAX {
            "too many originals"
        } else if known.digested > state.time {
            "a digest of the future"
        } else if known.revision < u64::try_from(facts).unwrap_or(u64::MAX) {
            "more facts than events"
        } else {
            continue;
        };
        let node = node.clone();
        return Err(Broken::Market { node, why });
    }
    Ok(())
}

fn check_idempotency(state: &State) -> Result<(), Broken> {
    let count = state.idempotency.len();
    if count > IDEMPOTENCY_MAX {
        return Err(Broken::KeyCount { count });
    }
    let newest = state
        .idempotency
        .values()
        .map(|(at, _)| *at)
        .max()
        .unwrap_or_default();
    let kept = state
        .idempotency
        .iter()
        .find(|(_, (at, _))| at.after(KEYS_KEPT) <= newest);
    match kept {
        Some((key, (at, _))) => Err(Broken::KeyKept {
            key: key.clone(),
            at: *at,
        }),
        None => Ok(()),
    }
}
