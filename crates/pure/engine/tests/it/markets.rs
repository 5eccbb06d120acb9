//! The market of a node in the ledger follows the reports of the agent (M12).

use std::collections::BTreeMap;

use bursar_engine::explain::refused;
use bursar_engine::market::{
    self, CHANGES_MAX, Labelled, Mode, NODES_MAX, ORIGINALS_MAX, Original, Position, Present,
    Refusal, Report, SETTINGS_SIZE_MAX, Taken, difference,
};
use bursar_engine::summary::notices;
use bursar_engine::{Answer, Command, Event, Refusal as EngineRefusal, State, plan, snapshot};
use bursar_journal::hash::sha256;
use bursar_market::clear::{Mode as Label, Policy};
use bursar_units::{Instant, Millis, PodName};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::world::{World, market_report, name, pod, settings};

const NODE: &str = "w-17";
const HOUR_MS: u64 = 3_600_000;

fn present(pods: &[(&str, Option<u64>)]) -> Present {
    let original = |(name, milli): &(&str, Option<u64>)| (pod(name), Original { milli: *milli });
    Present {
        settings: settings(Mode::Act, Policy::Proportional, 0),
        labelled: None,
        originals: pods.iter().map(original).collect(),
        position: None,
    }
}

fn position(lines: u64, writes: u64) -> Position {
    Position {
        at: Instant::from_ms(lines * 5_000),
        lines,
        writes,
        head: sha256(&lines.to_be_bytes()),
    }
}

/// Reports until the ledger is up to date, and returns the number of reports.
fn settle(world: &mut World, present: &Present) -> usize {
    let mut reports = 0;
    while let Some(command) = market_report(&world.state, NODE, present, world.now) {
        assert_eq!(world.run(command), Ok(Answer::Done));
        reports += 1;
    }
    reports
}

fn sentences(world: &mut World, present: &Present) -> Vec<String> {
    let command = market_report(&world.state, NODE, present, world.now).unwrap();
    let events = world.events(command);
    let notices = notices(world.now, &events).into_iter();
    notices.map(|notice| notice.summary).collect()
}

/// A report that was not compared with anything.
fn report(basis: u64) -> Report {
    Report {
        node: name(NODE),
        basis,
        settings: None,
        labelled: None,
        taken: Vec::new(),
        returned: Vec::new(),
        digest: None,
    }
}

fn command(report: Report) -> Command {
    market::Command::ReportMarket(Box::new(report)).into()
}

/// The limit that a pod came with, in a report.
fn taken(name: &str, milli: Option<u64>) -> Taken {
    Taken {
        pod: pod(name),
        milli,
    }
}

fn run(world: &mut World, report: Report) -> Result<Answer, EngineRefusal> {
    world.run(command(report))
}

fn refusal(result: Result<Answer, EngineRefusal>) -> Refusal {
    let refusal = match result {
        Err(EngineRefusal::Market(refusal)) => Some(refusal),
        _ => None,
    };
    refusal.expect("the report is refused")
}

fn any_present() -> impl Strategy<Value = Present> {
    let mode = proptest::sample::select(&[Mode::Off, Mode::Observe, Mode::Act][..]);
    let policy = proptest::sample::select(&Policy::ALL[..]);
    let label = option::of(proptest::sample::select(&Label::ALL[..]));
    let few = btree_map(0..12_u16, option::of(1..4_u64), 0..8);
    let many = btree_map(0..900_u16, option::of(1..4_u64), 0..700);
    let originals = prop_oneof![4 => few, 1 => many];
    (mode, policy, label, originals).prop_map(|(mode, policy, label, originals)| Present {
        settings: settings(mode, policy, 0),
        labelled: label.map(|label| Labelled {
            label,
            pods: 3,
            need_milli: 2_550,
            capacity_milli: 1_500,
        }),
        originals: originals
            .into_iter()
            .map(|(at, milli)| (pod(&format!("p{at}")), Original { milli }))
            .collect(),
        position: None,
    })
}

