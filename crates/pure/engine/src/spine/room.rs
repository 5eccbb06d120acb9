//! State and rules of the spine.

use std::collections::BTreeMap;

use bursar_booking::Fence;
use bursar_journal::hash::{Hash, sha256};
use bursar_plane::{Decided, Did, Inventory, Lane, Notice, Plane, Reference};
use bursar_units::{BookingId, Instant, Millis, ObjectName};
use thiserror::Error;

use super::sentence::{self, Data};
use super::{Change, Command, Event, Fact};
use crate::token::{Token, Tokens};

/// Time for which an `Idempotency-Key` is kept (L6).
pub const KEYS_KEPT: Millis = Millis::from_hours(24);
/// Most keys that are kept: only operators use them, a few a day.
pub const IDEMPOTENCY_MAX: usize = 10_000;

/// The state of the spine.
#[derive(Clone, Debug, Default)]
pub struct Spine {
    /// The ledger's own id; empty before Genesis.
    pub ledger: String,
    /// The level of the newest records; zero before the first record `level`.
    pub level: u64,
    /// Generation of the ledger; every restore raises it.
    pub generation: u64,
    /// The time of the last event, of any plane.
    pub time: Instant,
    /// The number of records folded in, which is the number of the next one.
    pub head: u64,
    /// The declared nodes.
    pub inventory: Inventory,
    /// The access tokens.
    pub tokens: Tokens,
    /// The verifier keys that sign checkpoints, with the time of each; the last is the newest.
    pub keys: Vec<(Instant, String)>,
    /// The newest anchored snapshot: the last record it covers and its hash.
    pub anchor: Option<(u64, Hash)>,
    /// The first record that keeps its payload.
    pub pruned_below: u64,
    /// Actions done under a key: the time and the hash of each.
    idempotency: BTreeMap<BookingId, (Instant, Hash)>,
}

/// Reason of a refusal by the spine.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Refusal {
    /// A token of that name exists.
    #[error("a token of that name exists")]
    TokenExists {
        /// Its name.
        name: ObjectName,
    },
    /// No token of that name.
    #[error("no such token")]
    NoSuchToken {
        /// Its name.
        name: ObjectName,
    },
    /// No node of that name.
    #[error("no such node")]
    NoSuchNode {
        /// Its name.
        name: ObjectName,
    },
    /// The key was used for another action.
    #[error("the key was used for another action")]
    KeyReused,
    /// Only records that an anchored snapshot covers may be pruned.
    #[error("records may be pruned only below the newest anchored snapshot")]
    NotAnchored {
        /// The first record that must stay.
        below_max: u64,
    },
    /// The ledger has been started before.
    #[error("the ledger has begun already")]
    AlreadyBegun,
    /// A declared object has another version than the caller expects.
    #[error("{object} has another version")]
    Version {
        /// The object.
        object: Reference,
        /// The version that was expected.
        expected: String,
        /// The version that it has; `None` where it does not exist.
        present: Option<String>,
    },
}

/// A broken invariant of the spine.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Broken {
    /// A signing key is older than the one before it (L11).
    #[error("signing key {place} was added at {at:?}, before the key that precedes it")]
    KeyOrder {
        /// Index of the key, from 0.
        place: usize,
        /// Time at which it was added.
        at: Instant,
    },
    /// A payload was pruned that no anchored snapshot covers (L13).
    #[error("records below {below} are pruned, the anchored snapshot covers those below {covered}")]
    Pruned {
        /// The first record that keeps its payload.
        below: u64,
        /// The first record that no anchored snapshot covers.
        covered: u64,
    },
    /// An idempotency key is too old (L6).
    #[error("idempotency key `{key}` of {at:?} is too old to be kept")]
    KeyKept {
        /// Idempotency key.
        key: BookingId,
        /// Time of the action.
        at: Instant,
    },
    /// Too many idempotency keys are kept (L6).
    #[error("{count} idempotency keys are kept, more than {IDEMPOTENCY_MAX}")]
    KeyCount {
        /// Number of keys.
        count: usize,
    },
}

