//! Tests of units with arbitrary text and numbers.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may panic: that is how it fails"
)]

mod counting;
mod index;
mod text;
