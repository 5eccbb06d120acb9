//! The worked numbers of the rules, played by the plane.

use bursar_cluster::budget::{MeterId, Selector};
use bursar_cluster::{Event, Funding, Run, Stage};

use crate::time::plays_late_too;
use crate::world::{HOUR, World, at, budget, cap, envelope, envelope_id, label, lends, ms, run};

fn meter(text: &str) -> MeterId {
    MeterId::new(text).unwrap()
}

/// The payers of a run, by claim.
fn payers(world: &World, text: &str) -> Vec<String> {
    let takes = world.shown(text).takes().into_iter();
    takes
        .map(|take| format!("{} {}", take.envelope.name(), take.gpus))
        .collect()
}

/// Team-a, its brother, its parent and a sponsor, at us/west.
fn walk() -> World {
    let mut world = World::new(&[32]);
    let here = |region: &str, cluster: &str| Selector {
        region: Some(label(region)),
        cluster: Some(label(cluster)),
        domain: None,
    };
    let mut west = envelope("a-west", 4);
    west.selector = here("us", "west");
    let mut east = envelope("a-east", 8);
    east.selector = here("us", "east");
    let mut brother = envelope("b-west", 6);
    brother.selector = here("us", "west");
    let mut pool = envelope("lab-pool", 16);
    pool.lending = Some(lends("team-*", Some(5)));
    let mut org = budget("org", &[], vec![envelope("org-any", 10)]);
    org.aggregate_caps = vec![cap("c", &["team-b/b/b-west", "org/b/org-any"], 9)];
    world.set(budget("team-a", &["org"], vec![west, east]));
    world.set(budget("team-b", &["org"], vec![brother]));
    world.set(org);
    world.set(budget("lab", &[], vec![pool]));
    world
}

fn borrower(text: &str, gpus: u64) -> Run {
    Run {
        funding: Funding {
            allow_borrow: true,
            borrow_gpus_max: Some(4),
            sponsors: vec![label("lab")],
        },
        ..run("team-a", text, gpus)
    }
}

#[test]
fn walk_a_run_is_paid_by_owner_family_and_sponsor_in_order() {
    let mut world = walk();
    world.submit(borrower("wide", 24));
    assert_eq!(
        payers(&world, "team-a/wide"),
        [
            "a-west 4",
            "b-west 6",
            "org-any 3",
            "a-east 8",
            "lab-pool 3"
        ]
    );
    let refused = world.change(&[bursar_cluster::Change::SetRun(borrower("wider", 26))]);
    let refused = refused.unwrap_err();
    let bursar_cluster::Refusal::NeverCovered { trace, .. } = refused else {
        panic!("{refused:?}");
    };
    let failure = trace.outcome.unwrap_err();
    assert_eq!(failure.reason.word(), "BorrowLimitExceeded");
    assert_eq!((failure.wanted, failure.found), (26, 25));
    plays_late_too(&world);
}

#[test]
fn window_preference_prefers_the_first_end_that_outlasts_the_run() {
    let mut q3 = envelope("q3", 8);
    q3.end = Some(at(HOUR));
    let mut q4 = envelope("q4", 8);
    q4.end = Some(at(720 * HOUR));
    let mut world = World::new(&[24]);
    world.set(budget("a", &[], vec![envelope("open", 8), q4, q3]));
    let long = Run {
        expected_duration: Some(ms(10 * HOUR)),
        ..run("a", "long", 12)
    };
    let mut other = world.clone();
    world.submit(long);
    assert_eq!(payers(&world, "a/long"), ["q4 8", "open 4"]);
    other.submit(Run {
        expected_duration: Some(ms(HOUR / 2)),
        ..run("a", "short", 12)
    });
    assert_eq!(payers(&other, "a/short"), ["q3 8", "q4 4"]);
    plays_late_too(&world);
    plays_late_too(&other);
}

#[test]
fn promise_the_run_that_overruns_is_demoted_and_no_other() {
    let mut e = envelope("e", 20);
    e.gpu_hours_max = Some(100);
    let mut world = World::new(&[20]);
    world.set(budget("a", &[], vec![e]));
    for (text, gpus, hours) in [("a", 10, 1), ("b", 5, 18)] {
        world.submit(Run {
            expected_duration: Some(ms(hours * HOUR)),
            ..run("a", text, gpus)
        });
    }
    let view = world.clusters.accounts().meter(at(0), &meter("a/b/e"));
    assert_eq!(view.unwrap().committed_gpu_ms, 100 * HOUR);
    world.go(20 * HOUR);
    let money = world.money();
    let money: Vec<&str> = money.iter().map(String::as_str).collect();
    let fates: Vec<&str> = money
        .into_iter()
        .filter(|line| !line.contains("near"))
        .collect();
    assert_eq!(
        fates,
        [
            "0 take a/a e 10 until 3600000",
            "0 take a/b e 5 until 64800000",
            "3600000 overrun a/a e 10 until 3600000",
            "3600000 demoted a/a e 10 depletion",
            "64800000 overrun a/b e 5 until 64800000",
            "64800000 demoted a/b e 5 depletion",
        ]
    );
    plays_late_too(&world);
}

