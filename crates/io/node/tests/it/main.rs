//! Executions on the real kernel. They need root and cgroups that can be written, as a server
//! has them: without, they fail and say so.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

mod host;
mod life;
