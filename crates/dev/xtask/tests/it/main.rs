//! Integration tests of the project's chores.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod arrows;
mod drift;
mod fence;
mod policy;
mod scripts;
mod suite;
mod tidy;
