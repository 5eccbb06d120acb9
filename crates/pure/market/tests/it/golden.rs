//! Exact golden values, with modes and prices computed by hand.

use bursar_market::clear::Mode::{Congested, Overloaded, Uncongested};
use bursar_market::clear::Policy::{FullCapacity, Proportional, WeightedNash};
use bursar_market::clear::{BoundBy, Cleared, Market, Mode, Pod, Policy, Want, clear};
use bursar_market::need::{demand_ppm, need};

/// A pod id(min, max, weight, demand in percent).
fn pod(id: &str, min_milli: u64, max_milli: u64, weight: u64, percent: u64) -> Pod {
    Pod {
        id: id.into(),
        min_milli,
        max_milli,
        weight,
        want: Want::Demand(percent * 10_000),
        headroom_permille: 100,
    }
}

fn cleared(policy: Policy, capacity_milli: u64, pods: &[Pod]) -> Cleared {
    clear(&Market {
        capacity_milli,
        policy,
        quantum_milli: 1,
        pods: pods.to_vec(),
    })
}

fn check(
    policy: Policy,
    capacity_milli: u64,
    pods: &[Pod],
    shares: &[u64],
    (mode, price_ppm): (Mode, u64),
) {
    let cleared = cleared(policy, capacity_milli, pods);
    let got: Vec<u64> = cleared
        .shares
        .iter()
        .map(|share| share.allocated_milli)
        .collect();
    assert_eq!(got, shares, "{cleared:#?}");
    assert_eq!(
        (cleared.mode, cleared.price_ppm),
        (mode, price_ppm),
        "{cleared:#?}"
    );
}

#[test]
fn full_capacity_divides_all_there_is_by_weight_and_demand() {
    let rule = FullCapacity;
    let two = [pod("a", 100, 1000, 100, 60), pod("b", 100, 1000, 100, 40)];
    check(rule, 1000, &two, &[580, 420], (Congested, 125_000));
    let capped = [
        pod("a", 100, 300, 100, 100),
        pod("b", 100, 1000, 100, 50),
        pod("c", 100, 1000, 100, 50),
    ];
    check(rule, 1000, &capped, &[300, 350, 350], (Congested, 200_000));
    let idle = [pod("a", 100, 1000, 200, 0), pod("b", 100, 1000, 100, 0)];
    check(rule, 1000, &idle, &[633, 367], (Uncongested, 375_000));
    let idle_capped = [
        pod("a", 100, 200, 100, 0),
        pod("b", 100, 1000, 200, 0),
        pod("c", 100, 1000, 100, 0),
    ];
    check(
        rule,
        1000,
        &idle_capped,
        &[200, 500, 300],
        (Uncongested, 500_000),
    );
    let both_capped = [pod("a", 100, 400, 100, 100), pod("b", 100, 400, 100, 100)];
    check(rule, 1000, &both_capped, &[400, 400], (Uncongested, 0));
    check(
        rule,
        1000,
        &[pod("a", 100, 900, 100, 50)],
        &[900],
        (Uncongested, 0),
    );
    check(
        rule,
        1000,
        &[pod("a", 100, 2000, 100, 50)],
        &[1000],
        (Congested, 55_555),
    );
}

#[test]
fn pods_without_a_bid_get_the_rest() {
    let bidder_first = [
        pod("a", 100, 300, 100, 100),
        pod("b", 100, 1000, 300, 0),
        pod("c", 100, 1000, 100, 0),
    ];
    // 300 for the bidder, and the other 500 by weight: nothing is left over.
    check(
        FullCapacity,
        1000,
        &bidder_first,
        &[300, 475, 225],
        (Uncongested, 800_000),
    );
    let weightless = [pod("a", 100, 300, 0, 100), pod("b", 100, 900, 0, 0)];
    check(
        FullCapacity,
        600,
        &weightless,
        &[300, 300],
        (Uncongested, 5_000),
    );
}

#[test]
fn proportional_cuts_all_claims_by_one_ratio() {
    let rule = Proportional;
    let fits = [pod("a", 100, 1000, 1, 50), pod("b", 500, 2000, 1, 25)];
    check(rule, 4000, &fits, &[646, 995], (Uncongested, 0));
    let two = [pod("a", 100, 1000, 1, 60), pod("b", 100, 1000, 1, 40)];
    check(rule, 1000, &two, &[583, 417], (Congested, 1_367_500));
    let needs = cleared(rule, 1000, &two);
    assert_eq!(
        [761, 533],
        [0, 1].map(|at: usize| needs.shares[at].need_milli)
    );
    let three = [
        pod("a", 100, 300, 1, 100),
        pod("b", 100, 1000, 1, 50),
        pod("c", 100, 1000, 1, 50),
    ];
    check(rule, 1000, &three, &[208, 396, 396], (Congested, 1_845_714));
    let more = [
        pod("a", 100, 1000, 1, 90),
        pod("b", 100, 1000, 1, 90),
        pod("c", 100, 600, 1, 70),
    ];
    check(rule, 1500, &more, &[582, 582, 336], (Congested, 1_868_333));
}

