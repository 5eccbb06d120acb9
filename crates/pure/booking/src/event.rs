//! What can happen to bookings. State is a fold over these.

use bursar_units::{Amount, BookingId, Instant, ObjectName};

use crate::execution::{Cause, Isolation, Verdict};
use crate::{End, Fence, Limit, Outcome, Request};

/// A fact of this plane.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A request came in: granted at once under `fence`, or queued without one.
    Reserved {
        /// The client's name for it.
        id: BookingId,
        /// All that was asked.
        request: Request,
        /// Present iff it was granted at once.
        fence: Option<Fence>,
    },
    /// A queued booking was granted.
    Granted {
        /// Which.
        id: BookingId,
        /// Its fence.
        fence: Fence,
    },
    /// A holder had shown life before its deadline came due (S7).
    Renewed {
        /// Which.
        id: BookingId,
        /// Its new deadline.
        expires: Instant,
    },
    /// A booking ended, and what it held is free.
    Ended {
        /// Which.
        id: BookingId,
        /// How.
        end: End,
        /// What the holder said of its work.
        outcome: Option<Outcome>,
        /// The exit code of the work, if it had one.
        exit_code: Option<i32>,
        /// Why an operator took it back.
        reason: Option<String>,
    },
    /// The process of an execution runs.
    Started {
        /// Which.
        id: BookingId,
        /// How it is kept apart.
        isolation: Isolation,
    },
    /// An execution that the ledger did not know, or knew as queued or about to start, was found
    /// running after a restore: it holds what it was granted in the records that were lost, above
    /// limits too (X5).
    Adopted {
        /// Which.
        id: BookingId,
        /// All that was asked for it.
        request: Request,
        /// Its fence.
        fence: Fence,
        /// How it is kept apart.
        isolation: Isolation,
    },
    /// An execution is to be stopped.
    Stopping {
        /// Which.
        id: BookingId,
        /// Why.
        cause: Cause,
    },
    /// A stop did not make the process of an execution go away.
    StopFailed {
        /// Which.
        id: BookingId,
        /// The how-manieth time; at the tenth it is stuck.
        attempt: u32,
    },
    /// The process of an execution is gone, and what it held is free.
    Exited {
        /// Which.
        id: BookingId,
        /// How it came out.
        verdict: Verdict,
        /// Its exit code, if it had one.
        exit_code: Option<i32>,
        /// The signal that ended it, if one did.
        signal: Option<i32>,
        /// Whether the kernel killed a process of it for want of memory.
        is_out_of_memory: bool,
        /// Why it could not be started, if it could not.
        reason: Option<String>,
    },
    /// A limit was declared or changed.
    LimitSet {
        /// Its name.
        name: ObjectName,
        /// All of it.
        limit: Limit,
    },
    /// A limit was removed.
    LimitDropped {
        /// Its name.
        name: ObjectName,
    },
    /// A machine joined the inventory or changed; percentages follow the sum (S1).
    NodeSet {
        /// Its name.
        name: ObjectName,
        /// What it has; its slots are always zero.
        capacity: Amount,
    },
    /// A machine left the inventory.
    NodeDropped {
        /// Its name.
        name: ObjectName,
    },
    /// The record was full before the waiting room was settled, or it now is (L9).
    Unsettled {
        /// Whether a further grant is due before any other command.
        more: bool,
    },
}

impl Event {
    /// The booking it happened to.
    pub fn booking(&self) -> Option<&BookingId> {
        match self {
            Self::Reserved { id, .. }
            | Self::Granted { id, .. }
            | Self::Renewed { id, .. }
            | Self::Ended { id, .. }
            | Self::Started { id, .. }
            | Self::Adopted { id, .. }
            | Self::Stopping { id, .. }
            | Self::StopFailed { id, .. }
            | Self::Exited { id, .. } => Some(id),
            Self::LimitSet { .. }
            | Self::LimitDropped { .. }
            | Self::NodeSet { .. }
            | Self::NodeDropped { .. }
            | Self::Unsettled { .. } => None,
        }
    }

    /// The booking whose slots are free from here on, or that will never have any.
    pub fn ends(&self) -> Option<&BookingId> {
        match self {
            Self::Ended { id, .. } | Self::Exited { id, .. } => Some(id),
            _ => None,
        }
    }
}
