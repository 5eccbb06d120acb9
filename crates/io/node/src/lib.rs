//! Everything that touches `/proc` and `/sys`: running executions and finding them again.
//!
//! The server starts, watches and stops executions through [`executor::Executor`] (X2). An executor
//! decides nothing: the engine decides, and results go back to it as data. [`local::Local`] runs
//! processes of this machine, each under a [`shim`] that outlives the server; [`null::Null`]
//! simulates them. [`market`] divides the CPU of this machine by need.

pub mod cgroup;
pub mod executor;
pub mod local;
mod log;
pub mod market;
pub mod null;
mod place;
pub mod shim;
pub mod sole;
