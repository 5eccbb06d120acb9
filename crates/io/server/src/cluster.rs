//! The API of the cluster (budgets, runs, leases): problem codes and stream data.

pub(crate) mod refusal;
