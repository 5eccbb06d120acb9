//! The whole system on virtual time, with faults; and the parsers under fire.
//!
//! [`simulation`] runs worlds: real engine, ledger and store, simulated clients, network, clocks
//! and failures, all from one seed on one thread. [`fuzz`] throws bytes at every parser. Neither
//! reads a clock of the machine to decide anything, so a seed that failed fails again. [`mod@bench`]
//! measures on the machine's time, with peers beside it.

pub mod bench;
pub mod clock;
pub mod fuzz;
pub mod rng;
pub mod simulation;
pub mod summary;
pub mod trace;
pub mod violation;
pub mod world;

/// What a panic said.
fn panic_words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}
