//! Result of one clearing: the output of `bursar market clear`.

use bursar_market::clear::{BoundBy, Cleared, Mode};
use serde::{Deserialize, Serialize};

/// Result of one clearing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clearing {
    /// Mode of the clearing.
    pub mode: Mode,
    /// λ: 0 if no pod is held back.
    pub price_ppm: u64,
    /// Shared capacity, in whole quanta.
    pub capacity_milli: u64,
    /// Pods that took part, by id.
    pub pods: Vec<ClearedPod>,
    /// Pods that did not: no limit in whole quanta lies between their floor and ceiling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub too_narrow: Vec<String>,
}

/// Share of one pod.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClearedPod {
    /// Id of the pod.
    pub id: String,
    /// Need.
    pub need_milli: u64,
    /// Share.
    pub allocated_milli: u64,
    /// Bound that decided the share.
    pub bound_by: BoundBy,
}

impl From<&Cleared> for Clearing {
    fn from(cleared: &Cleared) -> Self {
        let pods = cleared.shares.iter().map(|share| ClearedPod {
            id: share.id.to_string(),
            need_milli: share.need_milli,
            allocated_milli: share.allocated_milli,
            bound_by: share.bound_by,
        });
        Self {
            mode: cleared.mode,
            price_ppm: cleared.price_ppm,
            capacity_milli: cleared.capacity_milli,
            pods: pods.collect(),
            too_narrow: cleared.too_narrow.iter().map(ToString::to_string).collect(),
        }
    }
}
