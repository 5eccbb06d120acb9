//! What can happen to bookings. State is a fold over these.

use bursar_units::{Amount, BookingId, Instant, ObjectName};

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
