//! Converts a pod to whole quanta: its claim, its bounds, and the reason of each bound.

use std::sync::Arc;

use super::{BoundBy, Mode, Pod, Policy, SURVIVAL_MILLI, Share, Step, VALUE_MAX, Want};
use crate::kernel::Claim;
use crate::need::{self, Need};

/// A limit shrinks to no less than half in one step.
const STEP_DOWN: u64 = 2;
/// A limit grows at most fourfold in one step.
const STEP_UP: u64 = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Quantum(u64);

/// All pods by id, one list per field, because the kernel iterates the claims many times.
pub(super) struct Placed {
    /// o = m, the bounds with their guards, the policy's bid.
    pub(super) claims: Vec<Claim>,
    pub(super) reasons: Vec<Reasons>,
    /// For full capacity only, where pods that bid nothing are served by weight.
    pub(super) weights: Vec<u64>,
    pub(super) sums: Sums,
}

/// The meaning of each bound of a pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reasons {
    at_hi: BoundBy,
    at_lo: BoundBy,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) min: u64,
    pub(super) need: u64,
    pub(super) lo: u64,
    pub(super) hi: u64,
}

impl Quantum {
    pub(super) fn new(milli: u64) -> Self {
        Self(milli.clamp(1, VALUE_MAX))
    }

    /// Divisions are slow, and the quantum is mostly 1.
    pub(super) const fn floor(self, milli: u64) -> u64 {
        if self.0 == 1 { milli } else { milli / self.0 }
    }

    pub(super) const fn ceil(self, milli: u64) -> u64 {
        if self.0 == 1 {
            milli
        } else {
            milli.div_ceil(self.0)
        }
    }

    pub(super) const fn milli(self, units: u64) -> u64 {
        units * self.0
    }

    /// Whether the floor, rounded up, is above the ceiling, rounded down.
    pub(super) fn is_too_narrow(self, min_milli: u64, max_milli: u64) -> bool {
        let max_milli = max_milli.min(VALUE_MAX);
        self.floor(max_milli) < self.ceil(min_milli.min(max_milli))
    }

    pub(super) const fn survival(self) -> u64 {
        self.ceil(SURVIVAL_MILLI)
    }
}

impl Placed {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self {
            claims: Vec::with_capacity(count),
            reasons: Vec::with_capacity(count),
            weights: Vec::new(),
            sums: Sums::default(),
        }
    }

    /// Adds the next pod by id, whose range is not too narrow. Returns its share without the
    /// allocation.
    #[inline]
    pub(super) fn add(&mut self, pod: &Pod, policy: Policy, quantum: Quantum) -> Share {
        let max_milli = pod.max_milli.min(VALUE_MAX);
        let min_milli = pod.min_milli.min(max_milli);
        let (m, max) = (quantum.ceil(min_milli), quantum.floor(max_milli));
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
        let (wish, bid) = match policy {
            Policy::Proportional => (need, need - m),
            Policy::WeightedNash => (need, weight.max(1)),
            Policy::FullCapacity => (max, weight * demand_ppm(made)),
        };
        let (guard_lo, guard_hi) = guards(pod, quantum);
        let (lo, guard_hi) = (guard_lo.clamp(m, max), guard_hi.clamp(m, max));
        let hi = lo.max(wish.min(guard_hi));
        let guard = if pod.cooling {
            BoundBy::Cooldown
        } else {
            BoundBy::Step
        };
        self.sums.min += m;
        self.sums.need += need;
        self.sums.lo += lo;
        self.sums.hi += hi;
        self.claims.push(Claim {
            offset: m,
            lo,
            hi,
            bid,
        });
        self.reasons.push(Reasons {
            at_hi: if wish < lo {
                guard
            } else if guard_hi < wish {
                BoundBy::Step
            } else if hi == max && m < max {
                BoundBy::Max
            } else {
                BoundBy::Need
            },
            at_lo: if m < lo { guard } else { BoundBy::Min },
        });
        if policy == Policy::FullCapacity {
            self.weights.push(weight);
        }
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
}

/// The range of a limit in one step, without regard to floor and ceiling (M5).
fn guards(pod: &Pod, quantum: Quantum) -> (u64, u64) {
    let Some(current) = pod.current_milli else {
        return (0, VALUE_MAX);
    };
    let current = current.min(VALUE_MAX);
    let least = if pod.cooling {
        current
    } else {
        current.div_ceil(STEP_DOWN)
    };
    // From 0 it may grow as from one quantum, or it would stay 0 for ever.
    let most = current.max(quantum.milli(1)) * STEP_UP;
    (quantum.ceil(least), quantum.floor(most))
}

impl Reasons {
    pub(super) fn bound_by(
        self,
        claim: &Claim,
        units: u64,
        step: Step,
        quantum: Quantum,
    ) -> BoundBy {
        match step {
            // Written without branches, which would be unpredictable.
            Step::AllFits | Step::Shared(_) => {
                let below = if units == claim.lo {
                    self.at_lo
                } else {
                    BoundBy::Share
                };
                if units == claim.hi { self.at_hi } else { below }
            }
            Step::Overload | Step::GuardsYield if units == claim.offset => BoundBy::Min,
            Step::Overload if units <= quantum.survival() => BoundBy::Survival,
            Step::Overload | Step::GuardsYield => BoundBy::Share,
        }
    }
}

impl Sums {
    pub(super) fn mode(&self, capacity: u64) -> Mode {
        if self.min > capacity {
            Mode::Overloaded
        } else if self.need <= capacity {
            Mode::Uncongested
        } else {
            Mode::Congested
        }
    }
}
