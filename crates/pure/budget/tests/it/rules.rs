//! Rules by their letter.

use bursar_budget::accounts::{About, ConditionKind};
use bursar_budget::calendar::DAY_LAST;
use bursar_budget::cover::{Dimension, Reason, RowState};
use bursar_budget::meter::Share;
use bursar_budget::spec::{OnExhaustion, Sharing};
use bursar_budget::{Budget, MeterId, Pattern, Renew};
use bursar_units::{INTEGER_MAX, Millis};

use crate::world::*;

#[test]
fn a1_closing_gpus_leave_unfunded_claims_first_then_the_newest_funded() {
    let mut small = envelope("x", 4);
    small.end = Some(at(2 * HOUR));
    let mut world = World::new(&[budget("a", "a", &[], vec![small, envelope("y", 3)])]);
    let mut asked = request("a", 6);
    asked.duration = Some(Millis::from_hours(1));
    world.start("A", asked, None).unwrap();
    world.advance(at(2 * HOUR));
    assert_eq!(world.accounts.unfunded(&work("A"))[0].gpus, 4);
    world.close("A", 5);
    assert!(world.accounts.unfunded(&work("A")).is_empty());
    assert_eq!(world.accounts.claims(&work("A"))[0].gpus, 1);
    world.close("A", 1);
    assert_eq!(world.accounts.gpus(&work("A")), 0);
    world.accounts.check(world.now).unwrap();
}

#[test]
fn b2_an_acl_that_ends_demotes_a_loan_at_its_promise_end_only() {
    let mut pool = envelope("x", 8);
    pool.lending = lends(&["a"], None);
    let mut world = World::new(&[budget("lab", "lab", &[], vec![pool.clone()])]);
    let mut asked = request("a", 2);
    asked.borrowing.allow = true;
    asked.borrowing.sponsors = vec![label("lab")];
    world.start("A", asked.clone(), None).unwrap();
    world.advance(at(HOUR / 2));
    pool.lending = lends(&["b"], None);
    world.set(&budget("lab", "lab", &[], vec![pool]));
    let denied = world.accounts.plan(world.now, &asked).unwrap_err();
    assert_eq!(denied.reason, Reason::AclDenied);
    assert_eq!(denied.denied, [envelope_id("lab/b/x")]);
    let conditions = world
        .accounts
        .conditions(world.now, &world.budget_id("lab"));
    let unused = conditions
        .iter()
        .find(|c| c.kind == ConditionKind::UnusedLending)
        .unwrap();
    let expected = [
        About::Pattern(envelope_id("lab/b/x"), Pattern::new("b").unwrap()),
        About::Loan {
            envelope: envelope_id("lab/b/x"),
            borrower: label("a"),
            until: at(HOUR),
        },
    ];
    assert_eq!(unused.about, expected);
    world.advance(at(2 * HOUR));
    let expected = [
        "0 take A x 2 until 3600000",
        "3600000 demoted A x 2 promise-end",
    ];
    assert_eq!(world.money(), expected);
}

#[test]
fn b2_a_hold_encumbers_and_accrues_nothing() {
    let mut e = envelope("x", 8);
    e.gpu_hours_max = Some(10);
    let mut world = World::new(&[budget("a", "a", &[], vec![e])]);
    let terms = bursar_budget::Terms {
        owner: label("a"),
        pod_gpus: None,
        hard_end: None,
    };
    let plan = world.accounts.plan(at(0), &request("a", 6)).unwrap();
    world.accounts.hold(
        at(0),
        &work("A"),
        &terms,
        Millis::from_hours(1),
        &plan.takes,
    );
    world.advance(at(HOUR));
    let view = world.accounts.meter(world.now, &meter("a/b/x")).unwrap();
    assert_eq!(
        (view.gpus_used, view.accrued_gpu_ms, view.committed_gpu_ms),
        (6, 0, 6 * HOUR)
    );
    let failure = world
        .accounts
        .plan(world.now, &request("a", 3))
        .unwrap_err();
    assert_eq!(
        (failure.reason, failure.found),
        (Reason::ConcurrencyCapExceeded, 2)
    );
    world.crash();
    world.accounts.drop_hold(world.now, &work("A"));
    let view = world.accounts.meter(world.now, &meter("a/b/x")).unwrap();
    assert_eq!((view.gpus_used, view.committed_gpu_ms), (0, 0));
}

