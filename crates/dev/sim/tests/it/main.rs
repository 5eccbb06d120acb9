//! Short runs of the simulation and of the fuzz targets.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod fuzz;
mod simulation;
