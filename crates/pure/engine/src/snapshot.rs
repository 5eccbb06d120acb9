//! The state as lines of text and back, and its hash (L3, L12).
//!
//! Two states are equal iff their lines are. The hash of a state is the hash of its lines, each
//! ended by a line feed: what a snapshot file holds is what is hashed.

use std::collections::BTreeMap;

use bursar_booking::fact::Fact;
use bursar_journal::hash::{Hash, sha256};
use bursar_units::{BookingId, Instant, ObjectName, PodName};
use thiserror::Error;

use crate::State;
use crate::codec::{fact_line, read_fact_line};
use crate::market::{Known, Original};
use crate::token::Token;

/// One line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Line {
    /// The spine's own facts; the first line.
    Spine {
        /// The ledger's id.
        ledger: String,
        /// The level of the newest records.
        level: u64,
        /// Raised by every restore.
        generation: u64,
        /// The time of the last event.
        time: Instant,
        /// How many records the state covers.
        head: u64,
        /// The newest anchored snapshot.
        anchor: Option<(u64, Hash)>,
        /// The first record that keeps its payload.
        pruned_below: u64,
    },
    /// A token.
    Token {
        /// All but the secret.
        token: Token,
        /// When it was made.
        created: Instant,
    },
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
    /// What is known of the market of a node, but for its originals.
    Market {
        /// Which node.
        node: ObjectName,
        /// What is known.
        known: Box<Known>,
    },
    /// An original of a market; it comes behind its market.
    Original {
        /// On which node.
        node: ObjectName,
        /// Whose.
        pod: PodName,
        /// What it was.
        original: Original,
    },
    /// A fact of the bookings.
    Booking(Fact),
}

/// Why lines are not a state.
#[derive(Debug, Error)]
pub enum Error {
    /// A line that cannot be read.
    #[error("line {number} of the snapshot is not valid")]
    Line {
        /// Which, from 1.
        number: usize,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// A value that cannot be written.
    #[error("the state cannot be written")]
    Write {
        /// What the writer said.
        #[source]
        source: serde_json::Error,
    },
}

/// The lines of a state, one after the other and without their ends, for those who must not
/// hold all of them at once.
pub fn lines(state: &State) -> impl Iterator<Item = Result<String, Error>> {
    facts(state).map(|line| fact_line(line).map_err(|source| Error::Write { source }))
}

/// The lines of a state, as one text.
pub fn write(state: &State) -> Result<String, Error> {
    let mut text = String::new();
    for line in lines(state) {
        text.push_str(&line?);
        text.push('\n');
    }
    Ok(text)
}

/// The state of some lines.
pub fn read(text: &str) -> Result<State, Error> {
    let mut state = State::blank();
    for (at, line) in text.lines().enumerate() {
        let line = read_fact_line(line).map_err(|source| Error::Line {
            number: at + 1,
            source,
        })?;
        restore(&mut state, line);
    }
    Ok(state)
}

/// The hash of a state.
pub fn hash(state: &State) -> Result<Hash, Error> {
    Ok(sha256(write(state)?.as_bytes()))
}

fn facts(state: &State) -> impl Iterator<Item = Line> {
    let spine = Line::Spine {
        ledger: state.ledger.clone(),
        level: state.level,
        generation: state.generation,
        time: state.time,
        head: state.head,
        anchor: state.anchor,
        pruned_below: state.pruned_below,
    };
    let tokens = state.tokens.iter().map(|(token, created)| Line::Token {
        token: token.clone(),
        created,
    });
    let keys = state.keys.iter().map(|(at, key)| Line::Key {
        at: *at,
        key: key.clone(),
    });
    let keyed = state
        .idempotency
        .iter()
        .map(|(key, (at, body))| Line::Keyed {
            key: key.clone(),
            at: *at,
            body: *body,
        });
    std::iter::once(spine)
        .chain(tokens)
        .chain(keys)
        .chain(keyed)
        .chain(state.markets.iter().flat_map(market))
        .chain(state.bookings.facts().map(Line::Booking))
}

fn market((node, known): (&ObjectName, &Known)) -> impl Iterator<Item = Line> {
    let first = Line::Market {
        node: node.clone(),
        known: Box::new(Known {
            originals: BTreeMap::new(),
            digest: known.digest,
            rules: known.rules,
            ..*known
        }),
    };
    let originals = known.originals.iter();
    let originals = originals.map(|(pod, original)| Line::Original {
        node: node.clone(),
        pod: pod.clone(),
        original: *original,
    });
    std::iter::once(first).chain(originals)
}

fn restore(state: &mut State, line: Line) {
    match line {
        Line::Spine {
            ledger,
            level,
            generation,
            time,
            head,
            anchor,
            pruned_below,
        } => {
            state.ledger = ledger;
            state.level = level;
            state.generation = generation;
            state.time = time;
            state.head = head;
            state.anchor = anchor;
            state.pruned_below = pruned_below;
        }
        Line::Token { token, created } => state.tokens.insert(&token, created),
        Line::Key { at, key } => state.keys.push((at, key)),
        Line::Keyed { key, at, body } => {
            state.idempotency.insert(key, (at, body));
        }
        Line::Market { node, known } => state.markets.restore(node, *known),
        Line::Original {
            node,
            pod,
            original,
        } => state.markets.restore_original(&node, pod, original),
        Line::Booking(fact) => state.bookings.restore(fact),
    }
}
