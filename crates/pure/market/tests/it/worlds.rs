//! The invariants of the loop, on a hundred thousand random worlds.
//!
//! Method: small worlds of a few seconds on the simulated machine, with random settings and wants; after
//! every second the invariants are checked on what the node says and on the limits that were written.

use std::sync::Arc;

use bursar_market::clear::{Mode, Policy, Step};
use bursar_market::node::{Node, Settings};
use bursar_market::params::Params;
use bursar_market::simulate::{Work, World, simulate};

use crate::random::Random;

fn world(random: &mut Random) -> World {
    let count = 1 + random.below(6);
    let pods = (0..count).map(|number| {
        let min_milli = random.below(200);
        let params = Params {
            min_milli,
            max_milli: min_milli + random.pick(&[0, 1, 50, 400, 1_500]),
            weight: random.pick(&[0, 1, 7, 100]),
        };
        (Arc::from(format!("p{number}")), params)
    });
    let pods: Vec<(Arc<str>, Params)> = pods.collect();
    let floors: u64 = pods.iter().map(|(_, params)| params.min_milli).sum();
    World {
        capacity_milli: match random.below(4) {
            0 => floors.saturating_sub(random.below(20)),
            1 => floors + random.below(200),
            _ => random.below(3_000),
        },
        settings: Settings {
            policy: random.pick(&Policy::ALL),
            quantum_milli: random.pick(&[1, 1, 1, 10]),
            windows: random.pick(&[1, 2, 5, 10]),
            size_block: random.pick(&[1, 3, 300]),
            writes_per_hour: random.pick(&[0, 1, 60, 600, 600, 1_000_000]),
            cooldown_us: random.pick(&[0, 0, 3_000_000]),
            max_step: random.pick(&[None, None, Some(1), Some(2)]),
            ..Settings::default()
        },
        work: random.pick(&[Work::Lost, Work::Waits]),
        seconds: 12,
        pods,
    }
}

#[test]
fn the_invariants_hold_in_a_hundred_thousand_random_worlds() {
    let mut random = Random(12);
    let mut modes = [0_u64; 3];
    for _ in 0..100_000 {
        let world = world(&mut random);
        let mut wants = Random(random.next());
        let mut levels: Vec<u64> = vec![0; world.pods.len()];
        let mut before = u64::MAX;
        let mut limits: Vec<u64> = world.pods.iter().map(|pod| pod.1.max_milli).collect();
        simulate(
            &world,
            |_, pod| {
                if wants.once_in(3) {
                    levels[pod] = wants.pick(&[0, 10, 100, 400, 900, 2_500]);
                }
                levels[pod]
            },
            |second| {
                for change in second.changes {
                    limits[change.pod] = change.limit_milli;
                }
                let after = sum_of_shared(&world, &limits);
                let mode = check(&world, second.node, (before, after));
                before = after;
                modes[usize::try_from(mode).unwrap()] += 1;
            },
        );
    }
    assert!(modes.iter().all(|count| 10_000 < *count), "{modes:?}");
}

/// The sum of the limits of the pods that take part.
fn sum_of_shared(world: &World, limits: &[u64]) -> u64 {
    let quantum = world.settings.quantum_milli;
    let pods = world.pods.iter().zip(limits);
    let shared = pods.filter(|((_, params), _)| {
        params.min_milli.div_ceil(quantum) <= params.max_milli / quantum
    });
    shared.map(|(_, limit)| limit).sum()
}

fn check(world: &World, node: &Node, (before, after): (u64, u64)) -> u64 {
    let last = node.last().unwrap();
    let cleared = &last.cleared;
    let say = || format!("{world:?} {last:?}");
    let sum: u64 = cleared
        .shares
        .iter()
        .map(|share| share.allocated_milli)
        .sum();
    assert!(sum <= cleared.capacity_milli, "INV-2 {}", say());
    assert!(
        after <= before.max(cleared.capacity_milli),
        "INV-5 {before} {after} {}",
        say()
    );
    for share in &cleared.shares {
        let got = share.allocated_milli;
        let range = match cleared.mode {
            Mode::Overloaded => 0..=share.min_milli,
            _ => share.min_milli..=share.max_milli,
        };
        assert!(range.contains(&got), "INV-1 {share:?} {}", say());
        if world.settings.policy == Policy::FullCapacity {
            continue;
        }
        match cleared.step {
            Step::Rung(_) => assert_eq!(got, share.need_milli, "INV-3 {}", say()),
            Step::Shared(_) => assert!(got <= share.need_milli, "INV-4 {}", say()),
            Step::Overload => {}
        }
    }
    let is_shared = matches!(cleared.step, Step::Shared(_));
    if is_shared && world.settings.policy != Policy::FullCapacity {
        assert_eq!(sum, cleared.capacity_milli, "all is shared {}", say());
        let quantum = u128::from(world.settings.quantum_milli);
        for one in &cleared.shares {
            for other in &cleared.shares {
                if other.allocated_milli < other.need_milli {
                    // (x − m)/b of the uncapped is equal up to rounding, and no smaller than of others.
                    let above = |share: &bursar_market::clear::Share| {
                        u128::from(share.allocated_milli - share.min_milli)
                    };
                    let (b, b_other) = (u128::from(one.bid), u128::from(other.bid));
                    assert!(
                        above(one) * b_other <= (above(other) + quantum) * b + quantum * b_other,
                        "INV-4 {one:?} {other:?} {}",
                        say()
                    );
                }
            }
        }
    }
    assert_eq!(
        cleared.price_ppm == 0,
        cleared.step == Step::Rung(cleared.windows)
    );
    match cleared.mode {
        Mode::Uncongested => 0,
        Mode::Congested => 1,
        Mode::Overloaded => 2,
    }
}

/// Method: the same load twice, and with its pods in another order.
#[test]
fn the_same_load_gives_the_same_changes_in_any_order_of_the_pods() {
    let mut random = Random(13);
    for _ in 0..500 {
        let world = world(&mut random);
        let seed = random.next();
        let play = |world: &World| {
            let mut all = Vec::new();
            simulate(
                world,
                |second, pod| {
                    let name = u64::from(world.pods[pod].0.as_bytes()[1]);
                    Random(seed ^ (second / 4 * 256 + name)).below(1_500)
                },
                |second| {
                    for change in second.changes {
                        let id = Arc::clone(&world.pods[change.pod].0);
                        all.push((second.second, id, change.limit_milli, change.bound_by));
                    }
                },
            );
            all.sort();
            all
        };
        let mut turned = world.clone();
        random.shuffle(&mut turned.pods);
        assert_eq!(play(&world), play(&turned), "{world:?}");
    }
}

/// Method: a hundred thousand pods for a few seconds.
#[test]
fn a_hundred_thousand_pods_are_cleared_within_capacity() {
    let params = Params {
        min_milli: 10,
        max_milli: 1_000,
        weight: 1,
    };
    let world = World {
        capacity_milli: 5_000_000,
        settings: Settings::default(),
        work: Work::Lost,
        seconds: 4,
        pods: (0..100_000)
            .map(|number| (Arc::from(format!("p{number:06}")), params))
            .collect(),
    };
    let mut random = Random(14);
    simulate(
        &world,
        |_, _| random.below(150),
        |second| assert!(second.node.limits_milli() <= 5_000_000),
    );
}
