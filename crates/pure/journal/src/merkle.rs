//! The Merkle tree of RFC 6962 over the leaf hashes of the records, in the order of `seq`.
//!
//! The writer keeps only the [`Edge`]; readers build proofs from tiles ([`prove_inclusion`],
//! [`prove_consistency`]); verifiers need only hashes ([`verify_inclusion`],
//! [`verify_consistency`]). The oracles of the tests are the crate ct-merkle and the vectors of
//! Certificate Transparency.

mod edge;
mod prove;
mod verify;

pub use edge::{Edge, EdgeParts, NotAnEdge};
pub use prove::{Error as ProveError, prove_consistency, prove_inclusion};
pub use verify::{Error as VerifyError, inclusion_root, verify_consistency, verify_inclusion};
