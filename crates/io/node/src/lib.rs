//! Everything that touches `/proc` and `/sys`: where work runs, and how it is found again.
//!
//! [`executor::Executor`] is what the server asks to start, watch and stop executions (X2);
//! it decides nothing: what should happen is the engine's word, what was found comes back as data.
//! [`local::Local`] runs processes of this machine, each under a [`shim`] that outlives the
//! server; [`null::Null`] only plays them. [`market`] divides the CPU of this machine by need.

pub mod cgroup;
pub mod executor;
pub mod local;
mod log;
pub mod market;
pub mod null;
mod place;
pub mod shim;
pub mod sole;
