//! The allocators of seeds 000 and 001, written down as they are: floats, hash maps, and a loop
//! that goes on until no pod exceeds its cap. They are here to be measured against, mistakes
//! included: nothing of ours calls them.
#![expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the seeds' own arithmetic, which converts between floats and integers at will"
)]

use std::collections::HashMap;

use bursar_market::clear::{Market, Policy, Want};

/// What the seeds know of a pod.
#[derive(Clone, Debug)]
pub(in crate::bench) struct PodParams {
    pub(in crate::bench) demand: f64,
    pub(in crate::bench) min_milli: i64,
    pub(in crate::bench) max_milli: i64,
    pub(in crate::bench) weight: f64,
}

/// A market in the seeds' form, to be cleared again and again.
pub(in crate::bench) struct Loop {
    policy: Policy,
    capacity_milli: i64,
    pods: HashMap<String, PodParams>,
}

/// Which loop stands beside which policy.
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
            let params = PodParams {
                demand,
                min_milli: milli(pod.min_milli),
                max_milli: milli(pod.max_milli),
                weight: pod.weight as f64,
            };
            (pod.id.to_string(), params)
        });
        Self {
            policy: market.policy,
            capacity_milli: milli(market.capacity_milli),
            pods: params.collect(),
        }
    }

    pub(in crate::bench) fn run(&self) -> HashMap<String, i64> {
        match self.policy {
            Policy::Proportional => clear_market_v2(self.capacity_milli, &self.pods),
            Policy::FullCapacity => {
                let bid = |pod: &PodParams| pod.weight * pod.demand;
                clear_market(self.capacity_milli, &self.pods, bid, |pod| pod.max_milli)
            }
            Policy::WeightedNash => clear_market(
                self.capacity_milli,
                &self.pods,
                |pod| pod.weight,
                compute_need,
            ),
        }
    }
}

/// Seed 000, `ClearMarket`.
fn clear_market(
    capacity_milli: i64,
    pods: &HashMap<String, PodParams>,
    bid: impl Fn(&PodParams) -> f64,
    cap: impl Fn(&PodParams) -> i64,
) -> HashMap<String, i64> {
    let mut mins: HashMap<&str, f64> = HashMap::new();
    let total_min: i64 = pods.values().map(|pod| pod.min_milli).sum();
    let (scale, remaining) = if total_min > capacity_milli {
        (capacity_milli as f64 / total_min as f64, 0.0)
    } else {
        (1.0, (capacity_milli - total_min) as f64)
    };
    for (uid, pod) in pods {
        mins.insert(uid, pod.min_milli as f64 * scale);
    }
    let bids: HashMap<&str, f64> = pods
        .iter()
        .map(|(uid, pod)| (uid.as_str(), bid(pod)))
        .collect();
    let caps: HashMap<&str, f64> = pods
        .iter()
        .map(|(uid, pod)| (uid.as_str(), cap(pod) as f64))
        .collect();
    let mut targets = targets(pods, &mins, &bids, remaining);
    fill_water(&mut targets, &bids, &caps);
    round(targets)
}

/// Step 3: proportional distribution, by bids, by weights, or equally.
fn targets<'a>(
    pods: &'a HashMap<String, PodParams>,
    mins: &HashMap<&str, f64>,
    bids: &HashMap<&str, f64>,
    remaining: f64,
) -> HashMap<&'a str, f64> {
    let total_bid: f64 = bids.values().sum();
    let total_weight: f64 = pods.values().map(|pod| pod.weight).sum();
    let mut targets = HashMap::new();
    for (uid, pod) in pods {
        let min = mins.get(uid.as_str()).copied().unwrap_or(0.0);
        let share = if total_bid > 0.0 {
            bids.get(uid.as_str()).copied().unwrap_or(0.0) / total_bid
        } else if total_weight > 0.0 {
            pod.weight / total_weight
        } else {
            1.0 / pods.len() as f64
        };
        targets.insert(uid.as_str(), min + share * remaining);
    }
    targets
}

