//! The worked numbers: Walk, Window preference, Promise, Rounding, and the money of Away.

use bursar_budget::cover::{Borrowing, Bound, Dimension, Reason};
use bursar_units::Millis;

use crate::world::*;

fn family() -> World {
    let mut west = envelope("a-west", 4);
    west.selector = selector("us/west");
    let mut east = envelope("a-east", 8);
    east.selector = selector("us/east");
    let mut other = envelope("b-west", 6);
    other.selector = selector("us/west");
    let mut pool = envelope("lab-pool", 16);
    pool.lending = lends(&["team-*"], Some(5));
    let mut org = budget("org", "org", &[], vec![envelope("org-any", 10)]);
    org.aggregate_caps = vec![cap("both", &["b/b/b-west", "org/b/org-any"], Some(9))];
    World::new(&[
        budget("a", "team-a", &["org"], vec![west, east]),
        budget("b", "team-b", &["org"], vec![other]),
        org,
        budget("lab", "lab", &[], vec![pool]),
    ])
}

#[test]
fn walk_takes_near_envelopes_first_and_names_the_borrow_limit() {
    let world = family();
    let mut asked = request("team-a", 24);
    asked.borrowing = Borrowing {
        allow: true,
        gpus_max: Some(4),
        sponsors: vec![label("lab")],
    };
    let plan = world.accounts.plan(at(0), &asked).unwrap();
    let expected = [
        "a-west 4",
        "b-west 6",
        "org-any 3",
        "a-east 8",
        "lab-pool 3",
    ];
    assert_eq!(shown(&plan.takes), expected);
    asked.groups[0].gpus = 26;
    let failure = world.accounts.plan(at(0), &asked).unwrap_err();
    assert_eq!(failure.reason, Reason::BorrowLimitExceeded);
    assert_eq!((failure.wanted, failure.found, failure.short), (26, 25, 1));
    let trace = world.accounts.trace(at(0), &asked);
    let on = |text: &str| Bound::Meter {
        meter: meter(text),
        dimension: Dimension::Gpus,
    };
    let expected = [
        ("a/b/a-west", 4, on("a/b/a-west"), 4),
        ("b/b/b-west", 6, on("b/b/b-west"), 6),
        ("org/b/org-any", 3, on("cap/org/b/both"), 3),
        ("a/b/a-east", 8, on("a/b/a-east"), 8),
        ("lab/b/lab-pool", 4, Bound::BorrowLimit, 4),
    ];
    let rows = trace.rows.iter();
    let rows = rows.map(|r| {
        (
            r.envelope.as_str(),
            r.room,
            r.bound.clone().unwrap(),
            r.gpus,
        )
    });
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    assert!(trace.rows.iter().all(|row| row.state.reason().is_none()));
    assert_eq!(expected[2].2.reason(), Reason::AggregateCapExceeded);
}

#[test]
fn window_preference_takes_the_earliest_end_that_outlasts() {
    let mut q3 = envelope("q3", 8);
    q3.end = Some(at(HOUR));
    let mut q4 = envelope("q4", 8);
    q4.end = Some(at(720 * HOUR));
    let list = vec![envelope("open", 8), q4, q3];
    let world = World::new(&[budget("a", "a", &[], list)]);
    let mut asked = request("a", 12);
    asked.duration = Some(Millis::from_hours(10));
    let plan = world.accounts.plan(at(0), &asked).unwrap();
    assert_eq!(shown(&plan.takes), ["q4 8", "open 4"]);
    asked.duration = Some(Millis::from_secs(1_800));
    let plan = world.accounts.plan(at(0), &asked).unwrap();
    assert_eq!(shown(&plan.takes), ["q3 8", "q4 4"]);
}

#[test]
fn a_promise_is_kept_and_the_run_that_overruns_is_demoted() {
    let mut e = envelope("e", 20);
    e.gpu_hours_max = Some(100);
    let mut world = World::new(&[budget("a", "a", &[], vec![e])]);
    for (run, gpus, hours) in [("A", 10, 1), ("B", 5, 18)] {
        let mut asked = request("a", gpus);
        asked.duration = Some(Millis::from_hours(hours));
        world.start(run, asked, None).unwrap();
    }
    let view = world.accounts.meter(at(0), &meter("a/b/e")).unwrap();
    assert_eq!(view.committed_gpu_ms, 100 * HOUR);
    world.advance(at(20 * HOUR));
    let expected = [
        "0 take A e 10 until 3600000",
        "0 take B e 5 until 64800000",
        "3600000 overrun A e 10 until 3600000",
        "3600000 demoted A e 10 depletion",
        "64800000 overrun B e 5 until 64800000",
        "64800000 demoted B e 5 depletion",
    ];
    assert_eq!(world.money(), expected);
}

#[test]
fn rounding_never_overdraws() {
    let mut e = envelope("e", 8);
    e.gpu_hours_max = Some(1);
    e.admission_horizon = Some(Millis::from_secs(60));
    let mut world = World::new(&[budget("a", "a", &[], vec![e])]);
    world.start("A", request("a", 7), None).unwrap();
    world.advance(at(514_285));
    let view = world.accounts.meter(world.now, &meter("a/b/e")).unwrap();
    assert_eq!((view.accrued_gpu_ms, view.gpus_used), (3_599_995, 0));
    world.advance(at(HOUR));
    let money = world.money();
    assert_eq!(money.len(), 1 + 7 + 2, "{money:?}");
    assert_eq!(money[7], "420000 extension A e 7 until 480000");
    assert_eq!(money[8], "480000 overrun A e 7 until 480000");
    assert_eq!(money[9], "514285 demoted A e 7 depletion");
    let view = world.accounts.meter(at(HOUR), &meter("a/b/e")).unwrap();
    assert_eq!(view.accrued_gpu_ms, 3_599_995);
}

#[test]
fn away_the_next_envelope_pays_from_the_instant_of_the_edge() {
    let mut q3 = envelope("q3", 8);
    q3.end = Some(at(10 * HOUR));
    let mut q4 = envelope("q4", 12);
    q4.start = Some(at(10 * HOUR));
    let mut world = World::new(&[budget("a", "a", &[], vec![q3, q4])]);
    world.start("A", request("a", 8), None).unwrap();
    let failure = world.accounts.plan(at(0), &request("a", 4)).unwrap_err();
    assert_eq!(failure.reason, Reason::ConcurrencyCapExceeded);
    world.advance(at(12 * HOUR));
    world.start("B", request("a", 4), None).unwrap();
    let expected = [
        "0 take A q3 8 until 3600000",
        "36000000 closed a/b/q3 288000000",
        "36000000 demoted A q3 8 refit",
        "36000000 refund A q4 8 until 39600000",
        "43200000 take B q4 4 until 46800000",
    ];
    assert_eq!(world.money(), expected);
    let debits = world.accounts.debits(at(12 * HOUR), &label("A"));
    let sums: Vec<u64> = debits.iter().map(|debit| debit.gpu_ms).collect();
    assert_eq!(sums, [80 * HOUR, 16 * HOUR]);
    world.accounts.check(world.now).unwrap();
}
