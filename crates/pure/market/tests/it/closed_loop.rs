//! A node on a simulated machine whose demand does not depend on the limits: it settles and then
//! writes nothing.

use bursar_market::cgroup::Quota;
use bursar_market::node::Settings;
use bursar_market::params::Params;

use crate::plant::Plant;

const PARAMS: Params = Params {
    min_milli: 100,
    max_milli: 2000,
    weight: 100,
};

/// ⌈log₂(a/b)⌉, at least zero.
fn halvings(from: u64, to: u64) -> u32 {
    (0..32).find(|count| from <= to << count).unwrap()
}

fn plant(start: Quota, demand_milli: u64) -> Plant {
    let mut plant = Plant::new(4000, Settings::default());
    plant.add("a", PARAMS, start, demand_milli);
    plant
}

#[test]
fn a_constant_load_settles_after_a_few_writes() {
    for start in [100, 250, 800, 1300, 2000] {
        for demand in [0, 50, 100, 130, 333, 800, 1234, 1700, 2500] {
            let mut plant = plant(Quota::of_milli(start, 100_000), demand);
            plant.run(600);
            let need = plant.node.last().unwrap().cleared.shares[0].need_milli;
            let writes = plant.get("a").writes;
            // At most half or fourfold at a time.
            let most = 1 + halvings(start, need) + halvings(need, start).div_ceil(2);
            assert!(writes <= most, "{start} {demand}: {writes} writes");
            assert!(
                demand.min(2000) <= plant.limit("a"),
                "{start} {demand}: it has what it uses"
            );
            plant.run(1_200);
            assert_eq!(
                plant.get("a").writes,
                writes,
                "{start} {demand}: still at last"
            );
        }
    }
}

#[test]
fn a_step_up_settles_in_four_clearings() {
    for (low, high) in [(0, 500), (100, 1600), (300, 2500), (50, 1900)] {
        for offset in 0..5 {
            let mut plant = plant(Quota::of_milli(2000, 100_000), low);
            plant.run(600 + offset);
            plant.get("a").demand_milli = high;
            // The clearing after the step is 5 − offset seconds later, and three follow it.
            plant.run(20 - offset);
            let throttled = |plant: &mut Plant| plant.get("a").sample.throttled_periods;
            let (settled, throttled_then) = (plant.get("a").writes, throttled(&mut plant));
            plant.run(600);
            let case = format!("{low} → {high} after {offset} s");
            if high < 2000 {
                assert_eq!(throttled(&mut plant), throttled_then, "{case}");
            }
            // A step is a miss too, and its headroom falls again.
            let after = plant.get("a").writes - settled;
            assert!(after <= 2, "{case}: {after} writes afterwards");
        }
    }
}

#[test]
fn a_step_down_settles_within_the_window_and_a_cooldown_for_each_halving() {
    for (high, low) in [(1900, 0), (1500, 300), (800, 120), (2500, 900)] {
        let mut plant = plant(Quota::of_milli(2000, 100_000), high);
        plant.run(600);
        let before = plant.limit("a");
        plant.get("a").demand_milli = low;
        let need = |plant: &Plant| plant.node.last().unwrap().cleared.shares[0].need_milli;
        // The window of twelve buckets, the running one, and one clearing.
        plant.run(70);
        let count = halvings(before, need(&plant));
        plant.run(u64::from(count) * 30);
        let (limit, need) = (plant.limit("a"), need(&plant));
        assert!(
            limit.abs_diff(need) < 10.max(limit.div_ceil(20)),
            "{high} → {low}: {limit} {need}"
        );
    }
}

#[test]
fn throttling_with_a_full_need_raises_headroom_and_quiet_lowers_it() {
    // Bursts of 200 ms at 1000m in every second: 200m on average, but a fifth of the periods is
    // throttled at any limit below 1000m. Two fifths count as a miss.
    let mut plant = plant(Quota::of_milli(200, 100_000), 0);
    let mut seen = 0;
    for _ in 0..120 {
        plant.get("a").demand_milli = 380;
        plant.run(1);
        plant.get("a").demand_milli = 700;
        plant.run(1);
        seen = seen.max(headroom(&plant));
    }
    assert!(100 < seen && seen <= 500, "{seen}");
    plant.get("a").demand_milli = 100;
    plant.run(600);
    assert_eq!(headroom(&plant), 100);
}

#[test]
fn throttling_before_any_measurement_does_not_raise_headroom() {
    let mut plant = plant(Quota::of_milli(100, 100_000), 800);
    plant.run(10);
    assert_eq!(headroom(&plant), 100);
}

fn headroom(plant: &Plant) -> u64 {
    plant.node.standings().next().unwrap().headroom_permille
}

#[test]
fn unmanaged_use_is_measured_and_taken_from_the_surplus_only() {
    let mut plant = Plant::new(3000, Settings::default());
    for id in ["a", "b"] {
        plant.add(id, PARAMS, Quota::NONE, 1800);
    }
    plant.others_milli = 1000;
    plant.run(120);
    let last = plant.node.last().unwrap();
    assert_eq!(
        (last.unmanaged_milli, last.cleared.capacity_milli),
        (1000, 2000)
    );
    assert_eq!(plant.sum_milli(), 2000);
    plant.others_milli = 2950;
    plant.run(120);
    assert_eq!(
        plant.node.last().unwrap().cleared.capacity_milli,
        200,
        "the floors stay"
    );
    assert_eq!((plant.limit("a"), plant.limit("b")), (100, 100));
    plant.others_milli = 0;
    plant.run(120);
    assert_eq!(plant.sum_milli(), 3000);
}
