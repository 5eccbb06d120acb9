//! The prototype allocators `seed 000` and `seed 001`, ported literally, mistakes included: floats,
//! hash maps, and a loop that runs until no pod exceeds its cap. Only benches call them.
#![expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the arithmetic of the prototypes, which converts between floats and integers"
)]

use std::collections::HashMap;
use std::sync::Arc;

use bursar_market::clear::{Market, Policy, Want};

/// Name of a pod, shared and never copied, as in the language of the prototypes.
pub(in crate::bench) type Uid = Arc<str>;

/// Parameters of a pod in the prototypes.
#[derive(Clone, Debug)]
pub(in crate::bench) struct PodParams {
    pub(in crate::bench) demand: f64,
    /// Weight × demand; not used by seed 001.
    pub(in crate::bench) bid: f64,
    pub(in crate::bench) min_milli: i64,
    pub(in crate::bench) max_milli: i64,
    pub(in crate::bench) weight: f64,
}

/// A market in the form of the prototypes, which can be cleared repeatedly.
pub(in crate::bench) struct Loop {
    policy: Policy,
    capacity_milli: i64,
    pods: HashMap<Uid, PodParams>,
}

/// Name of the prototype that is compared with a policy.
pub(in crate::bench) const fn name(policy: Policy) -> &'static str {
    match policy {
        Policy::Proportional => "seed 001 as written",
        Policy::WeightedNash => "the loop of seed 000 capped at need",
        Policy::FullCapacity => "seed 000 as written",
    }
}

impl Loop {
    pub(in crate::bench) fn of(market: &Market) -> Self {
        let milli = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let params = market.pods.iter().map(|pod| {
            let demand = match pod.want {
                Want::Demand(ppm) => ppm as f64 / 1e6,
                Want::Need(_) => 0.0,
            };
            let weight = pod.weight as f64;
            let mut params = PodParams {
                demand,
                bid: weight * demand,
                min_milli: milli(pod.min_milli),
                max_milli: milli(pod.max_milli),
                weight,
            };
            if market.policy == Policy::WeightedNash {
                (params.bid, params.max_milli) = (weight, compute_need(&params));
            }
            (Arc::clone(&pod.id), params)
        });
        Self {
            policy: market.policy,
            capacity_milli: milli(market.capacity_milli),
            pods: params.collect(),
        }
    }

    pub(in crate::bench) fn run(&self) -> HashMap<Uid, i64> {
        match self.policy {
            Policy::Proportional => clear_market_v2(self.capacity_milli, &self.pods),
            Policy::WeightedNash | Policy::FullCapacity => {
                clear_market(self.capacity_milli, &self.pods)
            }
        }
    }
}

/// Seed 000, `ClearMarket`: everything in the order of the UIDs.
fn clear_market(capacity_milli: i64, pods: &HashMap<Uid, PodParams>) -> HashMap<Uid, i64> {
    let mut uids: Vec<Uid> = pods.keys().cloned().collect();
    uids.sort();
    let mut targets = targets(capacity_milli, &uids, pods);
    fill_water(&uids, pods, &mut targets);
    round(&uids, &targets)
}

/// Steps 1 to 3: minimums, then the rest by bids, by weights, or equally.
fn targets(capacity_milli: i64, uids: &[Uid], pods: &HashMap<Uid, PodParams>) -> HashMap<Uid, f64> {
    let sum = |of: fn(&PodParams) -> f64| -> f64 {
        uids.iter().filter_map(|uid| pods.get(uid)).map(of).sum()
    };
    let capacity = capacity_milli as f64;
    let total_min = sum(|pod| pod.min_milli as f64);
    let (scale, remaining) = if total_min > capacity {
        (capacity / total_min, 0.0)
    } else {
        (1.0, capacity - total_min)
    };
    let total_bid = sum(|pod| pod.bid);
    let total_weight = sum(|pod| pod.weight);
    let mut targets = HashMap::new();
    for uid in uids {
        let Some(pod) = pods.get(uid) else { continue };
        let share = if total_bid > 0.0 {
            pod.bid / total_bid
        } else if total_weight > 0.0 {
            pod.weight / total_weight
        } else {
            1.0 / uids.len() as f64
        };
        let target = pod.min_milli as f64 * scale + share * remaining;
        targets.insert(Arc::clone(uid), target);
    }
    targets
}

/// Step 4: while any pod exceeds its cap, its excess goes to the others by their bids.
fn fill_water(uids: &[Uid], pods: &HashMap<Uid, PodParams>, targets: &mut HashMap<Uid, f64>) {
    loop {
        let mut excess = 0.0;
        for uid in uids {
            if let (Some(target), Some(pod)) = (targets.get_mut(uid), pods.get(uid))
                && *target > pod.max_milli as f64
            {
                excess += *target - pod.max_milli as f64;
                *target = pod.max_milli as f64;
            }
        }
        if excess <= 0.0 {
            return;
        }
        let mut uncapped_bid = 0.0;
        for uid in uids {
            if let (Some(target), Some(pod)) = (targets.get(uid), pods.get(uid))
                && *target < pod.max_milli as f64
            {
                uncapped_bid += pod.bid;
            }
        }
        if uncapped_bid <= 0.0 {
            return;
        }
        for uid in uids {
            if let (Some(target), Some(pod)) = (targets.get_mut(uid), pods.get(uid))
                && *target < pod.max_milli as f64
            {
                *target += pod.bid / uncapped_bid * excess;
            }
        }
    }
}

