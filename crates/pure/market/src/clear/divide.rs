//! The steps of a clearing, in whole quanta (M4, M5, M7).

use super::{BoundBy, Mode, PRICE_MAX_PPM, Policy, Quantum, Step};
use crate::kernel::{Claim, Level, solve};
use crate::need::PPM;

/// The settings of a division.
pub(crate) struct Rule {
    pub(crate) policy: Policy,
    pub(crate) quantum: Quantum,
    pub(crate) capacity: u64,
    /// Whether an agent measured the pods; if not, a file gives demand or need.
    pub(crate) is_measured: bool,
}

/// All pods by id, one list per field, because the kernel iterates the claims many times.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// o = lo = m, the ask, and the policy's bid.
    pub(crate) claims: Vec<Claim>,
    /// M.
    pub(crate) max: Vec<u64>,
    weights: Vec<u64>,
    /// x(0)…x(W) of the first pod, then of the next; x never falls with w.
    rungs: Vec<u64>,
    /// Σx(0)…Σx(W).
    rung_sums: Vec<u64>,
    /// Σx(0), which is known before the other rungs.
    lowest: u64,
    /// The sum of the floors.
    pub(crate) min: u64,
    /// The sum of the asks or given needs.
    pub(crate) ask: u64,
}

pub(crate) struct Divided {
    pub(crate) units: Vec<u64>,
    pub(crate) step: Step,
    pub(crate) price_ppm: u64,
}

impl Placed {
    /// No pods, with rungs from 0 to `windows`.
    pub(crate) fn new(windows: usize) -> Self {
        Self {
            claims: Vec::new(),
            max: Vec::new(),
            weights: Vec::new(),
            rungs: Vec::new(),
            rung_sums: vec![0; windows + 1],
            lowest: 0,
            min: 0,
            ask: 0,
        }
    }

    /// Adds a pod; `lowest` is its x(0).
    pub(crate) fn push(&mut self, claim: Claim, (ask, max, weight): (u64, u64, u64), lowest: u64) {
        self.lowest += lowest;
        self.min += claim.lo;
        self.ask += ask;
        self.claims.push(claim);
        self.max.push(max);
        self.weights.push(weight);
    }

    pub(crate) fn clear(&mut self) {
        self.claims.clear();
        self.max.clear();
        self.weights.clear();
        self.rungs.clear();
        self.rung_sums.fill(0);
        (self.lowest, self.min, self.ask) = (0, 0, 0);
    }

    /// Computes all rungs, unless not even the lowest fits. `fill` fills in x(0)…x(W) of the pod at a
    /// place.
    pub(crate) fn climb(&mut self, capacity: u64, fill: impl Fn(usize, &Claim, &mut [u64])) {
        if self.lowest > capacity {
            return;
        }
        let count = self.rung_sums.len();
        self.rungs.resize(self.claims.len() * count, 0);
        let rows = self.rungs.chunks_exact_mut(count);
        for ((place, claim), rungs) in self.claims.iter().enumerate().zip(rows) {
            fill(place, claim, rungs);
            for (sum, rung) in self.rung_sums.iter_mut().zip(rungs) {
                *sum += *rung;
            }
        }
    }

    /// x(W) of the pod at a place; `None` if the rungs were not computed.
    pub(crate) fn top(&self, place: usize) -> Option<u64> {
        self.rungs(place).last().copied()
    }

    /// x(w) of each pod.
    fn rung(&self, window: usize) -> impl Iterator<Item = u64> {
        let rungs = self.rungs.iter().skip(window);
        rungs.step_by(self.rung_sums.len()).copied()
    }

    /// x(0)…x(W) of the pod at a place.
    fn rungs(&self, place: usize) -> &[u64] {
        let count = self.rung_sums.len();
        let rungs = self.rungs.get(place * count..).unwrap_or_default();
        rungs.get(..count).unwrap_or_default()
    }

    /// W.
    fn windows(&self) -> usize {
        self.rung_sums.len().saturating_sub(1)
    }

    /// The largest w in W…0 with Σx(w) ≤ C.
    fn largest_rung(&self, capacity: u64) -> Option<usize> {
        if self.lowest > capacity {
            return None;
        }
        self.rung_sums.iter().rposition(|sum| *sum <= capacity)
    }

