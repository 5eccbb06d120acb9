//! Tests of the cluster: the numbers of the design, time, and random worlds against a naive model.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]

mod bounds;
mod cases;
mod edges;
mod naive;
mod numbers;
mod random;
mod shown;
mod time;
mod world;
