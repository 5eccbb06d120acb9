//! The four steps of a clearing, in whole quanta (M4, M5, M7).

use super::bounds::{Quantum, Sums};
use super::{PRICE_MAX_PPM, Policy, Step};
use crate::kernel::{Claim, Level, solve};
use crate::need::PPM;

pub(super) struct Divided {
    pub(super) units: Vec<u64>,
    pub(super) step: Step,
    pub(super) price_ppm: u64,
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
pub(super) fn divide(
    policy: Policy,
    (claims, weights): (&[Claim], &[u64]),
    capacity: u64,
    sums: &Sums,
    quantum: Quantum,
) -> Divided {
    if sums.min > capacity {
        return Divided {
            units: overload(claims, capacity, quantum),
            step: Step::Overload,
            price_ppm: PRICE_MAX_PPM,
        };
    }
    if sums.hi <= capacity {
        return Divided {
            units: claims.iter().map(|claim| claim.hi).collect(),
            step: Step::AllFits,
            price_ppm: 0,
        };
    }
    if sums.lo <= capacity {
        return shared(policy, (claims, weights), capacity, quantum);
    }
    let yields = |claim: &Claim| Claim {
        offset: claim.offset,
        lo: claim.offset,
        hi: claim.lo,
        bid: claim.lo - claim.offset,
    };
    let yielding: Vec<Claim> = claims.iter().map(yields).collect();
    Divided {
        units: solve(&yielding, capacity).shares,
        step: Step::GuardsYield,
        price_ppm: PRICE_MAX_PPM,
    }
}

/// Step 1: all pods shrink by the same ratio, down to the survival share; if even those do not fit,
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

/// Step 3: by the policy, tier after tier. Only full capacity has more than one: pods that bid nothing
/// share the rest by weight, and then equally (M7).
fn shared(
    policy: Policy,
    (claims, weights): (&[Claim], &[u64]),
    capacity: u64,
    quantum: Quantum,
) -> Divided {
    let tier = match policy {
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
        step: last.map_or(Step::AllFits, |(_, level)| Step::Shared(level)),
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
