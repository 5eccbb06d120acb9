//! A node over time: held pods and their reasons, originals, floors.

use std::collections::BTreeMap;

use bursar_market::cgroup::Quota;
use bursar_market::clear::{Policy, clear};
use bursar_market::node::{Held, Node, Settings};
use bursar_market::params::Params;

use crate::plant::Plant;
use crate::random::Random;

const PARAMS: Params = Params {
    min_milli: 100,
    max_milli: 1000,
    weight: 100,
};

fn milli(milli: u64) -> Quota {
    Quota::of_milli(milli, 100_000)
}

/// Three pods with full demand, on a node that is too small for them.
fn crowded() -> Plant {
    let mut plant = Plant::new(1500, Settings::default());
    for id in ["a", "b", "c"] {
        plant.add(id, PARAMS, milli(400), 2000);
    }
    plant.run(60);
    assert_eq!(["a", "b", "c"].map(|id| plant.limit(id)), [500, 500, 500]);
    plant
}

fn held(plant: &Plant, id: &str) -> Option<Held> {
    let mut standings = plant.node.standings();
    standings.find(|standing| standing.id == id).unwrap().held
}

fn original(node: &Node, id: &str) -> Quota {
    let mut standings = node.standings();
    let standing = standings.find(|standing| standing.id == id);
    standing.unwrap().original
}

#[test]
fn a_foreign_quota_is_the_new_original_and_does_not_affect_others() {
    for foreign in [milli(4000), milli(200), Quota::NONE] {
        let mut plant = crowded();
        plant.get("b").quota = foreign;
        plant.run(5);
        assert_eq!(
            (plant.conflicts.as_slice(), held(&plant, "b")),
            (&["b".to_owned()][..], Some(Held::Conflict))
        );
        plant.run(290);
        assert_eq!(plant.get("b").quota, foreign, "left alone for five minutes");
        assert!(
            500 <= plant.limit("a") && 500 <= plant.limit("c"),
            "nobody lost anything"
        );
        plant.run(10);
        assert_eq!(held(&plant, "b"), None);
        plant.run(120);
        assert_eq!(["a", "b", "c"].map(|id| plant.limit(id)), [500, 500, 500]);
        assert_eq!(original(&plant.node, "b"), foreign, "the new one");
        assert_eq!(original(&plant.node, "a"), milli(400));
    }
}

#[test]
fn a_foreign_quota_does_not_keep_others_from_growing() {
    let mut plant = crowded();
    plant.get("b").quota = milli(4000);
    plant.run(5);
    plant.get("a").demand_milli = 0;
    plant.run(200);
    assert_eq!(held(&plant, "b"), Some(Held::Conflict));
    assert!(800 < plant.limit("c"), "{}", plant.limit("c"));
}

#[test]
fn a_foreign_quota_counts_in_full_once_the_pod_takes_part_again() {
    let mut plant = Plant::new(4000, Settings::default());
    plant.add("a", PARAMS, milli(400), 330);
    plant.run(60);
    plant.get("a").quota = milli(900);
    plant.get("a").demand_milli = 750;
    plant.run(320);
    assert_eq!(held(&plant, "a"), None);
    assert_eq!(plant.limit("a"), 900, "near enough to its need");
    plant.get("a").is_readable = false;
    plant.run(10);
    assert_eq!(plant.node.last().unwrap().held_milli, 900);
}

#[test]
fn a_second_foreign_change_restarts_the_hold() {
    let mut plant = crowded();
    plant.get("b").quota = milli(300);
    plant.run(200);
    plant.get("b").quota = milli(350);
    plant.run(295);
    assert_eq!(
        (held(&plant, "b"), plant.conflicts.len()),
        (Some(Held::Conflict), 2)
    );
}

#[test]
fn an_unreadable_pod_is_held_and_does_not_affect_others() {
    let mut plant = crowded();
    plant.get("b").is_readable = false;
    plant.run(300);
    assert_eq!(held(&plant, "b"), Some(Held::Unreadable));
    assert_eq!(["a", "b", "c"].map(|id| plant.limit(id)), [500, 500, 500]);
    plant.get("b").is_readable = true;
    plant.get("a").demand_milli = 0;
    plant.run(180);
    assert_eq!(held(&plant, "b"), None);
    assert!(600 < plant.limit("b"), "it takes part again");
}

