//! Result of a simulation: the output of `bursar market simulate`.

use bursar_market::clear::BoundBy;
use serde::{Deserialize, Serialize};

/// What the market would have done with a load.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Simulated {
    /// Limits that were written, by second, then by pod.
    pub changes: Vec<SimulatedChange>,
    /// Work that was lost, or still waits in the end, in milliseconds of a core.
    pub lost_milli_seconds: u64,
    /// Pods × seconds in which a limit held a pod back.
    pub throttled_seconds: u64,
    /// Number of limits written.
    pub writes: u64,
}

/// A limit that was written.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedChange {
    /// Second, from 1.
    pub second: u64,
    /// Id of the pod.
    pub pod: String,
    /// New limit.
    pub limit_milli: u64,
    /// Window of memory in seconds; `null` for shares and overload.
    pub rung: Option<u64>,
    /// Bound that decided the limit.
    pub bound_by: BoundBy,
}