/// Step 4: while any pod exceeds its cap, what exceeds it goes to the others by their bids.
fn fill_water(
    targets: &mut HashMap<&str, f64>,
    bids: &HashMap<&str, f64>,
    caps: &HashMap<&str, f64>,
) {
    let cap = |uid: &str| caps.get(uid).copied().unwrap_or(0.0);
    loop {
        let mut excess = 0.0;
        for (uid, target) in targets.iter_mut() {
            if *target > cap(uid) {
                excess += *target - cap(uid);
                *target = cap(uid);
            }
        }
        if excess <= 0.0 {
            return;
        }
        let mut uncapped_bid = 0.0;
        for (uid, target) in targets.iter() {
            if *target < cap(uid) {
                uncapped_bid += bids.get(uid).copied().unwrap_or(0.0);
            }
        }
        if uncapped_bid <= 0.0 {
            return;
        }
        for (uid, target) in targets.iter_mut() {
            if *target < cap(uid) {
                *target += bids.get(uid).copied().unwrap_or(0.0) / uncapped_bid * excess;
            }
        }
    }
}

/// Step 5: by the largest remainder, ties by UID.
fn round(targets: HashMap<&str, f64>) -> HashMap<String, i64> {
    let total: f64 = targets.values().sum();
    let mut order: Vec<(&str, f64)> = targets.into_iter().collect();
    order.sort_by(|a, b| a.0.cmp(b.0));
    let mut left = total.round() as i64;
    let mut allocations = HashMap::new();
    for (uid, target) in &order {
        left -= target.floor() as i64;
        allocations.insert((*uid).to_owned(), target.floor() as i64);
    }
    order.sort_by(|a, b| {
        let remainder = |target: f64| target - target.floor();
        remainder(b.1).total_cmp(&remainder(a.1)).then(a.0.cmp(b.0))
    });
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
    pods: &HashMap<String, PodParams>,
) -> HashMap<String, i64> {
    if pods.is_empty() {
        return HashMap::new();
    }
    let mut needs = HashMap::new();
    for (uid, pod) in pods {
        needs.insert(uid.clone(), compute_need(pod));
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

fn clamp_to_bounds(
    needs: &HashMap<String, i64>,
    pods: &HashMap<String, PodParams>,
) -> HashMap<String, i64> {
    let mut allocations = HashMap::new();
    for (uid, need) in needs {
        if let Some(pod) = pods.get(uid) {
            let allocation = (*need).max(pod.min_milli).min(pod.max_milli);
            allocations.insert(uid.clone(), allocation);
        }
    }
    allocations
}

fn nash_reduce(
    needs: &HashMap<String, i64>,
    pods: &HashMap<String, PodParams>,
    capacity: i64,
) -> HashMap<String, i64> {
    let mut total_baseline = 0;
    let mut surpluses = HashMap::new();
    let mut total_surplus = 0;
    for (uid, pod) in pods {
        total_baseline += pod.min_milli;
        let surplus = (needs.get(uid).copied().unwrap_or(0) - pod.min_milli).max(0);
        surpluses.insert(uid.clone(), surplus);
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
            uid.clone(),
            allocation.max(pod.min_milli).min(pod.max_milli),
        );
    }
    allocations
}

fn scale_baselines(pods: &HashMap<String, PodParams>, capacity: i64) -> HashMap<String, i64> {
    let total_min: i64 = pods.values().map(|pod| pod.min_milli).sum();
    let scale = capacity as f64 / total_min as f64;
    let mut allocations = HashMap::new();
    for (uid, pod) in pods {
        allocations.insert(uid.clone(), ((pod.min_milli as f64 * scale) as i64).max(10));
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
    fn the_loops_come_to_what_we_come_to_but_for_rounding() {
        for policy in Policy::ALL {
            let mut market = market(50, policy, 7);
            for pod in &mut market.pods {
                pod.current_milli = None;
            }
            let theirs = Loop::of(&market).run();
            for share in clear(&market).shares {
                let apart =
                    theirs[&*share.id].abs_diff(share.allocated_milli.try_into().unwrap_or(0));
                assert!(apart <= 2, "{policy:?} {share:?} {}", theirs[&*share.id]);
            }
        }
    }
}
