//! The shapes that people and programs meet, and a client that speaks them (design 80).
//!
//! [`api`] holds the JSON of the HTTP interface, [`problem`] the one table of codes, [`object`]
//! the files people write. Nothing here decides: the server turns these types into commands and
//! answers back into them, so the inside may move while this stays still.

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
