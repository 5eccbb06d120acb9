//! The API of the cluster: budgets, runs, leases and usage.

pub(crate) mod answers;
mod budgets;
mod covers;
pub(crate) mod effect;
mod leases;
pub(crate) mod metrics;
pub(crate) mod refusal;
pub(crate) mod routes;
mod runs;
pub(crate) mod sight;
mod usage;

pub(crate) use covers::note_covers;
