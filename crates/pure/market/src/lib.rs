//! Divides the CPU of one node by need and price.
//!
//! ```text
//! sense (counters) ─► bidder (ask, memory) ─► clear (rungs, kernel) ─► node (plan of writes)
//! ```
//! [`node::Node`] is the loop of the agent, of [`simulate`] and of the replay of a record; its division
//! is that of [`clear::clear`] from a file. Integers only; no file or clock is read. Deliberately absent: finding pods
//! and writing limits.

pub mod act;
pub mod bidder;
pub mod capacity;
pub mod cgroup;
pub mod clear;
pub mod decimal;
pub mod explain;
pub mod kernel;
pub mod label;
pub mod ladder;
pub mod ledger;
pub mod need;
pub mod node;
pub mod params;
pub mod sense;
pub mod simulate;
