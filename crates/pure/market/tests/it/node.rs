//! A node over time: who is held and why, what is put back, and what nobody may lose.

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

/// Three pods that want everything, on a node that is too small for them.
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

#[test]
fn a_foreign_quota_is_the_new_original_and_costs_the_others_nothing() {
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
        assert_eq!(
            plant.node.release("b"),
            Some(foreign),
            "the new original comes back"
        );
        assert_eq!(plant.node.release("a"), Some(milli(400)));
    }
}

#[test]
fn what_somebody_else_wrote_does_not_keep_the_others_from_growing() {
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
fn a_second_foreign_change_begins_the_wait_anew() {
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
fn a_pod_that_cannot_be_read_is_held_and_nobody_loses() {
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
fn a_refused_write_waits_longer_each_time_and_its_room_is_not_given_away() {
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
fn a_pod_that_goes_leaves_its_share_to_the_others() {
    let mut plant = crowded();
    plant.cgroups.remove("b");
    plant.node.forget("b");
    plant.run(10);
    assert_eq!([plant.limit("a"), plant.limit("c")], [750, 750]);
    assert_eq!(plant.node.release("b"), None);
}

#[test]
fn what_was_never_written_needs_no_putting_back() {
    let mut plant = Plant::new(4000, Settings::default());
    plant.add("a", PARAMS, Quota::NONE, 1000);
    plant.run(3);
    let mut never = plant.node.clone();
    assert_eq!(never.release("a"), None);
    // A write whose end nobody saw may have happened.
    plant.get("a").demand_milli = 100;
    plant.run(120);
    let write = bursar_market::act::Write {
        id: "a".to_owned(),
        milli: 777,
    };
    let quota = plant.node.begin(&write).unwrap();
    assert!(!plant.node.found("a", quota, plant.now_us), "it was ours");
    assert_eq!(plant.node.release("a"), Some(Quota::NONE));
}

#[test]
fn half_a_write_does_not_pass_for_somebody_elses() {
    let mut node = Node::new(Settings::default());
    node.adopt("a", PARAMS, milli(900), milli(900));
    let write = bursar_market::act::Write {
        id: "a".to_owned(),
        milli: 300,
    };
    node.begin(&write).unwrap();
    // Of the two files of version 1 only the period was taken.
    let half = Quota {
        period_us: 50_000,
        ..milli(900)
    };
    node.refused("a", Some(half), 0);
    assert!(!node.found("a", half, 1), "it was ours");
    assert_eq!(node.release("a"), Some(milli(900)));
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
fn after_a_crash_the_original_is_what_was_stored() {
    let mut node = Node::new(Settings::default());
    node.adopt("a", PARAMS, milli(900), milli(300));
    assert!(
        !node.found("a", milli(300), 0),
        "what we wrote before is no conflict"
    );
    assert_eq!(node.release("a"), Some(milli(900)));
}

#[test]
fn a_clock_that_jumps_harms_nobody() {
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

/// Method: anything may happen to anybody at any time; after every second the limits of those who
/// take part are together within capacity, or no larger than before.
#[test]
fn in_any_trouble_the_sum_of_limits_never_rises_above_capacity() {
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

    /// Something that may happen.
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
