//! Tests of budgets: worked numbers, each rule by its letter, and random worlds against a naive
//! second implementation.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may panic"
)]

mod calendar;
mod declared;
mod naive;
mod numbers;
mod placement;
mod random;
mod rules;
mod world;
