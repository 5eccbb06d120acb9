//! The golden trajectories of the loop: limits after each second, constant in between.

use std::collections::BTreeMap;

use bursar_market::clear::BoundBy;
use bursar_market::node::Settings;
use bursar_market::params::Params;
use bursar_market::simulate::{Change, Totals, Work, World, simulate};

/// A want from a second on.
pub(crate) type Want = &'static [(u64, u64)];

pub(crate) fn world(
    capacity_milli: u64,
    seconds: u64,
    (min_milli, max_milli): (u64, u64),
    count: usize,
) -> World {
    let ids = ["a", "b", "c", "d"];
    World {
        capacity_milli,
        settings: Settings::default(),
        work: Work::Lost,
        seconds,
        pods: ids[..count]
            .iter()
            .map(|id| {
                let params = Params {
                    min_milli,
                    max_milli,
                    weight: 1,
                };
                ((*id).into(), params)
            })
            .collect(),
    }
}

pub(crate) fn at(want: &[(u64, u64)], second: u64) -> u64 {
    let past = want.iter().rev().find(|(from, _)| *from <= second);
    past.map_or(0, |(_, milli)| *milli)
}

/// Every change, by second.
pub(crate) fn changes(world: &World, wants: &[Want]) -> (Vec<(u64, Change)>, Totals) {
    let mut all = Vec::new();
    let totals = simulate(
        world,
        |second, pod| at(wants[pod], second),
        |second| all.extend(second.changes.iter().map(|change| (second.second, *change))),
    );
    (all, totals)
}

fn check(world: &World, wants: &[Want], expected: &[(u64, &[u64])]) -> Vec<(u64, Change)> {
    let mut limits = vec![0; wants.len()];
    let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let (all, _) = changes(world, wants);
    for (second, change) in &all {
        limits[change.pod] = change.limit_milli;
        seen.insert(*second, limits.clone());
    }
    let expected: BTreeMap<u64, Vec<u64>> = expected
        .iter()
        .map(|(second, limits)| (*second, limits.to_vec()))
        .collect();
    assert_eq!(seen, expected);
    all
}

#[test]
fn one_pod_is_followed_up_by_doubling_and_down_after_its_memory() {
    check(
        &world(4000, 120, (100, 1000), 1),
        &[&[(1, 0), (15, 640), (23, 120)]],
        &[
            (1, &[1000]),
            (10, &[110]),
            (15, &[246]),
            (16, &[573]),
            (17, &[761]),
            (32, &[132]),
        ],
    );
}

#[test]
fn a_known_size_is_given_at_once() {
    check(
        &world(4000, 45, (50, 1000), 1),
        &[&[(1, 0), (15, 600), (19, 0), (41, 600), (44, 0)]],
        &[
            (1, &[1000]),
            (10, &[55]),
            (15, &[122]),
            (16, &[275]),
            (17, &[648]),
            (28, &[55]),
            (41, &[712]),
        ],
    );
}

#[test]
fn asks_beyond_the_node_are_shared_by_size_and_settle() {
    let all = check(
        &world(1000, 200, (50, 1000), 3),
        &[&[(1, 200)], &[(1, 100), (5, 500)], &[(1, 600), (5, 700)]],
        &[
            (1, &[200, 100, 600]),
            (5, &[200, 150, 650]),
            (6, &[200, 181, 619]),
            (7, &[200, 202, 598]),
            (8, &[200, 216, 584]),
        ],
    );
    let rungs = all.iter().map(|(second, change)| (*second, change.rung));
    for (second, rung) in rungs {
        assert_eq!(rung, (second == 1).then_some(0), "second {second}");
    }
}

#[test]
fn a_constant_load_costs_one_write_per_pod() {
    check(
        &world(3000, 600, (100, 2000), 2),
        &[&[(1, 800)], &[(1, 130)]],
        &[(1, &[924, 143])],
    );
}

#[test]
fn a_change_names_its_rung_and_its_bound() {
    let (all, totals) = changes(
        &world(800, 30, (50, 1000), 2),
        &[
            &[(1, 0), (3, 500), (11, 0)],
            &[(1, 20), (13, 600), (21, 20)],
        ],
    );
    let first = Change {
        pod: 0,
        limit_milli: 55,
        rung: Some(1),
        bound_by: BoundBy::Memory,
    };
    assert_eq!(all[0], (1, first));
    assert_eq!(totals.writes, u64::try_from(all.len()).unwrap());
}

#[test]
fn work_that_waits_is_done_later() {
    let mut world = world(4000, 60, (50, 1000), 1);
    let wants: [Want; 1] = [&[(1, 0), (15, 600), (19, 0)]];
    let (_, lost) = changes(&world, &wants);
    assert_eq!(lost.lost_milli_seconds, 545 + 478 + 325);
    assert_eq!(lost.throttled_seconds, 3);
    world.work = Work::Waits;
    let (_, waited) = changes(&world, &wants);
    assert_eq!(waited.lost_milli_seconds, 0);
    assert!(waited.throttled_seconds >= 3);
}
