//! Time: money moves at its own instant, however late the ticks are, and across crashes (R7, R8, L5).
//!
//! Each scenario is a list of inputs with their instants. It is played with ticks at each deadline,
//! and again with ticks that are late by 1 ms, 6 s and 2 h, with a crash before each input and tick.
//! Money events have the same content and time until a start differs. The scenarios of the other tests
//! are played in the same way ([`plays_late_too`]).

use bursar_cluster::budget::accounts::{MeterView, UsageRow};
use bursar_cluster::budget::spec::OnExhaustion;
use bursar_cluster::budget::{Budget, Envelope, Renew};
use bursar_cluster::{Change, Command, Event, Exit, Reason, Run};
use bursar_units::{Instant, ScopedName};
use proptest::prelude::*;

use crate::random::{OWNERS, Shape, Wish, shape, to_budget, to_run, wish};
use crate::world::{
    HOUR, Input, World, at, budget, cap, envelope, envelope_id, label, lends, money, ms, node, run,
};

/// Inputs with their instants.
type Scenario = Vec<(u64, Input)>;

fn submit(run: Run) -> Input {
    Input::Change(vec![Change::SetRun(run)])
}

fn declare(budget: Budget) -> Input {
    Input::Change(vec![Change::SetBudget(budget)])
}

fn exit(text: &str) -> Input {
    Input::Exited(ScopedName::new(text).unwrap(), Vec::new(), Exit::Ok {})
}

fn rotate(text: &str) -> Input {
    Input::Command(Command::RotateEnvelope {
        envelope: envelope_id(text),
        idempotency: None,
        reason: None,
    })
}

/// How time passes in a world.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Milliseconds from a deadline to its tick.
    late: u64,
    /// Whether the process dies before each input and tick.
    crashes: bool,
}

const ON_TIME: Pace = Pace {
    late: 0,
    crashes: false,
};

const LATE: [Pace; 4] = {
    let crashes = true;
    [
        Pace { late: 0, crashes },
        Pace { late: 1, crashes },
        Pace {
            late: 6_000,
            crashes,
        },
        Pace {
            late: 2 * HOUR,
            crashes,
        },
    ]
};

/// Plays a scenario until an instant, or until an input is refused; returns the instant of that too.
fn play(mut world: World, scenario: &Scenario, until: u64, pace: Pace) -> (World, Option<Instant>) {
    for (when, input) in scenario {
        advance(&mut world, at(*when), pace);
        if pace.crashes {
            world.crash();
        }
        if !world.play(input) {
            return (world, Some(at(*when)));
        }
    }
    advance(&mut world, at(until), pace);
    (world, None)
}

