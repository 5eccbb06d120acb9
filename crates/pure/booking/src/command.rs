//! Commands of bookings and executions, in the form that they have in the journal (L7).

use bursar_units::{BookingId, Millis};
use serde::{Deserialize, Serialize};

use crate::execution::{Adoption, Exit, Isolation, Order};
use crate::{Fence, Outcome, Request, Submission};

/// A command to bookings or executions.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Command {
    /// Requests slots under an id.
    Reserve(Request),
    /// Submits an execution (X1).
    Submit(Submission),
    /// Releases a booking.
    Release {
        /// Booking.
        id: BookingId,
        /// Fence of the grant.
        fence: Fence,
        /// Outcome of the work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Exit code of the work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
    },
    /// Renews a grant. Not journaled by itself (S7).
    Renew {
        /// Booking.
        id: BookingId,
        /// Fence of the grant.
        fence: Fence,
        /// New ttl; absent: the booking's own.
        #[serde(default, skip_serializing_if = "Option::is_none", rename = "ttlMs")]
        ttl: Option<Millis>,
    },
    /// The executor reports that the process of an execution runs.
    Started {
        /// Execution.
        id: BookingId,
        /// Isolation of the process.
        isolation: Isolation,
    },
    /// The executor reports a running process of an execution that the ledger does not know, or
    /// knows as queued: its grant was lost in a restore (X5).
    Adopt(Adoption),
    /// The executor reports that the process of an execution is gone.
    Exited {
        /// Execution.
        id: BookingId,
        /// Result of the process.
        exit: Exit,
    },
    /// The executor reports that an attempt to stop a process failed.
    StopFailed {
        /// Execution.
        id: BookingId,
        /// Attempt number, from 1.
        attempt: u32,
    },
    /// Ends a wait, or stops an execution.
    Cancel {
        /// Booking.
        id: BookingId,
    },
    /// Ends a booking as an operator.
    Force {
        /// Booking.
        id: BookingId,
        /// Reason.
        reason: String,
    },
    /// Records a note, in place of the one before it.
    Note {
        /// Booking.
        id: BookingId,
        /// Text, at most [`NOTE_LENGTH_MAX`](crate::NOTE_LENGTH_MAX) characters.
        text: String,
    },
}

impl Command {
    /// Booking of the command.
    pub fn id(&self) -> &BookingId {
        match self {
            Self::Reserve(Request { id, .. })
            | Self::Submit(Submission {
                booking: Request { id, .. },
                ..
            })
            | Self::Adopt(Adoption {
                booking: Request { id, .. },
                ..
            })
            | Self::Release { id, .. }
            | Self::Renew { id, .. }
            | Self::Started { id, .. }
            | Self::Exited { id, .. }
            | Self::StopFailed { id, .. }
            | Self::Cancel { id }
            | Self::Force { id, .. }
            | Self::Note { id, .. } => id,
        }
    }

    /// Request and order, if the command requests slots.
    pub fn request(&self) -> Option<(&Request, Option<&Order>)> {
        match self {
            Self::Reserve(request) => Some((request, None)),
            Self::Submit(Submission { booking, order }) => Some((booking, Some(order))),
            _ => None,
        }
    }
}