#[test]
fn b2_on_exhaustion_end_is_told_at_depletion_only() {
    let mut e = envelope("x", 8);
    (e.gpu_hours_max, e.on_exhaustion) = (Some(8), OnExhaustion::End);
    let mut world = World::new(&[budget("a", "a", &[], vec![e])]);
    world.start("A", request("a", 8), None).unwrap();
    world.advance(at(HOUR - 1));
    assert!(world.accounts.depletions(at(HOUR)).list.is_empty());
    let claim = world.accounts.promise_ends(at(HOUR)).remove(0);
    let line = match world.accounts.promise_end(at(HOUR), &claim) {
        Some(bursar_budget::accounts::PromiseEnd::Overruns { line, exhausted }) => {
            assert_eq!(exhausted.len(), 1);
            line
        }
        other => panic!("{other:?}"),
    };
    world.fund(
        at(HOUR),
        &claim.work,
        bursar_budget::Funded::Overrun,
        None,
        &[line],
    );
    let demotions = world.accounts.depletions(at(HOUR));
    assert!(demotions.list[0].ends);
    assert_eq!(world.accounts.exhausted(&demotions.exhausted).len(), 1);
}

#[test]
fn b3_an_epoch_is_kept_by_an_overlapping_window_and_closed_by_a_disjoint_one() {
    let mut e = envelope("x", 8);
    (e.end, e.renew) = (Some(at(24 * HOUR)), Some(Renew::Day));
    let closed = |world: &World| -> Vec<u64> {
        let epochs = world.accounts.closed_epochs(&meter("a/b/x")).iter();
        epochs.map(|epoch| epoch.accrued).collect()
    };
    let mut world = World::new(&[budget("a", "a", &[], vec![e.clone()])]);
    world.start("A", request("a", 1), None).unwrap();
    world.advance(at(2 * HOUR));
    e.end = Some(at(30 * HOUR));
    world.set(&budget("a", "a", &[], vec![e.clone()]));
    assert_eq!(
        world
            .accounts
            .meter(world.now, &meter("a/b/x"))
            .unwrap()
            .accrued_gpu_ms,
        2 * HOUR
    );
    (e.start, e.end) = (Some(at(40 * HOUR)), Some(at(41 * HOUR)));
    world.set(&budget("a", "a", &[], vec![e.clone()]));
    let view = world.accounts.meter(world.now, &meter("a/b/x")).unwrap();
    assert_eq!(
        (view.epoch, view.accrued_gpu_ms, closed(&world)[0]),
        (1, 0, 2 * HOUR)
    );
    assert_eq!(
        world.accounts.unfunded(&work("A"))[0].gpus,
        1,
        "nobody is killed"
    );
    let outside = world
        .accounts
        .plan(world.now, &request("a", 1))
        .unwrap_err();
    assert_eq!(outside.reason, Reason::OutsideWindow);
    world.advance(at(40 * HOUR));
    assert_eq!(
        world.money().last().unwrap(),
        &"144000000 refund A x 1 until 147600000"
    );
    world.advance(at(40 * HOUR + HOUR / 2));
    world.rotate(&envelope_id("a/b/x"));
    let view = world.accounts.meter(world.now, &meter("a/b/x")).unwrap();
    assert_eq!((view.epoch, closed(&world)[1]), (2, HOUR / 2));
    assert_eq!(view.window.unwrap().end, Some(at(41 * HOUR)));
    world.remove(&world.budget_id("a"));
    world.set(&budget("a", "a", &[], vec![e]));
    assert_eq!(
        world
            .accounts
            .meter(world.now, &meter("a/b/x"))
            .unwrap()
            .epoch,
        2,
        "a meter resumes"
    );
    world.accounts.check(world.now).unwrap();
}

