//! Clears a node once: who gets how many millicores, why, and at what price (M4–M7).
//!
//! Precedence: capacity, floor, ceiling, guard, need. Modes are outcomes, not branches that a pod
//! could fall between: what each gets is continuous across their borders.
//!
//! 1. The floors alone exceed capacity: overload. 2. All upper bounds fit: everyone has its own.
//! 3. All lower bounds fit: the kernel divides by the policy. 4. Guards yield, floors do not.

mod bounds;
mod divide;

use std::sync::Arc;

use bursar_units::vocabulary;

use crate::kernel::Level;
use crate::need::{self, Need, PPM};
use bounds::{Placed, Quantum};
use divide::divide;

/// The price where a millicore cannot be had at all, in parts per million.
pub const PRICE_MAX_PPM: u64 = 1_000_000_000_000;
/// What a pod keeps even when the floors do not fit, in millicores (M4).
pub const SURVIVAL_MILLI: u64 = 10;
/// The largest number of millicores, and of weight, that is counted with; larger ones are cut.
pub const VALUE_MAX: u64 = 1_000_000_000;

vocabulary! {
    /// By which rule what is scarce is divided.
    #[derive(Default)]
    pub enum Policy {
        /// Everyone's claim above its floor is cut by the same ratio (seed 001).
        #[default]
        Proportional = "proportional",
        /// By weight, capped at need: small needs first, and inflating a claim buys nothing.
        WeightedNash = "weighted-nash",
        /// By weight × demand, up to the ceilings, until nothing is left (seed 000).
        FullCapacity = "full-capacity",
    }
}

vocabulary! {
    /// What came of it, as the seed names it.
    #[derive(Default)]
    pub enum Mode {
        /// All needs fit.
        #[default]
        Uncongested = "uncongested",
        /// They do not.
        Congested = "congested",
        /// Not even the floors do.
        Overloaded = "overloaded",
    }
}

/// A node to be cleared.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Market {
    /// C: what can be shared.
    pub capacity_milli: u64,
    /// By which rule.
    pub policy: Policy,
    /// The step in which limits can be written (M6).
    pub quantum_milli: u64,
    /// Who takes part; in any order.
    pub pods: Vec<Pod>,
}

/// A participant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pod {
    /// Its name; ties go by it.
    pub id: Arc<str>,
    /// m: its floor. Above the ceiling it counts as the ceiling.
    pub min_milli: u64,
    /// M: its ceiling.
    pub max_milli: u64,
    /// w: how much it counts.
    pub weight: u64,
    /// What it wants.
    pub want: Want,
    /// h: its headroom in permille.
    pub headroom_permille: u64,
    /// What it may use now; guards count from there. Absent: no guard.
    pub current_milli: Option<u64>,
    /// Whether that was changed so recently that it may not shrink.
    pub cooling: bool,
}

/// What a pod wants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Want {
    /// d: where its demand lies between floor and ceiling, in parts per million.
    Demand(u64),
    /// n: what it needs.
    Need(u64),
}

/// What everyone gets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cleared {
    /// What came of it.
    pub mode: Mode,
    /// λ in parts per million: 0 when nobody is held back.
    pub price_ppm: u64,
    /// What could be shared, in whole quanta.
    pub capacity_milli: u64,
    /// The sum of the floors.
    pub min_milli: u64,
    /// The sum of the needs.
    pub need_milli: u64,
    /// Which of the four steps divided it.
    pub step: Step,
    /// Each pod that takes part, by id.
    pub shares: Vec<Share>,
    /// Those whose range is narrower than a quantum, by id: not managed.
    pub too_narrow: Vec<Arc<str>>,
}

/// Which rule divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// The floors do not fit.
    Overload,
    /// Everything fits.
    AllFits,
    /// The kernel divided by the policy, at this level.
    Shared(Level),
    /// Guards had to yield.
    GuardsYield,
}

/// What one pod gets, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Share {
    /// Which.
    pub id: Arc<str>,
    /// Its floor, in whole quanta.
    pub min_milli: u64,
    /// Its ceiling, in whole quanta.
    pub max_milli: u64,
    /// What it needs, in whole quanta.
    pub need_milli: u64,
    /// How its need came about, where demand was given.
    pub need: Option<Need>,
    /// What pulled it upwards: n − m, w, or w·d in parts per million.
    pub bid: u64,
    /// What it gets.
    pub allocated_milli: u64,
    /// What kept it from more, or from less.
    pub bound_by: BoundBy,
}

vocabulary! {
    /// What decided a share.
    pub enum BoundBy {
        /// It has all it needs.
        Need = "need",
        /// What there was, divided.
        Share = "share",
        /// Its floor.
        Min = "min",
        /// Its ceiling.
        Max = "max",
        /// It was changed too recently to shrink.
        Cooldown = "cooldown",
        /// It may only change so much at a time.
        Step = "step",
        /// The floor under the floors.
        Survival = "survival",
    }
}

impl Share {
    /// (need − allocation) / (need − floor) in parts per million, rounded down; 0 where need is
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
    // Whoever keeps pods by id hands them over in order.
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

/// A number of millicores in whole quanta, rounded up, as floors are (M6).
pub fn quantised_up(milli: u64, quantum_milli: u64) -> u64 {
    let quantum = Quantum::new(quantum_milli);
    quantum.milli(quantum.ceil(milli.min(VALUE_MAX)))
}

/// Whether no limit in whole quanta lies between a floor and a ceiling: not managed (M6).
pub fn is_too_narrow(min_milli: u64, max_milli: u64, quantum_milli: u64) -> bool {
    Quantum::new(quantum_milli).is_too_narrow(min_milli, max_milli)
}
