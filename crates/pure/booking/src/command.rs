//! What can be asked of this plane. This is also the form of commands in the journal (L7).

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
    /// Ask for slots under an id.
    Reserve(Request),
    /// Submit an execution (X1).
    Submit(Submission),
    /// Give slots back.
    Release {
        /// Which booking.
        id: BookingId,
        /// Proof that it is still the caller's.
        fence: Fence,
        /// How the work went.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Its exit code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
    },
    /// Show life. Never journaled by itself (S7).
    Renew {
        /// Which booking.
        id: BookingId,
        /// Proof that it is still the caller's.
        fence: Fence,
        /// For how long; the booking's own ttl where absent.
        #[serde(default, skip_serializing_if = "Option::is_none", rename = "ttlMs")]
        ttl: Option<Millis>,
    },
    /// The executor says that the process of an execution runs.
    Started {
        /// Which execution.
        id: BookingId,
        /// How it is kept apart.
        isolation: Isolation,
    },
    /// The executor found the process of an execution running that the ledger does not know, or
    /// knows as queued: a restore has lost its grant (X5).
    Adopt(Adoption),
    /// The executor says that the process of an execution is gone.
    Exited {
        /// Which execution.
        id: BookingId,
        /// What became of it.
        exit: Exit,
    },
    /// The executor says that a process did not go away.
    StopFailed {
        /// Which execution.
        id: BookingId,
        /// Attempt number, from 1.
        attempt: u32,
    },
    /// Give up a wait, or have an execution stopped.
    Cancel {
        /// Which booking.
        id: BookingId,
    },
    /// An operator ends a booking.
    Force {
        /// Which booking.
        id: BookingId,
        /// Why.
        reason: String,
    },
}

impl Command {
    /// The booking it is about.
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
            | Self::Force { id, .. } => id,
        }
    }

    /// What is asked for, where it asks for slots.
    pub fn request(&self) -> Option<(&Request, Option<&Order>)> {
        match self {
            Self::Reserve(request) => Some((request, None)),
            Self::Submit(Submission { booking, order }) => Some((booking, Some(order))),
            _ => None,
        }
    }
}
