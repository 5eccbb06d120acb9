//! Divides the CPU of one node by need and price.
//!
//! ```text
//! sense (counters ─► demand) ─► need ─► clear (kernel, policies, guards) ─► act (order of writes)
//! ```
//! [`clear::clear`] is the only function that divides: the agent, the what-if from a file and every
//! explanation call it. Integers only; no file or clock is read. Deliberately absent: finding pods
//! and writing limits.

pub mod act;
pub mod capacity;
pub mod cgroup;
pub mod clear;
pub mod decimal;
pub mod explain;
pub mod kernel;
pub mod label;
pub mod ledger;
pub mod need;
pub mod node;
pub mod params;
pub mod sense;
