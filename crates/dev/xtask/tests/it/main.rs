//! Integration tests of the development tasks.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod arrows;
mod drift;
mod fence;
mod policy;
mod profiles;
mod scripts;
mod suite;
mod tidy;
