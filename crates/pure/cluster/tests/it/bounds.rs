//! Order at one instant, places, bounds and forged events.

use std::collections::BTreeSet;

use bursar_cluster::budget::accounts::EpochClosed;
use bursar_cluster::budget::{BudgetId, Class, Envelope, MeterId, RunUid, Selector};
use bursar_cluster::explain::WaitReason;
use bursar_cluster::invariants::Broken;
use bursar_cluster::{
    Change, Clusters, Command, Event, Exit, Funding, Outcome, Policy, REMEMBERED_MAX, Reason,
    Refusal, Run, Stage, Who,
};
use bursar_plane::{Decided, Due, Node, Plane, Steps};
use bursar_units::{Instant, Millis};

use crate::time::plays_late_too;
use crate::world::{HOUR, World, at, budget, cap, envelope, label, ms, name, node, run};

const DAY: u64 = 24 * HOUR;

fn world(gpus: u64) -> World {
    let mut world = World::new(&[gpus]);
    world.set(budget("a", &[], vec![envelope("e", gpus)]));
    world
}

fn last(world: &World) -> &[Event] {
    &world.records.last().unwrap().events
}

/// Method: the raised limit makes 80 % reached again in the record that starts the run.
#[test]
fn a_budget_change_that_reaches_a_share_starts_runs_in_its_own_record() {
    let mut world = World::new(&[8]);
    world.reports_starts = false;
    world.set(budget("a", &[], vec![envelope("e", 4)]));
    world.submit(run("a", "first", 4));
    world.submit(run("a", "second", 1));
    assert_eq!(world.stage("a/second"), Stage::Waiting);
    world.rotate("a/b/e").unwrap();
    world.tick();
    let records = world.records.len();
    world.set(budget("a", &[], vec![envelope("e", 5)]));
    assert_eq!(world.records.len(), records + 1);
    assert_eq!(world.stage("a/second"), Stage::Starting);
    let unfinished = |event: &Event| matches!(event, Event::PassUnfinished { .. });
    assert!(!last(&world).iter().any(unfinished), "{:?}", last(&world));
}

