//! What can happen. State is a fold over these, and over nothing else (L7).

use bursar_booking::Fence;
use bursar_journal::hash::Hash;
use bursar_units::{BookingId, Instant, ObjectName};

use crate::market;
use crate::token::Token;

/// A fact.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// The ledger began.
    Genesis {
        /// Its own id.
        ledger: String,
    },
    /// The records of a version of this program begin.
    Level {
        /// The level.
        n: u64,
    },
    /// A term began or the clock jumped.
    Resumed {
        /// What the wall clock said.
        wall: Instant,
    },
    /// Something happened to bookings, limits or nodes.
    Booking(bursar_booking::Event),
    /// Something happened to the CPU market of a node.
    Market(market::Event),
    /// Somebody may come in.
    TokenCreated {
        /// All but the secret.
        token: Token,
    },
    /// Somebody may no longer.
    TokenRevoked {
        /// Who.
        name: ObjectName,
    },
    /// Checkpoints are signed with a further key.
    KeyRotated {
        /// The verifier key, as text.
        key: String,
    },
    /// A snapshot was bound into the ledger.
    Anchored {
        /// The last record it covers.
        record: u64,
        /// The hash of its lines.
        sha256: Hash,
    },
    /// Payloads were forgotten.
    Pruned {
        /// The first record that keeps its payload.
        below: u64,
    },
    /// The ledger went on from a copy.
    Restored {
        /// Raised with every restore; part of the checkpoint's origin.
        generation: u64,
        /// The first fence that may be given out; absent before level 1: the next one.
        fence: Option<Fence>,
        /// Whether all tokens have ended.
        tokens_ended: bool,
    },
    /// An action without a thing of its own was done under a key (L6).
    Keyed {
        /// The caller's key.
        key: BookingId,
        /// The hash of what was asked.
        body: Hash,
    },
}

impl From<market::Event> for Event {
    fn from(event: market::Event) -> Self {
        Self::Market(event)
    }
}

impl From<bursar_booking::Event> for Event {
    fn from(event: bursar_booking::Event) -> Self {
        Self::Booking(event)
    }
}
