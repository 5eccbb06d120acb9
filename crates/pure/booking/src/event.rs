//! Events of bookings, in the form that they have in the journal (L7). The state is a fold over them.

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
        /// Which.
        id: BookingId,
        /// Its fence.
        fence: Fence,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
        /// When, where not at the time of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// A holder had shown life before its deadline came due (S7).
    Renewed {
        /// Which.
        id: BookingId,
        /// Its new deadline.
        expires: Instant,
        /// When, where not at the time of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// A booking ended, and what it held is free.
    Ended {
        /// Which.
        id: BookingId,
        /// How.
        end: End,
        /// What the holder said of its work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// The exit code of the work, if it had one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Why an operator took it back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
        /// When, where not at the time of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// An execution came in: granted at once under its fence, or queued without one.
    Submitted(Submission),
    /// The process of an execution runs.
    Started {
        /// Which.
        id: BookingId,
        /// How it is kept apart.
        isolation: Isolation,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
    },
    /// An execution that the ledger did not know, or knew as queued or about to start, was found
    /// running after a restore: it holds what it was granted in the records that were lost, above
    /// limits too (X5).
    Adopted(Adoption),
    /// An execution is to be stopped.
    Stopping {
        /// Which.
        id: BookingId,
        /// Why.
        cause: Cause,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
        /// When, where not at the time of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    /// A stop did not make the process of an execution go away.
    StopFailed {
        /// Which.
        id: BookingId,
        /// Attempt number, from 1; after the tenth it is stuck.
        attempt: u32,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
    },
    /// The process of an execution is gone, and what it held is free.
    Exited {
        /// Which.
        id: BookingId,
        /// How it came out.
        verdict: Verdict,
        /// Its exit code, if it had one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// The signal that ended it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Whether the kernel killed a process of it for want of memory. Absent means false, as
        /// before there was such a field (L8).
        #[serde(default, skip_serializing_if = "is_default", rename = "outOfMemory")]
        is_out_of_memory: bool,
        /// Why it could not be started, if it could not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The booking, in records from level 2 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Box<Brief>>,
    },
    /// A limit was declared or changed.
    LimitSet(Limit),
    /// A limit was removed.
    LimitDropped {
        /// Its name.
        name: ObjectName,
    },
    /// The record was full before the waiting room was settled, or it now is (L9).
    Unsettled {
        /// Whether a further grant is due before any other command.
        more: bool,
        /// When, where not at the time of the record.
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
    /// The ttl of a booking that expired, the wait of one that waited for as long as it may.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "allowedMs")]
    pub allowed: Option<Millis>,
}

impl Brief {
    /// The amount that it holds or asks for.
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
    /// When it happened; `None` at the time of its record.
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

    /// The same at a time of its own.
    #[must_use]
    pub(crate) fn at(mut self, time: Instant) -> Self {
        match &mut self {
            Self::Granted { t, .. }
            | Self::Renewed { t, .. }
            | Self::Ended { t, .. }
            | Self::Stopping { t, .. }
            | Self::Unsettled { t, .. } => *t = Some(time),
            _ => debug_assert!(false, "only time itself acts at another time"),
        }
        self
    }

    /// The booking it happened to.
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
            | Self::Exited { id, .. } => Some(id),
            Self::LimitSet { .. } | Self::LimitDropped { .. } | Self::Unsettled { .. } => None,
        }
    }

    /// The place for the description of its booking; a request describes itself.
    pub(crate) fn brief_mut(&mut self) -> Option<(&BookingId, &mut Option<Box<Brief>>)> {
        match self {
            Self::Granted { id, of, .. }
            | Self::Ended { id, of, .. }
            | Self::Started { id, of, .. }
            | Self::Stopping { id, of, .. }
            | Self::StopFailed { id, of, .. }
            | Self::Exited { id, of, .. } => Some((id, of)),
            _ => None,
        }
    }

    /// What was asked for, if a request came in.
    pub fn request(&self) -> Option<(&Request, Option<&crate::execution::Order>)> {
        match self {
            Self::Reserved(request) => Some((request, None)),
            Self::Submitted(Submission { booking, order }) => Some((booking, Some(order))),
            _ => None,
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
