//! Durable ledger: stores, the writer with group commit, and the committed view.
//!
//! ```text
//! intake ─► writer (tick, decide, apply, encode) ─► committer (hash, append) ─► view (publish)
//! ```
//! Each of the three is a plain object that is stepped, and `stage` holds the rules of a failed
//! commit. [`pipeline`] runs them on three threads; [`inline`] steps them in one place, for
//! scenarios and simulations on virtual time. Only the engine decides commands.

pub mod check;
pub mod clock;
pub mod committer;
pub mod data;
mod durable;
pub mod index;
pub mod inline;
pub mod intake;
pub mod key;
pub mod lock;
mod log;
pub mod maintain;
pub mod pipeline;
pub mod recover;
pub mod snapshots;
mod stage;
pub mod store;
pub mod term;
pub mod view;
pub mod writer;
