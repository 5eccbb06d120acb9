//! The state as lines of text and back, and its hash (L3, L12).
//!
//! Two states are equal iff their lines are. The hash of a state is the hash of its lines, each
//! ended by a line feed: what a snapshot file holds is what is hashed.

use bursar_journal::hash::{Hash, sha256};
use bursar_plane::Plane;
use thiserror::Error;

use crate::planes::by_plane;
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

/// Facts of all planes. Nodes stand behind the limits, where the first version wrote them, so that
/// the hash of an old state stays the same.
fn facts(state: &State) -> impl Iterator<Item = Line> {
    let level = state.spine.level;
    let nodes = state.spine.inventory.iter().cloned();
    let mut nodes = nodes.map(|node| Line::Spine(spine::Fact::Node(node)));
    let mut bookings = Plane::facts(&state.bookings, level).peekable();
    let bookings = std::iter::from_fn(move || {
        if bookings
            .peek()
            .is_some_and(booking::fact::Fact::precedes_nodes)
        {
            return bookings.next().map(Line::Booking);
        }
        nodes.next().or_else(|| bookings.next().map(Line::Booking))
    });
    let spine = state.spine.facts(level).map(Line::Spine);
    let markets = state.markets.facts(level).map(Line::Market);
    spine.chain(markets).chain(bookings)
}

fn restore(state: &mut State, line: Line) {
    match line {
        Line::Spine(fact) => {
            let is_node = matches!(fact, spine::Fact::Node(_));
            state.spine.restore(fact);
            if is_node {
                state.bookings.take_inventory(&state.spine.inventory);
                state.markets.take_inventory(&state.spine.inventory);
            }
        }
        Line::Market(fact) => state.markets.restore(fact),
        Line::Booking(fact) => Plane::restore(&mut state.bookings, fact),
    }
}
