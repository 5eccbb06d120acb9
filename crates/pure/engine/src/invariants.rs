//! Invariants, checked without the code that maintains them.
//!
//! [`check_record`] checks one record and [`check`] a state; both are linear in the live objects,
//! so that a simulator can call them after every record. [`check_snapshot`] writes and reads the
//! whole state.

use bursar_booking::invariants as booking;
use bursar_plane::Plane as _;
use bursar_units::Instant;
use thiserror::Error;

use crate::{Event, State, dated, snapshot};

/// A broken invariant.
#[derive(Debug, Error)]
pub enum Broken {
    /// An event is older than the one before it (L1, L5).
    #[error("an event of {event:?} follows one of {before:?}")]
    TimeBack {
        /// Time of the event.
        event: Instant,
        /// Time of the state before it.
        before: Instant,
    },
    /// The head is not the number of records (L7).
    #[error("the head is {head}, and {records} records were applied")]
    Head {
        /// Head of the state.
        head: u64,
        /// Number of records.
        records: u64,
    },
    /// The state restored from its own snapshot is another one (L3, L12).
    #[error("the state differs from its own snapshot first in `{written}`, read as `{read}`")]
    Snapshot {
        /// First line that differs, of the state; empty if it has fewer lines.
        written: String,
        /// The same line of the restored state.
        read: String,
    },
    /// The snapshot cannot be written or read.
    #[error("a snapshot of the state cannot be written or read")]
    NoSnapshot {
        /// Error of the snapshot.
        #[source]
        source: snapshot::Error,
    },
    /// In the spine.
    #[error(transparent)]
    Spine(#[from] crate::spine::Broken),
    /// In the markets.
    #[error(transparent)]
    Market(#[from] crate::market::Broken),
    /// In the cluster.
    #[error(transparent)]
    Cluster(#[from] crate::cluster::invariants::Broken),
    /// In the bookings.
    #[error(transparent)]
    Booking(#[from] booking::Broken),
}

/// Time and head of a state before a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mark {
    time: Instant,
    head: u64,
}

impl Mark {
    /// Mark of a state.
    pub fn of(state: &State) -> Self {
        Self {
            time: state.spine.time,
            head: state.spine.head,
        }
    }
}

/// Checks the events of a record of that time against the state before and after it.
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
    state.clusters.check(now)?;
    Ok(state.bookings.check(now)?)
}

/// Checks that a state restored from a snapshot is the same.
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
