//! Events of all planes. The state is a fold over them alone (L7).

use std::collections::BTreeSet;

use bursar_booking::Bookings;
use bursar_cluster::Clusters;
use bursar_market::ledger::Markets;
use bursar_plane::{Plane as _, Reference};
use bursar_units::Instant;

use crate::planes::by_plane;
use crate::spine::Spine;
use crate::{booking, cluster, market, spine};

by_plane! {
    /// An event.
    pub enum Event {
        /// Of the spine.
        Spine(spine::Event),
        /// Of bookings or limits.
        Booking(booking::Event),
        /// Of the CPU market of a node.
        Market(market::Event),
        /// Of budgets, runs and leases.
        Cluster(cluster::Event),
    }
}

/// Events of a record. The time of each is [`Event::time`], or else that of the record.
pub type Events = Vec<Event>;

impl Event {
    /// Time of the event; `None` if it is that of the record.
    pub fn time(&self) -> Option<Instant> {
        match self {
            Self::Spine(event) => Spine::time(event),
            Self::Booking(event) => Bookings::time(event),
            Self::Market(event) => Markets::time(event),
            Self::Cluster(event) => Clusters::time(event),
        }
    }

    /// Objects of the event.
    pub fn subjects(&self) -> Vec<Reference> {
        match self {
            Self::Spine(event) => Spine::subjects(event).collect(),
            Self::Booking(event) => Bookings::subjects(event).collect(),
            Self::Market(event) => Markets::subjects(event).collect(),
            Self::Cluster(event) => Clusters::subjects(event).collect(),
        }
    }

    /// Object that the event ends (S7).
    pub fn ends(&self) -> Option<Reference> {
        match self {
            Self::Spine(event) => Spine::ends(event),
            Self::Booking(event) => Bookings::ends(event),
            Self::Market(event) => Markets::ends(event),
            Self::Cluster(event) => Clusters::ends(event),
        }
    }
}

/// Names of events in the stream, of all planes.
pub fn stream_names() -> BTreeSet<&'static str> {
    let planes = [
        Spine::STREAMS,
        Bookings::STREAMS,
        Markets::STREAMS,
        Clusters::STREAMS,
    ];
    planes.into_iter().flatten().copied().collect()
}

/// Events of a record of that time, each with its own time.
pub fn dated(time: Instant, events: &[Event]) -> impl Iterator<Item = (Instant, &Event)> {
    events
        .iter()
        .map(move |event| (event.time().unwrap_or(time), event))
}
