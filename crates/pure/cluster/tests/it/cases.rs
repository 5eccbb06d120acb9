//! Ends of runs: walltime, grace, cancel, failed starts, used up budgets.

use bursar_cluster::budget::Envelope;
use bursar_cluster::budget::spec::OnExhaustion;
use bursar_cluster::explain::WaitReason;
use bursar_cluster::{Change, Command, Event, Exit, Outcome, Reason, Refusal, Run, Stage};

use crate::time::plays_late_too;
use crate::world::{HOUR, World, at, budget, envelope, ms, node, run};

/// A world with one owner and one envelope.
fn world(gpus: u64) -> World {
    let mut world = World::new(&[gpus]);
    world.set(budget("a", &[], vec![envelope("e", gpus)]));
    world
}

fn ended(world: &World, text: &str) -> (Outcome, Reason, Option<i32>, Option<String>) {
    let end = world.shown(text).end.unwrap();
    (end.outcome, end.reason, end.code, end.detail)
}

#[test]
fn a_stop_by_walltime_begins_a_grace_before_the_hard_end() {
    let mut world = world(4);
    world.submit(Run {
        max_duration: Some(ms(HOUR)),
        grace: Some(ms(60_000)),
        ..run("a", "r", 4)
    });
    world.go(HOUR - 60_001);
    assert_eq!(world.stage("a/r"), Stage::Running);
    world.go(HOUR - 60_000);
    let ending = Some((Reason::Walltime, at(HOUR)));
    assert_eq!(world.shown("a/r").ending, ending);
    world.exited("a/r", &[], Exit::Ok {}).unwrap();
    let end = (Outcome::Failed, Reason::Walltime, None, None);
    assert_eq!(ended(&world, "a/r"), end);
    plays_late_too(&world);
}

/// An edit stops nothing earlier than itself, and the run has its grace.
#[test]
fn a_hard_end_that_an_edit_puts_into_the_past_stops_the_run_with_its_grace() {
    let mut world = world(4);
    world.submit(run("a", "r", 4));
    world.go(2 * HOUR);
    world.submit(Run {
        max_duration: Some(ms(HOUR)),
        ..run("a", "r", 4)
    });
    world.go(2 * HOUR + 1);
    let ending = Some((Reason::Walltime, at(2 * HOUR + 30_000)));
    assert_eq!(world.shown("a/r").ending, ending);
    assert_eq!(world.shown("a/r").since, at(2 * HOUR));
    plays_late_too(&world);
}

#[test]
fn a_start_that_is_not_reported_in_time_fails_and_gives_all_back() {
    let mut world = world(4);
    world.reports_starts = false;
    world.submit(run("a", "r", 4));
    world.go(119_999);
    assert_eq!(world.stage("a/r"), Stage::Starting);
    world.go(120_000);
    assert_eq!(world.stage("a/r"), Stage::Ending);
    world
        .exited("a/r", &[], Exit::Failed { code: None })
        .unwrap();
    let end = (Outcome::Failed, Reason::StartFailed, None, None);
    assert_eq!(ended(&world, "a/r"), end);
    assert_eq!(world.clusters.nodes().all_leased().count(), 0);
    plays_late_too(&world);
}

/// The executor reports pod by pod: the first cause is kept.
#[test]
fn the_cause_of_a_failed_start_outlives_the_other_pods() {
    let mut world = world(4);
    world.reports_starts = false;
    world.submit(run("a", "r", 3));
    let reason = "no such image".to_owned();
    world
        .exited("a/r", &[1], Exit::NotStarted { reason })
        .unwrap();
    world.crash();
    for pod in [0, 2] {
        world
            .exited("a/r", &[pod], Exit::Failed { code: Some(9) })
            .unwrap();
    }
    let detail = Some("no such image".to_owned());
    let end = (Outcome::Failed, Reason::StartFailed, Some(9), detail);
    assert_eq!(ended(&world, "a/r"), end);
    plays_late_too(&world);
}

#[test]
fn a_run_that_is_cancelled_while_it_starts_ends_cancelled() {
    let mut world = world(4);
    world.reports_starts = false;
    world.submit(run("a", "r", 4));
    world.cancel("a/r");
    world.go(10 * HOUR);
    assert_eq!(world.stage("a/r"), Stage::Ending);
    let reason = "killed".to_owned();
    world
        .exited("a/r", &[], Exit::NotStarted { reason })
        .unwrap();
    assert_eq!(ended(&world, "a/r").0, Outcome::Cancelled);
    plays_late_too(&world);
}

