//! The state as lines of text and back, and its hash (L3, L12).
//!
//! Two states are equal iff their lines are. The hash of a state is the hash of its lines, each
//! ended by a line feed: what a snapshot file holds is what is hashed.

use bursar_journal::hash::{Hash, sha256};
use thiserror::Error;

use crate::planes::by_plane;
use crate::token::Token;
use crate::{State, booking, market, spine};

by_plane! {
    /// One line.
    pub enum Line {
        /// Of the spine.
        Spine(spine::Fact),
        /// Of a market.
        Market(market::Fact),
        /// Of the bookings.
        Booking(booking::fact::Fact),
    }
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
    facts(state).map(|line| serde_json::to_string(&line).map_err(|source| Error::Write { source }))
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
        let line = serde_json::from_str(line).map_err(|source| Error::Line {
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
    let spine = spine::Fact::Spine {
        ledger: state.ledger.clone(),
        level: state.level,
        generation: state.generation,
        time: state.time,
        head: state.head,
        anchor: state.anchor,
        pruned_below: state.pruned_below,
    };
    let tokens = state.tokens.iter().map(|(token, created)| {
        let created = Some(created);
        spine::Fact::Token(Token {
            created,
            ..token.clone()
        })
    });
    let keys = state.keys.iter().map(|(at, key)| spine::Fact::Key {
        at: *at,
        key: key.clone(),
    });
    let keyed = state.idempotency.iter();
    let keyed = keyed.map(|(key, (at, body))| spine::Fact::Keyed {
        key: key.clone(),
        at: *at,
        body: *body,
    });
    std::iter::once(spine)
        .chain(tokens)
        .chain(keys)
        .chain(keyed)
        .map(Line::Spine)
        .chain(state.markets.facts().map(Line::Market))
        .chain(state.bookings.facts().map(Line::Booking))
}

fn restore(state: &mut State, line: Line) {
    match line {
        Line::Spine(fact) => restore_spine(state, fact),
        Line::Market(fact) => state.markets.restore(fact),
        Line::Booking(fact) => state.bookings.restore(fact),
    }
}

fn restore_spine(state: &mut State, fact: spine::Fact) {
    match fact {
        spine::Fact::Spine {
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
        spine::Fact::Token(mut token) => {
            let created = token.created.take().unwrap_or_default();
            state.tokens.insert(&token, created);
        }
        spine::Fact::Key { at, key } => state.keys.push((at, key)),
        spine::Fact::Keyed { key, at, body } => {
            state.idempotency.insert(key, (at, body));
        }
    }
}