/// How many originals of two sets differ, counted one by one.
fn differing(one: &BTreeMap<PodName, Original>, two: &BTreeMap<PodName, Original>) -> usize {
    let either: std::collections::BTreeSet<&PodName> = one.keys().chain(two.keys()).collect();
    let differs = |pod: &&&PodName| one.get(**pod) != two.get(**pod);
    either.iter().filter(differs).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Method: several states of an agent are reported; each time the ledger has that state, in as
    /// many reports as its originals need, and the next comparison finds no difference.
    #[test]
    fn the_ledger_has_what_was_reported_and_the_next_report_is_empty(all in vec(any_present(), 1..6)) {
        let mut world = World::new();
        let mut label = Label::default();
        for present in &all {
            let before = world.state.markets.get(NODE).cloned();
            let nothing = BTreeMap::new();
            let originals = before.as_ref().map_or(&nothing, |known| &known.originals);
            let rules = before.as_ref().and_then(|known| known.rules);
            let shown = present.labelled.map_or(label, |labelled| labelled.label);
            let changes = differing(originals, &present.originals);
            let is_other = rules != Some(present.settings.rules()) || label != shown;
            let expected = changes.div_ceil(CHANGES_MAX).max(usize::from(is_other));
            prop_assert_eq!(settle(&mut world, present), expected);
            label = shown;
            let known = world.state.markets.get(NODE).unwrap();
            prop_assert_eq!(known.rules, Some(present.settings.rules()));
            prop_assert_eq!(known.label, label);
            prop_assert_eq!(&known.originals, &present.originals);
            prop_assert_eq!(difference(&name(NODE), Some(known), present, world.now), None);
        }
    }

    /// Method: every report that was ever made comes again, in any order; none leaves a trace.
    #[test]
    fn a_report_that_comes_late_or_twice_leaves_no_trace(
        all in vec(any_present(), 1..5),
        places in vec(any::<prop::sample::Index>(), 1..10),
    ) {
        let mut world = World::new();
        let mut sent = Vec::new();
        for present in &all {
            while let Some(command) = market_report(&world.state, NODE, present, world.now) {
                sent.push(command.clone());
                prop_assert_eq!(world.run(command), Ok(Answer::Done));
            }
        }
        let before = snapshot::hash(&world.state).unwrap();
        for place in places {
            let result = world.run(place.get(&sent).clone());
            let is_stale = matches!(refusal(result), Refusal::Stale { .. });
            prop_assert!(is_stale);
            prop_assert_eq!(snapshot::hash(&world.state).unwrap(), before);
        }
    }

    /// Method: an agent writes lines at any times; what the ledger has of them is at least an hour
    /// apart, adds up, and is never older than an hour while lines and comparisons go on.
    #[test]
    fn there_is_one_digest_an_hour_and_they_add_up(steps in vec((1..90_u64, 0..5_u64), 1..80)) {
        let mut world = World::new();
        let mut present = present(&[]);
        settle(&mut world, &present);
        let (mut last_ms, mut total, mut at) = (world.now.ms(), (0, 0), position(0, 0));
        for (minutes, writes) in steps {
            world.advance(minutes * 60_000);
            at = position(at.lines + minutes, at.writes + writes);
            present.position = Some(at);
            let Some(command) = market_report(&world.state, NODE, &present, world.now) else {
                prop_assert!(world.now.ms() < last_ms + HOUR_MS);
                continue;
            };
            prop_assert!(last_ms + HOUR_MS <= world.now.ms());
            last_ms = world.now.ms();
            for event in world.events(command) {
                let Event::Market(market::Event::Digested { digest, was, .. }) = event else {
                    return Err(TestCaseError::fail("only a digest is due"));
                };
                let past = digest.since(was.as_ref());
                total = (total.0 + past.lines, total.1 + past.writes);
                prop_assert_eq!(total, (at.lines, at.writes));
            }
        }
    }
}

