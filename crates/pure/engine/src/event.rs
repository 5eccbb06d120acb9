//! Events of all planes. State is a fold over these, and over nothing else (L7).

use std::collections::BTreeSet;

use bursar_booking::Bookings;
use bursar_market::ledger::Markets;
use bursar_plane::{Plane as _, Reference};
use bursar_units::Instant;

use crate::planes::by_plane;
use crate::spine::Spine;
use crate::{booking, market, spine};

by_plane! {
    /// An event.
    pub enum Event {
        /// Of the spine.
        Spine(spine::Event),
        /// Of bookings or limits.
        Booking(booking::Event),
        /// Of the CPU market of a node.
        Market(market::Event),
    }
}

/// The events of a record. Each happened at [`Event::time`], or else at the time of the record.
pub type Events = Vec<Event>;

impl Event {
    /// Its time; `None` where it is the time of its record.
    pub fn time(&self) -> Option<Instant> {
        match self {
            Self::Spine(event) => Spine::time(event),
            Self::Booking(event) => Bookings::time(event),
            Self::Market(event) => Markets::time(event),
        }
    }

    /// The objects that it is about.
    pub fn subjects(&self) -> Vec<Reference> {
        match self {
            Self::Spine(event) => Spine::subjects(event).collect(),
            Self::Booking(event) => Bookings::subjects(event).collect(),
            Self::Market(event) => Markets::subjects(event).collect(),
        }
    }

    /// The object whose life it ends (S7).
    pub fn ends(&self) -> Option<Reference> {
        match self {
            Self::Spine(event) => Spine::ends(event),
            Self::Booking(event) => Bookings::ends(event),
            Self::Market(event) => Markets::ends(event),
        }
    }
}

/// First parts of the names of events in the stream, of all planes.
pub fn stream_kinds() -> BTreeSet<&'static str> {
    let planes = [Spine::STREAMS, Bookings::STREAMS, Markets::STREAMS];
    planes.into_iter().flatten().copied().collect()
}

/// The events of a record of that time, each with its own time.
pub fn dated(time: Instant, events: &[Event]) -> impl Iterator<Item = (Instant, &Event)> {
    events
        .iter()
        .map(move |event| (event.time().unwrap_or(time), event))
}
