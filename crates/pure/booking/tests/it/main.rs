//! Tests of bookings: a naive oracle on random worlds, and single cases.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic: that is how it fails"
)]

mod against_oracle;
mod cases;
mod executions;
mod fairness;
mod identity;
mod invariants;
mod journal;
mod limits;
mod make;
mod oracle;
mod position;
mod records;
mod world;
