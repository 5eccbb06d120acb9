//! What can happen. State is a fold over these, and over nothing else (L7).

use bursar_units::Instant;

use crate::planes::by_plane;
use crate::{booking, market, spine};

by_plane! {
    /// A fact.
    pub enum Event {
        /// Of the spine.
        Spine(spine::Event),
        /// Of bookings, limits or nodes.
        Booking(booking::Event),
        /// Of the CPU market of a node.
        Market(market::Event),
    }
}

/// The events of a record. Each happened at [`Event::time`], or else at the time of the record.
pub type Events = Vec<Event>;

impl Event {
    /// When it happened; `None` at the time of its record.
    pub fn time(&self) -> Option<Instant> {
        match self {
            Self::Booking(event) => event.time(),
            Self::Spine(_) | Self::Market(_) => None,
        }
    }
}

/// The events of a record of that time, each with when it happened.
pub fn dated(time: Instant, events: &[Event]) -> impl Iterator<Item = (Instant, &Event)> {
    events
        .iter()
        .map(move |event| (event.time().unwrap_or(time), event))
}