/// Step 5: by the largest remainder, ties by UID.
fn round(uids: &[Uid], targets: &HashMap<Uid, f64>) -> HashMap<Uid, i64> {
    let target = |uid| (uid, targets.get(uid).copied().unwrap_or(0.0));
    let mut order: Vec<(&Uid, f64)> = uids.iter().map(target).collect();
    let total: f64 = order.iter().map(|(_, target)| target).sum();
    let mut left = total.round() as i64;
    let mut allocations = HashMap::new();
    for (uid, target) in &order {
        left -= target.floor() as i64;
        allocations.insert(Arc::clone(uid), target.floor() as i64);
    }
    order.sort_by(|a, b| b.1.fract().total_cmp(&a.1.fract()).then(a.0.cmp(b.0)));
    for (uid, _) in order {
        if left <= 0 {
            break;
        }
        if let Some(allocation) = allocations.get_mut(uid) {
            *allocation += 1;
            left -= 1;
        }
    }
    allocations
}

/// Seed 001, `ClearMarket` v2.
pub(in crate::bench) fn clear_market_v2(
    capacity_milli: i64,
    pods: &HashMap<Uid, PodParams>,
) -> HashMap<Uid, i64> {
    if pods.is_empty() {
        return HashMap::new();
    }
    let mut needs = HashMap::new();
    for (uid, pod) in pods {
        needs.insert(Arc::clone(uid), compute_need(pod));
    }
    let mut total_min = 0;
    for pod in pods.values() {
        total_min += pod.min_milli;
    }
    if total_min > capacity_milli {
        return scale_baselines(pods, capacity_milli);
    }
    let mut total_need = 0;
    for need in needs.values() {
        total_need += need;
    }
    if total_need <= capacity_milli {
        return clamp_to_bounds(&needs, pods);
    }
    nash_reduce(&needs, pods, capacity_milli)
}

fn compute_need(pod: &PodParams) -> i64 {
    let range = pod.max_milli - pod.min_milli;
    let raw = pod.min_milli + (range as f64 * pod.demand) as i64;
    let factor = 0.10 + pod.demand * 0.15;
    let need = raw + (raw as f64 * factor) as i64;
    need.max(pod.min_milli).min(pod.max_milli)
}

fn clamp_to_bounds(needs: &HashMap<Uid, i64>, pods: &HashMap<Uid, PodParams>) -> HashMap<Uid, i64> {
    let mut allocations = HashMap::new();
    for (uid, need) in needs {
        if let Some(pod) = pods.get(uid) {
            let allocation = (*need).max(pod.min_milli).min(pod.max_milli);
            allocations.insert(Arc::clone(uid), allocation);
        }
    }
    allocations
}

fn nash_reduce(
    needs: &HashMap<Uid, i64>,
    pods: &HashMap<Uid, PodParams>,
    capacity: i64,
) -> HashMap<Uid, i64> {
    let mut total_baseline = 0;
    let mut surpluses = HashMap::new();
    let mut total_surplus = 0;
    for (uid, pod) in pods {
        total_baseline += pod.min_milli;
        let surplus = (needs.get(uid).copied().unwrap_or(0) - pod.min_milli).max(0);
        surpluses.insert(Arc::clone(uid), surplus);
        total_surplus += surplus;
    }
    let available = capacity - total_baseline;
    let ratio = if total_surplus > 0 {
        (available as f64 / total_surplus as f64).min(1.0)
    } else {
        0.0
    };
    let mut allocations = HashMap::new();
    for (uid, pod) in pods {
        let surplus = surpluses.get(uid).copied().unwrap_or(0);
        let allocation = pod.min_milli + (surplus as f64 * ratio) as i64;
        allocations.insert(
            Arc::clone(uid),
            allocation.max(pod.min_milli).min(pod.max_milli),
        );
    }
    allocations
}

fn scale_baselines(pods: &HashMap<Uid, PodParams>, capacity: i64) -> HashMap<Uid, i64> {
    let total_min: i64 = pods.values().map(|pod| pod.min_milli).sum();
    let scale = capacity as f64 / total_min as f64;
    let mut allocations = HashMap::new();
    for (uid, pod) in pods {
        allocations.insert(
            Arc::clone(uid),
            ((pod.min_milli as f64 * scale) as i64).max(10),
        );
    }
    allocations
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "a test may panic")]
    use super::{Loop, Policy};
    use crate::bench::market::market;
    use bursar_market::clear::clear;

    #[test]
    fn the_prototypes_agree_with_ours_except_for_rounding() {
        for policy in Policy::ALL {
            let market = market(50, policy, 7);
            let theirs = Loop::of(&market).run();
            for share in clear(&market).shares {
                let apart =
                    theirs[&*share.id].abs_diff(share.allocated_milli.try_into().unwrap_or(0));
                assert!(apart <= 2, "{policy:?} {share:?} {}", theirs[&*share.id]);
            }
        }
    }
}
