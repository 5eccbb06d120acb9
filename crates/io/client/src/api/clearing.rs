//! One clearing by itself: what `bursar market clear` answers (design 10, "What if, from a file").

use bursar_market::clear::{BoundBy, Cleared, Mode, Policy};
use serde::{Deserialize, Serialize};

use super::market::{MarketBound, MarketMode, MarketPolicy};

/// A node that was cleared.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clearing {
    /// What came of it.
    pub mode: MarketMode,
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
    pub bound_by: MarketBound,
}

impl From<&Cleared> for Clearing {
    fn from(cleared: &Cleared) -> Self {
        let pods = cleared.shares.iter().map(|share| ClearedPod {
            id: share.id.to_string(),
            need_milli: share.need_milli,
            allocated_milli: share.allocated_milli,
            bound_by: share.bound_by.into(),
        });
        Self {
            mode: cleared.mode.into(),
            price_ppm: cleared.price_ppm,
            capacity_milli: cleared.capacity_milli,
            pods: pods.collect(),
            too_narrow: cleared.too_narrow.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<Mode> for MarketMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Uncongested => Self::Uncongested,
            Mode::Congested => Self::Congested,
            Mode::Overloaded => Self::Overloaded,
        }
    }
}

impl From<MarketMode> for Mode {
    fn from(mode: MarketMode) -> Self {
        match mode {
            MarketMode::Uncongested => Self::Uncongested,
            MarketMode::Congested => Self::Congested,
            MarketMode::Overloaded => Self::Overloaded,
        }
    }
}

impl From<MarketPolicy> for Policy {
    fn from(policy: MarketPolicy) -> Self {
        match policy {
            MarketPolicy::Proportional => Self::Proportional,
            MarketPolicy::WeightedNash => Self::WeightedNash,
            MarketPolicy::FullCapacity => Self::FullCapacity,
        }
    }
}

impl From<BoundBy> for MarketBound {
    fn from(bound: BoundBy) -> Self {
        match bound {
            BoundBy::Need => Self::Need,
            BoundBy::Share => Self::Share,
            BoundBy::Min => Self::Min,
            BoundBy::Max => Self::Max,
            BoundBy::Cooldown => Self::Cooldown,
            BoundBy::Step => Self::Step,
            BoundBy::Survival => Self::Survival,
        }
    }
}

impl From<MarketBound> for BoundBy {
    fn from(bound: MarketBound) -> Self {
        match bound {
            MarketBound::Need => Self::Need,
            MarketBound::Share => Self::Share,
            MarketBound::Min => Self::Min,
            MarketBound::Max => Self::Max,
            MarketBound::Cooldown => Self::Cooldown,
            MarketBound::Step => Self::Step,
            MarketBound::Survival => Self::Survival,
        }
    }
}
