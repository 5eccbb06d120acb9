//! Large numbers: a million GPUs, the most hours, and the last instants.

use bursar_cluster::budget::spec::GPU_HOURS_MAX;
use bursar_cluster::run::LENGTH_MAX;
use bursar_cluster::{Exit, Run, Stage};
use bursar_units::INTEGER_MAX;

use crate::world::{HOUR, World, at, budget, envelope, node, run};

#[test]
fn a_million_gpus_are_leased_paid_and_given_back() {
    let mut world = World::plain(&[]);
    world.now = at(HOUR);
    for number in 0..1_000 {
        world.set_node(node(&format!("n{number}"), "us/west/d", 1_000));
    }
    let mut e = envelope("e", 1_000_000);
    e.gpu_hours_max = Some(GPU_HOURS_MAX);
    world.set(budget("a", &[], vec![e]));
    world.submit(Run {
        pod_gpus: Some(1_000),
        ..run("a", "r", 1_000_000)
    });
    assert_eq!(world.stage("a/r"), Stage::Running);
    assert_eq!(world.clusters.nodes().all_leased().count(), 1_000_000);
    world.go(11 * HOUR);
    world.exited("a/r", &[], Exit::Ok {}).unwrap();
    let used: u64 = world
        .clusters
        .accounts()
        .usage(world.now)
        .map(|row| row.gpu_ms)
        .sum();
    assert_eq!(used, 10_000_000 * HOUR);
    assert_eq!(world.clusters.nodes().all_leased().count(), 0);
}

/// No instant is later than the last one: promises and graces end there at the latest.
#[test]
fn a_world_at_the_last_instants_keeps_its_sums() {
    let mut world = World::new(&[8]);
    world.now = at(INTEGER_MAX - 2 * HOUR);
    let mut e = envelope("e", 8);
    e.gpu_hours_max = Some(GPU_HOURS_MAX);
    world.set(budget("a", &[], vec![e]));
    world.submit(Run {
        max_duration: Some(LENGTH_MAX),
        ..run("a", "long", 4)
    });
    world.submit(Run {
        expected_duration: Some(LENGTH_MAX),
        ..run("a", "longer", 4)
    });
    assert_eq!(world.stage("a/longer"), Stage::Running);
    world.now = at(INTEGER_MAX - 1);
    world.tick();
    world.cancel("a/long");
    for text in ["a/long", "a/longer"] {
        world.exited(text, &[], Exit::Ok {}).unwrap();
    }
    let usage = world.clusters.accounts().usage(world.now);
    let used: u64 = usage.map(|row| row.gpu_ms).sum();
    assert_eq!(used, 8 * (2 * HOUR - 1));
}
