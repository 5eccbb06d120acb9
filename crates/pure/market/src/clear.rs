//! Clears a node once: the share of each pod, its reason, and the price (M4–M7).
//!
//! Precedence: capacity, floor, ceiling, guard, need. Modes are results, not branches: shares are
//! continuous across their borders.
//!
//! 1. The floors alone exceed capacity: overload. 2. All upper bounds fit: each pod gets its own.
//! 3. All lower bounds fit: the kernel divides by the policy. 4. Otherwise guards yield, floors do not.

mod bounds;
mod divide;

use std::sync::Arc;

use bursar_units::vocabulary;

use crate::kernel::Level;
use crate::need::{self, Need, PPM};
use bounds::{Placed, Quantum};
use divide::divide;

/// The price when no millicore is available, in parts per million.
pub const PRICE_MAX_PPM: u64 = 1_000_000_000_000;
/// Minimum share of a pod while the floors do not fit, in millicores (M4).
pub const SURVIVAL_MILLI: u64 = 10;
/// Maximum of millicores and of weight; larger values are cut.
pub const VALUE_MAX: u64 = 1_000_000_000;

vocabulary! {
    /// The rule that divides scarce CPU.
    #[derive(Default)]
    pub enum Policy {
        /// All claims above the floors are cut by the same ratio.
        #[default]
        Proportional = "proportional",
        /// By weight, capped at need: small needs first, and an inflated claim gains nothing.
        WeightedNash = "weighted-nash",
        /// By weight × demand, up to the ceilings, until nothing is left.
        FullCapacity = "full-capacity",
    }
}

vocabulary! {
    /// Congestion of a node.
    #[derive(Default)]
    pub enum Mode {
        /// All needs fit.
        #[default]
        Uncongested = "uncongested",
        /// The needs do not fit.
        Congested = "congested",
        /// The floors do not fit.
        Overloaded = "overloaded",
    }
}

/// Input of a clearing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Market {
    /// C: the shared capacity.
    pub capacity_milli: u64,
    /// The rule that divides.
    pub policy: Policy,
    /// The step of limits (M6).
    pub quantum_milli: u64,
    /// The pods, in any order.
    pub pods: Vec<Pod>,
}

/// A pod in a clearing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pod {
    /// Its name, which breaks ties.
    pub id: Arc<str>,
    /// m: its floor. Above the ceiling it counts as the ceiling.
    pub min_milli: u64,
    /// M: its ceiling.
    pub max_milli: u64,
    /// w: its weight.
    pub weight: u64,
    /// Its demand or need.
    pub want: Want,
    /// h: its headroom in permille.
    pub headroom_permille: u64,
    /// Its present limit, from which guards count; absent for no guard.
    pub current_milli: Option<u64>,
    /// Whether the limit was changed so recently that it may not shrink.
    pub cooling: bool,
}

/// Demand or need of a pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Want {
    /// d: the position of its demand between floor and ceiling, in parts per million.
    Demand(u64),
    /// n: its need.
    Need(u64),
}

/// Result of a clearing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cleared {
    /// The congestion.
    pub mode: Mode,
    /// λ in parts per million: 0 when no pod is cut.
    pub price_ppm: u64,
    /// The shared capacity, in whole quanta.
    pub capacity_milli: u64,
    /// The sum of the floors.
    pub min_milli: u64,
    /// The sum of the needs.
    pub need_milli: u64,
    /// The step that divided.
    pub step: Step,
    /// The shares, by id.
    pub shares: Vec<Share>,
    /// Pods whose range is narrower than a quantum, by id: not managed.
    pub too_narrow: Vec<Arc<str>>,
}

impl Cleared {
    /// The share of a pod, if it took part.
    pub fn share(&self, id: &str) -> Option<&Share> {
        let index = self.shares.binary_search_by(|share| (*share.id).cmp(id));
        self.shares.get(index.ok()?)
    }
}

