//! Simulation of the whole system on virtual time with faults, fuzzing of parsers, and benches.
//!
//! [`simulation`] runs worlds: real engine, ledger and store, simulated clients, network, clocks
//! and failures, all from one seed on one thread. [`fuzz`] gives arbitrary bytes to every parser.
//! Neither depends on the machine's clock, so a seed that failed fails again. [`mod@bench`] measures
//! in real time, with peers.

pub mod bench;
pub mod clock;
pub mod fuzz;
pub mod rng;
pub mod simulation;
pub mod summary;
pub mod trace;
pub mod violation;
pub mod world;

/// Message of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}
