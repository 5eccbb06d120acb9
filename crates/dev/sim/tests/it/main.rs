//! The simulation and the fuzz targets, in the small.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may panic, and says what it means"
)]

mod fuzz;
mod simulation;
