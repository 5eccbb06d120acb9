//! Events of bookings, in the form that they have in the journal (L7). The state is a fold over
//! them.

use bursar_units::{Amount, BookingId, Instant, Label, Millis, ObjectName, is_default, whole};
use serde::{Deserialize, Serialize};

use crate::execution::{Adoption, Cause, Isolation, Verdict};
use crate::{End, Fence, Limit, Outcome, Request, Submission};

/// An event of this plane. `t` is its time where that is not the time of its record: a deadline
/// happens at its own time (L1). `of` describes the booking for the sentence of the event.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Event {
    /// A request came in: granted at once under its fence, or queued without one.
    Reserved(Request),
    /// A queued booking was granted.
    Granted {
        /// Booking.
        id: BookingId,
        /// Fence of the grant.
        fence: Fence,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// A holder had renewed its grant before the deadline (S7).
    Renewed {
        /// Booking.
        id: BookingId,
        /// New deadline.
        expires: Instant,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// A booking ended, and its amount is free.
    Ended {
        /// Booking.
        id: BookingId,
        /// Kind of end.
        end: End,
        /// Outcome that the holder reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Exit code of the work, if it had one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Reason that the operator gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// An execution came in: granted at once under its fence, or queued without one.
    Submitted(Submission),
    /// The process of an execution runs.
    Started {
        /// Booking.
        id: BookingId,
        /// Isolation of the process.
        isolation: Isolation,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
    },
    /// An execution that the ledger did not know, or knew as queued or starting, was found running
    /// after a restore. It holds its amount even above limits (X5).
    Adopted(Adoption),
    /// An execution is being stopped.
    Stopping {
        /// Booking.
        id: BookingId,
        /// Cause of the stop.
        cause: Cause,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// An attempt to stop the process of an execution failed.
    StopFailed {
        /// Booking.
        id: BookingId,
        /// Attempt number, from 1; after the tenth the execution is stuck.
        attempt: u32,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
    },
    /// The process of an execution is gone, and its amount is free.
    Exited {
        /// Booking.
        id: BookingId,
        /// Verdict on the execution.
        verdict: Verdict,
        /// Exit code of the process, if it had one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Signal that ended the process, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Whether the kernel killed a process of the execution at its memory limit (L8: absent is
        /// false).
        #[serde(default, skip_serializing_if = "is_default", rename = "outOfMemory")]
        is_out_of_memory: bool,
        /// Reason of a failed start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
    },
    /// A booking got a note, in place of the one before it.
    Noted {
        /// Booking.
        id: BookingId,
        /// Text.
        text: String,
        /// Description of the booking.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
    },
    /// A limit was declared or changed.
    LimitSet(Limit),
    /// A limit was removed.
    LimitDropped {
        /// Name of the limit.
        name: ObjectName,
    },
    /// The record was full before the waiting room was settled, or the room is settled now (L9).
    Unsettled {
        /// Whether further grants are owed before any other command.
        more: bool,
        /// Time of the event, if it is not that of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
}

/// A booking as the sentence of an event describes it, so that no sentence needs an earlier record.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Brief {
    /// Its class.
    pub class: Label,
    /// Its tenant.
    pub tenant: Label,
    /// Its slots.
    #[serde(with = "whole")]
    pub slots: u64,
    /// Its CPU in millicores.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub cpu_milli: u64,
    /// Its memory in bytes.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub memory_bytes: u64,
    /// Its GPUs.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub gpus: u64,
    /// Time from the request to the grant, or to this event before a grant.
    #[serde(default, skip_serializing_if = "is_default", rename = "waitedMs")]
    pub waited: Millis,
    /// Time from the grant to the end, where this event ends a grant.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "heldMs")]
    pub held: Option<Millis>,
    /// Ttl of a booking that expired; longest wait of one whose wait is over.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "allowedMs")]
    pub allowed: Option<Millis>,
}

impl Brief {
    /// Amount that the booking holds or requests.
    pub fn amount(&self) -> Amount {
        Amount {
            slots: self.slots,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            gpus: self.gpus,
        }
    }
}

impl Event {
    /// Time of the event; `None` if it is that of the record.
    pub fn time(&self) -> Option<Instant> {
        match self {
            Self::Granted { t, .. }
            | Self::Renewed { t, .. }
            | Self::Ended { t, .. }
            | Self::Stopping { t, .. }
            | Self::Unsettled { t, .. } => *t,
            _ => None,
        }
    }

    #[must_use]
    pub(crate) fn at(mut self, time: Instant) -> Self {
        match &mut self {
            Self::Granted { t, .. }
            | Self::Renewed { t, .. }
            | Self::Ended { t, .. }
            | Self::Stopping { t, .. }
            | Self::Unsettled { t, .. } => *t = Some(time),
            _ => debug_assert!(false, "only events of ticks have a time of their own"),
        }
        self
    }

    /// Booking of the event.
    pub fn booking(&self) -> Option<&BookingId> {
        match self {
            Self::Reserved(Request { id, .. })
            | Self::Submitted(Submission {
                booking: Request { id, .. },
                ..
            })
            | Self::Adopted(Adoption {
                booking: Request { id, .. },
                ..
            })
            | Self::Granted { id, .. }
            | Self::Renewed { id, .. }
            | Self::Ended { id, .. }
            | Self::Started { id, .. }
            | Self::Stopping { id, .. }
            | Self::StopFailed { id, .. }
            | Self::Exited { id, .. }
            | Self::Noted { id, .. } => Some(id),
            Self::LimitSet { .. } | Self::LimitDropped { .. } | Self::Unsettled { .. } => None,
        }
    }

    /// Field for the description of the booking; a request describes itself.
    pub(crate) fn brief_mut(&mut self) -> Option<(&BookingId, &mut Option<Box<Brief>>)> {
        match self {
            Self::Granted { id, of, .. }
            | Self::Ended { id, of, .. }
            | Self::Started { id, of, .. }
            | Self::Stopping { id, of, .. }
            | Self::StopFailed { id, of, .. }
            | Self::Exited { id, of, .. }
            | Self::Noted { id, of, .. } => Some((id, of)),
            _ => None,
        }
    }

    /// Request and order, if the event is a request.
    pub fn request(&self) -> Option<(&Request, Option<&crate::execution::Order>)> {
        match self {
            Self::Reserved(request) => Some((request, None)),
            Self::Submitted(Submission { booking, order }) => Some((booking, Some(order))),
            _ => None,
        }
    }

    /// Booking that the event ends.
    pub fn ends(&self) -> Option<&BookingId> {
        match self {
            Self::Ended { id, .. } | Self::Exited { id, .. } => Some(id),
            _ => None,
        }
    }
}
