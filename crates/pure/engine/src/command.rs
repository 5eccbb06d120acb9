//! What can be asked of the engine.

use bursar_booking::Fence;
use bursar_units::{BookingId, Instant};

use crate::planes::by_plane;
use crate::{booking, market, spine};

by_plane! {
    /// A command. Who sent it stands beside it, in the record's `by`.
    pub enum Command {
        /// To the spine.
        Spine(spine::Command),
        /// To bookings or executions.
        Booking(booking::Command),
        /// To the markets.
        Market(market::Command),
    }
}

/// The least first fence of a generation that begins at `now`: seconds since the epoch times 2²¹.
///
/// No earlier generation can have come so far, at less than two million grants a second, so no
/// fence is given out twice (S5). It stays below 2⁵³ until the year 2106.
pub fn first_fence(now: Instant) -> Fence {
    Fence((now.ms() / 1_000).saturating_mul(1 << 21))
}

/// Which intake a command goes through (L4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lane {
    /// What gives back, keeps alive or operates: served first, and when the disk is nearly full.
    Control,
    /// Everything else.
    Work,
}

impl Command {
    /// Which intake it goes through.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Booking(booking::Command::Reserve(_) | booking::Command::Submit(_)) => Lane::Work,
            Self::Booking(
                booking::Command::Release { .. }
                | booking::Command::Renew { .. }
                | booking::Command::Started { .. }
                | booking::Command::Adopt(_)
                | booking::Command::Exited { .. }
                | booking::Command::StopFailed { .. }
                | booking::Command::Cancel { .. }
                | booking::Command::Force { .. },
            )
            | Self::Market(market::Command::ReportMarket(_))
            | Self::Spine(_) => Lane::Control,
        }
    }

    /// The booking it is about.
    pub fn booking_id(&self) -> Option<&BookingId> {
        match self {
            Self::Booking(command) => Some(command.id()),
            Self::Spine(_) | Self::Market(_) => None,
        }
    }
}