#[test]
fn weighted_nash_serves_small_needs_first_and_inflated_needs_gain_nothing() {
    let small = [
        pod("a", 100, 300, 1, 100),
        pod("b", 100, 2000, 1, 90),
        pod("c", 100, 1000, 2, 90),
    ];
    // a has its need at t = 200; the other 800m above the floors go to b and c at 1 : 2.
    check(
        WeightedNash,
        1300,
        &small,
        &[300, 367, 633],
        (Congested, 3_750),
    );
    let louder = [
        pod("a", 100, 300, 1, 100),
        pod("b", 100, 9000, 1, 100),
        pod("c", 100, 1000, 2, 90),
    ];
    check(
        WeightedNash,
        1300,
        &louder,
        &[300, 367, 633],
        (Congested, 3_750),
    );
}

#[test]
fn overload_keeps_capacity_and_survival_shares() {
    // A flat minimum of 10m would give 1475m here, more than the capacity.
    let mut pods: Vec<Pod> = (0..50)
        .map(|at| pod(&format!("p{at:02}"), 1, 100, 1, 0))
        .collect();
    pods.push(pod("z", 2000, 2000, 1, 100));
    let overloaded = cleared(Proportional, 1000, &pods);
    assert_eq!(
        (overloaded.mode, overloaded.price_ppm),
        (Overloaded, 1_000_000_000_000)
    );
    let sum: u64 = overloaded
        .shares
        .iter()
        .map(|share| share.allocated_milli)
        .sum();
    assert_eq!(sum, 1000);
    assert_eq!(overloaded.shares[50].allocated_milli, 950);
    assert!(
        overloaded.shares[..50]
            .iter()
            .all(|share| share.allocated_milli == 1)
    );
    // The survival shares do not fit: equal shares below them.
    let many: Vec<Pod> = (0..4)
        .map(|at| pod(&format!("p{at}"), 100, 100, 1, 0))
        .collect();
    check(
        Proportional,
        30,
        &many,
        &[8, 8, 7, 7],
        (Overloaded, 1_000_000_000_000),
    );
    let uneven = [pod("a", 100, 100, 1, 0), pod("b", 900, 900, 1, 0)];
    check(
        Proportional,
        90,
        &uneven,
        &[10, 80],
        (Overloaded, 1_000_000_000_000),
    );
    let shares = cleared(Proportional, 90, &uneven).shares;
    assert_eq!(
        [BoundBy::Survival, BoundBy::Share],
        [shares[0].bound_by, shares[1].bound_by]
    );
}

#[test]
fn the_reduction_ratio_is_zero_if_need_is_the_floor() {
    let pods = [pod("a", 100, 100, 1, 0), pod("b", 100, 1000, 1, 100)];
    let shares = cleared(Proportional, 500, &pods).shares;
    assert_eq!(
        [shares[0].reduction_ppm(), shares[1].reduction_ppm()],
        [0, 666_666]
    );
}

#[test]
fn a_quantum_rounds_floors_up_and_ceilings_down() {
    let market = |quantum_milli| Market {
        capacity_milli: 1009,
        policy: WeightedNash,
        quantum_milli,
        pods: vec![
            pod("a", 95, 1000, 1, 60),
            pod("b", 95, 1000, 1, 60),
            pod("c", 101, 109, 1, 0),
        ],
    };
    let cleared = clear(&market(10));
    let shares: Vec<u64> = cleared
        .shares
        .iter()
        .map(|share| share.allocated_milli)
        .collect();
    assert_eq!((shares, cleared.capacity_milli), (vec![500, 500], 1000));
    assert_eq!(cleared.too_narrow, ["c".into()]);
    // The price does not depend on the quantum: 1/400 and 1/405.
    assert_eq!(cleared.price_ppm, 2_500);
    let mut fine = market(1);
    fine.capacity_milli = 1000;
    fine.pods.truncate(2);
    assert_eq!(clear(&fine).price_ppm, 2_469);
}

#[test]
fn needs_follow_the_formula_to_the_millicore() {
    for (percent, milli) in [(0, 110), (25, 369), (50, 646), (75, 939), (100, 1000)] {
        assert_eq!(
            need(100, 1000, percent * 10_000, 100).milli,
            milli,
            "{percent} %"
        );
    }
    let steps = need(100, 1000, 900_000, 100);
    assert_eq!(
        (steps.raw_milli, steps.headroom_ppm, steps.uncapped_milli),
        (910, 235_000, 1123)
    );
    assert_eq!(
        need(100, 1000, 0, 500).milli,
        150,
        "headroom earned by misses"
    );
}

#[test]
fn demand_lies_between_floor_and_ceiling_and_rounds_up() {
    for (demand, ppm) in [
        (0, 0),
        (100, 0),
        (101, 1_112),
        (910, 900_000),
        (1000, 1_000_000),
        (5000, 1_000_000),
    ] {
        assert_eq!(demand_ppm(100, 1000, demand), ppm, "{demand}m");
    }
    assert_eq!(demand_ppm(100, 100, 500), 0, "no range");
    assert_eq!(demand_ppm(0, 1, u64::MAX), 1_000_000);
}
