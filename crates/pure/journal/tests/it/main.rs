//! Tests of the journal crate, against published vectors, the crate ct-merkle, OpenSSL and garbage.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic, and says so by failing"
)]

mod checkpoints;
mod garbage;
mod hashes;
mod proofs;
mod records;
mod store;
mod tiles;
mod tree;
