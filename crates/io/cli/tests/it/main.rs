//! Tests of the real binary: transcripts on virtual time, and processes on the real machine.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod alerts;
mod audit;
mod exec;
mod exec_detach;
mod exec_lost;
mod exec_queue;
mod exec_running;
mod exec_terminal;
mod executions;
mod help;
mod house;
mod inputs;
mod loss;
mod market;
mod market_end;
mod market_ledger;
mod market_node;
mod outputs;
mod runs;
mod scenarios;
mod top_hung;
mod trouble;
mod up;
