//! Tests of the market.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod cgroup;
mod closed_loop;
mod explain;
mod golden;
mod naive;
mod node;
mod oracle;
mod plant;
mod properties;
mod random;
mod sense;
mod side_by_side;
mod tables;
mod trajectories;
mod worlds;
