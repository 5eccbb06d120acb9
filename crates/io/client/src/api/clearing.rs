//! One clearing by itself: what `bursar market clear` answers (design 10, "What if, from a file").

use bursar_market::clear::{BoundBy, Cleared, Mode};
use serde::{Deserialize, Serialize};

/// A node that was cleared.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clearing {
    /// What came of it.
    pub mode: Mode,
    /// λ: 0 when nobody is held back.
    pub price_ppm: u64,
    /// What could be shared, in whole quanta.
    pub capacity_milli: u64,
    /// Those who took part, by id.
    pub pods: Vec<ClearedPod>,
    /// Those who did not, because no limit in whole quanta lies between their floor and ceiling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub too_narrow: Vec<String>,
}

/// What one pod gets.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClearedPod {
    /// Which.
    pub id: String,
    /// What it needs.
    pub need_milli: u64,
    /// What it gets.
    pub allocated_milli: u64,
    /// What kept it from more, or from less.
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
