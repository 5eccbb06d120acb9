//! The HTTP surface: who asks, what is asked in types, what is answered in JSON (design 80, 4).
//!
//! ```text
//! connection ─► auth (Caller) ─► http (text ─► types) ─► service ─► ledger ─► service ─► http
//! ```
//! [`service::Service`] knows no transport, so the scenario runner calls the same router in
//! process. Nothing here decides: what is allowed under the limits is the engine's word, and the
//! reasons are its words too. What is decided here is only who may ask.

#![expect(
    clippy::result_large_err,
    reason = "a problem is moved a few times in the life of a refusal; boxing it would weigh on every signature"
)]

pub mod agent;
pub mod auth;
mod booking;
pub mod caller;
pub mod descriptors;
pub mod fuzz;
pub mod http;
pub mod listen;
mod log;
mod market;
pub mod metrics;
pub mod reporter;
mod right;
pub mod runner;
pub mod service;
mod spine;
pub mod users;

pub use auth::{Anonymous, CallerSource, Peer};
pub use caller::{Caller, Via};
pub use http::router;
pub use reporter::Reporter;
pub use runner::Runner;
pub use service::{OwnUser, Readers, ServerInfo, Service};
