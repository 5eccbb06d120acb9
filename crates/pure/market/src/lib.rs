//! The CPU of one node, divided by need and price (design 10; seeds 000 and 001).
//!
//! ```text
//! sense (counters ─► demand) ─► need ─► clear (kernel, policies, guards) ─► act (order of writes)
//! ```
//! [`clear::clear`] is the one function that divides: the agent, the what-if from a file and every
//! explanation call it. Integers only; nothing here reads a file or a clock. Deliberately absent:
//! where pods come from, and how a limit is written.

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
