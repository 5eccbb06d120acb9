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
            plant.run(60);
            let writes = plant.get("a").writes;
            // Up by doubling, or down once.
            assert!(writes <= 5, "{start} {demand}: {writes} writes");
            let limit = plant.limit("a");
            assert!(
                demand.min(2000) <= limit + limit.div_ceil(20),
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
fn a_step_to_a_new_size_takes_the_logarithm_of_its_growth() {
    for (low, high) in [(0, 500), (100, 1600), (300, 1700), (50, 1900)] {
        let mut plant = plant(Quota::of_milli(2000, 100_000), low);
        // Longer than both blocks of the size.
        plant.run(700);
        plant.get("a").demand_milli = high;
        let growth = (1..20_u64).find(|count| high <= plant.limit("a") << count);
        plant.run(growth.unwrap());
        assert!(
            high <= plant.limit("a"),
            "{low} → {high}: {}",
            plant.limit("a")
        );
    }
}

#[test]
fn a_limit_below_the_smallest_write_grows_too() {
    for min_milli in [1, 3, 9] {
        let params = Params {
            min_milli,
            ..PARAMS
        };
        let mut plant = Plant::new(4000, Settings::default());
        plant.add("a", params, Quota::of_milli(1000, 100_000), 0);
        // Longer than both blocks of the size.
        plant.run(700);
        assert!(plant.limit("a") < 20, "{}", plant.limit("a"));
        plant.get("a").demand_milli = 500;
        plant.run(12);
        assert!(500 <= plant.limit("a"), "{min_milli}: {}", plant.limit("a"));
    }
}

#[test]
fn a_step_to_a_known_size_is_followed_within_a_second() {
    for (low, high) in [(0, 500), (100, 1600), (300, 1700), (50, 1900)] {
        let mut plant = plant(Quota::of_milli(2000, 100_000), high);
        plant.run(20);
        plant.get("a").demand_milli = low;
        plant.run(270);
        assert!(plant.limit("a") < high, "{low} → {high}");
        plant.get("a").demand_milli = high;
        plant.run(1);
        assert!(
            high <= plant.limit("a"),
            "{low} → {high}: {}",
            plant.limit("a")
        );
    }
}

#[test]
fn a_step_down_settles_after_the_memory() {
    for (high, low) in [(1900, 0), (1500, 300), (800, 120), (2500, 900)] {
        let mut plant = plant(Quota::of_milli(2000, 100_000), high);
        plant.run(60);
        let before = plant.limit("a");
        plant.get("a").demand_milli = low;
        plant.run(9);
        assert_eq!(plant.limit("a"), before, "{high} → {low}: remembered");
        plant.run(1);
        assert!(plant.limit("a") < before, "{high} → {low}: forgotten");
        let settled = plant.limit("a");
        plant.run(60);
        assert_eq!(plant.limit("a"), settled);
    }
}

#[test]
fn throttling_with_a_full_need_raises_headroom_and_quiet_lowers_it() {
    // Alternating seconds: half of the periods are throttled although the need was given.
    let mut plant = plant(Quota::of_milli(200, 100_000), 0);
    let mut seen = 0;
    let mut demand = 380;
    for _ in 0..600 {
        demand = if demand == 380 { 1_000 } else { 380 };
        plant.get("a").demand_milli = demand;
        plant.run(1);
        // The kernel throttles within the second: half of its periods.
        let sample = &mut plant.get("a").sample;
        sample.throttled_periods = sample.periods.map(|periods| periods / 2);
        seen = seen.max(headroom(&plant));
    }
    assert!(100 < seen && seen <= 500, "{seen}");
    plant.get("a").demand_milli = 100;
    plant.run(3_600);
    assert_eq!(headroom(&plant), 100);
    assert!(plant.node.misses() > 0);
}

fn headroom(plant: &Plant) -> u64 {
    let mut standings = plant.node.standings();
    standings.next().unwrap().bidder.headroom_permille
}

#[test]
fn unmanaged_use_is_measured_and_taken_from_the_surplus_only() {
    let settings = Settings {
        unmanaged_milli_max: Some(3000),
        ..Settings::default()
    };
    let mut plant = Plant::new(3000, settings);
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

#[test]
fn unmanaged_use_takes_at_most_half_of_the_node() {
    let mut plant = Plant::new(3000, Settings::default());
    plant.add("a", PARAMS, Quota::NONE, 1800);
    plant.others_milli = 2950;
    plant.run(30);
    let last = plant.node.last().unwrap();
    assert_eq!(
        (last.unmanaged_milli, last.cleared.capacity_milli),
        (1500, 1500)
    );
    plant.others_milli = 0;
    plant.run(9);
    assert_eq!(plant.node.last().unwrap().unmanaged_milli, 1500);
    plant.run(1);
    assert_eq!(plant.node.last().unwrap().unmanaged_milli, 0, "ten seconds");
}
