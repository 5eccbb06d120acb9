//! Tests of API types, files and the client.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic, and is named by its promise"
)]

mod bodies;
mod calls;
mod clusters;
mod executions;
mod fake;
mod files;
mod markets;
mod problems;
mod shapes;
mod slots;
mod streams;
mod wire;