/// The step of a clearing that divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// The floors do not fit.
    Overload,
    /// All upper bounds fit.
    AllFits,
    /// The kernel divided by the policy, at this level.
    Shared(Level),
    /// Guards yielded.
    GuardsYield,
}

/// The share of one pod, with its reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Share {
    /// The pod.
    pub id: Arc<str>,
    /// Its floor, in whole quanta.
    pub min_milli: u64,
    /// Its ceiling, in whole quanta.
    pub max_milli: u64,
    /// Its need, in whole quanta.
    pub need_milli: u64,
    /// The steps that led to its need, if demand was given.
    pub need: Option<Need>,
    /// Its bid: n − m, w, or w·d in parts per million.
    pub bid: u64,
    /// Its share.
    pub allocated_milli: u64,
    /// The bound that decided its share.
    pub bound_by: BoundBy,
}

vocabulary! {
    /// The bound that decided a share.
    pub enum BoundBy {
        /// Its need.
        Need = "need",
        /// The division of scarce CPU.
        Share = "share",
        /// Its floor.
        Min = "min",
        /// Its ceiling.
        Max = "max",
        /// The cooldown: it was changed too recently to shrink.
        Cooldown = "cooldown",
        /// The maximum change per clearing.
        Step = "step",
        /// The minimum share in overload.
        Survival = "survival",
    }
}

impl Share {
    /// (need − allocation) / (need − floor) in parts per million, rounded down; 0 if the need is
    /// the floor.
    pub fn reduction_ppm(&self) -> u64 {
        let held_back = self.need_milli.saturating_sub(self.allocated_milli);
        match self.need_milli.saturating_sub(self.min_milli) {
            0 => 0,
            claim => need::floor(held_back, PPM, claim),
        }
    }
}

/// Divides the CPU of a node.
pub fn clear(market: &Market) -> Cleared {
    let quantum = Quantum::new(market.quantum_milli);
    let capacity = quantum.floor(market.capacity_milli.min(VALUE_MAX));
    let mut pods: Vec<&Pod> = market.pods.iter().collect();
    // Callers that keep pods by id pass them sorted.
    if !pods.is_sorted_by(|a, b| a.id <= b.id) {
        pods.sort_by(|a, b| a.id.cmp(&b.id));
    }
    let is_too_narrow = |pod: &mut &Pod| quantum.is_too_narrow(pod.min_milli, pod.max_milli);
    let too_narrow = pods.extract_if(.., is_too_narrow);
    let too_narrow = too_narrow.map(|pod| Arc::clone(&pod.id)).collect();
    let mut placed = Placed::with_capacity(pods.len());
    let place = |pod| placed.add(pod, market.policy, quantum);
    let mut shares: Vec<Share> = pods.into_iter().map(place).collect();
    let Placed {
        claims,
        reasons,
        weights,
        sums,
    } = placed;
    let divided = divide(market.policy, (&claims, &weights), capacity, &sums, quantum);
    let results = claims.iter().zip(reasons).zip(divided.units);
    for (share, ((claim, reasons), units)) in shares.iter_mut().zip(results) {
        share.allocated_milli = quantum.milli(units);
        share.bound_by = reasons.bound_by(claim, units, divided.step, quantum);
    }
    Cleared {
        mode: sums.mode(capacity),
        price_ppm: divided.price_ppm,
        capacity_milli: quantum.milli(capacity),
        min_milli: quantum.milli(sums.min),
        need_milli: quantum.milli(sums.need),
        step: divided.step,
        shares,
        too_narrow,
    }
}

/// Rounds millicores up to whole quanta, as for floors (M6).
pub fn quantised_up(milli: u64, quantum_milli: u64) -> u64 {
    let quantum = Quantum::new(quantum_milli);
    quantum.milli(quantum.ceil(milli.min(VALUE_MAX)))
}

/// Whether no limit in whole quanta is between floor and ceiling: not managed (M6).
pub fn is_too_narrow(min_milli: u64, max_milli: u64, quantum_milli: u64) -> bool {
    Quantum::new(quantum_milli).is_too_narrow(min_milli, max_milli)
}
