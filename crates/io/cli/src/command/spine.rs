//! The commands of the spine: nodes, tokens, the ledger and its proofs.

pub(super) mod audit;
pub(super) mod ledger;
pub(super) mod node;
pub(super) mod token;
