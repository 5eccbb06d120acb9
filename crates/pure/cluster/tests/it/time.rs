//! Time: money moves at its own instant, however late the ticks are, and across crashes (R7, R8, L5).
//!
//! Each scenario is a list of commands with their instants. It is played with ticks at each deadline,
//! and again with ticks that are late by 1 ms, 6 s and 2 h, with a crash before each command and tick.
//! Money events have the same content and time until a start or a reported end differs.

use bursar_cluster::budget::spec::OnExhaustion;
use bursar_cluster::budget::{Envelope, Renew};
use bursar_cluster::{Change, Event, Exit, Run};
use bursar_units::Instant;
use proptest::prelude::*;

use crate::random::{OWNERS, Shape, Wish, shape, to_budget, to_run, wish};
use crate::world::{HOUR, World, at, budget, cap, envelope, label, lends, money, ms, run};

/// A command with its instant.
type Scenario = Vec<(u64, Act)>;

enum Act {
    Change(Vec<Change>),
    Exit(&'static str, Exit),
    Rotate(&'static str),
}

fn submit(run: Run) -> Act {
    Act::Change(vec![Change::SetRun(run)])
}

fn declare(budget: bursar_cluster::budget::Budget) -> Act {
    Act::Change(vec![Change::SetBudget(budget)])
}

/// Plays a scenario until an instant, with ticks late by that many milliseconds.
fn play(domains: &[u64], scenario: &Scenario, until: u64, late: u64, crashes: bool) -> World {
    let mut world = World::new(domains);
    for (when, act) in scenario {
        advance(&mut world, at(*when), late, crashes);
        if crashes {
            world.crash();
        }
        match act {
            Act::Change(changes) => world.change(changes).unwrap(),
            Act::Exit(text, exit) => drop(world.exited(text, &[], exit.clone()).unwrap()),
            Act::Rotate(text) => drop(world.rotate(text).unwrap()),
        }
    }
    advance(&mut world, at(until), late, crashes);
    world
}

fn advance(world: &mut World, until: Instant, late: u64, crashes: bool) {
    while let Some(next) = world.next()
        && next.after(ms(late)) <= until
    {
        if crashes {
            world.crash();
        }
        let then = next.after(ms(late)).max(world.now);
        // An absence of more than a few seconds ends with a resume.
        if late > 5_000 {
            world.away(then.ms());
        } else {
            world.now = then;
            world.tick();
        }
    }
    if world.next().is_some_and(|next| next < until) && late > 5_000 {
        world.away(until.ms());
    } else {
        world.now = until;
        world.tick();
    }
}

/// The first instant at which a tick starts a run.
fn first_start(world: &World) -> Option<Instant> {
    let ticks = world.records.iter().filter(|record| record.is_tick);
    let is_start = |event: &Event| matches!(event, Event::LeasesOpened { .. });
    let mut starts = ticks.filter(|record| record.events.iter().any(is_start));
    starts.next().map(|record| record.time)
}

/// Money events before an instant. A pass that is owed is no money, and a start that is tried late
/// fails late.
fn moved(world: &World, before: Option<Instant>) -> Vec<String> {
    let events = world.dated();
    let events = events.filter(|(at, event)| {
        let is_pass = match event {
            Event::PassUnfinished { .. } => true,
            Event::MeterNear { near, .. } => near.percent == 100,
            _ => false,
        };
        !is_pass && before.is_none_or(|before| *at < before)
    });
    events
        .filter_map(|(at, event)| Some(format!("{} {}", at.ms(), money(event)?)))
        .collect()
}

/// The same money at the same instants in all ways to play it.
fn same_money(domains: &[u64], scenario: &Scenario, until: u64) {
    let on_time = play(domains, scenario, until, 0, false);
    for late in [0, 1, 6_000, 2 * HOUR] {
        let other = play(domains, scenario, until, late, true);
        let starts = [first_start(&on_time), first_start(&other)];
        let before = starts.into_iter().flatten().min();
        let expected = moved(&on_time, before);
        assert_eq!(moved(&other, before), expected, "late by {late} ms");
    }
}

fn hours(text: &str, gpus: u64, hours: u64) -> Envelope {
    Envelope {
        gpu_hours_max: Some(hours),
        ..envelope(text, gpus)
    }
}

#[test]
fn late_ticks_and_crashes_move_no_promise_end_overrun_or_depletion() {
    let mut day = hours("day", 8, 20);
    day.admission_horizon = Some(ms(1_200_000));
    day.end = Some(at(5 * HOUR));
    day.renew = Some(Renew::Day);
    let scenario = vec![
        (0, declare(budget("a", &[], vec![day, envelope("next", 3)]))),
        (1_000, submit(run("a", "one", 5))),
        (2_000, submit(run("a", "two", 3))),
        (3 * HOUR, Act::Exit("a/one", Exit::Ok {})),
        (4 * HOUR, Act::Rotate("a/b/day")),
        (6 * HOUR, submit(run("a", "three", 4))),
    ];
    same_money(&[16], &scenario, 30 * HOUR);
}

#[test]
fn late_ticks_and_crashes_move_no_refund_in_a_family() {
    let mut root = budget("root", &[], vec![hours("big", 10, 9)]);
    root.aggregate_caps = vec![cap("both", &["root/b/big", "kid/b/own"], 12)];
    let mut own = envelope("own", 4);
    own.end = Some(at(2 * HOUR));
    let mut pool = envelope("pool", 8);
    pool.lending = Some(lends("k*", Some(4)));
    let wide = Run {
        funding: bursar_cluster::Funding {
            allow_borrow: true,
            borrow_gpus_max: None,
            sponsors: vec![label("lab")],
        },
        ..run("kid", "wide", 8)
    };
    let scenario = vec![
        (0, declare(budget("kid", &["root"], vec![own]))),
        (0, declare(root)),
        (0, declare(budget("lab", &[], vec![pool]))),
        (10, submit(wide)),
        (20, submit(run("root", "own", 6))),
        (90 * 60_000, submit(run("lab", "loan", 4))),
    ];
    same_money(&[32], &scenario, 8 * HOUR);
}

#[test]
fn late_ticks_and_crashes_move_no_budget_end_and_no_walltime() {
    let mut once = hours("once", 4, 3);
    once.on_exhaustion = OnExhaustion::End;
    once.admission_horizon = Some(ms(600_000));
    let hard = Run {
        max_duration: Some(ms(HOUR)),
        grace: Some(ms(90_000)),
        ..run("b", "hard", 2)
    };
    let scenario = vec![
        (0, declare(budget("a", &[], vec![once]))),
        (0, declare(budget("b", &[], vec![hours("h", 2, 2)]))),
        (5, submit(run("a", "ends", 4))),
        (6, submit(hard)),
    ];
    same_money(&[8], &scenario, 5 * HOUR);
    let world = play(&[8], &scenario, 5 * HOUR, 0, false);
    let money = world.money();
    for line in [
        "2700005 ending a/ends BudgetEnd",
        "3510006 ending b/hard Walltime",
    ] {
        assert!(money.iter().any(|other| other == line), "{money:?}");
    }
}

/// A waiting run starts at the tick; up to then all is the same.
#[test]
fn late_ticks_start_late_and_change_nothing_before() {
    let mut q3 = envelope("q3", 8);
    q3.end = Some(at(10 * HOUR));
    let mut q4 = envelope("q4", 12);
    q4.start = Some(at(10 * HOUR));
    let scenario = vec![
        (0, declare(budget("o", &[], vec![q3, q4]))),
        (1, submit(run("o", "a", 8))),
        (2, submit(run("o", "b", 4))),
    ];
    same_money(&[12], &scenario, 20 * HOUR);
    for late in [0, 1, 6_000, 2 * HOUR] {
        let world = play(&[12], &scenario, 20 * HOUR, late, true);
        let started = world.shown("o/b").started;
        assert_eq!(started, Some(at(10 * HOUR + late)), "late by {late} ms");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Method: random budgets and runs that are submitted at random instants.
    #[test]
    fn late_ticks_and_crashes_move_no_money(
        shapes in [shape(), shape(), shape()],
        runs in prop::collection::vec((0_u64..4 * HOUR, 0_usize..3, wish()), 1..6),
    ) {
        let scenario = of_random(&shapes, &runs);
        same_money(&[12, 12], &scenario, 30 * HOUR);
    }
}

/// The scenario without the runs that would be refused.
fn of_random(shapes: &[Shape; 3], runs: &[(u64, usize, Wish)]) -> Scenario {
    let world = World::new(&[12, 12]);
    let budgets = (0..OWNERS.len()).map(|owner| to_budget(&world, owner, &shapes[owner]));
    let budgets: Vec<Change> = budgets.map(Change::SetBudget).collect();
    let mut runs = runs.to_vec();
    runs.sort_by_key(|(when, ..)| *when);
    let mut scenario = vec![(0, Act::Change(budgets.clone()))];
    let mut world = World::plain(&[12, 12]);
    world.change(&budgets).unwrap();
    for (number, (when, owner, wish)) in runs.iter().enumerate() {
        world.go(*when);
        let change = Change::SetRun(to_run(number, *owner, wish));
        if world.change(std::slice::from_ref(&change)).is_ok() {
            scenario.push((*when, Act::Change(vec![change])));
        }
    }
    scenario
}