    /// The mode where needs were given.
    pub(crate) const fn mode(&self, capacity: u64) -> Mode {
        if self.min > capacity {
            Mode::Overloaded
        } else if self.ask <= capacity {
            Mode::Uncongested
        } else {
            Mode::Congested
        }
    }
}

impl Divided {
    /// The need of the pod at a place: its rung, or its ask where that is shared.
    pub(crate) fn need(&self, placed: &Placed, place: usize) -> Option<u64> {
        match self.step {
            Step::Rung(window) => placed.rungs(place).get(window).copied(),
            Step::Overload | Step::Shared(_) => placed.claims.get(place).map(|claim| claim.hi),
        }
    }

    /// The bound of the pod at a place; `full` gives its top rung, and whether 2u bound its ask.
    pub(crate) fn bound_by(
        &self,
        rule: &Rule,
        placed: &Placed,
        place: usize,
        full: impl FnOnce(&Claim) -> (u64, bool),
    ) -> BoundBy {
        let (Some(units), Some(claim), Some(max)) = (
            self.units.get(place),
            placed.claims.get(place),
            placed.max.get(place),
        ) else {
            return BoundBy::Share;
        };
        match self.step {
            Step::Overload if *units == claim.offset => return BoundBy::Min,
            Step::Overload if *units <= rule.quantum.survival() => return BoundBy::Survival,
            Step::Overload => return BoundBy::Share,
            Step::Shared(_) if *units < claim.hi => return BoundBy::Share,
            Step::Rung(_) | Step::Shared(_) => {}
        }
        if units == max {
            return BoundBy::Max;
        }
        if *units == claim.offset {
            return BoundBy::Min;
        }
        match full(claim) {
            (top, _) if *units < top => BoundBy::Memory,
            (_, true) => BoundBy::Step,
            _ => BoundBy::Need,
        }
    }
}

/// The weight of a pod within its tier; a pod with zero is skipped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tier {
    /// n − m, in quanta.
    Claim,
    /// w.
    Weight,
    /// w·d in parts per million.
    Bid,
    /// w of pods whose bid is 0.
    ZeroBid,
    /// 1 for pods whose bid and weight are 0.
    Equal,
}

/// Divides among claims in the order of the ids.
pub(crate) fn divide(rule: &Rule, placed: &Placed) -> Divided {
    let claims = &placed.claims;
    if placed.min > rule.capacity {
        return Divided {
            units: overload(claims, rule.capacity, rule.quantum),
            step: Step::Overload,
            price_ppm: PRICE_MAX_PPM,
        };
    }
    let Some(window) = placed.largest_rung(rule.capacity) else {
        let mut divided = shared(rule, claims, &placed.weights);
        if rule.is_measured {
            divided.price_ppm = asked_price_ppm(placed, rule.capacity);
        }
        return divided;
    };
    let mut units: Vec<u64> = placed.rung(window).collect();
    if rule.is_measured && rule.policy == Policy::FullCapacity {
        units = fill(placed, &units, rule);
    }
    Divided {
        units,
        step: Step::Rung(window),
        price_ppm: forgotten_ppm(window, placed.windows()),
    }
}

/// ⌊10⁶·(W − w)/W⌋: 0 where nothing is forgotten.
fn forgotten_ppm(window: usize, windows: usize) -> u64 {
    let whole = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let forgotten = PPM.saturating_mul(whole(windows - window));
    forgotten.checked_div(whole(windows)).unwrap_or(0)
}

/// max(10⁶, ⌊10⁶·Σ(v(0) − m)/(C − Σm)⌋).
fn asked_price_ppm(placed: &Placed, capacity: u64) -> u64 {
    let asked = u128::from(placed.ask - placed.min) * u128::from(PPM);
    let price = asked.checked_div(u128::from(capacity - placed.min));
    let price = price.and_then(|price| u64::try_from(price).ok());
    price.map_or(PRICE_MAX_PPM, |price| price.clamp(PPM, PRICE_MAX_PPM))
}

/// Full capacity: what the rung leaves is shared by w·d, up to the ceilings.
fn fill(placed: &Placed, units: &[u64], rule: &Rule) -> Vec<u64> {
    let claims = placed.claims.iter().zip(units).zip(&placed.max);
    let claims = claims.map(|((claim, units), max)| Claim {
        offset: *units,
        lo: *units,
        hi: *units.max(max),
        bid: claim.bid,
    });
    let above: Vec<Claim> = claims.collect();
    shared(rule, &above, &placed.weights).units
}