#[test]
fn a_refused_write_waits_longer_each_time_and_keeps_its_room() {
    let mut plant = crowded();
    plant.get("a").is_writable = false;
    for id in ["a", "b", "c"] {
        plant.get(id).demand_milli = 100;
    }
    plant.get("b").demand_milli = 2000;
    let mut attempts = Vec::new();
    for second in 0..6_000 {
        plant.run(1);
        assert!(plant.sum_milli() <= 1500);
        if attempts.len() < plant.get("a").refusals {
            attempts.push(second);
        }
    }
    let waits: Vec<u64> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits, [60, 120, 240, 480, 960, 1800, 1800]);
    assert_eq!(held(&plant, "a"), Some(Held::Refused));
    assert_eq!(plant.limit("a"), 500);
    plant.get("a").is_writable = true;
    plant.run(1_900);
    assert_eq!(held(&plant, "a"), None);
    assert!(plant.limit("a") < 200);
}

#[test]
fn a_held_pod_takes_surplus_and_never_floors() {
    for is_refused in [false, true] {
        let mut plant = Plant::new(2000, Settings::default());
        let large = Params {
            min_milli: 50,
            max_milli: 2000,
            weight: 1,
        };
        let small = Params {
            min_milli: 500,
            ..PARAMS
        };
        plant.add("a", large, Quota::NONE, 300);
        plant.add("b", small, milli(1000), 2000);
        plant.get("a").is_readable = is_refused;
        plant.get("a").is_writable = false;
        for _ in 0..300 {
            plant.run(1);
            assert!(500 <= plant.limit("b"), "{}", plant.limit("b"));
        }
        let expected = if is_refused {
            Held::Refused
        } else {
            Held::Unreadable
        };
        assert_eq!(held(&plant, "a"), Some(expected));
        let last = plant.node.last().unwrap();
        assert_eq!((last.held_milli, last.cleared.capacity_milli), (2000, 500));
    }
}

#[test]
fn floors_count_in_whole_quanta() {
    let settings = Settings {
        quantum_milli: 10,
        ..Settings::default()
    };
    let mut plant = Plant::new(4000, settings);
    let params = Params {
        min_milli: 105,
        ..PARAMS
    };
    for id in ["a", "b"] {
        plant.add(id, params, milli(400), 400);
    }
    plant.others_milli = 4000;
    plant.run(180);
    assert_eq!(["a", "b"].map(|id| plant.limit(id)), [110, 110]);
}

#[test]
fn a_pod_without_a_limit_counts_with_its_ceiling() {
    let mut plant = Plant::new(8000, Settings::default());
    plant.add("a", PARAMS, Quota::NONE, 3500);
    plant.run(10);
    assert_eq!(plant.get("a").quota, milli(1000));
    // Writing the ceiling as a limit is no change, so it begins no cooldown.
    let mut standings = plant.node.standings();
    assert_eq!(standings.next().unwrap().changed_us, None);
    drop(standings);
    plant.get("a").quota = Quota::NONE;
    plant.run(5);
    assert_eq!(held(&plant, "a"), Some(Held::Conflict));
    plant.run(310);
    assert_eq!(plant.get("a").quota, milli(1000));
}

#[test]
fn a_counter_that_jumps_is_no_demand_and_does_not_affect_others() {
    for jumps in [1 << 50, 20_000_000] {
        let mut plant = Plant::new(2000, Settings::default());
        plant.node.processors(2000);
        let params = Params {
            min_milli: 50,
            max_milli: 2000,
            weight: 1,
        };
        plant.add("bad", params, milli(400), 100);
        plant.add("good", params, milli(2000), 1400);
        plant.run(180);
        let before = plant.limit("good");
        assert!(1400 <= before, "{before}");
        plant.get("bad").sample.usage_us += jumps;
        plant.run(1);
        plant.get("bad").sample.throttled_us = plant
            .get("bad")
            .sample
            .throttled_us
            .map(|throttled_us| throttled_us + jumps);
        plant.run(60);
        assert_eq!(plant.limit("good"), before);
        assert!(plant.limit("bad") < 200, "{}", plant.limit("bad"));
    }
}

#[test]
fn while_capacity_keeps_falling_the_rule_holds_after_the_cooldown() {
    let mut plant = Plant::new(4000, Settings::default());
    for (id, quota, demand_milli) in [("a", 150, 130), ("b", 500, 2000), ("c", 500, 2000)] {
        plant.add(id, PARAMS, milli(quota), demand_milli);
    }
    plant.run(15);
    assert_eq!([plant.limit("b"), plant.limit("c")], [1000, 1000]);
    plant.get("a").demand_milli = 2000;
    // Every clearing has less capacity than the one before.
    for others_milli in (2200..3400).step_by(30) {
        plant.others_milli = others_milli;
        plant.run(5);
    }
    let [a, b, c] = ["a", "b", "c"].map(|id| plant.limit(id));
    assert!(a.abs_diff(b) <= 20 && b.abs_diff(c) <= 20, "{a} {b} {c}");
}

