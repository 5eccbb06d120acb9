//! Computes the parameters of a pod from its Kubernetes resources (M7, M9).

use crate::clear::VALUE_MAX;

/// Minimum floor, so that a pod without a request does not starve, in millicores.
pub const BASELINE_MILLI: u64 = 100;
/// Factor of a pod without a priority class, in permille.
pub const FACTOR_PERMILLE: u64 = 1_000;

/// CPU resources of one container.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Container {
    /// Its CPU request.
    pub request_milli: Option<u64>,
    /// Its CPU limit.
    pub limit_milli: Option<u64>,
}

/// Defaults and factors for pods.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The minimum floor.
    pub baseline_milli: u64,
    /// The ceiling of a pod without a limit: a configured cap, else the node.
    pub unlimited_milli: u64,
    /// The factor of its priority class, in permille.
    pub factor_permille: u64,
}

/// Floor, ceiling and weight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Params {
    /// m.
    pub min_milli: u64,
    /// M.
    pub max_milli: u64,
    /// w.
    pub weight: u64,
}

/// The parameters of a pod: sums over its containers. If one container has no limit, the pod has none.
pub fn params_for_pod(containers: &[Container], settings: &Settings) -> Params {
    let request_milli = containers
        .iter()
        .map(|container| container.request_milli.unwrap_or(0).min(VALUE_MAX))
        .sum::<u64>()
        .min(VALUE_MAX);
    let limit_milli = containers
        .iter()
        .map(|container| container.limit_milli.map(|limit| limit.min(VALUE_MAX)))
        .sum::<Option<u64>>()
        .filter(|_| !containers.is_empty());
    let max_milli = limit_milli
        .unwrap_or(settings.unlimited_milli)
        .min(VALUE_MAX);
    Params {
        min_milli: settings.baseline_milli.max(request_milli).min(max_milli),
        max_milli,
        weight: weight(request_milli, settings.factor_permille),
    }
}

/// w = max(1, ⌊max(1, request)·factor/1000⌋).
pub fn weight(request_milli: u64, factor_permille: u64) -> u64 {
    crate::need::floor(request_milli.max(1), factor_permille, 1_000).clamp(1, VALUE_MAX)
}
