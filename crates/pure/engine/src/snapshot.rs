//! The state as lines of text and back, and its hash (L3, L12).
//!
//! Two states are equal iff their lines are. The hash of a state is the hash of its lines, each
//! with a line feed: the content of a snapshot file.

use bursar_journal::hash::{Hash, sha256};
use bursar_plane::Plane;
use thiserror::Error;

use crate::planes::by_plane;
use crate::{State, booking, cluster, market, spine};

by_plane! {
    /// One line: a fact of a plane.
    pub enum Line {
        /// Of the spine.
        Spine(spine::Fact),
        /// Of a market.
        Market(market::Fact),
        /// Of the bookings.
        Booking(booking::fact::Fact),
        /// Of the cluster.
        Cluster(cluster::fact::Fact),
    }
}

/// Error of writing or reading a snapshot.
#[derive(Debug, Error)]
pub enum Error {
    /// A line cannot be read.
    #[error("line {number} of the snapshot is not valid")]
    Line {
        /// Line number, from 1.
        number: usize,
        /// Error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// A value cannot be written.
    #[error("the state cannot be written")]
    Write {
        /// Error of the writer.
        #[source]
        source: serde_json::Error,
    },
}

/// Lines of a state without line feeds, one at a time to save memory.
pub fn lines(state: &State) -> impl Iterator<Item = Result<String, Error>> {
    facts(state).map(|line| serde_json::to_string(&line).map_err(|source| Error::Write { source }))
}

/// Snapshot of a state, as one text.
pub fn write(state: &State) -> Result<String, Error> {
    let mut text = String::new();
    for line in lines(state) {
        text.push_str(&line?);
        text.push('\n');
    }
    Ok(text)
}

/// State of a snapshot.
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

/// Hash of a state.
pub fn hash(state: &State) -> Result<Hash, Error> {
    Ok(sha256(write(state)?.as_bytes()))
}

/// Facts of all planes. Nodes come after the limits, as in the first version, so that the hash of
/// an old state stays the same.
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
    let clusters = Plane::facts(&state.clusters, level).map(Line::Cluster);
    spine.chain(markets).chain(bookings).chain(clusters)
}

fn restore(state: &mut State, line: Line) {
    match line {
        Line::Spine(fact) => {
            let node = match &fact {
                spine::Fact::Node(node) => Some(node.clone()),
                _ => None,
            };
            state.spine.restore(fact);
            if let Some(node) = node {
                state.clusters.take_node(&node.name, Some(&node));
                state.bookings.take_inventory(&state.spine.inventory);
                state.markets.take_inventory(&state.spine.inventory);
            }
        }
        Line::Market(fact) => state.markets.restore(fact),
        Line::Booking(fact) => Plane::restore(&mut state.bookings, fact),
        Line::Cluster(fact) => Plane::restore(&mut state.clusters, fact),
    }
}
