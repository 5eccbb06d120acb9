//! What can happen to bookings. State is a fold over these. This is also their form in the journal
//! (L7).

use bursar_units::{BookingId, Instant, ObjectName, is_default};
use serde::{Deserialize, Serialize};

use crate::execution::{Adoption, Cause, Isolation, Verdict};
use crate::{End, Fence, Limit, Outcome, Request, Submission};

/// A fact of this plane. `t` is when it happened, where that is not the time of its record: time
/// itself acts at its own deadlines (L1).
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
