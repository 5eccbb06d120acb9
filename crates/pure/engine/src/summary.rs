//! The sentence of every event, and its data in the stream.

use bursar_booking::{Bookings, sentence};
use bursar_cluster::Clusters;
use bursar_plane::{Notice as PlaneNotice, Plane};
use bursar_units::Instant;

use crate::market::{self, Markets};
use crate::spine::Spine;
use crate::{Event, cluster, dated, spine};

/// An event as people and programs read it.
pub type Notice = PlaneNotice<Data>;

/// Data of an event, by plane.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Data {
    /// Of bookings, executions and limits.
    Booking(sentence::Data),
    /// Of the CPU market of a node.
    Market(Box<market::Event>),
    /// Of budgets, runs and leases.
    Cluster(Box<cluster::Event>),
    /// Of nodes, tokens and the ledger.
    Spine(spine::Data),
}

/// The notices of a record: one for each event. They depend on the record alone.
pub fn notices(time: Instant, events: &[Event]) -> Vec<Notice> {
    let (mut bookings, mut markets) = (Vec::new(), Vec::new());
    let (mut clusters, mut spine) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Booking(event) => bookings.push(event),
            Event::Market(event) => markets.push(event),
            Event::Cluster(event) => clusters.push(event),
            Event::Spine(event) => spine.push(event),
        }
    }
    dated(time, events)
        .map(|(at, event)| match event {
            Event::Booking(event) => Bookings::notice(at, event, &bookings).map(Data::Booking),
            Event::Market(event) => Markets::notice(at, event, &markets).map(Data::Market),
            Event::Cluster(event) => Clusters::notice(at, event, &clusters).map(Data::Cluster),
            Event::Spine(event) => Spine::notice(at, event, &spine).map(Data::Spine),
        })
        .collect()
}