fn advance(world: &mut World, until: Instant, Pace { late, crashes }: Pace) {
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

/// The first instant at which a tick starts a run, or gives a start up: our own absence expires no
/// start (L5).
fn first_start(world: &World) -> Option<Instant> {
    let ticks = world.records.iter().filter(|record| record.is_tick);
    let mut starts = ticks.flat_map(|record| {
        let is_start = |event: &Event| match event {
            Event::LeasesOpened { .. } => true,
            Event::RunEnding { reason, .. } => *reason == Reason::StartFailed,
            _ => false,
        };
        let events = record.events.iter().filter(move |event| is_start(event));
        events.map(|event| event.time().unwrap_or(record.time))
    });
    starts.next()
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

/// All sums of a world at its end.
fn sums(world: &World) -> (Vec<UsageRow>, Vec<MeterView>) {
    let accounts = world.clusters.accounts();
    let budgets = accounts.budgets();
    let meters = budgets.flat_map(|budget| accounts.meters(world.now, &budget.id()));
    (accounts.usage(world.now).collect(), meters.collect())
}

/// The same money at the same instants in all ways to play a scenario; returns what was compared
/// each time.
fn compare(first: &World, scenario: &Scenario, until: u64) -> Vec<String> {
    let (on_time, refused) = play(first.clone(), scenario, until, ON_TIME);
    assert_eq!(refused, None, "{:?}", on_time.now);
    let mut compared: Option<Vec<String>> = None;
    for pace in LATE {
        let (other, refused) = play(first.clone(), scenario, until, pace);
        let starts = [first_start(&on_time), first_start(&other)];
        let before = starts.into_iter().flatten().min();
        assert!(refused.is_none_or(|at| before.is_some_and(|before| before <= at)));
        let expected = moved(&on_time, before);
        assert_eq!(moved(&other, before), expected, "{pace:?}");
        if before.is_none() {
            assert_eq!(sums(&other), sums(&on_time), "{pace:?}");
        }
        if compared
            .as_ref()
            .is_none_or(|least| expected.len() < least.len())
        {
            compared = Some(expected);
        }
    }
    compared.unwrap()
}

/// The same for a scenario whose money moves in these ways.
fn same_money(domains: &[u64], scenario: &Scenario, until: u64, kinds: &[&str]) {
    let lines = compare(&World::new(domains), scenario, until);
    for kind in kinds {
        let is_there = lines.iter().any(|line| line.contains(kind));
        assert!(is_there, "no {kind} in {lines:#?}");
    }
}

/// Plays the inputs of a world again, late and with crashes; returns what was compared each time.
fn play_late(world: &World) -> Vec<String> {
    let script = world.script.iter();
    let scenario: Scenario = script.map(|(at, input)| (at.ms(), input.clone())).collect();
    let mut first = World::new(&[]);
    first.reports_starts = world.reports_starts;
    compare(&first, &scenario, world.now.ms())
}

/// The scenario of another test moves the same money late and with crashes.
pub(crate) fn plays_late_too(world: &World) {
    let lines = play_late(world);
    assert!(!lines.is_empty(), "nothing is compared");
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
        (3 * HOUR, exit("a/one")),
        (4 * HOUR, rotate("a/b/day")),
        (6 * HOUR, submit(run("a", "three", 4))),
    ];
    same_money(
        &[16],
        &scenario,
        30 * HOUR,
        &[
            "take",
            "extension",
            "overrun",
            "depletion",
            "refund",
            "closed a/b/day",
        ],
    );
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
    same_money(
        &[32],
        &scenario,
        8 * HOUR,
        &["take", "refit", "refund", "extension", "overrun"],
    );
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
    let lines = [
        "2700005 ending a/ends BudgetEnd",
        "3510006 ending b/hard Walltime",
    ];
    same_money(&[8], &scenario, 5 * HOUR, &lines);
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
    same_money(&[12], &scenario, 20 * HOUR, &["take o/a"]);
    for pace in LATE {
        let (world, _) = play(World::new(&[12]), &scenario, 20 * HOUR, pace);
        let started = world.shown("o/b").started;
        assert_eq!(started, Some(at(10 * HOUR + pace.late)), "{pace:?}");
    }
}

/// An input of a random scenario. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Wanted {
    Submit(usize, Wish),
    Budget(usize, Shape),
    Exit(usize),
    Cancel(usize),
    Rotate(usize),
    Cordon(bool),
}

fn wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        4 => (0_usize..3, wish()).prop_map(|(owner, wish)| Wanted::Submit(owner, wish)),
        1 => (0_usize..3, shape()).prop_map(|(owner, shape)| Wanted::Budget(owner, shape)),
        1 => (0_usize..6).prop_map(Wanted::Exit),
        1 => (0_usize..6).prop_map(Wanted::Cancel),
        1 => (0_usize..3).prop_map(Wanted::Rotate),
        1 => any::<bool>().prop_map(Wanted::Cordon),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Method: random budgets, and inputs at random instants.
    #[test]
    fn late_ticks_and_crashes_move_no_money(
        shapes in [shape(), shape(), shape()],
        inputs in prop::collection::vec((0_u64..4 * HOUR, wanted()), 1..9),
    ) {
        let mut world = World::new(&[12, 12]);
        let budgets = (0..OWNERS.len()).map(|owner| to_budget(&world, owner, &shapes[owner]));
        let budgets: Vec<Change> = budgets.map(Change::SetBudget).collect();
        world.change(&budgets).unwrap();
        let mut inputs = inputs;
        inputs.sort_by_key(|(when, _)| *when);
        for (number, (when, wanted)) in inputs.iter().enumerate() {
            world.go(*when);
            let input = to_input(&world, number, wanted);
            // An input that is refused is not in the script.
            let _is_taken = input.is_some_and(|input| world.play(&input));
        }
        world.go(30 * HOUR);
        play_late(&world);
    }
}

fn to_input(world: &World, number: usize, wanted: &Wanted) -> Option<Input> {
    let runs: Vec<ScopedName> = world.clusters.runs().map(|run| run.run.id()).collect();
    let run = |number: usize| runs.get(number % runs.len().max(1)).cloned();
    Some(match wanted {
        Wanted::Submit(owner, wish) => submit(to_run(number, *owner, wish)),
        Wanted::Budget(owner, shape) => declare(to_budget(world, *owner, shape)),
        Wanted::Exit(number) => Input::Exited(run(*number)?, Vec::new(), Exit::Ok {}),
        Wanted::Cancel(number) => Input::Command(Command::CancelRun {
            run: run(*number)?,
            uid: None,
        }),
        Wanted::Rotate(owner) => rotate(&format!("{}/b/first", OWNERS[*owner])),
        Wanted::Cordon(is_cordoned) => {
            let mut node = node("n1", "us/west/d1", 12);
            node.unschedulable = *is_cordoned;
            Input::Node(node)
        }
    })
}
