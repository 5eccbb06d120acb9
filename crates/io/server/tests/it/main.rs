//! Integration tests of the HTTP API.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may panic"
)]

mod auth;
mod bookings;
mod clusters;
mod covers;
mod declared;
mod ended;
mod events;
mod executions;
mod garbage;
mod inputs;
mod ledger;
mod listen;
mod market;
mod market_ledger;
mod metrics;
mod mistakes;
mod openapi;
mod plans;
mod problems;
mod rights;
mod runner;
mod runs;
mod sight;
mod world;
