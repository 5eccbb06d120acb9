//! What surfaces read: leases with their closes, payers by pod, and since when.

use bursar_cluster::budget::Class;
use bursar_cluster::{Exit, PaidPod, Payer, Reason, Run, Stage};

use crate::world::{HOUR, World, at, budget, envelope, envelope_id, ms, run};

fn payer(envelope: Option<&str>, class: Class, gpus: u64) -> Payer {
    Payer {
        envelope: envelope.map(envelope_id),
        class,
        gpus,
    }
}

fn payers(world: &World, text: &str) -> Vec<(u64, Vec<Payer>)> {
    let pods = world.clusters.paid_by(&world.uid(text)).into_iter();
    pods.map(|PaidPod { pod, payers }| (pod, payers)).collect()
}

/// A run of three pods of two GPUs: `small` pays for three, `root` shares two, `late` shares one.
fn shared() -> World {
    let mut world = World::new(&[8]);
    let mut short = envelope("short", 1);
    short.end = Some(at(HOUR / 2));
    world.set(budget("kid", &["root"], vec![envelope("small", 3)]));
    world.set(budget("root", &[], vec![envelope("two", 2), short]));
    let wide = Run {
        pod_gpus: Some(2),
        ..run("kid", "wide", 6)
    };
    world.submit(wide);
    world
}

#[test]
fn claims_are_laid_over_the_pods_oldest_first() {
    let world = shared();
    let small = |gpus| payer(Some("kid/b/small"), Class::Owned, gpus);
    let claims: Vec<String> = world
        .shown("kid/wide")
        .takes()
        .iter()
        .map(|take| format!("{} {}", take.envelope.name(), take.gpus))
        .collect();
    assert_eq!(claims, ["small 3", "two 2", "short 1"]);
    assert_eq!(
        payers(&world, "kid/wide"),
        [
            (0, vec![small(2)]),
            (
                1,
                vec![small(1), payer(Some("root/b/two"), Class::Shared, 1)]
            ),
            (
                2,
                vec![
                    payer(Some("root/b/two"), Class::Shared, 1),
                    payer(Some("root/b/short"), Class::Shared, 1),
                ]
            ),
        ]
    );
}

#[test]
fn the_unfunded_gpus_are_those_of_the_highest_pods() {
    let mut world = shared();
    world.go(HOUR);
    assert_eq!(world.shown("kid/wide").unfunded_gpus(), 1);
    let nobody = payer(None, Class::Unfunded, 1);
    let two = payer(Some("root/b/two"), Class::Shared, 1);
    assert_eq!(payers(&world, "kid/wide")[2], (2, vec![two, nobody]));
}

/// An ended run has the payers of all its time, for each pod.
#[test]
fn an_ended_run_names_all_who_paid() {
    let mut world = shared();
    world.go(2 * HOUR);
    world.exited("kid/wide", &[], Exit::Ok {}).unwrap();
    let all = vec![
        payer(Some("kid/b/small"), Class::Owned, 0),
        payer(Some("root/b/short"), Class::Shared, 0),
        payer(Some("root/b/two"), Class::Shared, 0),
        payer(None, Class::Unfunded, 0),
    ];
    let expected: Vec<_> = (0..3).map(|pod| (pod, all.clone())).collect();
    assert_eq!(payers(&world, "kid/wide"), expected);
}

#[test]
fn a_run_without_gpus_has_no_payers_and_no_leases() {
    let mut world = World::new(&[4]);
    world.set(budget("a", &[], vec![envelope("e", 4)]));
    world.submit(run("a", "first", 4));
    world.submit(run("a", "waits", 4));
    assert_eq!(world.clusters.paid_by(&world.uid("a/waits")), []);
    assert_eq!(world.clusters.leases(&world.uid("a/waits")), []);
    world.cancel("a/waits");
    assert_eq!(world.clusters.paid_by(&world.uid("a/waits")), []);
}

#[test]
fn a_lease_knows_when_and_why_it_closed() {
    let mut world = World::new(&[4]);
    world.set(budget("a", &[], vec![envelope("e", 4)]));
    world.submit(run("a", "r", 3));
    world.go(1_000);
    world.exited("a/r", &[1], Exit::Ok {}).unwrap();
    world.go(2_000);
    let closed = |world: &World| -> Vec<_> {
        let leases = world.clusters.leases(&world.uid("a/r")).into_iter();
        leases.map(|lease| (lease.id(), lease.closed)).collect()
    };
    let record = world.clusters.leases(&world.uid("a/r"))[0].record;
    let id = |number: u64| format!("lease-{record}.{number}");
    let completed = Some((at(1_000), Reason::Completed));
    let expected = [(id(0), None), (id(1), completed), (id(2), None)];
    assert_eq!(closed(&world), expected);
    assert!(world.clusters.leases(&world.uid("a/r"))[0].is_live());
    assert!(!world.clusters.leases(&world.uid("a/r"))[1].is_live());
    world.cancel("a/r");
    world.go(3_000);
    world
        .exited("a/r", &[], Exit::Failed { code: None })
        .unwrap();
    let cancelled = Some((at(3_000), Reason::Cancelled));
    let expected = [(id(0), cancelled), (id(1), completed), (id(2), cancelled)];
    assert_eq!(closed(&world), expected);
    world.crash();
    assert_eq!(closed(&world), expected);
}

#[test]
fn a_stage_has_the_instant_at_which_it_began() {
    let mut world = World::new(&[4]);
    world.reports_starts = false;
    world.set(budget("a", &[], vec![envelope("e", 4)]));
    world.submit(run("a", "first", 4));
    world.go(1_000);
    world.submit(run("a", "r", 4));
    let stage = |world: &World| (world.shown("a/r").stage, world.shown("a/r").since.ms());
    assert_eq!(stage(&world), (Stage::Waiting, 1_000));
    world.go(2_000);
    world.exited("a/first", &[], Exit::Ok {}).unwrap();
    world.go(3_000);
    assert_eq!(stage(&world), (Stage::Starting, 2_000));
    world.started("a/r");
    world.go(4_000);
    assert_eq!(stage(&world), (Stage::Running, 3_000));
    world.cancel("a/r");
    world.go(5_000);
    assert_eq!(stage(&world), (Stage::Ending, 4_000));
    world.crash();
    assert_eq!(stage(&world), (Stage::Ending, 4_000));
    world
        .exited("a/r", &[], Exit::Failed { code: None })
        .unwrap();
    world.now = world.now.after(ms(1));
    assert_eq!(stage(&world), (Stage::Ended, 5_000));
}