#[test]
fn only_differences_are_reported_with_the_values_before() {
    let mut world = World::new();
    let mut is = present(&[("web", Some(900)), ("db", None)]);
    let hash = is.settings.rules().sha256.short();
    assert_eq!(
        sentences(&mut world, &is),
        [
            format!("w-17: the market acts, policy proportional, settings {hash}"),
            "db on w-17 takes part: it came with no limit, which is kept".to_owned(),
            "web on w-17 takes part: it came with a limit of 900m, which is kept".to_owned(),
        ]
    );
    let milli = Some(500);
    is.originals.insert(pod("web"), Original { milli });
    is.originals.remove("db");
    is.labelled = Some(Labelled {
        label: Label::Congested,
        pods: 3,
        need_milli: 2_550,
        capacity_milli: 1_500,
    });
    assert_eq!(
        sentences(&mut world, &is),
        [
            "w-17: congested, was uncongested: 3 pods need 2550m, 1500m can be shared",
            "db on w-17 is given back: it came with no limit",
            "web on w-17 has another original: a limit of 500m, was a limit of 900m",
        ]
    );
    is.settings = settings(Mode::Observe, Policy::FullCapacity, 0);
    is.labelled = Some(Labelled::default());
    let hash = is.settings.rules().sha256.short();
    assert_eq!(
        sentences(&mut world, &is),
        [
            format!(
                "w-17: the market observes, policy full-capacity, settings {hash}; \
                 it acted, policy proportional"
            ),
            "w-17: uncongested, was congested".to_owned(),
        ]
    );
    is.position = Some(position(720, 14));
    assert_eq!(market_report(&world.state, NODE, &is, world.now), None);
    world.advance(HOUR_MS);
    let hash = position(720, 14).head.short();
    assert_eq!(
        sentences(&mut world, &is),
        [format!(
            "w-17: 720 lines, 14 limits written; its record stands at {hash}"
        )]
    );
    world.advance(HOUR_MS);
    assert_eq!(
        market_report(&world.state, NODE, &is, world.now),
        None,
        "a record that stands still has nothing to tell"
    );
    is.position = Some(position(1_440, 15));
    let hash = position(1_440, 15).head.short();
    assert_eq!(
        sentences(&mut world, &is),
        [format!(
            "w-17: 720 lines in 1h, 1 limit written; its record stands at {hash}"
        )]
    );
    // The agent's directory was removed.
    world.advance(HOUR_MS);
    is.position = Some(position(3, 0));
    assert!(sentences(&mut world, &is)[0].starts_with("w-17: 3 lines, 0 limits written"));
}

#[test]
fn an_event_names_its_pod_or_its_node() {
    let mut world = World::new();
    let command = market_report(&world.state, NODE, &present(&[("web", None)]), world.now);
    let events = world.events(command.unwrap());
    let notices = notices(world.now, &events).into_iter();
    let named = notices.filter_map(|notice| Some((notice.stream?, notice.object)));
    assert_eq!(
        named.collect::<Vec<_>>(),
        [
            ("node.marketChanged", "node/w-17".to_owned()),
            ("pod.originalTaken", "pod/web".to_owned()),
        ]
    );
}

#[test]
fn a_digest_that_comes_early_is_refused() {
    let mut world = World::new();
    settle(&mut world, &present(&[]));
    let early = Report {
        digest: Some(position(1, 0)),
        ..report(1)
    };
    world.advance(HOUR_MS - 1);
    let from = world.now.after(Millis::from_ms(1));
    let told = refusal(run(&mut world, early.clone()));
    assert_eq!(told, Refusal::DigestEarly { from });
    world.advance(1);
    assert_eq!(run(&mut world, early), Ok(Answer::Done));
}

/// A state with so many originals on one node, made of events alone.
fn with_originals(world: &mut World, count: usize) {
    for at in 0..count {
        let event = market::Event::Taken {
            node: name(NODE),
            pod: pod(&format!("p{at}")),
            milli: None,
            was: None,
        };
        world.state.apply(world.now, &event.into());
    }
}