#[test]
fn d4_a_relative_named_as_sponsor_lends_its_unshared_envelopes() {
    let mut closed = envelope("x", 4);
    (closed.sharing, closed.lending) = (Sharing::None, lends(&["a"], None));
    let list = vec![closed, envelope("y", 2)];
    let world = World::new(&[
        budget("a", "a", &["o"], vec![envelope("x", 1)]),
        budget("b", "b", &["o"], list),
    ]);
    let mut asked = request("a", 7);
    asked.borrowing.allow = true;
    asked.borrowing.sponsors = vec![label("a"), label("b"), label("b")];
    let trace = world.accounts.trace(at(0), &asked);
    let rows: Vec<_> = trace
        .rows
        .iter()
        .map(|row| (row.envelope.as_str(), row.state, row.gpus))
        .collect();
    let expected = [
        ("a/b/x", RowState::Open, 1),
        ("b/b/x", RowState::SharingOff, 0),
        ("b/b/y", RowState::Open, 2),
        ("b/b/x", RowState::Open, 4),
    ];
    assert_eq!(rows, expected);
    asked.groups[0].gpus = 8;
    assert!(world.accounts.could_ever_cover(at(0), &asked).is_err());
    asked.groups[0].gpus = 7;
    assert!(world.accounts.could_ever_cover(at(0), &asked).is_ok());
}

