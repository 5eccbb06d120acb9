//! The spine: the ledger itself, time, keys, tokens and the inventory of nodes, as commands, events
//! and facts. This is also their form in the journal (L7).
//!
//! [`Spine`] has the state and the rules. The engine decides commands that concern all planes:
//! ticks, changes to declared objects, levels and restores.

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
    /// Begins a level: the rules of level `n` apply from here on.
    Level {
        /// Level, [`crate::LEVEL`] of the program that writes the record.
        #[serde(with = "whole")]
        n: u64,
    },
    /// A term begins, or the clock has jumped (L5).
    Resume {
        /// Time of the wall clock.
        wall: Instant,
    },
    /// Processes deadlines that have passed, with the renewals that came in (S7).
    Tick {
        /// New deadlines of holders that have renewed and whose old deadline has passed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        renewed: Vec<(BookingId, Instant)>,
        /// Last deadline to process; absent: the time of the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Instant>,
        /// Class of deadlines to process; absent: both. Clock deadlines that passed during an
        /// absence are processed before a resume (L5).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<Class>,
    },
    /// Changes declared objects of any plane: all or nothing.
    Change {
        /// The changes, in order.
        changes: Vec<crate::Change>,
        /// Versions that objects must have ([`crate::State::version`]); `*` is any.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        expect: Vec<(Reference, String)>,
    },
    /// Creates a token.
    CreateToken(Token),
    /// Revokes a token.
    RevokeToken {
        /// Name of the token.
        name: ObjectName,
    },
    /// Adds a key that signs checkpoints (L11).
    RotateKey {
        /// New verifier key, as text.
        key: String,
        /// Idempotency key: commands with the same key are one action (L6).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency: Option<BookingId>,
    },
    /// Anchors a snapshot in the ledger, so that it is kept for ever (L12).
    Anchor {
        /// Last record that the snapshot covers.
        #[serde(with = "whole")]
        record: u64,
        /// Hash of its lines.
        sha256: Hash,
    },
    /// Prunes the payloads of records below one (L13).
    Prune {
        /// First record that keeps its payload.
        #[serde(with = "whole")]
        below: u64,
        /// Idempotency key: commands with the same key are one action (L6).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency: Option<BookingId>,
    },
    /// Continues the ledger from a copy, as a new generation (L11).
    Restore {
        /// Number of records in the copy.
        #[serde(with = "whole")]
        size: u64,
        /// Lower bound of the first fence of the new generation, [`crate::first_fence`] at the time
        /// of the restore; absent before level 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
        /// Generation of the ledger that it replaces; the new generation is above it.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "whole::optional"
        )]
        replaces: Option<u64>,
        /// Whether to revoke all tokens, since some may have been revoked after the copy was made.
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

    /// A change of declared objects of any version.
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
    /// The ledger was started.
    Genesis {
        /// Id of the ledger.
        ledger: String,
        /// The format of its records.
        #[serde(with = "whole")]
        format: u64,
    },
    /// A level begins.
    Level {
        /// The level.
        #[serde(with = "whole")]
        n: u64,
    },
    /// A term began or the clock jumped.
    Resumed {
        /// Time of the wall clock.
        wall: Instant,
    },
    /// A token was created.
    TokenCreated(Token),
    /// A token was revoked.
    TokenRevoked {
        /// Name of the token.
        name: ObjectName,
    },
    /// A key that signs checkpoints was added.
    KeyRotated {
        /// The verifier key, as text.
        key: String,
    },
    /// A snapshot was anchored.
    Anchored {
        /// Last record that the snapshot covers.
        #[serde(with = "whole")]
        record: u64,
        /// Hash of its lines.
        sha256: Hash,
    },
    /// Payloads were pruned.
    Pruned {
        /// First record that keeps its payload.
        #[serde(with = "whole")]
        below: u64,
    },
    /// The ledger was continued from a copy.
    Restored {
        /// Generation, raised by every restore; part of the checkpoint's origin.
        #[serde(with = "whole")]
        generation: u64,
        /// First fence of the generation; absent before level 1, where fences go on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
        /// Whether all tokens were revoked.
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
    /// An action without an object of its own was done under an idempotency key (L6).
    Keyed {
        /// Idempotency key.
        key: BookingId,
        /// Hash of the action.
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
    /// Numbers of the spine; the first line.
    Spine {
        /// The ledger's id.
        ledger: String,
        /// The level of the newest records.
        #[serde(default, skip_serializing_if = "is_default")]
        level: u64,
        /// Generation, raised by every restore.
        generation: u64,
        /// The time of the last event.
        time: Instant,
        /// Number of records that the state covers.
        head: u64,
        /// Newest anchored snapshot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        anchor: Option<(u64, Hash)>,
        /// First record that keeps its payload.
        pruned_below: u64,
    },
    /// A node of the inventory.
    Node(Node),
    /// A token.
    Token(Token),
    /// A key that signs checkpoints.
    Key {
        /// Time at which it was added.
        at: Instant,
        /// Verifier key, as text.
        key: String,
    },
    /// An action done under an idempotency key.
    Keyed {
        /// Idempotency key.
        key: BookingId,
        /// Time of the action.
        at: Instant,
        /// Hash of the action.
        body: Hash,
    },
}
