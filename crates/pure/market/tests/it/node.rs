//! A node over time: held pods and their reasons, originals, floors.

use std::collections::BTreeMap;

use bursar_market::cgroup::Quota;
use bursar_market::clear::{BoundBy, Policy};
use bursar_market::node::{Held, Node, Settings, Standing, Supply};
use bursar_market::params::Params;
use bursar_market::sense::Sample;

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

fn standing(node: &Node, id: &str) -> Standing {
    let mut standings = node.standings();
    standings.find(|standing| standing.id == id).unwrap()
}

fn held(plant: &Plant, id: &str) -> Option<Held> {
    standing(&plant.node, id).held
}

fn original(node: &Node, id: &str) -> Quota {
    standing(node, id).original
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
        assert_eq!(plant.sum_milli(), 1500);
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
    assert!(500 < plant.limit("b"), "it takes part again");
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
        plant.get("a").is_writable = false;
        if !is_refused {
            plant.run(1);
            plant.get("a").is_readable = false;
        }
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
        unmanaged_milli_max: Some(4000),
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
    assert_eq!(standing(&plant.node, "a").changed_us, None);
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
    assert!(950 < plant.limit("wide"), "{}", plant.limit("wide"));
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

#[test]
fn a_new_pod_takes_nothing_before_it_was_measured() {
    let mut plant = crowded();
    plant.add("d", PARAMS, Quota::NONE, 100);
    plant.get("d").is_readable = false;
    plant.run(5);
    assert_eq!(["a", "b", "c"].map(|id| plant.limit(id)), [500, 500, 500]);
    assert_eq!(held(&plant, "d"), Some(Held::Unreadable));
    plant.get("d").is_readable = true;
    plant.run(1);
    assert_eq!(held(&plant, "d"), Some(Held::Unmeasured));
    plant.run(1);
    assert_eq!(held(&plant, "d"), None);
    assert!(plant.limit("d") <= 220, "{}", plant.limit("d"));
}

#[test]
fn counters_that_stop_look_idle_and_keep_the_minimum() {
    let mut plant = crowded();
    let stopped = plant.get("a").sample;
    for _ in 0..60 {
        let at_us = plant.now_us + 1_000_000;
        plant.get("a").sample = bursar_market::sense::Sample { at_us, ..stopped };
        plant.get("a").demand_milli = 0;
        plant.run(1);
    }
    assert_eq!(plant.limit("a"), 100);
    assert!(600 < plant.limit("b"), "{}", plant.limit("b"));
}

#[test]
fn a_clock_that_stands_still_holds_every_limit() {
    let mut plant = crowded();
    let before = limits(&plant);
    let now_us = plant.now_us;
    for id in ["a", "b", "c"] {
        plant.get(id).demand_milli = 0;
    }
    for _ in 0..20 {
        plant.now_us = now_us - 1_000_000;
        plant.run(1);
    }
    assert_eq!(limits(&plant), before);
    assert_eq!(held(&plant, "a"), Some(Held::Unmeasured));
}

#[test]
fn a_budget_of_none_writes_only_adoption_and_lack_of_room() {
    let settings = Settings {
        writes_per_hour: 0,
        ..Settings::default()
    };
    let mut plant = Plant::new(1500, settings);
    for id in ["a", "b", "c"] {
        plant.add(id, PARAMS, Quota::NONE, 300);
    }
    plant.run(1);
    let adopted = limits(&plant);
    assert!(plant.sum_milli() <= 1500);
    plant.get("a").demand_milli = 900;
    plant.get("b").demand_milli = 0;
    plant.run(60);
    assert_eq!(limits(&plant), adopted);
    assert_eq!(standing(&plant.node, "a").left_out, Some(BoundBy::Budget));
    plant.allocatable_milli = 600;
    plant.run(1);
    assert!(plant.sum_milli() <= 600, "{}", plant.sum_milli());
}

#[test]
fn writes_stay_within_the_budget() {
    for (writes_per_hour, most) in [(1, 8 + 2), (60, 60 + 8), (600, 600 + 10)] {
        let settings = Settings {
            writes_per_hour,
            ..Settings::default()
        };
        let mut plant = Plant::new(8000, settings);
        plant.add("a", PARAMS, milli(500), 0);
        let mut random = Random(writes_per_hour);
        for _ in 0..3_600 {
            plant.get("a").demand_milli = random.pick(&[0, 0, 0, 900, 300]);
            plant.run(1);
        }
        let writes = plant.get("a").writes;
        assert!(writes <= most, "{writes_per_hour}: {writes}");
        assert!(most / 4 <= writes, "{writes_per_hour}: {writes}");
    }
}

#[test]
fn a_huge_budget_follows_every_second() {
    let settings = Settings {
        writes_per_hour: 1_000_000,
        windows: 1,
        size_block: 1,
        ..Settings::default()
    };
    let mut plant = Plant::new(8000, settings);
    plant.add("a", PARAMS, milli(500), 0);
    for second in 0..600_u64 {
        plant.get("a").demand_milli = 100 + 800 * (second % 2);
        plant.run(1);
    }
    assert!(500 < plant.get("a").writes, "{}", plant.get("a").writes);
}

#[test]
fn a_cooldown_leaves_out_changes_but_not_decreases_that_a_raise_needs() {
    let settings = Settings {
        cooldown_us: 20_000_000,
        ..Settings::default()
    };
    let mut plant = Plant::new(1200, settings);
    plant.add("a", PARAMS, milli(500), 450);
    plant.add("b", PARAMS, milli(120), 100);
    plant.run(30);
    plant.get("a").demand_milli = 800;
    plant.run(1);
    let raised = plant.limit("a");
    assert!(800 < raised, "{raised}");
    plant.get("a").demand_milli = 100;
    plant.run(15);
    assert_eq!(plant.limit("a"), raised);
    assert_eq!(standing(&plant.node, "a").left_out, Some(BoundBy::Cooldown));
    plant.get("b").demand_milli = 900;
    plant.run(4);
    assert!(plant.limit("a") < raised, "b needs its room");
}

#[test]
fn a_raise_multiplies_a_limit_by_no_more_than_the_step() {
    let settings = Settings {
        max_step: Some(2),
        ..Settings::default()
    };
    let mut plant = Plant::new(4000, settings);
    plant.add("a", PARAMS, milli(1000), 900);
    plant.run(5);
    plant.get("a").demand_milli = 0;
    plant.run(20);
    assert_eq!(plant.limit("a"), 110);
    plant.get("a").demand_milli = 900;
    plant.run(1);
    assert_eq!(plant.limit("a"), 220);
    assert_eq!(standing(&plant.node, "a").left_out, Some(BoundBy::MaxStep));
    plant.run(3);
    assert_eq!(plant.limit("a"), 1000);
}

#[test]
fn while_all_ask_for_an_hour_nobody_starves_and_the_longest_unmet_is_served_first() {
    let mut plant = Plant::new(1000, Settings::default());
    for (id, demand_milli) in [("a", 900), ("b", 500), ("c", 700), ("d", 100)] {
        plant.add(id, PARAMS, Quota::NONE, demand_milli);
    }
    for _ in 0..3_600 {
        plant.run(1);
        assert!(plant.sum_milli() <= 1000);
        for id in ["a", "b", "c", "d"] {
            assert!(100 <= plant.limit(id), "{id}: {}", plant.limit(id));
        }
    }
    assert!(standing(&plant.node, "a").bidder.unmet_milli > 0);
}

#[test]
fn a_pod_that_bursts_to_its_ceiling_each_minute_has_it_within_a_second() {
    let mut plant = Plant::new(4000, Settings::default());
    plant.add("a", PARAMS, milli(500), 0);
    plant.add("b", PARAMS, milli(500), 300);
    for minute in 0..10 {
        plant.get("a").demand_milli = 0;
        plant.run(55);
        plant.get("a").demand_milli = 1000;
        plant.run(if minute == 0 { 4 } else { 1 });
        assert!(950 <= plant.limit("a"), "{minute}: {}", plant.limit("a"));
        plant.run(3);
    }
    assert_eq!(plant.get("b").writes, 1, "b has what it needs");
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
                let ids = last.cleared.shares.iter().map(|share| &share.id);
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
        .map(|standing| (standing.id, standing.bidder.limit_milli))
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

/// Method: limits and counters as large as a number can be, twice within a minute.
#[test]
fn absurd_limits_and_counters_do_not_overflow() {
    let mut node = Node::new(Settings::default());
    let params = Params {
        min_milli: 0,
        max_milli: u64::MAX,
        weight: 1,
    };
    for id in ["a", "b", "c"] {
        node.adopt(id, params, Quota::NONE, Quota::NONE);
    }
    let counters = [0, u64::MAX, 0, u64::MAX];
    for (second, counter) in (1..).zip(counters) {
        let sample = Sample {
            at_us: second * 1_000_000,
            periods: Some(counter),
            throttled_periods: Some(counter),
            throttled_us: Some(0),
            ..Sample::default()
        };
        for id in ["a", "b", "c"] {
            node.observe(id, Some(sample));
        }
        let supply = Supply {
            allocatable_milli: 1_000,
            unmanaged_milli: Some(0),
        };
        node.clear(second * 1_000_000, supply);
        if second == 2 {
            assert_eq!(node.decreases().len(), 3);
        }
    }
}

/// Method: a pod whose id comes first is adopted between the clearing and the writes.
#[test]
fn a_plan_does_not_outlive_an_adoption() {
    let mut node = Node::new(Settings::default());
    let params = Params {
        min_milli: 100,
        max_milli: 1_000,
        weight: 1,
    };
    node.adopt("b", params, Quota::NONE, Quota::NONE);
    for second in 1..=2_u64 {
        let sample = Sample {
            at_us: second * 1_000_000,
            ..Sample::default()
        };
        node.observe("b", Some(sample));
    }
    let supply = Supply {
        allocatable_milli: 4_000,
        unmanaged_milli: Some(0),
    };
    node.clear(2_000_000, supply);
    assert_eq!(node.decreases().len(), 1);
    node.adopt("a", params, Quota::NONE, Quota::NONE);
    assert_eq!(node.decreases(), []);
}