#[test]
fn originals_of_a_node_are_bounded_and_the_refusal_names_the_bound() {
    let mut world = World::new();
    with_originals(&mut world, ORIGINALS_MAX);
    let basis = u64::try_from(ORIGINALS_MAX).unwrap();
    let one_more = |gone: Option<&str>| Report {
        taken: vec![taken("more", Some(1))],
        returned: gone.map(pod).into_iter().collect(),
        ..report(basis)
    };
    let command = command(one_more(None));
    let refusal = world.run(command.clone()).unwrap_err();
    let told = refused(&world.state, &command, &refusal);
    assert_eq!(
        (told.headline.as_str(), told.detail.as_str()),
        (
            "the report is too large",
            "there may be at most 100,000 originals of one node"
        )
    );
    // An original above the bound is not reported; one that leaves makes room.
    let mut is = present(&[("more", Some(1))]);
    let known = world.state.markets.get(NODE).unwrap();
    is.originals.extend(known.originals.clone());
    let difference = difference(&name(NODE), Some(known), &is, world.now).unwrap();
    assert!(difference.taken.is_empty() && difference.returned.is_empty());
    assert_eq!(run(&mut world, one_more(Some("p7"))), Ok(Answer::Done));
    let known = world.state.markets.get(NODE).unwrap();
    assert_eq!(known.originals.len(), ORIGINALS_MAX);
}

#[test]
fn nodes_reports_and_settings_are_bounded() {
    let mut world = World::new();
    let many = Report {
        taken: (0..=CHANGES_MAX)
            .map(|at| taken(&format!("p{at}"), None))
            .collect(),
        ..report(0)
    };
    let told = refusal(run(&mut world, many)).to_string();
    assert_eq!(told, "there are at most 256 originals in one report");
    let long = |size: usize| Report {
        settings: Some(market::Settings {
            text: "x".repeat(size),
            ..settings(Mode::Act, Policy::Proportional, 0)
        }),
        ..report(0)
    };
    let told = refusal(run(&mut world, long(SETTINGS_SIZE_MAX + 1))).to_string();
    assert_eq!(told, "there are at most 4096 bytes of settings");
    for at in 0..NODES_MAX {
        let event = market::Event::Returned {
            node: name(&format!("n{at}")),
            pod: pod("web"),
            milli: None,
        };
        world.state.apply(world.now, &event.into());
    }
    let command = command(long(SETTINGS_SIZE_MAX));
    let (planned, ..) = plan(&world.state, world.now, &command);
    let told = refusal(planned).to_string();
    assert_eq!(told, "there are at most 10000 nodes with a market");
    assert_eq!(refusal(world.run(command)).to_string(), told);
}

#[test]
fn a_market_goes_through_a_snapshot_whole() {
    let mut world = World::new();
    let mut is = present(&[("web", Some(900)), ("db", None)]);
    is.position = Some(position(9, 1));
    settle(&mut world, &is);
    world.advance(HOUR_MS);
    settle(&mut world, &is);
    let text = snapshot::write(&world.state).unwrap();
    let read: State = snapshot::read(&text).unwrap();
    assert_eq!(read.markets.get(NODE), world.state.markets.get(NODE));
    assert!(text.contains(r#"{"original":{"node":"w-17","pod":"web","milli":900}}"#));
    assert!(text.contains(r#"{"original":{"node":"w-17","pod":"db"}}"#));
}

#[test]
fn a_report_names_a_pod_once() {
    let mut world = World::new();
    let report_of = |kept: &[&str], gone: &[&str]| Report {
        taken: kept.iter().map(|pod| taken(pod, None)).collect(),
        returned: gone.iter().map(|name| pod(name)).collect(),
        ..report(0)
    };
    let twice: [(&[&str], &[&str]); 3] = [
        (&["a", "a"], &[]),
        (&["a", "b"], &["a"]),
        (&[], &["a", "b", "a"]),
    ];
    for (kept, gone) in twice {
        let command = command(report_of(kept, gone));
        let (head, refusal) = (
            world.state.spine.head,
            world.run(command.clone()).unwrap_err(),
        );
        assert_eq!(refusal, Refusal::PodTwice { pod: pod("a") }.into());
        assert_eq!(world.state.spine.head, head, "it leaves no record");
        let told = refused(&world.state, &command, &refusal);
        assert_eq!(
            format!("{}: {}", told.headline, told.detail),
            "the report contradicts itself: it names the pod a twice"
        );
    }
    assert_eq!(run(&mut world, report_of(&["a"], &["b"])), Ok(Answer::Done));
}