fn once(text: &str, gpus: u64, hours: u64) -> Envelope {
    Envelope {
        gpu_hours_max: Some(hours),
        on_exhaustion: OnExhaustion::End,
        ..envelope(text, gpus)
    }
}

#[test]
fn work_that_a_used_up_envelope_ends_is_stopped_with_its_grace_unfunded() {
    let mut world = World::new(&[4]);
    world.set(budget("a", &[], vec![once("once", 2, 2)]));
    world.submit(run("a", "r", 2));
    world.go(HOUR);
    let ending = Some((Reason::BudgetEnd, at(HOUR + 30_000)));
    assert_eq!(world.shown("a/r").ending, ending);
    assert_eq!(world.shown("a/r").unfunded_gpus(), 2);
    // Raised limits do not fund it again.
    world.set(budget("a", &[], vec![once("once", 2, 200)]));
    assert_eq!(world.shown("a/r").unfunded_gpus(), 2);
    plays_late_too(&world);
}

#[test]
fn work_that_finds_another_payer_at_the_depletion_goes_on() {
    let mut world = World::new(&[4]);
    world.set(budget("a", &[], vec![once("once", 2, 2)]));
    world.submit(run("a", "r", 2));
    world.go(HOUR / 2);
    world.set(budget(
        "a",
        &[],
        vec![once("once", 2, 2), envelope("next", 2)],
    ));
    world.go(2 * HOUR);
    assert_eq!(world.stage("a/r"), Stage::Running);
    assert_eq!(world.shown("a/r").unfunded_gpus(), 0);
    plays_late_too(&world);
}

/// Only the claim that depleted decides: another claim of the run was unfunded before.
#[test]
fn a_claim_that_is_refunded_at_its_depletion_does_not_end_the_run() {
    let mut world = World::new(&[8]);
    let mut first = envelope("first", 4);
    first.end = Some(at(HOUR / 2));
    let budgets = |more: Vec<Envelope>| {
        let mut list = vec![first.clone(), once("once", 2, 2)];
        list.extend(more);
        budget("a", &[], list)
    };
    world.set(budgets(Vec::new()));
    world.submit(run("a", "r", 6));
    world.go(HOUR / 2);
    assert_eq!(world.shown("a/r").unfunded_gpus(), 4);
    world.set(budgets(vec![envelope("next", 2)]));
    world.go(3 * HOUR);
    assert_eq!(world.stage("a/r"), Stage::Running);
    assert_eq!(world.shown("a/r").unfunded_gpus(), 4);
    plays_late_too(&world);
}

#[test]
fn a_dropped_budget_that_is_made_again_goes_on_with_its_meter() {
    let mut world = World::new(&[4]);
    let spec = budget("a", &[], vec![once("once", 2, 10)]);
    world.set(spec.clone());
    world.submit(run("a", "r", 2));
    world.go(HOUR);
    world.drop_budget("a/b").unwrap();
    assert_eq!(world.shown("a/r").unfunded_gpus(), 2);
    world.go(2 * HOUR);
    world.set(spec);
    assert_eq!(world.shown("a/r").unfunded_gpus(), 0);
    let meters = world.clusters.accounts();
    let meters = meters.meters(
        world.now,
        &bursar_cluster::budget::BudgetId::new("a/b").unwrap(),
    );
    assert_eq!(meters[0].accrued_gpu_ms, 2 * HOUR);
    plays_late_too(&world);
}

#[test]
fn a_cordoned_node_keeps_its_leases_and_gets_no_new_ones() {
    let mut world = world(4);
    world.submit(run("a", "first", 2));
    let mut cordoned = node("n0", "us/west/d0", 4);
    cordoned.unschedulable = true;
    world.set_node(cordoned);
    world.submit(run("a", "second", 2));
    assert_eq!(world.stage("a/first"), Stage::Running);
    assert_eq!(world.stage("a/second"), Stage::Waiting);
    let wait = world.clusters.wait(world.now, &world.uid("a/second"));
    assert_eq!(wait.unwrap().reason.word(), "NodesUnusable");
    world.set_node(node("n0", "us/west/d0", 4));
    assert_eq!(world.stage("a/second"), Stage::Running);
    let refused = world.clusters.check_node_drop(&crate::world::name("n0"));
    assert!(matches!(refused, Err(Refusal::NodeInUse { runs, .. }) if runs.len() == 2));
}

#[test]
fn a_run_that_fits_no_domain_is_told_the_largest() {
    let mut world = World::new(&[4, 7, 3]);
    world.set(budget("a", &[], vec![envelope("e", 100)]));
    let wide = Run {
        pod_gpus: Some(2),
        ..run("a", "r", 8)
    };
    let refused = world.change(&[Change::SetRun(wide)]).unwrap_err();
    let Refusal::NeverPlaced {
        declared, largest, ..
    } = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((declared, largest), (14, 6));
}