#[test]
fn observing_gives_the_final_shares() {
    for (acts, expected, price_ppm) in [(false, [143, 1000], 0), (true, [500, 600], 0)] {
        let mut node = Node::new(Settings::default());
        node.acts(acts);
        node.adopt("a", PARAMS, Quota::NONE, Quota::NONE);
        node.adopt("b", PARAMS, milli(150), milli(150));
        let supply = bursar_market::node::Supply {
            allocatable_milli: 1500,
            unmanaged_milli: Some(0),
        };
        for second in 0..60 {
            for (id, used_us, throttled_us) in [("a", 130_000, 0), ("b", 150_000, 1_000_000)] {
                let sample = bursar_market::sense::Sample {
                    at_us: second * 1_000_000,
                    usage_us: second * used_us,
                    throttled_us: Some(second * throttled_us),
                    ..Default::default()
                };
                node.observe(id, Some(sample));
            }
        }
        let last = node.clear(60_000_000, supply);
        let shares = last.cleared.shares.iter();
        let shares: Vec<u64> = shares.map(|share| share.allocated_milli).collect();
        assert_eq!(
            (shares.as_slice(), last.cleared.price_ppm),
            (&expected[..], price_ppm)
        );
    }
}

#[test]
fn a_gap_in_reading_does_not_hide_unmanaged_use_later() {
    let mut plant = Plant::new(4000, Settings::default());
    let params = Params {
        min_milli: 50,
        max_milli: 4000,
        weight: 1,
    };
    plant.add("a", params, milli(4000), 100);
    plant.others_milli = 2000;
    plant.get("a").is_readable = false;
    plant.run(600);
    plant.get("a").is_readable = true;
    plant.run(70);
    let last = plant.node.last().unwrap();
    assert_eq!(last.unmanaged_milli, 2000);
}

#[test]
fn a_difference_too_small_for_a_write_counts_as_given() {
    let mut node = Node::new(Settings::default());
    node.adopt("a", PARAMS, milli(960), milli(960));
    let supply = bursar_market::node::Supply {
        allocatable_milli: 8000,
        unmanaged_milli: Some(0),
    };
    let mut sample = bursar_market::sense::Sample {
        throttled_us: Some(0),
        periods: Some(0),
        throttled_periods: Some(0),
        ..Default::default()
    };
    let mut headroom = Vec::new();
    for second in 0..60 {
        node.observe("a", Some(sample));
        sample.at_us += 1_000_000;
        sample.usage_us += 800_000;
        sample.throttled_us = sample.throttled_us.map(|us| us + 50_000);
        sample.periods = sample.periods.map(|periods| periods + 10);
        sample.throttled_periods = sample.throttled_periods.map(|periods| periods + 5);
        if second % 5 == 4 {
            node.clear(sample.at_us, supply);
            assert!(node.decreases().is_empty() && node.increases().is_empty());
            headroom.extend(node.standings().map(|standing| standing.headroom_permille));
        }
    }
    assert!(headroom.last() > headroom.first(), "{headroom:?}");
}

#[test]
fn the_share_of_a_removed_pod_goes_to_the_others() {
    let mut plant = crowded();
    plant.cgroups.remove("b");
    plant.node.forget("b");
    plant.run(10);
    assert_eq!([plant.limit("a"), plant.limit("c")], [750, 750]);
}

#[test]
fn an_unconfirmed_write_counts_as_ours() {
    let mut plant = Plant::new(4000, Settings::default());
    plant.add("a", PARAMS, Quota::NONE, 100);
    plant.run(120);
    let write = bursar_market::act::Write {
        id: "a".to_owned(),
        milli: 777,
    };
    let quota = plant.node.begin(&write).unwrap();
    assert!(!plant.node.found("a", quota, plant.now_us), "it was ours");
    assert_eq!(original(&plant.node, "a"), Quota::NONE);
}

#[test]
fn half_a_write_does_not_count_as_foreign() {
    let mut node = Node::new(Settings::default());
    node.adopt("a", PARAMS, milli(900), milli(900));
    let write = bursar_market::act::Write {
        id: "a".to_owned(),
        milli: 300,
    };
    node.begin(&write).unwrap();
    // Only one of the two files of version 1 was written, the period.
    let half = Quota {
        period_us: 50_000,
        ..milli(900)
    };
    node.refused("a", Some(half), 0);
    assert!(!node.found("a", half, 1), "it was ours");
    assert_eq!(original(&node, "a"), milli(900));
}

#[test]
fn a_range_below_a_quantum_is_not_managed() {
    let settings = Settings {
        quantum_milli: 10,
        ..Settings::default()
    };
    let mut plant = Plant::new(1500, settings);
    let narrow = Params {
        min_milli: 101,
        max_milli: 109,
        weight: 1,
    };
    plant.add("narrow", narrow, milli(105), 2000);
    plant.add("wide", PARAMS, milli(400), 2000);
    plant.run(60);
    assert_eq!(held(&plant, "narrow"), Some(Held::TooNarrow));
    assert_eq!(plant.get("narrow").quota, milli(105));
    assert_eq!(plant.limit("wide"), 1000);
}

