//! Types of the HTTP API and of files, and a typed client.
//!
//! [`api`] has the JSON types of the HTTP API, [`problem`] the table of problem codes, [`object`]
//! the declared objects in files. This crate decides nothing: the server converts these types to
//! commands and results to answers, so internal types can change while the API stays the same.

// `answers!` takes one step for each field of a booking or an execution.
#![recursion_limit = "256"]

pub mod api;
pub mod client;
pub mod ids;
mod log;
pub mod object;
pub mod problem;
pub mod repository;
mod shape;
pub mod slot;
mod tree;

pub use client::Client;
pub use problem::{Code, Problem};
pub use shape::{nearest, whole_number};
pub use slot::Slot;

#[cfg(not(feature = "schema"))]
use bursar_schema::ToSchema;
#[cfg(feature = "schema")]
use utoipa::ToSchema;
