//! The promises of the ledger's durable side.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may panic, and says what it means"
)]

mod check;
mod contract;
mod files;
mod forgeries;
mod index;
mod instant;
mod lost;
mod maintain;
mod memory;
mod opening;
mod pipeline;
mod syncs;
mod trouble;
mod upgrade;
mod world;
