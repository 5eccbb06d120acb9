//! Clears a node once: the share of each pod, its reason, and the price (M4–M7).
//!
//! 1. The floors alone exceed capacity: overload. 2. Everybody gets the largest rung that fits. 3. Not
//!    even the lowest rung fits: the kernel divides by the policy, never above the ask.
//!
//! A file gives demand or need: one rung. An agent measures: the rungs are windows of memory, and when
//! somebody asks for room that is not free, the node forgets the oldest use of all pods, by one common
//! window ([`crate::bidder`]).
//! Precedence: capacity, floor, ceiling, need. Modes are results, not branches: shares are continuous
//! across their borders.

mod divide;
mod quantum;

use std::sync::Arc;

use bursar_units::vocabulary;

use crate::bidder::Measured;
use crate::kernel::{Claim, Level};
use crate::need::{self, Need, PPM};
pub(crate) use divide::{Divided, Placed, Rule, divide};
pub(crate) use quantum::Quantum;

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
    /// The sum of the asks, v(0); of the needs, if they were given.
    pub ask_milli: u64,
    /// W: the number of samples that are remembered; 0 if needs were given.
    pub windows: usize,
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
    /// Each pod gets this rung: its use in a window of so many samples is kept. The last rung is the
    /// whole need; on rung 0 only the asks fit, without headroom.
    Rung(usize),
    /// The kernel divided by the policy, at this level.
    Shared(Level),
}

impl Step {
    /// The rung; `None` for shares and overload.
    pub const fn rung(self) -> Option<usize> {
        match self {
            Self::Rung(window) => Some(window),
            Self::Overload | Self::Shared(_) => None,
        }
    }
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
    /// Its bid: n − m or its size, w, or w·d in parts per million.
    pub bid: u64,
    /// Its share.
    pub allocated_milli: u64,
    /// The bound that decided its share.
    pub bound_by: BoundBy,
}

vocabulary! {
    /// The bound that decided a share; the last three, why a share was not written.
    pub enum BoundBy {
        /// Its need.
        Need = "need",
        /// The division of scarce CPU.
        Share = "share",
        /// Its floor.
        Min = "min",
        /// Its ceiling.
        Max = "max",
        /// The window of memory: older use is not kept, because others ask.
        Memory = "memory",
        /// Twice its use, which bounds what it may ask for at a time.
        Step = "step",
        /// The minimum share in overload.
        Survival = "survival",
        /// The budget of writes.
        Budget = "budget",
        /// The cooldown: it was changed too recently.
        Cooldown = "cooldown",
        /// The maximum factor of a raise.
        MaxStep = "max-step",
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
    let mut pods: Vec<&Pod> = market.pods.iter().collect();
    // Callers that keep pods by id pass them sorted.
    if !pods.is_sorted_by(|a, b| a.id <= b.id) {
        pods.sort_by(|a, b| a.id.cmp(&b.id));
    }
    let is_too_narrow = |pod: &mut &Pod| quantum.is_too_narrow(pod.min_milli, pod.max_milli);
    let too_narrow = pods.extract_if(.., is_too_narrow);
    let too_narrow = too_narrow.map(|pod| Arc::clone(&pod.id)).collect();
    let mut placed = Placed::new(0);
    let place = |pod| placed.add(pod, market.policy, quantum);
    let mut shares: Vec<Share> = pods.into_iter().map(place).collect();
    let rule = Rule {
        policy: market.policy,
        quantum,
        capacity: quantum.floor(market.capacity_milli.min(VALUE_MAX)),
        is_measured: false,
    };
    placed.climb(rule.capacity, |_, claim, rungs| rungs.fill(claim.hi));
    let divided = divide(&rule, &placed);
    for ((share, place), units) in shares.iter_mut().zip(0..).zip(&divided.units) {
        share.allocated_milli = quantum.milli(*units);
        share.bound_by = divided.bound_by(&rule, &placed, place, |claim| (claim.hi, false));
    }
    Cleared {
        mode: placed.mode(rule.capacity),
        price_ppm: divided.price_ppm,
        capacity_milli: quantum.milli(rule.capacity),
        min_milli: quantum.milli(placed.min),
        need_milli: quantum.milli(placed.ask),
        ask_milli: quantum.milli(placed.ask),
        windows: 0,
        step: divided.step,
        shares,
        too_narrow,
    }
}

impl Placed {
    /// Adds the next pod by id, whose range is not too narrow. Returns its share without the
    /// allocation.
    #[inline]
    fn add(&mut self, pod: &Pod, policy: Policy, quantum: Quantum) -> Share {
        let max_milli = pod.max_milli.min(VALUE_MAX);
        let min_milli = pod.min_milli.min(max_milli);
        let (m, max) = quantum.range(min_milli, max_milli);
        let weight = pod.weight.min(VALUE_MAX);
        let (need_milli, made) = match pod.want {
            Want::Demand(demand) => {
                let made = need::need(min_milli, max_milli, demand, pod.headroom_permille);
                (made.milli, Some(made))
            }
            Want::Need(need) => (need.clamp(min_milli, max_milli), None),
        };
        let need = quantum.ceil(need_milli).clamp(m, max);
        let demand_ppm = |made: Option<Need>| match made {
            Some(made) => made.demand_ppm,
            None => need::demand_ppm(min_milli, max_milli, need_milli),
        };
        let (hi, bid) = match policy {
            Policy::Proportional => (need, need - m),
            Policy::WeightedNash => (need, weight.max(1)),
            Policy::FullCapacity => (max, weight * demand_ppm(made)),
        };
        self.push(
            Claim {
                offset: m,
                lo: m,
                hi,
                bid,
            },
            (need, max, weight),
            hi,
        );
        Share {
            id: Arc::clone(&pod.id),
            min_milli: quantum.milli(m),
            max_milli: quantum.milli(max),
            need_milli: quantum.milli(need),
            need: made,
            bid,
            allocated_milli: 0,
            bound_by: BoundBy::Share,
        }
    }

    /// Adds the next measured pod by id, whose range is not too narrow.
    #[inline]
    pub(crate) fn add_measured(&mut self, pod: Measured<'_>, policy: Policy, quantum: Quantum) {
        let (m, max) = pod.range(quantum);
        let firm = pod.firm(quantum);
        let weight = pod.bidder.params.weight.min(VALUE_MAX);
        self.push(
            Claim {
                offset: m,
                lo: m,
                hi: firm,
                bid: pod.bid(policy, quantum),
            },
            (firm, max, weight),
            pod.rung(0, quantum),
        );
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