/// A record starts at most 256 runs; the tick starts the others.
#[test]
fn more_starts_than_a_record_holds_are_owed_to_the_next() {
    let mut world = World::plain(&[300]);
    world.reports_starts = false;
    world.set(budget("a", &[], vec![envelope("e", 300)]));
    let runs = (0..300).map(|number| Change::SetRun(run("a", &format!("r{number}"), 1)));
    let runs: Vec<Change> = runs.collect();
    world.change(&runs).unwrap();
    assert_eq!(world.clusters.count(Stage::Starting), 256);
    let last = world.records.last().unwrap();
    assert!(matches!(
        last.events
            .iter()
            .rev()
            .find(|event| !matches!(event, Event::MeterNear { .. })),
        Some(Event::PassUnfinished { t: None })
    ));
    world.crash();
    world.tick();
    assert_eq!(world.clusters.count(Stage::Starting), 300);
    assert_eq!(world.next(), Some(at(120_000)));
}

/// A share that a record reaches itself does not put its starts off.
#[test]
fn a_start_does_not_wait_for_the_share_that_its_own_record_reached() {
    let mut world = world(4);
    world.submit(run("a", "first", 4));
    world.submit(run("a", "small", 1));
    world.submit(run("a", "second", 1));
    let records = world.records.len();
    // The new epoch announces its shares again.
    world.rotate("a/b/e").unwrap();
    world.exited("a/first", &[], Exit::Ok {}).unwrap();
    assert_eq!(world.stage("a/second"), Stage::Running);
    let unfinished = |event: &Event| matches!(event, Event::PassUnfinished { .. });
    let events = world.records[records..].iter();
    let mut events = events.flat_map(|record| &record.events);
    assert!(!events.any(unfinished));
    plays_late_too(&world);
}

#[test]
fn a_run_that_must_start_at_once_is_refused_without_a_trace_if_it_would_wait() {
    let mut world = world(4);
    world.submit(run("a", "first", 4));
    let records = world.records.len();
    let refused = world.change(&[Change::StartRun(run("a", "second", 4))]);
    assert!(matches!(refused, Err(Refusal::WouldWait { .. })));
    assert_eq!(world.records.len(), records);
    world.exited("a/first", &[], Exit::Ok {}).unwrap();
    world
        .change(&[Change::StartRun(run("a", "second", 4))])
        .unwrap();
    assert_eq!(world.stage("a/second"), Stage::Running);
    plays_late_too(&world);
}

#[test]
fn a_cancel_of_one_identity_does_not_stop_a_later_run_of_the_name() {
    let mut world = world(4);
    world.submit(run("a", "r", 4));
    let uid = Some(world.uid("a/r"));
    world.exited("a/r", &[], Exit::Ok {}).unwrap();
    world.submit(run("a", "r", 4));
    let name = run("a", "r", 4).id();
    let cancel = Command::CancelRun { run: name, uid };
    assert!(matches!(
        world.command(&cancel),
        Err(Refusal::NoSuchRun { .. })
    ));
    assert_eq!(world.stage("a/r"), Stage::Running);
    plays_late_too(&world);
}

#[test]
fn a_run_may_stand_before_its_budget_in_one_change() {
    let mut world = World::new(&[4]);
    let budget = Change::SetBudget(budget("a", &[], vec![envelope("e", 4)]));
    world
        .change(&[Change::SetRun(run("a", "r", 4)), budget])
        .unwrap();
    assert_eq!(world.stage("a/r"), Stage::Running);
    plays_late_too(&world);
}

/// R6: a run that becomes impossible later waits as a mistake.
#[test]
fn a_run_whose_envelope_becomes_too_small_waits_as_a_mistake() {
    let mut world = world(4);
    world.submit(run("a", "first", 4));
    world.submit(run("a", "second", 4));
    let reason = |world: &World| {
        let uid = world.uid("a/second");
        let reason = world.clusters.wait_reason_of(world.now, &uid).unwrap();
        let wait = world.clusters.wait(world.now, &uid).unwrap();
        assert_eq!(reason, wait.reason);
        reason
    };
    assert_eq!(reason(&world), WaitReason::ConcurrencyCapExceeded);
    world.set(budget("a", &[], vec![envelope("e", 2)]));
    assert_eq!(reason(&world), WaitReason::NeverFits);
    plays_late_too(&world);
}