/// Hours of a share wait for the window edges of the same instant (R8).
#[test]
fn a_share_of_hours_that_is_due_now_waits_for_the_window_edges_of_now() {
    let mut world = World::new(&[8]);
    let hours = Envelope {
        gpu_hours_max: Some(10),
        ..envelope("hours", 4)
    };
    let window = Envelope {
        end: Some(at(2 * HOUR)),
        ..envelope("window", 1)
    };
    world.set(budget("a", &[], vec![hours]));
    world.set(budget("c", &[], vec![window]));
    world.submit(Run {
        expected_duration: Some(ms(2 * HOUR + 1_000)),
        ..run("a", "long", 4)
    });
    world.submit(run("c", "short", 1));
    world.go(2 * HOUR - 1);
    world.now = at(2 * HOUR);
    world.exited("c/short", &[], Exit::Ok {}).unwrap();
    world.tick();
    let kinds = world.dated().filter_map(|(when, event)| match event {
        Event::EpochClosed { .. } if when == at(2 * HOUR) => Some("edge"),
        Event::MeterNear { near, .. } if when == at(2 * HOUR) => {
            matches!(near.meter, MeterId::Envelope(_)).then_some("near")
        }
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["edge", "near"]);
}

/// Walltimes of one instant go by identity in UTF-8 bytes (R8), not by submission.
#[test]
fn stops_of_one_instant_go_by_identity() {
    let mut world = world(12);
    let runs = (0..12).map(|number| Run {
        max_duration: Some(ms(HOUR)),
        ..run("a", &format!("r{number:02}"), 1)
    });
    let runs: Vec<Change> = runs.map(Change::SetRun).collect();
    world.change(&runs).unwrap();
    world.go(HOUR);
    let stopped = world.dated().filter_map(|(_, event)| match event {
        Event::RunEnding { of, .. } => Some(of.uid.to_string()),
        _ => None,
    });
    let stopped: Vec<String> = stopped.collect();
    let mut sorted = stopped.clone();
    sorted.sort();
    assert_eq!((stopped.len(), &stopped), (12, &sorted));
}

/// The cap has 16 GPU-hours. At `a` the first envelope would use them up for 8 GPUs; at `b` the
/// shorter horizon of the other one leaves enough for all 12.
#[test]
fn a_run_that_is_covered_at_another_place_than_the_first_is_accepted() {
    let mut world = World::new(&[]);
    world.set_node(node("n0", "a/west/d0", 16));
    world.set_node(node("n1", "b/west/d1", 12));
    let region = |text: &str| Selector {
        region: Some(label(text)),
        ..Selector::default()
    };
    let x = Envelope {
        selector: region("a"),
        admission_horizon: Some(ms(2 * HOUR)),
        ..envelope("x", 8)
    };
    let y = Envelope {
        selector: region("b"),
        admission_horizon: Some(ms(HOUR)),
        ..envelope("y", 8)
    };
    let mut both = cap("both", &["a/b/x", "a/b/y"], 100);
    both.gpu_hours_max = Some(16);
    let mut own = budget("a", &[], vec![x, y]);
    own.aggregate_caps = vec![both];
    world.set(own);
    world.submit(run("a", "r", 12));
    assert_eq!(world.stage("a/r"), Stage::Running);
}

#[test]
fn a_run_that_is_being_stopped_is_paid_again() {
    let mut world = world(4);
    world.submit(run("a", "r", 4));
    world.set(budget("a", &[], vec![envelope("e", 2)]));
    world.cancel("a/r");
    assert_eq!(world.shown("a/r").unfunded_gpus(), 4);
    world.set(budget("a", &[], vec![envelope("e", 4)]));
    assert_eq!(world.stage("a/r"), Stage::Ending);
    assert_eq!(world.shown("a/r").unfunded_gpus(), 0);
}

/// A failed start is stopped at once; an absence gives it no grace.
#[test]
fn a_stop_keeps_its_own_length_over_an_absence() {
    let mut world = world(4);
    world.reports_starts = false;
    world.submit(run("a", "r", 4));
    world.go(120_000);
    world.away(500_000);
    let ending = Some((Reason::StartFailed, at(500_000)));
    assert_eq!(world.shown("a/r").ending, ending);
}

#[test]
fn an_identical_repeat_is_no_mistake_after_a_change_of_policy() {
    let mut world = world(4);
    let grace = |grace_max| Policy {
        grace_max: ms(grace_max),
        ..Policy::default()
    };
    world.command(&Command::SetPolicy(grace(10_000))).unwrap();
    let short = Run {
        max_duration: Some(ms(30_000)),
        grace: Some(ms(60_000)),
        ..run("a", "r", 4)
    };
    world.submit(short.clone());
    world.command(&Command::SetPolicy(grace(300_000))).unwrap();
    world.change(&[Change::SetRun(short.clone())]).unwrap();
    let other = Run {
        max_duration: Some(ms(31_000)),
        ..short
    };
    let refused = world.change(&[Change::SetRun(other)]);
    assert!(matches!(refused, Err(Refusal::RunMistakes { .. })));
}

#[test]
fn a_run_on_a_node_that_lost_its_labels_is_paid_again() {
    let mut world = world(4);
    world.submit(run("a", "r", 4));
    world.set(budget("a", &[], vec![envelope("e", 2)]));
    assert_eq!(world.shown("a/r").unfunded_gpus(), 4);
    let mut bare = node("n0", "us/west/d0", 4);
    bare.labels.clear();
    world.set_node(bare);
    world.set_node(node("n1", "us/west/d1", 4));
    world.set(budget("a", &[], vec![envelope("e", 4)]));
    assert_eq!(world.shown("a/r").unfunded_gpus(), 0);
}

/// The recall frees four GPUs for two, and the cousin's run was tried before it.
#[test]
fn room_that_a_recall_leaves_is_offered_to_those_who_failed_before_it() {
    let mut world = World::new(&[16]);
    world.set(budget("a", &["org"], vec![envelope("e", 4)]));
    world.set(budget("b", &["org"], vec![]));
    world.submit(run("b", "wide", 4));
    world.submit(run("b", "small", 2));
    assert_eq!(world.stage("b/small"), Stage::Waiting);
    world.submit(run("a", "own", 2));
    world.tick();
    assert_eq!(world.stage("a/own"), Stage::Running);
    assert_eq!(world.stage("b/small"), Stage::Running);
    assert_eq!(world.shown("b/wide").unfunded_gpus(), 4);
}

/// L6: remembered for 30 days, to the millisecond, without another run that ends.
#[test]
fn an_ended_run_is_remembered_for_thirty_days() {
    let mut world = world(4);
    world.submit(run("a", "old", 4));
    world.go(HOUR);
    world.exited("a/old", &[], Exit::Ok {}).unwrap();
    let uid = world.uid("a/old");
    world.go(HOUR + 30 * DAY - 1);
    world.submit(run("a", "r1", 1));
    assert!(world.clusters.run(&uid).is_some());
    assert_eq!(world.clusters.accounts().debits(world.now, &uid).len(), 1);
    let usage = |world: &World| -> Vec<_> {
        let rows = world.clusters.accounts().usage(world.now);
        rows.filter(|row| row.day == 0).collect()
    };
    let before = usage(&world);
    world.go(HOUR + 30 * DAY);
    world.submit(run("a", "r2", 1));
    assert!(world.clusters.run(&uid).is_none());
    assert!(world.clusters.accounts().debits(world.now, &uid).is_empty());
    assert_eq!(usage(&world), before);
}

#[test]
fn an_owner_has_a_bounded_number_of_waiting_runs() {
    let mut world = World::new(&[4]);
    let policy = Policy {
        pending_max: 3,
        ..Policy::default()
    };
    world.command(&Command::SetPolicy(policy)).unwrap();
    world.set(budget("a", &[], vec![envelope("e", 4)]));
    world.set(budget("c", &[], vec![envelope("e", 4)]));
    world.submit(run("a", "first", 4));
    for text in ["w1", "w2", "w3"] {
        world.submit(run("a", text, 4));
    }
    let refused = world.change(&[Change::SetRun(run("a", "w4", 4))]);
    let Err(Refusal::OverLimit { waiting, max, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((waiting, max), (3, 3));
    world.submit(run("c", "other", 4));
    world.cancel("a/w2");
    world.submit(run("a", "w4", 4));
}

type Change1 = fn(&mut Run);

/// Every field but priority and hard limit belongs to the identity of a live run.
#[test]
fn a_live_run_keeps_its_other_fields() {
    let fields: [(&str, Change1); 10] = [
        ("owner", |run| run.owner = label("c")),
        ("flavor", |run| run.flavor = label("b200")),
        ("totalGPUs", |run| run.total_gpus = 2),
        ("podGPUs", |run| run.pod_gpus = Some(2)),
        ("groupGPUs", |run| run.group_gpus = Some(2)),
        ("spread", |run| run.spread = true),
        ("location", |run| run.location.region = Some(label("us"))),
        ("funding", |run| {
            run.funding = Funding {
                allow_borrow: true,
                ..Funding::default()
            };
        }),
        ("expectedDuration", |run| {
            run.expected_duration = Some(ms(HOUR));
        }),
        ("grace", |run| run.grace = Some(ms(1_000))),
    ];
    let mut world = world(8);
    world.submit(run("a", "r", 4));
    let records = world.records.len();
    for (expected, change) in fields {
        let mut other = run("a", "r", 4);
        change(&mut other);
        let refused = world.change(&[Change::SetRun(other)]);
        let Err(Refusal::IdReused { field, .. }) = refused else {
            panic!("{expected}: {refused:?}");
        };
        assert!(field.contains(expected), "{field} is not {expected}");
    }
    assert_eq!(world.records.len(), records);
    world.submit(Run {
        priority: 3,
        max_duration: Some(ms(HOUR)),
        ..run("a", "r", 4)
    });
    assert_eq!(world.records.len(), records + 1);
}

#[test]
fn a_gang_of_512_gpus_is_one_small_record_with_a_line_for_each_pod() {
    let mut world = World::plain(&[512]);
    world.reports_starts = false;
    world.set(budget("a", &[], vec![envelope("e", 512)]));
    world.submit(Run {
        pod_gpus: Some(8),
        ..run("a", "wide", 512)
    });
    let opened = last(&world).iter().find_map(|event| match event {
        Event::LeasesOpened { pods, .. } => Some(pods.len()),
        _ => None,
    });
    assert_eq!(opened, Some(64));
    let bytes = serde_json::to_vec(last(&world)).unwrap().len();
    assert!(bytes < 8 << 10, "{bytes}");
}

#[test]
fn a_paused_budget_goes_on_paying_and_takes_nothing_new() {
    let mut world = World::new(&[8]);
    let hours = Envelope {
        gpu_hours_max: Some(1_000),
        admission_horizon: Some(ms(HOUR)),
        ..envelope("e", 8)
    };
    let own = budget("a", &[], vec![hours]);
    world.set(own.clone());
    world.submit(run("a", "first", 4));
    let mut paused = own.clone();
    paused.paused = true;
    world.set(paused);
    world.go(HOUR + 1);
    assert_eq!(world.shown("a/first").unfunded_gpus(), 0);
    let extended = |line: &String| line.starts_with(&format!("{HOUR} extension"));
    assert!(world.money().iter().any(extended), "{:?}", world.money());
    world.submit(run("a", "second", 4));
    let reason = world
        .clusters
        .wait_reason_of(world.now, &world.uid("a/second"));
    assert_eq!(reason, Some(WaitReason::BudgetPaused));
    world.set(own);
    assert_eq!(world.stage("a/second"), Stage::Running);
}

#[test]
fn a_wait_for_budget_names_those_whom_the_bound_meters_pay_for() {
    let mut world = World::new(&[16]);
    world.set(budget("a", &[], vec![envelope("e", 4)]));
    world.set(budget("c", &[], vec![envelope("e", 4)]));
    world.submit(Run {
        expected_duration: Some(ms(HOUR)),
        ..run("a", "mine", 3)
    });
    world.submit(run("c", "foreign", 4));
    world.submit(run("a", "waits", 2));
    let wait = world
        .clusters
        .wait(world.now, &world.uid("a/waits"))
        .unwrap();
    assert_eq!(wait.reason, WaitReason::ConcurrencyCapExceeded);
    let holders = wait.holders.iter();
    let holders: Vec<_> = holders
        .map(|holder| (holder.run.as_str(), holder.gpus, holder.stated_end))
        .collect();
    assert_eq!(holders, [("a/mine", 3, Some(at(HOUR)))]);
}

#[test]
fn a_refusal_to_wait_says_why_it_would() {
    let mut world = world(4);
    world.submit(run("a", "first", 4));
    world.submit(run("a", "second", 4));
    let now = Run {
        priority: 1,
        ..run("a", "third", 4)
    };
    let refused = world.change(&[Change::StartRun(now.clone())]);
    let Err(Refusal::WouldWait { wait, .. }) = refused else {
        panic!("{refused:?}");
    };
    world.submit(now);
    let submitted = world.clusters.wait(world.now, &world.uid("a/third"));
    assert_eq!(*wait, submitted.unwrap());
    assert_eq!(wait.ahead, 0);
}

/// Method: `b` uses the envelope of `a` and all nodes; `a` waits, and its start would recall.
#[test]
fn a_wait_shows_the_walk_that_decides_with_what_it_recalls() {
    let mut world = World::new(&[4]);
    world.set(budget("a", &["p"], vec![envelope("e", 4)]));
    world.set(budget("b", &["p"], vec![envelope("e", 1)]));
    world.submit(run("b", "guest", 3));
    world.submit(run("b", "more", 1));
    world.submit(run("a", "own", 4));
    let wait = world.clusters.wait(world.now, &world.uid("a/own")).unwrap();
    assert_eq!((wait.reason, wait.is_placed), (WaitReason::NoRoom, false));
    assert_eq!(wait.recalled, 3);
    assert_eq!(wait.trace.iter().map(|row| row.gpus).sum::<u64>(), 4);
}

#[test]
fn a_hard_limit_within_the_grace_says_whose_grace_it_is() {
    let mistake = |grace: u64| {
        let short = Run {
            grace: Some(ms(grace)),
            max_duration: Some(ms(60_000)),
            ..run("a", "r", 1)
        };
        short.mistakes(ms(600_000))[0].to_string()
    };
    let own = "spec.maxDuration must be longer than the grace of 2m";
    assert_eq!(mistake(120_000), own);
    let bounded =
        "spec.maxDuration must be longer than the grace of 10m, the longest here (maxGrace)";
    assert_eq!(mistake(10 * HOUR), bounded);
}

/// Method: a refused run is submitted again with the width of the refusal.
#[test]
fn a_run_that_asks_for_too_much_is_told_a_width_that_starts() {
    let cases = [
        // Money for 37, but the largest domain has room for 26.
        (Some(4), None, 37, 40, 24),
        (Some(4), None, 15, 16, 12),
        (None, None, 15, 16, 8),
        (None, None, 5, 6, 5),
        (None, None, 5, 16, 5),
        (Some(2), Some(8), 37, 40, 24),
        (Some(1), None, 100, 27, 26),
        (Some(8), None, 7, 8, 0),
    ];
    for (pod_gpus, group_gpus, paid, asked, expected) in cases {
        let mut world = World::new(&[26, 10]);
        world.set(budget("a", &[], vec![envelope("e", paid)]));
        let wide = Run {
            pod_gpus,
            group_gpus,
            ..run("a", "r", asked)
        };
        let refused = world.change(&[Change::SetRun(wide.clone())]);
        let most = match refused {
            Err(Refusal::NeverCovered { most, .. } | Refusal::NeverPlaced { most, .. }) => most,
            other => panic!("{wide:?}: {other:?}"),
        };
        assert_eq!(most, expected, "{wide:?}");
        if 0 < most {
            let total_gpus = most;
            world.submit(Run { total_gpus, ..wide });
            assert_eq!(world.stage("a/r"), Stage::Running);
        }
    }
}

/// A record of some bytes must not stand for four billion GPUs.
#[test]
fn a_pod_with_impossible_ordinals_is_not_read() {
    let json = |gpus: &str| format!(r#"{{"pod":0,"node":"n0","gpus":{gpus}}}"#);
    let read = |gpus: &str| serde_json::from_str::<bursar_cluster::Pod>(&json(gpus));
    for good in ["[[0,0]]", "[[0,3],[5,1023]]"] {
        assert!(read(good).is_ok(), "{good}");
    }
    for bad in ["[[0,4294967295]]", "[[0,1024]]", "[[3,2]]", "[[0,3],[3,4]]"] {
        let error = read(bad).unwrap_err().to_string();
        assert!(error.contains("no ascending GPUs of a node"), "{error}");
    }
}

/// Method: each event of a start is folded twice; the deadlines then still end.
#[test]
fn a_repeated_event_changes_nothing_and_hangs_nobody() {
    let mut world = world(4);
    world.reports_starts = false;
    world.submit(Run {
        max_duration: Some(ms(HOUR)),
        ..run("a", "r", 4)
    });
    let mut forged = Clusters::default();
    let node: &Node = &world.nodes[&name("n0")];
    forged.take_node(&node.name, Some(node));
    for (when, event) in world.dated() {
        forged.apply(when, event);
        if let Event::RunSubmitted { .. } | Event::LeasesOpened { .. } = event {
            forged.apply(when.after(Millis::from_ms(1)), event);
        }
    }
    let runs: BTreeSet<_> = forged.runs().map(|shown| shown.uid).collect();
    assert_eq!((runs.len(), forged.runs().count()), (1, 1));
    for until in [at(120_000), at(2 * HOUR)] {
        let mut out = Decided::new(until, 9);
        let due = Due { until, class: None };
        Plane::tick(&mut forged, due, &|_| None, &mut { Steps::FULL }, &mut out);
    }
    let next = Plane::next_deadline(&forged, bursar_plane::Class::Patience);
    assert_eq!(next, None::<Instant>);
}

/// The refund and the recall of a claim in one record: it is paid for no time.
#[test]
fn a_claim_is_refunded_and_recalled_in_one_record() {
    let mut world = World::new(&[4]);
    let own = |gpus| budget("a", &["org"], vec![envelope("e", gpus)]);
    world.set(own(4));
    world.set(budget("b", &["org"], Vec::new()));
    world.submit(run("b", "wide", 4));
    world.submit(run("a", "own", 4));
    assert_eq!(world.stage("a/own"), Stage::Waiting);
    world.go(HOUR);
    world.set(own(2));
    assert_eq!(world.shown("b/wide").unfunded_gpus(), 4);
    world.set_node(node("n1", "us/west/d1", 4));
    world.go(2 * HOUR);
    let records = world.records.len();
    world.set(own(4));
    let kinds = world.records[records].events.iter();
    let kinds = kinds.filter_map(|event| match event {
        Event::RunFunded { of, cause, .. } => Some(format!("{} {cause}", of.run)),
        Event::RunDemoted { of, cause, .. } => Some(format!("{} {cause}", of.run)),
        _ => None,
    });
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        ["b/wide refund", "b/wide recall", "a/own take"]
    );
    world.go(3 * HOUR);
    let debits = world
        .clusters
        .accounts()
        .debits(world.now, &world.uid("b/wide"));
    let debits = debits.iter().map(|debit| (debit.class, debit.gpu_ms));
    assert_eq!(
        debits.filter(|(_, gpu_ms)| *gpu_ms > 0).collect::<Vec<_>>(),
        [(Class::Unfunded, 8 * HOUR), (Class::Shared, 4 * HOUR)]
    );
    plays_late_too(&world);
}

/// Each group is paid by the envelope of its own cluster, at the start and at the refund.
#[test]
fn groups_in_two_clusters_are_paid_where_they_are() {
    let mut world = World::new(&[]);
    world.set_node(node("n0", "us/west/d0", 4));
    world.set_node(node("n1", "us/east/d1", 4));
    let bound = |text: &str| Envelope {
        selector: Selector {
            cluster: Some(label(text)),
            region: Some(label("us")),
            domain: None,
        },
        ..envelope(text, 6)
    };
    let own = budget("a", &[], vec![bound("east"), bound("west")]);
    world.set(own.clone());
    world.submit(Run {
        group_gpus: Some(4),
        spread: true,
        ..run("a", "r", 8)
    });
    let payers = |world: &World| -> Vec<(String, u64)> {
        let takes = world.shown("a/r").takes().into_iter();
        takes
            .map(|take| (take.envelope.name().to_owned(), take.gpus))
            .collect()
    };
    let expected = [("east".to_owned(), 4), ("west".to_owned(), 4)];
    assert_eq!(payers(&world), expected);
    world.go(HOUR);
    world.drop_budget("a/b").unwrap();
    assert_eq!(world.shown("a/r").unfunded_gpus(), 8);
    world.set(own);
    assert_eq!(payers(&world), expected);
    plays_late_too(&world);
}

/// Method: runs that are cancelled while they wait, as events.
#[test]
fn the_oldest_ended_run_is_forgotten_above_the_maximum() {
    let mut clusters = Clusters::default();
    let uid = |number: usize| RunUid::new(&format!("run-{number}")).unwrap();
    for number in 0..=REMEMBERED_MAX {
        let submitted = run("a", &format!("r{number}"), 1);
        let of = Who {
            uid: uid(number),
            run: submitted.id(),
            owner: submitted.owner.clone(),
        };
        let uid = uid(number);
        let run = submitted;
        clusters.apply(at(1), &Event::RunSubmitted { uid, run });
        let (outcome, reason) = (Outcome::Cancelled, Reason::Cancelled);
        let ended = Event::RunEnded {
            of,
            outcome,
            reason,
            code: None,
            detail: None,
            t: None,
        };
        clusters.apply(at(1), &ended);
    }
    assert!(clusters.run(&uid(0)).is_none());
    assert!(clusters.uid(&run("a", "r0", 1).id()).is_none());
    assert!(clusters.run(&uid(1)).is_some() && clusters.run(&uid(REMEMBERED_MAX)).is_some());
    assert_eq!(clusters.runs().count(), REMEMBERED_MAX);
    clusters.check(at(1)).unwrap();
}

/// A state whose claims were not demoted with their envelope breaks the invariants.
#[test]
fn no_claim_is_on_an_envelope_that_is_gone_or_shut() {
    let mut world = World::new(&[4]);
    let day = Envelope {
        end: Some(at(HOUR)),
        ..envelope("day", 4)
    };
    world.set(budget("a", &[], vec![day, envelope("other", 1)]));
    world.submit(run("a", "r", 4));
    world.go(HOUR - 1);
    let gone = Event::BudgetDropped {
        budget: BudgetId::new("a/b").unwrap(),
    };
    let epoch = EpochClosed {
        meter: MeterId::new("a/b/day").unwrap(),
        epoch: 0,
        accrued: 4 * HOUR,
        next: None,
    };
    for event in [gone, Event::EpochClosed { epoch, t: None }] {
        let mut forged = world.clusters.clone();
        forged.apply(at(HOUR), &event);
        let broken = forged.check(at(HOUR)).unwrap_err();
        assert!(matches!(broken, Broken::Shut { .. }), "{broken:?}");
    }
}
