//! What can be asked of the engine.

use bursar_booking::decide::Change;
use bursar_booking::execution::{Exit, Isolation};
use bursar_booking::{Fence, Outcome, Request};
use bursar_journal::hash::Hash;
use bursar_units::{BookingId, Instant, Millis, ObjectName};

use crate::market::Report;
use crate::token::Token;

/// A command. Who sent it stands beside it, in the record's `by`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// Starts a ledger; record 0 and no other.
    Genesis {
        /// The ledger's own id, a UUID.
        ledger: String,
    },
    /// Begins the records of a version of this program: the rules of level `n` hold from here on.
    Level {
        /// The level, [`crate::LEVEL`] of the program that writes it.
        n: u64,
    },
    /// A term begins, or the clock has jumped (L5).
    Resume {
        /// What the wall clock says.
        wall: Instant,
    },
    /// Time itself: deadlines that have passed, with the evidence of life that came in (S7).
    Tick {
        /// Until when each holder has renewed; only of those whose deadline has passed.
        renewed: Vec<(BookingId, Instant)>,
    },
    /// Ask for slots under an id; with an order in the request, submit an execution (X1).
    Reserve {
        /// The client's name for it.
        id: BookingId,
        /// What is asked.
        request: Request,
    },
    /// Give slots back.
    Release {
        /// Which booking.
        id: BookingId,
        /// Proof that it is still the caller's.
        fence: Fence,
        /// How the work went.
        outcome: Option<Outcome>,
        /// Its exit code.
        exit_code: Option<i32>,
    },
    /// Show life. Never journaled by itself (S7).
    Renew {
        /// Which booking.
        id: BookingId,
        /// Proof that it is still the caller's.
        fence: Fence,
        /// For how long; the booking's own ttl where absent.
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
    Adopt {
        /// Which execution.
        id: BookingId,
        /// What was asked for it.
        request: Request,
        /// The fence that its program was given, where that is known.
        fence: Option<Fence>,
        /// How it is kept apart.
        isolation: Isolation,
    },
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
        /// The how-manieth time.
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
    /// Change what is declared: all or nothing.
    Change {
        /// What to change.
        changes: Vec<Change>,
    },
    /// The server says what has changed in the CPU market of a node (M12).
    ReportMarket {
        /// Which node: a name, whether or not it was declared.
        node: ObjectName,
        /// What has changed.
        report: Box<Report>,
    },
    /// Let somebody in.
    CreateToken {
        /// All but the secret.
        token: Token,
    },
    /// Shut somebody out.
    RevokeToken {
        /// Whom.
        name: ObjectName,
    },
    /// Sign checkpoints with a further key from now on (L11).
    RotateKey {
        /// The new verifier key, as text.
        key: String,
        /// Repeats with this key are one action (L6).
        idempotency: Option<BookingId>,
    },
    /// Bind a snapshot into the ledger, so that it is kept for ever (L12).
    Anchor {
        /// The last record it covers.
        record: u64,
        /// The hash of its lines.
        sha256: Hash,
    },
    /// Forget payloads below a record (L13).
    Prune {
        /// The first record that keeps its payload.
        below: u64,
        /// Repeats with this key are one action (L6).
        idempotency: Option<BookingId>,
    },
    /// This ledger goes on from a copy: an honest fork (L11).
    Restore {
        /// The records the copy held.
        size: u64,
        /// The least first fence of the new generation, [`first_fence`] of the time of the restore;
        /// absent before level 1.
        fence: Option<Fence>,
        /// The generation of the ledger whose place it takes; the new one is above that too.
        replaces: Option<u64>,
        /// Whether all tokens end: some may have been revoked after the copy was made.
        end_tokens: bool,
    },
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
            Self::Reserve { .. } => Lane::Work,
            _ => Lane::Control,
        }
    }

    /// The bookings it names.
    pub fn booking_ids(&self) -> &[BookingId] {
        match self {
            Self::Reserve { id, .. }
            | Self::Release { id, .. }
            | Self::Renew { id, .. }
            | Self::Started { id, .. }
            | Self::Adopt { id, .. }
            | Self::Exited { id, .. }
            | Self::StopFailed { id, .. }
            | Self::Cancel { id }
            | Self::Force { id, .. } => std::slice::from_ref(id),
            _ => &[],
        }
    }
}
