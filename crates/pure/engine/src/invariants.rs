//! What must hold, checked by code that did not make it hold (style rule 6).
//!
//! [`check_record`] looks at one step and [`check`] at a state; both are linear in what is live,
//! so a simulator calls them after every record. [`check_snapshot`] writes and reads the whole
//! state and belongs beside a snapshot.

use bursar_booking::invariants as booking;
use bursar_plane::Plane as _;
use bursar_units::Instant;
use thiserror::Error;

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
    /// In the spine.
    #[error(transparent)]
    Spine(#[from] crate::spine::Broken),
    /// In the markets.
    #[error(transparent)]
    Market(#[from] crate::market::Broken),
    /// In the bookings.
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
            time: state.spine.time,
            head: state.spine.head,
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
    if after.spine.time != time {
        return Err(Broken::TimeBack {
            event: after.spine.time,
            before: time,
        });
    }
    let records = before.head + 1;
    if after.spine.head != records {
        return Err(Broken::Head {
            head: after.spine.head,
            records,
        });
    }
    Ok(())
}

/// Checks a state.
pub fn check(state: &State) -> Result<(), Broken> {
    let now = state.spine.time;
    state.spine.check(now)?;
    state.markets.check(now)?;
    Ok(state.bookings.check(now)?)
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