#[test]
fn rounding_the_last_milliseconds_are_not_overdrawn() {
    let mut e = envelope("e", 8);
    e.gpu_hours_max = Some(1);
    e.admission_horizon = Some(ms(60_000));
    let mut world = World::new(&[8]);
    world.set(budget("a", &[], vec![e]));
    world.submit(run("a", "r", 7));
    world.go(HOUR);
    let money = world.money();
    let fates: Vec<&String> = money.iter().filter(|line| !line.contains("near")).collect();
    assert_eq!(fates.len(), 1 + 7 + 2, "{fates:?}");
    assert_eq!(fates[7], "420000 extension a/r e 7 until 480000");
    assert_eq!(fates[8], "480000 overrun a/r e 7 until 480000");
    assert_eq!(fates[9], "514285 demoted a/r e 7 depletion");
    let view = world.clusters.accounts().meter(world.now, &meter("a/b/e"));
    assert_eq!(view.unwrap().accrued_gpu_ms, 3_599_995);
    assert_eq!(world.stage("a/r"), Stage::Running);
    assert_eq!(world.shown("a/r").unfunded_gpus(), 7);
    plays_late_too(&world);
}

/// A runs on q3, B waits for q4.
fn before_the_edge() -> World {
    let mut q3 = envelope("q3", 8);
    q3.end = Some(at(10 * HOUR));
    let mut q4 = envelope("q4", 12);
    q4.start = Some(at(10 * HOUR));
    let mut world = World::new(&[12]);
    world.set(budget("o", &[], vec![q3, q4]));
    world.submit(run("o", "a", 8));
    world.submit(run("o", "b", 4));
    assert_eq!(world.stage("o/b"), Stage::Waiting);
    world
}

fn lines(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect()
}

/// The tick at the edge, in the bytes of its record.
const EDGE: [&str; 3] = [
    r#"{"epochClosed":{"epoch":{"meter":"o/b/q3","epoch":0,"accruedGpuMs":288000000}T}}"#,
    r#"{"runDemoted":{"of":{"uid":"run-1","run":"o/a","owner":"o"},"claims":[{"envelope":"o/b/q3","pool":"own","gpus":8,"until":3600000}],"cause":"refit"T}}"#,
    r#"{"runFunded":{"of":{"uid":"run-1","run":"o/a","owner":"o"},"claims":[{"envelope":"o/b/q4","pool":"own","gpus":8,"until":39600000}],"cause":"refund","unfunded":2T}}"#,
];

/// The start of B, at an instant.
const START: [&str; 2] = [
    r#"{"runFunded":{"of":{"uid":"run-3","run":"o/b","owner":"o"},"claims":[{"envelope":"o/b/q4","pool":"own","gpus":4,"until":UNTIL}],"cause":"take"}}"#,
    r#"{"leasesOpened":{"of":{"uid":"run-3","run":"o/b","owner":"o"},"record":RECORD,"pods":[{"pod":0,"node":"n0","gpus":[[8,8]]},{"pod":1,"node":"n0","gpus":[[9,9]]},{"pod":2,"node":"n0","gpus":[[10,10]]},{"pod":3,"node":"n0","gpus":[[11,11]]}]}}"#,
];

fn edge(t: &str) -> Vec<String> {
    EDGE.iter().map(|line| line.replace('T', t)).collect()
}

fn start(until: u64, record: usize) -> Vec<String> {
    let (until, record) = (until.to_string(), record.to_string());
    let fill = |line: &&str| line.replace("UNTIL", &until).replace("RECORD", &record);
    START.iter().map(fill).collect()
}

fn without_near(events: &[Event]) -> Vec<Event> {
    let is_near = |event: &&Event| !matches!(event, Event::MeterNear { .. });
    events.iter().filter(is_near).cloned().collect()
}

#[test]
fn away_money_moves_at_its_instant_and_starts_wait_for_the_resume() {
    let mut world = before_the_edge();
    let before = world.records.len();
    world.away(12 * HOUR);
    let tick = &world.records[before];
    assert_eq!(tick.time, at(12 * HOUR));
    let t = r#","t":36000000"#;
    let mut expected = edge(t);
    expected.push(r#"{"passUnfinished":{"t":36000000}}"#.to_owned());
    assert_eq!(lines(&tick.events), expected);
    let resumed = &world.records[before + 1];
    assert_eq!(resumed.time, at(12 * HOUR));
    assert_eq!(
        lines(&without_near(&resumed.events)),
        start(13 * HOUR, before + 1)
    );
    plays_late_too(&world);
}

#[test]
fn on_time_only_the_start_differs() {
    let mut world = before_the_edge();
    let before = world.records.len();
    world.go(10 * HOUR);
    let tick = &world.records[before];
    assert_eq!(tick.time, at(10 * HOUR));
    let mut expected = edge("");
    expected.extend(start(11 * HOUR, before));
    assert_eq!(lines(&without_near(&tick.events)), expected);
    plays_late_too(&world);
}

#[test]
fn an_end_while_away_is_charged_until_it_is_recorded() {
    let mut world = before_the_edge();
    world.away(12 * HOUR);
    world
        .exited("o/a", &[], bursar_cluster::Exit::Ok {})
        .unwrap();
    let view = |text: &str| {
        let meter = MeterId::Envelope(envelope_id(text));
        let view = world.clusters.accounts().meter(world.now, &meter).unwrap();
        (view.accrued_gpu_ms, view.epoch)
    };
    assert_eq!(view("o/b/q4"), (2 * 8 * HOUR, 0));
    assert_eq!(view("o/b/q3"), (0, 1));
    plays_late_too(&world);
}
