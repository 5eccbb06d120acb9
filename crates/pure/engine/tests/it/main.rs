//! Tests of the engine: the form of the journal, the state, and the texts.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod blobs;
mod declared;
mod executions;
mod explanations;
mod fold;
mod garbage;
mod golden;
mod invariants;
mod journals;
mod kinds;
mod levels;
mod markets;
mod passes;
mod round_trip;
mod runs;
mod script;
mod strategies;
mod strategies_cluster;
mod subjects;
mod summaries;
mod tally;
mod versions;
mod world;
