//! The HTTP API: authenticates callers, turns requests into typed commands and queries, and
//! writes the answers as JSON.
//!
//! ```text
//! connection ─► auth (Caller) ─► http (text ─► types) ─► service ─► ledger ─► service ─► http
//! ```
//! [`service::Service`] knows no transport, so the scenario runner calls the same router in
//! process. This crate decides only who may call. The engine decides everything else, and gives
//! the reasons.

#![expect(
    clippy::result_large_err,
    reason = "a problem is moved a few times per refusal; boxing it would complicate every signature"
)]

pub mod agent;
mod auth;
mod booking;
mod caller;
mod cluster;
pub mod descriptors;
pub mod fuzz;
pub mod http;
pub mod listen;
mod log;
mod market;
pub mod metrics;
pub mod policy;
pub mod reporter;
mod right;
pub mod runner;
pub mod runs;
pub mod service;
mod spine;
mod users;

pub use auth::{Anonymous, CallerSource, Peer};
pub use caller::{Caller, Via};
pub use http::router;
pub use reporter::Reporter;
pub use runner::Runner;
pub use service::{OwnUser, Readers, ServerInfo, Service};
