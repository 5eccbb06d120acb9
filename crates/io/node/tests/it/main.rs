//! Executions on the real kernel. The tests need root and writable cgroups, and fail with a message
//! without them.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod bare;
mod crash;
mod host;
mod layout;
mod life;
mod limits;
mod market_crash;
mod market_files;
mod market_ground;
mod market_kernel;
mod market_record;
mod null;
mod stop;
mod trouble;
mod works;
