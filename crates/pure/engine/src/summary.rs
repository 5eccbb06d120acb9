//! The sentence of every event, and its data in the stream.

use bursar_booking::{Bookings, sentence};
use bursar_plane::{Notice as PlaneNotice, Plane};
use bursar_units::Instant;

use crate::market::{self, Markets};
use crate::{Event, dated, spine};

/// An event as people and programs read it.
pub type Notice = PlaneNotice<Data>;

/// Data of an event, by plane.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Data {
    /// Of bookings, executions and limits.
    Booking(sentence::Data),
    /// Of the CPU market of a node.
    Market(Box<market::Event>),
    /// Of nodes, tokens and the ledger.
    Spine(spine::Data),
}

/// The notices of a record: one for each event. They depend on the record alone.
pub fn notices(time: Instant, events: &[Event]) -> Vec<Notice> {
    let of_bookings: Vec<&bursar_booking::Event> = events
        .iter()
        .filter_map(|event| match event {
            Event::Booking(event) => Some(event),
            _ => None,
        })
        .collect();
    dated(time, events)
        .map(|(at, event)| match event {
            Event::Booking(event) => Bookings::notice(at, event, &of_bookings).map(Data::Booking),
            Event::Market(event) => Markets::notice(at, event, &[]).map(Data::Market),
            Event::Spine(event) => spine::Spine::notice(at, event, &[]).map(Data::Spine),
        })
        .collect()
}