impl Spine {
    fn emit(&mut self, at: Instant, event: Event, out: &mut Decided<Event>) {
        self.apply(at, &event);
        out.push(event);
    }

    /// Event of a restore, whose generation begins with `first_fence`.
    pub(crate) fn restored(
        &self,
        first_fence: Option<Fence>,
        replaces: Option<u64>,
        end_tokens: bool,
    ) -> Event {
        Event::Restored {
            generation: self.generation.max(replaces.unwrap_or(0)) + 1,
            fence: first_fence,
            tokens_ended: end_tokens,
        }
    }

    /// Whether the same action was done before under that key.
    pub(crate) fn is_repeat(
        &self,
        now: Instant,
        key: Option<&BookingId>,
        body: Hash,
    ) -> Result<bool, Refusal> {
        match key.and_then(|key| self.idempotency.get(key)) {
            Some((done, _)) if done.after(KEYS_KEPT) <= now => Ok(false),
            Some((_, present)) if *present != body => Err(Refusal::KeyReused),
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }

    /// Records an idempotency key of an action that is done.
    pub(crate) fn keyed(
        &mut self,
        at: Instant,
        key: Option<&BookingId>,
        body: Hash,
        out: &mut Decided<Event>,
    ) {
        if let Some(key) = key.cloned() {
            self.emit(at, Event::Keyed { key, body }, out);
        }
    }

    /// Stores an idempotency key, and drops those older than a day and the oldest above the maximum
    /// (L6).
    fn keep_key(&mut self, at: Instant, key: &BookingId, body: Hash) {
        self.idempotency
            .retain(|_, (done, _)| done.after(KEYS_KEPT) > at);
        self.idempotency.insert(key.clone(), (at, body));
        if self.idempotency.len() > IDEMPOTENCY_MAX {
            let oldest = self
                .idempotency
                .iter()
                .min_by_key(|(key, (done, _))| (*done, *key));
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.idempotency.remove(&key);
            }
        }
    }

    fn check_keys(&self) -> Result<(), Broken> {
        let mut latest = Instant::default();
        for (place, (at, _)) in self.keys.iter().enumerate() {
            if *at < latest {
                return Err(Broken::KeyOrder { place, at: *at });
            }
            latest = *at;
        }
        Ok(())
    }

    fn check_idempotency(&self) -> Result<(), Broken> {
        let count = self.idempotency.len();
        if count > IDEMPOTENCY_MAX {
            return Err(Broken::KeyCount { count });
        }
        let newest = self.idempotency.values().map(|(at, _)| *at).max();
        let newest = newest.unwrap_or_default();
        let kept = self
            .idempotency
            .iter()
            .find(|(_, (at, _))| at.after(KEYS_KEPT) <= newest);
        match kept {
            Some((key, (at, _))) => Err(Broken::KeyKept {
                key: key.clone(),
                at: *at,
            }),
            None => Ok(()),
        }
    }
}

impl Plane for Spine {
    type Command = Command;
    type Event = Event;
    type Change = Change;
    type Fact = Fact;
    type Reply = Did;
    type Refusal = Refusal;
    type Broken = Broken;
    type Data = Data;