#[test]
fn after_a_crash_the_original_is_the_stored_one() {
    let mut node = Node::new(Settings::default());
    node.adopt("a", PARAMS, milli(900), milli(300));
    assert!(
        !node.found("a", milli(300), 0),
        "what we wrote before is no conflict"
    );
    assert_eq!(original(&node, "a"), milli(900));
}

#[test]
fn a_clock_jump_does_no_harm() {
    let mut plant = crowded();
    plant.now_us = 1_000_000;
    plant.run(120);
    assert_eq!(["a", "b", "c"].map(|id| plant.limit(id)), [500, 500, 500]);
    plant.now_us += 1_000_000_000_000;
    plant.run(120);
    assert_eq!(["a", "b", "c"].map(|id| plant.limit(id)), [500, 500, 500]);
    plant.now_us -= 900_000_000_000;
    plant.run(120);
    assert_eq!(["a", "b", "c"].map(|id| plant.limit(id)), [500, 500, 500]);
}

/// Method: random failures at random times. After every second the sum of the limits of participating
/// pods is within capacity, or no larger than before; and no pod gets less than its floor if the floors
/// fit.
#[test]
fn under_random_failures_the_sum_stays_within_capacity_and_floors_hold() {
    let mut random = Random(70);
    for _ in 0..40 {
        let quantum_milli = random.pick(&[1, 10]);
        let policy = random.pick(&Policy::ALL);
        let mut plant = Plant::new(
            3000,
            Settings {
                policy,
                quantum_milli,
                ..Settings::default()
            },
        );
        let mut next = 0;
        for _ in 0..5 {
            trouble::adopt(&mut plant, &mut random, &mut next);
        }
        for _ in 0..300 {
            trouble::strike(&mut plant, &mut random, &mut next);
            let before = limits(&plant);
            plant.run(1);
            let Some(last) = plant.node.last() else {
                continue;
            };
            assert_eq!(clear(&last.market), last.cleared, "replays");
            let floors: u64 = last
                .cleared
                .shares
                .iter()
                .map(|share| share.min_milli)
                .sum();
            if floors <= last.allocatable_milli {
                for share in &last.cleared.shares {
                    assert!(share.min_milli <= share.allocated_milli, "{share:?}");
                }
            }
            let of_market = |limits: &BTreeMap<String, u64>| -> u64 {
                let ids = last.market.pods.iter().map(|pod| &pod.id);
                ids.filter_map(|id| limits.get(&**id)).sum()
            };
            let (before, after) = (of_market(&before), of_market(&limits(&plant)));
            assert!(
                after <= before.max(last.cleared.capacity_milli),
                "{before} {after}"
            );
        }
    }
}

fn limits(plant: &Plant) -> BTreeMap<String, u64> {
    let standings = plant.node.standings();
    standings
        .map(|standing| (standing.id, standing.limit_milli))
        .collect()
}

mod trouble {
    use super::{Params, Plant, Quota, Random, milli};

    pub(super) fn adopt(plant: &mut Plant, random: &mut Random, next: &mut u64) {
        let min_milli = random.below(400);
        let params = Params {
            min_milli,
            max_milli: min_milli + random.below(1500),
            weight: random.below(1000),
        };
        let quota = if random.once_in(2) {
            Quota::NONE
        } else {
            milli(1 + random.below(2000))
        };
        plant.add(&format!("p{next}"), params, quota, random.below(2000));
        *next += 1;
    }

    /// A random failure.
    pub(super) fn strike(plant: &mut Plant, random: &mut Random, next: &mut u64) {
        let ids: Vec<String> = plant.cgroups.keys().cloned().collect();
        if ids.is_empty() || random.once_in(50) {
            return adopt(plant, random, next);
        }
        let id = &ids[usize::try_from(random.below(u64::try_from(ids.len()).unwrap())).unwrap()];
        match random.below(24) {
            0 => plant.get(id).is_readable ^= true,
            1 => plant.get(id).is_writable ^= true,
            2 => plant.get(id).sample = bursar_market::sense::Sample::default(),
            3 => {
                plant.cgroups.remove(id);
                plant.node.forget(id);
            }
            4 => plant.get(id).quota = milli(1 + random.below(3000)),
            5 => plant.allocatable_milli = random.below(5000),
            6 => plant.others_milli = random.below(2000),
            7 => {
                plant.now_us =
                    plant.now_us.saturating_sub(random.below(10_000_000)) / 1_000_000 * 1_000_000;
            }
            8..14 => plant.get(id).demand_milli = random.below(2000),
            _ => {}
        }
    }
}