/// All pods shrink by the same ratio, down to the survival share; if even those do not fit,
/// all get the same (M4).
fn overload(claims: &[Claim], capacity: u64, quantum: Quantum) -> Vec<u64> {
    let survival = |m: u64| m.min(quantum.survival());
    let floors = claims.iter().map(|claim| claim.offset);
    let survives = floors.clone().map(survival).sum::<u64>() <= capacity;
    let shrunk: Vec<Claim> = floors
        .map(|m| {
            let (lo, hi, bid) = if survives {
                (survival(m), m, m)
            } else {
                (0, survival(m), 1)
            };
            Claim {
                offset: 0,
                lo,
                hi,
                bid,
            }
        })
        .collect();
    solve(&shrunk, capacity).shares
}

/// By the policy, tier after tier. Only full capacity has more than one: pods that bid nothing
/// share the rest by weight, and then equally (M7).
fn shared(rule: &Rule, claims: &[Claim], weights: &[u64]) -> Divided {
    let (capacity, quantum) = (rule.capacity, rule.quantum);
    let tier = match rule.policy {
        Policy::Proportional => Tier::Claim,
        Policy::WeightedNash => Tier::Weight,
        Policy::FullCapacity => Tier::Bid,
    };
    let first = solve(claims, capacity);
    let mut units = first.shares;
    let mut last = reached(claims, first.level).map(|level| (tier, level));
    if tier == Tier::Bid && first.level == Level::Full {
        for tier in [Tier::ZeroBid, Tier::Equal] {
            // If nothing is left, the first tier determines the price.
            if last.is_some() && units.iter().sum::<u64>() == capacity {
                break;
            }
            let later = later((claims, weights), &units, tier);
            let next = solve(&later, capacity);
            last = reached(&later, next.level)
                .map(|level| (tier, level))
                .or(last);
            units = next.shares;
        }
    }
    let price = |(tier, level): (Tier, Level)| tier.price_ppm(level, quantum);
    Divided {
        units,
        step: last.map_or(Step::Rung(0), |(_, level)| Step::Shared(level)),
        price_ppm: last.map_or(0, price),
    }
}

/// The claims of a later tier: bidders keep their share, the others pull.
fn later((claims, weights): (&[Claim], &[u64]), units: &[u64], tier: Tier) -> Vec<Claim> {
    let pods = claims.iter().zip(weights).zip(units);
    let later = pods.map(|((claim, weight), units)| {
        let bid = match tier {
            Tier::ZeroBid if claim.bid == 0 => *weight,
            Tier::Equal if claim.bid == 0 && *weight == 0 => 1,
            _ => 0,
        };
        match bid {
            0 => Claim {
                offset: *units,
                lo: *units,
                hi: *units,
                bid: 0,
            },
            bid => Claim { bid, ..*claim },
        }
    });
    later.collect()
}

/// The t of a solution: if all pods reached their upper bounds, the t at which the last one did;
/// `None` if no pod pulls.
fn reached(claims: &[Claim], level: Level) -> Option<Level> {
    if level != Level::Full {
        return Some(level);
    }
    let pulling = claims
        .iter()
        .filter(|claim| claim.bid > 0 && claim.lo < claim.hi);
    let corners = pulling.map(|claim| (claim.hi - claim.offset, claim.bid));
    let last = corners.max_by(|a, b| {
        (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1)))
    });
    last.map(|(numerator, bid)| Level::At {
        numerator,
        denominator: bid.into(),
    })
}

impl Tier {
    /// ⌊10⁶/t⌋ for a t in millicores per unit of bid. The level is in quanta, so it is scaled by the
    /// quantum, except for bids in quanta; bids in parts per million are scaled down.
    fn price_ppm(self, level: Level, quantum: Quantum) -> u64 {
        let Level::At {
            numerator,
            denominator,
        } = level
        else {
            return 0;
        };
        let per_bid = if self == Self::Bid { 1 } else { PPM };
        let per_share = if self == Self::Claim {
            1
        } else {
            quantum.milli(1)
        };
        let pull = denominator.saturating_mul(per_bid.into());
        let price = pull.checked_div(u128::from(numerator) * u128::from(per_share));
        price
            .and_then(|price| u64::try_from(price).ok())
            .map_or(PRICE_MAX_PPM, |price| price.min(PRICE_MAX_PPM))
    }
}
