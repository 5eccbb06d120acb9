//! The state: every room's, and the spine's own few facts.

use std::collections::BTreeMap;

use bursar_booking::Bookings;
use bursar_journal::hash::Hash;
use bursar_units::{BookingId, Instant, Millis};

use crate::market::Markets;
use crate::token::Tokens;
use crate::{Event, dated, spine};

/// The format of records this program writes.
pub const FORMAT: u64 = 1;
/// The level of the rules by which this program decides. A program with other rules or new fields
/// of events has a higher one: records of a lower level are folded, never decided again.
pub const LEVEL: u64 = 1;
/// How long an `Idempotency-Key` is kept (L6).
pub const KEYS_KEPT: Millis = Millis::from_hours(24);
/// How many are kept at most: operators alone use them, a few a day.
pub const IDEMPOTENCY_MAX: usize = 10_000;

/// Everything the engine knows.
#[derive(Clone, Debug)]
pub struct State {
    /// The ledger's own id; empty before Genesis.
    pub ledger: String,
    /// The level of the newest records; zero before the first record `level`.
    pub level: u64,
    /// Raised by every restore.
    pub generation: u64,
    /// The time of the last event.
    pub time: Instant,
    /// How many records have been folded in: the number of the next one.
    pub head: u64,
    /// Bookings, limits and nodes.
    pub bookings: Bookings,
    /// The CPU markets of nodes.
    pub markets: Markets,
    /// Who may come in.
    pub tokens: Tokens,
    /// The verifier keys that sign checkpoints, with when each came in; the last is the newest.
    pub keys: Vec<(Instant, String)>,
    /// The newest anchored snapshot: the last record it covers and its hash.
    pub anchor: Option<(u64, Hash)>,
    /// The first record that keeps its payload.
    pub pruned_below: u64,
    /// Actions done under a key, with when and what.
    pub(crate) idempotency: BTreeMap<BookingId, (Instant, Hash)>,
}

impl Default for State {
    fn default() -> Self {
        Self::with(Bookings::new())
    }
}

impl State {
    /// A state to restore facts into.
    pub fn blank() -> Self {
        Self::with(Bookings::blank())
    }

    fn with(bookings: Bookings) -> Self {
        Self {
            ledger: String::new(),
            level: 0,
            generation: 0,
            time: Instant::default(),
            head: 0,
            bookings,
            markets: Markets::default(),
            tokens: Tokens::default(),
            keys: Vec::new(),
            anchor: None,
            pruned_below: 0,
            idempotency: BTreeMap::new(),
        }
    }

    /// Folds one event in. It cannot fail.
    pub fn apply(&mut self, at: Instant, event: &Event) {
        self.time = self.time.max(at);
        match event {
            Event::Booking(event) => self.bookings.apply(at, event),
            Event::Market(event) => self.markets.apply(at, event),
            Event::Spine(event) => self.apply_spine(at, event),
        }
    }

    fn apply_spine(&mut self, at: Instant, event: &spine::Event) {
        match event {
            spine::Event::Genesis { ledger, .. } => self.ledger.clone_from(ledger),
            spine::Event::Level { n } => self.level = *n,
            spine::Event::Resumed { .. } => self.bookings.resume(at),
            spine::Event::TokenCreated(token) => self.tokens.insert(token, at),
            spine::Event::TokenRevoked { name } => self.tokens.remove(name),
            spine::Event::KeyRotated { key } => self.keys.push((at, key.clone())),
            spine::Event::Anchored { record, sha256 } => self.anchor = Some((*record, *sha256)),
            spine::Event::Pruned { below } => self.pruned_below = *below,
            spine::Event::Restored {
                generation,
                fence,
                tokens_ended,
            } => {
                self.generation = *generation;
                if let Some(first) = fence {
                    self.bookings.begin_fences(*first);
                }
                if *tokens_ended {
                    self.tokens = Tokens::default();
                }
            }
            spine::Event::Keyed { key, body } => self.keep_key(at, key, *body),
        }
    }

    /// Folds a whole record in.
    pub fn apply_record(&mut self, time: Instant, events: &[Event]) {
        for (at, event) in dated(time, events) {
            self.apply(at, event);
        }
        self.head += 1;
    }

    /// When time itself changes something next; now, where the room is not settled.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.bookings.is_unsettled() {
            return Some(self.time);
        }
        self.bookings.next_deadline().map(|deadline| deadline.at)
    }

    /// A copy of the small problem, for plans: the waiting room and limits whole, of all other
    /// bookings only those named (L3), and no market.
    #[must_use]
    pub fn sketch(&self, ids: &[BookingId]) -> Self {
        Self {
            bookings: self.bookings.sketch(ids),
            ..self.spine()
        }
    }

    /// Keeps the key of an action, and forgets those that are a day old or too many (L6).
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

    fn spine(&self) -> Self {
        Self {
            ledger: self.ledger.clone(),
            level: self.level,
            generation: self.generation,
            time: self.time,
            head: self.head,
            bookings: Bookings::blank(),
            markets: Markets::default(),
            tokens: self.tokens.clone(),
            keys: self.keys.clone(),
            anchor: self.anchor,
            pruned_below: self.pruned_below,
            idempotency: self.idempotency.clone(),
        }
    }
}