#[test]
fn d1_groups_are_covered_one_after_the_other_at_their_own_places() {
    let (mut west, mut east) = (envelope("west", 4), envelope("east", 4));
    (west.selector, east.selector) = (selector("us/west"), selector("us/east"));
    let mut only = budget("a", "a", &[], vec![west, east]);
    only.aggregate_caps = vec![cap("both", &["a/b/west", "a/b/east"], Some(7))];
    let world = World::new(&[only]);
    let mut asked = request("a", 3);
    let mut other = asked.groups[0].clone();
    (other.place, other.gpus) = (place("us/east"), 4);
    asked.groups.push(other);
    let plan = world.accounts.plan(at(0), &asked).unwrap();
    let groups: Vec<_> = plan.groups.iter().map(|takes| shown(takes)).collect();
    assert_eq!(groups, [["west 3"], ["east 4"]]);
    // The second group has the room that the first one left in the cap.
    asked.groups[0].gpus = 4;
    let failure = world.accounts.plan(at(0), &asked).unwrap_err();
    assert_eq!(
        (failure.reason, failure.found),
        (Reason::AggregateCapExceeded, 7)
    );
    let rows = world.accounts.trace(at(0), &asked).rows;
    let rows: Vec<_> = rows
        .iter()
        .map(|r| (r.group, r.envelope.name(), r.here, r.gpus))
        .collect();
    let expected = [
        (0, "west", true, 4),
        (0, "east", false, 0),
        (1, "east", true, 3),
        (1, "west", false, 0),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn d5_a_run_fits_a_window_that_opens_after_its_hard_end() {
    let mut later = envelope("q4", 8);
    later.gpu_hours_max = Some(1_000);
    (later.start, later.end) = (Some(at(240 * HOUR)), Some(at(480 * HOUR)));
    let world = World::new(&[budget("a", "a", &[], vec![later])]);
    let mut asked = request("a", 4);
    for hard_end in [None, Some(at(HOUR))] {
        asked.hard_end = hard_end;
        assert_eq!(world.accounts.could_ever_cover(at(0), &asked), Ok(()));
    }
    asked.groups[0].gpus = 9;
    let trace = world.accounts.could_ever_cover(at(0), &asked).unwrap_err();
    assert_eq!(
        (trace.rows[0].room, trace.rows[0].until),
        (8, Some(at(241 * HOUR)))
    );
}

#[test]
fn b2_a_family_claim_ends_with_sharing_or_kinship_at_its_promise_end() {
    let mut closed = envelope("x", 4);
    closed.sharing = Sharing::None;
    for edit in [
        budget("a", "a", &["o"], vec![closed]),
        budget("b", "b", &["p"], vec![]),
    ] {
        let mut world = World::new(&[
            budget("a", "a", &["o"], vec![envelope("x", 4)]),
            budget("b", "b", &["o"], vec![]),
        ]);
        world.start("B", request("b", 2), None).unwrap();
        world.advance(at(HOUR / 2));
        world.set(&edit);
        world.advance(at(2 * HOUR));
        let expected = [
            "0 take B x 2 until 3600000",
            "3600000 demoted B x 2 promise-end",
        ];
        assert_eq!(world.money(), expected);
    }
}

#[test]
fn b2_an_own_claim_ends_at_its_promise_end_if_the_envelope_has_another_owner() {
    let mut e = envelope("x", 4);
    e.gpu_hours_max = Some(100);
    let mut world = World::new(&[budget("a", "a", &[], vec![e.clone()])]);
    world.start("A", request("a", 2), None).unwrap();
    world.advance(at(HOUR / 2));
    world.set(&budget("a", "z", &[], vec![e]));
    world.advance(at(2 * HOUR));
    let expected = [
        "0 take A x 2 until 3600000",
        "3600000 demoted A x 2 promise-end",
    ];
    assert_eq!(world.money(), expected);
}

#[test]
fn b2_no_promise_goes_beyond_the_hard_end() {
    let mut e = envelope("x", 4);
    e.gpu_hours_max = Some(100);
    let mut world = World::new(&[budget("a", "a", &[], vec![e])]);
    let mut asked = request("a", 2);
    asked.hard_end = Some(at(HOUR * 3 / 2));
    world.start("A", asked, None).unwrap();
    world.advance(at(2 * HOUR));
    let expected = [
        "0 take A x 2 until 3600000",
        "3600000 extension A x 2 until 5400000",
        "5400000 overrun A x 2 until 5400000",
    ];
    assert_eq!(world.money(), expected);
}

#[test]
fn b3_a_cap_counts_inside_its_window_only() {
    let mut only = budget("a", "a", &[], vec![envelope("x", 8)]);
    let mut capped = cap("c", &["a/b/x"], None);
    capped.gpu_hours_max = Some(4);
    (capped.start, capped.end) = (Some(at(2 * HOUR)), Some(at(4 * HOUR)));
    only.aggregate_caps = vec![capped];
    let mut world = World::new(&[only]);
    world.start("A", request("a", 4), None).unwrap();
    world.advance(at(2 * HOUR));
    let cap = world
        .accounts
        .meter(world.now, &meter("cap/a/b/c"))
        .unwrap();
    assert_eq!((cap.accrued_gpu_ms, cap.committed_gpu_ms), (0, 4 * HOUR));
    world.advance(at(4 * HOUR));
    let expected = [
        "0 take A x 4 until 3600000",
        "3600000 extension A x 4 until 7200000",
        "7200000 extension A x 4 until 10800000",
        "10800000 overrun A x 4 until 10800000",
        "10800000 demoted A x 4 depletion",
        "14400000 closed cap/a/b/c 14400000",
        "14400000 refund A x 4 until 18000000",
    ];
    assert_eq!(world.money(), expected);
}

#[test]
fn b4_a_family_claim_goes_before_a_loan_and_an_own_claim_although_it_is_older() {
    let mut e = envelope("x", 6);
    e.lending = lends(&["c"], None);
    let mut world = World::new(&[
        budget("a", "a", &["o"], vec![e.clone()]),
        budget("b", "b", &["o"], vec![]),
    ]);
    world.start("B", request("b", 2), None).unwrap();
    let mut lent = request("c", 2);
    lent.borrowing.allow = true;
    lent.borrowing.sponsors = vec![label("a")];
    world.start("C", lent, None).unwrap();
    world.start("A", request("a", 2), None).unwrap();
    e.concurrency = 4;
    world.set(&budget("a", "a", &["o"], vec![e]));
    assert_eq!(world.money()[3..], ["0 demoted B x 2 refit"]);
}

#[test]
fn b4_a_rotation_demotes_nobody() {
    let mut e = envelope("x", 4);
    e.gpu_hours_max = Some(8);
    let mut world = World::new(&[budget("a", "a", &[], vec![e])]);
    world.start("A", request("a", 4), None).unwrap();
    world.advance(at(HOUR / 2));
    world.rotate(&envelope_id("a/b/x"));
    assert_eq!(world.money()[1..], ["1800000 closed a/b/x 7200000"]);
}

#[test]
fn b6_a_recall_takes_the_newest_family_claims_of_the_flavor_and_no_more() {
    let mut world = World::new(&[
        budget("a", "a", &["o"], vec![envelope("x", 6)]),
        budget("b", "b", &["o"], vec![]),
    ]);
    for run in ["A", "B", "C"] {
        world.start(run, request("b", 2), None).unwrap();
    }
    let mut other = request("a", 3);
    other.flavor = label("a100");
    assert!(world.start("X", other, None).is_err());
    world.start("D", request("a", 3), None).unwrap();
    let expected = [
        "0 demoted C x 2 recall",
        "0 demoted B x 2 recall",
        "0 take D x 3 until 3600000",
    ];
    assert_eq!(world.money()[3..], expected);
}

#[test]
fn d5_never_fits_looks_at_each_next_window() {
    let (mut q3, mut q4) = (envelope("q3", 8), envelope("q4", 12));
    (q3.end, q4.start) = (Some(at(10 * HOUR)), Some(at(10 * HOUR)));
    let world = World::new(&[budget("a", "a", &[], vec![q3, q4])]);
    for (gpus, could) in [(8, true), (12, true), (13, false)] {
        let covered = world.accounts.could_ever_cover(at(0), &request("a", gpus));
        assert_eq!(covered.is_ok(), could, "{gpus}");
    }
}

/// The things that make a condition true.
fn about(world: &World, namespace: &str, kind: ConditionKind) -> Vec<About> {
    let id = world.budget_id(namespace);
    let mut conditions = world.accounts.conditions(world.now, &id).into_iter();
    conditions
        .find(|condition| condition.kind == kind)
        .unwrap()
        .about
}

/// A budget of the owner `p` with envelopes a to d and a cap over each list of members.
fn capping(members: &[&[&str]]) -> Budget {
    let list = ["a", "b", "c", "d"].map(|name| envelope(name, 1)).to_vec();
    let mut budget = budget("p", "p", &[], list);
    let caps = members.iter().enumerate();
    let caps = caps.map(|(number, members)| cap(&format!("c{number}"), members, Some(1)));
    budget.aggregate_caps = caps.collect();
    budget
}

#[test]
fn caps_cross_in_a_budget_and_across_budgets_and_not_if_they_are_nested_or_disjoint() {
    let crossing = |members: &[&[&str]]| {
        let world = World::new(&[capping(members)]);
        about(&world, "p", ConditionKind::CrossingCaps).len()
    };
    assert_eq!(crossing(&[&["p/b/a", "p/b/b"], &["p/b/b", "p/b/c"]]), 1);
    assert_eq!(
        crossing(&[&["p/b/a", "p/b/b"], &["p/b/a"], &["p/b/a", "p/b/b"]]),
        0,
        "nested"
    );
    assert_eq!(
        crossing(&[&["p/b/a", "p/b/b"], &["p/b/c", "p/b/d"]]),
        0,
        "disjoint"
    );
    // The parent's cap has an envelope of the child, and the child's cap has another one with it.
    let mut child = budget("k", "k", &["p"], vec![envelope("x", 1), envelope("y", 1)]);
    child.aggregate_caps = vec![cap("own", &["k/b/x", "k/b/y"], Some(1))];
    let world = World::new(&[capping(&[&["p/b/c", "k/b/x"]]), child]);
    let id = |cap: &str| match meter(cap) {
        MeterId::Cap(id) => id,
        other => panic!("{other}"),
    };
    let (of_parent, of_child) = (id("cap/p/b/c0"), id("cap/k/b/own"));
    let pair = [About::Caps(of_parent.clone(), of_child.clone())];
    assert_eq!(about(&world, "p", ConditionKind::CrossingCaps), pair);
    let pair = [About::Caps(of_child, of_parent)];
    assert_eq!(about(&world, "k", ConditionKind::CrossingCaps), pair);
}

#[test]
fn a_cap_is_exhausted_by_a_take_that_fails_on_it() {
    let mut world = World::new(&[capping(&[&["p/b/a", "p/b/b"]])]);
    let failure = world
        .accounts
        .plan(world.now, &request("p", 5))
        .unwrap_err();
    let exhausted = |world: &World| about(world, "p", ConditionKind::CapExhausted).len();
    assert_eq!(exhausted(&world), 0);
    for near in world.accounts.exhausted(&failure.exhausted) {
        world.accounts.note_near(world.now, &near);
    }
    assert_eq!(exhausted(&world), 1);
}

#[test]
fn the_debits_of_a_run_are_kept_by_day() {
    let mut small = envelope("x", 4);
    small.end = Some(at(30 * HOUR));
    let mut world = World::new(&[budget("a", "a", &[], vec![small])]);
    world.advance(at(20 * HOUR));
    world.start("A", request("a", 4), None).unwrap();
    world.advance(at(50 * HOUR));
    // Funded from 20 to 30 hours, then unfunded; the last of the three days is still open.
    let expected = [(0, 4), (1, 6), (1, 18), (2, 2)];
    let debits = |world: &World| -> Vec<(u64, u64)> {
        let debits = world.accounts.debits(world.now, &label("A"));
        let mut debits: Vec<_> = debits
            .iter()
            .map(|d| (d.day, d.gpu_ms / 4 / HOUR))
            .collect();
        debits.sort_unstable();
        debits
    };
    assert_eq!(debits(&world), expected);
    world.crash();
    assert_eq!(debits(&world), expected);
    world.close("A", 4);
    assert_eq!(debits(&world), expected);
    let total = world
        .accounts
        .usage_totals(world.now)
        .map(|used| used.gpu_ms);
    assert_eq!(total.sum::<u64>(), 4 * 30 * HOUR);
}

#[test]
fn time_far_ahead_is_counted_whole_in_few_entries() {
    let mut world = World::new(&[budget("a", "a", &[], vec![envelope("x", 4)])]);
    world.start("A", request("a", 4), None).unwrap();
    let far = INTEGER_MAX;
    world.advance(at(far));
    world.close("A", 4);
    let gpu_ms = |entries: Vec<u64>| (entries.len() as u64, entries.iter().sum::<u64>());
    let used = world.accounts.usage(world.now).map(|row| row.gpu_ms);
    assert_eq!(gpu_ms(used.collect()), (DAY_LAST + 1, 4 * far));
    let debits = world.accounts.debits(world.now, &label("A")).into_iter();
    let debits = debits.map(|debit| debit.gpu_ms);
    assert_eq!(gpu_ms(debits.collect()), (DAY_LAST + 1, 4 * far));
}

#[test]
fn near_limits_are_announced_once_and_again_after_five_points() {
    let mut world = World::new(&[budget("a", "a", &[], vec![envelope("x", 100)])]);
    world.start("A", request("a", 85), None).unwrap();
    world.advance(at(1));
    for gpus in [4, 1, 5] {
        world.close("A", gpus);
        world
            .start(&format!("B{gpus}"), request("a", gpus), None)
            .unwrap();
        world.advance(at(world.now.ms() + 1));
    }
    let near = world
        .log
        .iter()
        .filter(|line| line.contains(" near "))
        .count();
    assert_eq!(near, 2, "{:?}", world.log);
}

/// Method: 16 GPUs are refused while 4 of 16 are in use; then 2 of the 4 are freed.
#[test]
fn an_exhausted_meter_says_its_use_when_a_take_failed_and_since_when() {
    let mut world = World::new(&[budget("a", "a", &[], vec![envelope("x", 16)])]);
    world.start("A", request("a", 4), None).unwrap();
    world.advance(at(7));
    let failure = world
        .accounts
        .plan(world.now, &request("a", 16))
        .unwrap_err();
    for near in world.accounts.exhausted(&failure.exhausted) {
        world.accounts.note_near(world.now, &near);
    }
    world.advance(at(HOUR));
    let exhausted = |world: &World| {
        let id = world.budget_id("a");
        let conditions = world.accounts.conditions(world.now, &id);
        let mut conditions = conditions.into_iter();
        let found = conditions.find(|of| of.kind == ConditionKind::Exhausted);
        found.unwrap().about
    };
    let about = About::Exhausted {
        meter: MeterId::Envelope(envelope_id("a/b/x")),
        dimension: Dimension::Gpus,
        share: Share {
            value: 4,
            limit: 16,
            at: at(7),
        },
    };
    assert_eq!(exhausted(&world), [about]);
    world.close("A", 2);
    assert_eq!(exhausted(&world), []);
}

#[test]
fn numbers_of_a_million_gpus_do_not_overflow() {
    let mut e = envelope("x", 1_000_000);
    e.gpu_hours_max = Some(bursar_budget::spec::GPU_HOURS_MAX);
    let mut world = World::new(&[budget("a", "a", &[], vec![e])]);
    let mut asked = request("a", 1_000_000);
    asked.duration = Some(Millis::from_ms(INTEGER_MAX));
    let failure = world.accounts.plan(at(0), &asked).unwrap_err();
    assert_eq!(failure.reason, Reason::IntegralCapExceeded);
    world.start("A", request("a", 1_000_000), None).unwrap();
    world.advance(at(100_000 * HOUR));
    let view = world
        .accounts
        .meter(world.now, &MeterId::Envelope(envelope_id("a/b/x")))
        .unwrap();
    assert!(view.accrued_gpu_ms <= INTEGER_MAX && 0 < view.accrued_gpu_ms);
    assert_eq!(world.accounts.unfunded(&work("A"))[0].gpus, 1_000_000);
    world.accounts.check(world.now).unwrap();
}
