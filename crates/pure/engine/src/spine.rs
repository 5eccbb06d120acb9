//! The spine: the ledger itself, time, keys, tokens and the inventory of nodes, as commands, events
//! and facts. This is also their form in the journal (L7).
//!
//! [`Spine`] has its state and rules. Commands that concern all planes (ticks, changes to declared
//! objects, levels, restores) are decided by the engine, which asks each plane.

mod room;
mod sentence;

use bursar_booking::Fence;
use bursar_journal::hash::Hash;
use bursar_plane::{Class, Node, Reference};
use bursar_units::{BookingId, Instant, ObjectName, is_default, whole};
use serde::{Deserialize, Serialize};

pub use room::{Broken, IDEMPOTENCY_MAX, KEYS_KEPT, Refusal, Spine};
pub use sentence::Data;

use crate::token::Token;

/// A command to the spine.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Command {
    /// Starts a ledger; record 0 and no other.
    Genesis {
        /// The ledger's own id, a UUID.
        ledger: String,
        /// The format of its records, [`crate::FORMAT`].
        #[serde(with = "whole")]
        format: u64,
    },
    /// Begins the records of a version of this program: the rules of level `n` hold from here on.
    Level {
        /// The level, [`crate::LEVEL`] of the program that writes it.
        #[serde(with = "whole")]
        n: u64,
    },
    /// A term begins, or the clock has jumped (L5).
    Resume {
        /// What the wall clock says.
        wall: Instant,
    },
    /// Processes deadlines that have passed, with the evidence of life that came in (S7).
    Tick {
        /// Until when each holder has renewed; only of those whose deadline has passed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        renewed: Vec<(BookingId, Instant)>,
        /// Deadlines after this one wait; absent: those after the time of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Instant>,
        /// The class of deadlines to process; absent: both. Clock deadlines that fell into an
        /// absence are processed before it ends (L5).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<Class>,
    },
    /// Changes declared objects of any plane: all or nothing.
    Change {
        /// The changes, in order.
        changes: Vec<crate::Change>,
        /// Versions that objects must have ([`crate::State::version`]); `*` is any. Where one differs
        /// nothing changes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        expect: Vec<(Reference, String)>,
    },
    /// Let somebody in.
    CreateToken(Token),
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency: Option<BookingId>,
    },
    /// Bind a snapshot into the ledger, so that it is kept for ever (L12).
    Anchor {
        /// The last record it covers.
        #[serde(with = "whole")]
        record: u64,
        /// The hash of its lines.
        sha256: Hash,
    },
    /// Forget payloads below a record (L13).
    Prune {
        /// The first record that keeps its payload.
        #[serde(with = "whole")]
        below: u64,
        /// Repeats with this key are one action (L6).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency: Option<BookingId>,
    },
    /// This ledger goes on from a copy: an honest fork (L11).
    Restore {
        /// The records the copy held.
        #[serde(with = "whole")]
        size: u64,
        /// The least first fence of the new generation, [`crate::first_fence`] of the time of the
        /// restore; absent before level 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
        /// The generation of the ledger whose place it takes; the new one is above that too.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "whole::optional"
        )]
        replaces: Option<u64>,
        /// Whether all tokens end: some may have been revoked after the copy was made.
        #[serde(default, skip_serializing_if = "is_default")]
        end_tokens: bool,
    },
}

impl Command {
    /// A tick that processes every deadline that has passed.
    pub fn tick(renewed: Vec<(BookingId, Instant)>) -> Self {
        Self::Tick {
            renewed,
            until: None,
            class: None,
        }
    }

    /// A change of declared objects, whatever their versions are.
    pub fn change(changes: impl IntoIterator<Item = impl Into<crate::Change>>) -> Self {
        Self::Change {
            changes: changes.into_iter().map(Into::into).collect(),
            expect: Vec::new(),
        }
    }
}

/// A change to the inventory.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Change {
    /// Adds a node, or changes the one of that name.
    SetNode(Node),
    /// Removes a node.
    DropNode {
        /// Its name.
        name: ObjectName,
    },
}

/// An event of the spine.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Event {
    /// The ledger began.
    Genesis {
        /// Its own id.
        ledger: String,
        /// The format of its records.
        #[serde(with = "whole")]
        format: u64,
    },
    /// The records of a version of this program begin.
    Level {
        /// The level.
        #[serde(with = "whole")]
        n: u64,
    },
    /// A term began or the clock jumped.
    Resumed {
        /// What the wall clock said.
        wall: Instant,
    },
    /// Somebody may come in.
    TokenCreated(Token),
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
        #[serde(with = "whole")]
        record: u64,
        /// The hash of its lines.
        sha256: Hash,
    },
    /// Payloads were forgotten.
    Pruned {
        /// The first record that keeps its payload.
        #[serde(with = "whole")]
        below: u64,
    },
    /// The ledger went on from a copy.
    Restored {
        /// Raised with every restore; part of the checkpoint's origin.
        #[serde(with = "whole")]
        generation: u64,
        /// The first fence that may be given out; absent before level 1: the next one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
        /// Whether all tokens have ended.
        #[serde(default, skip_serializing_if = "is_default")]
        tokens_ended: bool,
    },
    /// A node joined the inventory or changed.
    NodeSet(Node),
    /// A node left the inventory.
    NodeDropped {
        /// Its name.
        name: ObjectName,
    },
    /// An action without a thing of its own was done under a key (L6).
    Keyed {
        /// The caller's key.
        key: BookingId,
        /// The hash of what was asked.
        body: Hash,
    },
}

/// A line of a snapshot that belongs to the spine (L12).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Fact {
    /// The spine's own numbers; the first line.
    Spine {
        /// The ledger's id.
        ledger: String,
        /// The level of the newest records.
        #[serde(default, skip_serializing_if = "is_default")]
        level: u64,
        /// Raised by every restore.
        generation: u64,
        /// The time of the last event.
        time: Instant,
        /// How many records the state covers.
        head: u64,
        /// The newest anchored snapshot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        anchor: Option<(u64, Hash)>,
        /// The first record that keeps its payload.
        pruned_below: u64,
    },
    /// A node of the inventory.
    Node(Node),
    /// A token.
    Token(Token),
    /// A key that signs checkpoints.
    Key {
        /// Since when.
        at: Instant,
        /// Its text.
        key: String,
    },
    /// An action done under a key.
    Keyed {
        /// The caller's key.
        key: BookingId,
        /// When.
        at: Instant,
        /// The hash of what was asked.
        body: Hash,
    },
}
