//! Commands of all planes.

use bursar_booking::{Bookings, Fence};
use bursar_cluster::Clusters;
use bursar_market::ledger::Markets;
use bursar_plane::{Lane, Plane as _, Reference};
use bursar_units::{BookingId, Instant};

use crate::planes::by_plane;
use crate::spine::Spine;
use crate::{booking, cluster, market, spine};

by_plane! {
    /// A command. Its sender is in the record's `by`.
    pub enum Command {
        /// To the spine.
        Spine(spine::Command),
        /// To bookings or executions.
        Booking(booking::Command),
        /// To the markets.
        Market(market::Command),
        /// To the cluster.
        Cluster(cluster::Command),
    }
}

by_plane! {
    /// A change to a declared object.
    pub enum Change {
        /// To a node.
        Spine(spine::Change),
        /// To a limit.
        Booking(booking::decide::Change),
        /// To a market; there are none.
        Market(market::Change),
        /// To a budget or a run.
        Cluster(cluster::Change),
    }
}

/// Lower bound of the first fence of a generation that begins at `now`: seconds since the epoch
/// times 2²¹.
///
/// An earlier generation would need two million grants a second to reach it, so no fence is given
/// out twice (S5). It stays below 2⁵³ until the year 2106.
pub fn first_fence(now: Instant) -> Fence {
    Fence((now.ms() / 1_000).saturating_mul(1 << 21))
}

impl Command {
    /// Its intake lane (L4).
    pub fn lane(&self) -> Lane {
        match self {
            // A change that holds a run is work (L4).
            Self::Spine(spine::Command::Change { changes, .. })
                if changes.iter().any(Change::is_work) =>
            {
                Lane::Work
            }
            Self::Spine(command) => Spine::lane(command),
            Self::Booking(command) => Bookings::lane(command),
            Self::Market(command) => Markets::lane(command),
            Self::Cluster(command) => Clusters::lane(command),
        }
    }

    /// Whether it is the result of an executor, which a batch takes first (L1).
    pub fn is_result(&self) -> bool {
        match self {
            Self::Spine(command) => Spine::is_result(command),
            Self::Booking(command) => Bookings::is_result(command),
            Self::Market(command) => Markets::is_result(command),
            Self::Cluster(command) => Clusters::is_result(command),
        }
    }

    /// The booking that it is about.
    pub fn booking_id(&self) -> Option<&BookingId> {
        match self {
            Self::Booking(command) => Some(command.id()),
            Self::Spine(_) | Self::Market(_) | Self::Cluster(_) => None,
        }
    }
}

impl Change {
    /// The object that it declares.
    pub fn declared(&self) -> Reference {
        match self {
            Self::Spine(change) => Spine::declared(change),
            Self::Booking(change) => Bookings::declared(change),
            Self::Market(change) => Markets::declared(change),
            Self::Cluster(change) => Clusters::declared(change),
        }
    }

    fn is_work(&self) -> bool {
        matches!(self, Self::Cluster(change) if change.run().is_some())
    }
}
