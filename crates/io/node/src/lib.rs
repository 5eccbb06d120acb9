//! Everything that touches `/proc` and `/sys`: where work runs, and how it is found again.
//!
//! [`executor::Executor`] is what the server asks to start, watch and stop executions (X2);
//! it decides nothing: what should happen is the engine's word, what was found comes back as data.

pub mod executor;