    const STREAMS: &'static [&'static str] = &[
        "ledger.begun",
        "ledger.upgraded",
        "ledger.resumed",
        "ledger.rekeyed",
        "ledger.anchored",
        "ledger.pruned",
        "ledger.restored",
        "node.joined",
        "node.lost",
        "token.created",
        "token.revoked",
    ];

    fn lane(command: &Command) -> Lane {
        match command {
            Command::Genesis { .. }
            | Command::Level { .. }
            | Command::Resume { .. }
            | Command::Tick { .. }
            | Command::Change { .. }
            | Command::CreateToken(_)
            | Command::RevokeToken { .. }
            | Command::RotateKey { .. }
            | Command::Anchor { .. }
            | Command::Prune { .. }
            | Command::Restore { .. } => Lane::Control,
        }
    }

    fn is_result(_: &Command) -> bool {
        false
    }

    /// Decides the commands of the spine alone. The engine decides those that concern all planes.
    fn decide(
        &mut self,
        now: Instant,
        command: &Command,
        out: &mut Decided<Event>,
    ) -> Result<Did, Refusal> {
        let event = match command {
            Command::Genesis { .. } if !self.ledger.is_empty() => {
                return Err(Refusal::AlreadyBegun);
            }
            Command::Genesis { ledger, format } => Event::Genesis {
                ledger: ledger.clone(),
                format: *format,
            },
            Command::Level { n } => Event::Level { n: *n },
            Command::Resume { wall } => Event::Resumed { wall: *wall },
            Command::CreateToken(token) => match self.tokens.get(token.name.as_str()) {
                Some(_) => {
                    return Err(Refusal::TokenExists {
                        name: token.name.clone(),
                    });
                }
                None => Event::TokenCreated(token.clone()),
            },
            Command::RevokeToken { name } => match self.tokens.get(name.as_str()) {
                None => return Err(Refusal::NoSuchToken { name: name.clone() }),
                Some(_) => Event::TokenRevoked { name: name.clone() },
            },
            Command::RotateKey { key, idempotency } => {
                let body = sha256(b"rotate-key");
                if self.is_repeat(now, idempotency.as_ref(), body)? {
                    return Ok(Did::Unchanged);
                }
                self.keyed(now, idempotency.as_ref(), body, out);
                Event::KeyRotated { key: key.clone() }
            }
            Command::Anchor { record, sha256 } => Event::Anchored {
                record: *record,
                sha256: *sha256,
            },
            Command::Prune { below, idempotency } => {
                let body = sha256(format!("prune {below}").as_bytes());
                let is_done = self.is_repeat(now, idempotency.as_ref(), body)?;
                if is_done || *below <= self.pruned_below {
                    return Ok(Did::Unchanged);
                }
                let below_max = self.anchor.map_or(0, |(record, _)| record + 1);
                if *below > below_max {
                    return Err(Refusal::NotAnchored { below_max });
                }
                self.keyed(now, idempotency.as_ref(), body, out);
                Event::Pruned { below: *below }
            }
            Command::Tick { .. } | Command::Change { .. } | Command::Restore { .. } => {
                return Ok(Did::Unchanged);
            }
        };
        self.emit(now, event, out);
        Ok(Did::Done)
    }

    fn apply(&mut self, at: Instant, event: &Event) {
        match event {
            Event::Genesis { ledger, .. } => self.ledger.clone_from(ledger),
            Event::Level { n } => self.level = *n,
            Event::Resumed { .. } => {}
            Event::TokenCreated(token) => self.tokens.insert(token, at),
            Event::TokenRevoked { name } => self.tokens.remove(name),
            Event::KeyRotated { key } => self.keys.push((at, key.clone())),
            Event::Anchored { record, sha256 } => self.anchor = Some((*record, *sha256)),
            Event::Pruned { below } => self.pruned_below = *below,
            Event::Restored {
                generation,
                tokens_ended,
                ..
            } => {
                self.generation = *generation;
                if *tokens_ended {
                    self.tokens = Tokens::default();
                }
            }
            Event::NodeSet(node) => self.inventory.set(node.clone()),
            Event::NodeDropped { name } => self.inventory.remove(name),
            Event::Keyed { key, body } => self.keep_key(at, key, *body),
        }
    }

    fn check_changes(&self, _: Instant, changes: &[&Change]) -> Result<(), Refusal> {
        let mut declared: BTreeMap<&ObjectName, bool> = BTreeMap::new();
        for change in changes {
            match change {
                Change::SetNode(node) => {
                    declared.insert(&node.name, true);
                }
                Change::DropNode { name } => {
                    let is_there = || self.inventory.get(name.as_str()).is_some();
                    if !declared.insert(name, false).unwrap_or_else(is_there) {
                        return Err(Refusal::NoSuchNode { name: name.clone() });
                    }
                }
            }
        }
        Ok(())
    }

    fn change(&mut self, at: Instant, change: &Change, out: &mut Decided<Event>) {
        match change {
            Change::SetNode(node) if self.inventory.get(node.name.as_str()) == Some(node) => {}
            Change::SetNode(node) => self.emit(at, Event::NodeSet(node.clone()), out),
            Change::DropNode { name } => {
                self.emit(at, Event::NodeDropped { name: name.clone() }, out);
            }
        }
    }

    /// Facts without the nodes, which [`crate::snapshot`] writes after the limits.
    fn facts(&self, _level: u64) -> impl Iterator<Item = Fact> {
        let spine = Fact::Spine {
            ledger: self.ledger.clone(),
            level: self.level,
            generation: self.generation,
            time: self.time,
            head: self.head,
            anchor: self.anchor,
            pruned_below: self.pruned_below,
        };
        let tokens = self.tokens.iter().map(|(token, created)| {
            let created = Some(created);
            Fact::Token(Token {
                created,
                ..token.clone()
            })
        });
        let keys = self.keys.iter().map(|(at, key)| Fact::Key {
            at: *at,
            key: key.clone(),
        });
        let keyed = self.idempotency.iter();
        let keyed = keyed.map(|(key, (at, body))| Fact::Keyed {
            key: key.clone(),
            at: *at,
            body: *body,
        });
        std::iter::once(spine)
            .chain(tokens)
            .chain(keys)
            .chain(keyed)
    }

    fn restore(&mut self, fact: Fact) {
        match fact {
            Fact::Spine {
                ledger,
                level,
                generation,
                time,
                head,
                anchor,
                pruned_below,
            } => {
                self.ledger = ledger;
                self.level = level;
                self.generation = generation;
                self.time = time;
                self.head = head;
                self.anchor = anchor;
                self.pruned_below = pruned_below;
            }
            Fact::Node(node) => self.inventory.set(node),
            Fact::Token(mut token) => {
                let created = token.created.take().unwrap_or_default();
                self.tokens.insert(&token, created);
            }
            Fact::Key { at, key } => self.keys.push((at, key)),
            Fact::Keyed { key, at, body } => {
                self.idempotency.insert(key, (at, body));
            }
        }
    }

    fn check(&self, _: Instant) -> Result<(), Broken> {
        self.check_keys()?;
        self.check_idempotency()?;
        let covered = self.anchor.map_or(0, |(record, _)| record + 1);
        if covered < self.pruned_below {
            return Err(Broken::Pruned {
                below: self.pruned_below,
                covered,
            });
        }
        Ok(())
    }

    fn sketch(&self, _: &[&Command]) -> Self {
        self.clone()
    }

    fn notice(_: Instant, event: &Event, _: &[&Event]) -> Notice<Data> {
        sentence::notice(event)
    }

    fn subjects(event: &Event) -> impl Iterator<Item = Reference> {
        let subject = match event {
            Event::TokenCreated(Token { name, .. }) | Event::TokenRevoked { name } => {
                Some(Reference::Token(name.clone()))
            }
            Event::NodeSet(node) => Some(Reference::Node(node.name.clone())),
            Event::NodeDropped { name } => Some(Reference::Node(name.clone())),
            _ => None,
        };
        subject.into_iter()
    }

    fn declared(change: &Change) -> Reference {
        match change {
            Change::SetNode(node) => Reference::Node(node.name.clone()),
            Change::DropNode { name } => Reference::Node(name.clone()),
        }
    }
}
