//! Records and stream events of a market: each change once, whatever fails in between (M12).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bursar_ledger::store::memory::Fault;
use bursar_market::clear::Mode as Label;
use bursar_node::market::{Agent, Deed, Mode, RESIZES_MAX, View};
use bursar_server::Reporter;
use serde_json::Value;

use crate::events::Follower;
use crate::market::{Machine, is_seen_within, limits, wait_for};
use crate::world::{World, operator, user};

/// One second less than an hour.
const ALMOST: Duration = Duration::from_secs(3_599);

/// A node that acts on `a` and `b`, both with an original limit of 600m and a need of 110m.
fn acting(machine: &Machine) -> (Arc<Agent>, World, Reporter) {
    let agent = machine.agent(Mode::Act);
    wait_for(&agent, |view| limits(view) == [110, 110]);
    let world = World::sharing_cpu(Arc::clone(&agent));
    let reporter = Reporter::new(world.service.ledger(), "w-17").unwrap();
    (agent, world, reporter)
}

/// All records of the market, without hashes and labels. Before anything is measured the limit
/// counts as need, so a node may be congested for a moment.
async fn sentences(world: &World) -> Vec<String> {
    let records = world.ask("GET", "/v1/records?limit=1000", "").await.json();
    let records = records["items"].as_array().unwrap().clone();
    let sentences = records
        .iter()
        .flat_map(|record| record["summary"].as_array().unwrap());
    let sentences = sentences.map(|sentence| sentence.as_str().unwrap());
    let is_label = |sentence: &&str| sentence.contains("congested, was ");
    let about = sentences.filter(|sentence| sentence.contains("w-17") && !is_label(sentence));
    about
        .map(|sentence| match sentence.split_once(", settings ") {
            Some((before, after)) => format!("{before}{}", &after[after.find('…').unwrap()..]),
            None => sentence.to_owned(),
        })
        .collect()
}

const TAKEN: [&str; 3] = [
    "w-17: the market acts, policy proportional…",
    "a on w-17 takes part: it came with a limit of 600m, which is kept",
    "b on w-17 takes part: it came with a limit of 600m, which is kept",
];
const RETURNED: [&str; 3] = [
    "w-17: the market observes, policy proportional…; it acted, policy proportional",
    "a on w-17 is given back: it came with a limit of 600m",
    "b on w-17 is given back: it came with a limit of 600m",
];

#[tokio::test]
async fn taken_and_returned_limits_are_recorded_once() {
    let machine = Machine::new();
    let (agent, world, reporter) = acting(&machine);
    reporter.settle(&agent).await;
    assert_eq!(sentences(&world).await, TAKEN);
    // A second comparison, by this reporter or another, finds no difference.
    let record = world.service.record();
    reporter.settle(&agent).await;
    let other = Reporter::new(world.service.ledger(), "w-17").unwrap();
    other.settle(&agent).await;
    assert_eq!(world.service.record(), record);
    let dry = world.ask("POST", "/v1/nodes/w-17/restore?dryRun=true", "");
    dry.await;
    assert_eq!(world.service.record(), record);
    // The restore is recorded when it is answered.
    let answer = world.ask("POST", "/v1/nodes/w-17/restore", "{}").await;
    let record = world.service.record().to_string();
    assert_eq!(answer.headers["bursar-record"], record);
    assert_eq!(sentences(&world).await, [TAKEN, RETURNED].concat());
    agent.stop().unwrap();
    reporter.settle(&agent).await;
    assert_eq!(sentences(&world).await, [TAKEN, RETURNED].concat());
}

#[tokio::test]
async fn a_stop_restores_everything_and_does_not_change_settings() {
    let machine = Machine::new();
    let (agent, world, reporter) = acting(&machine);
    reporter.settle(&agent).await;
    agent.stop().unwrap();
    reporter.settle(&agent).await;
    let expected = [&TAKEN[..], &RETURNED[1..]].concat();
    assert_eq!(sentences(&world).await, expected);
    drop(agent);
    // The next agent has the same settings and takes both limits again.
    let agent = machine.agent(Mode::Act);
    reporter.settle(&agent).await;
    wait_for(&agent, |view| limits(view) == [110, 110]);
    reporter.settle(&agent).await;
    let again = [&expected[..], &TAKEN[1..]].concat();
    assert_eq!(sentences(&world).await, again);
}

#[tokio::test]
async fn records_are_found_and_proven_by_node_and_by_pod() {
    let machine = Machine::new();
    let (agent, world, reporter) = acting(&machine);
    world.grant("job-1", "python", "ada").await;
    reporter.settle(&agent).await;
    let taken = world.service.record();
    world.ask("POST", "/v1/nodes/w-17/restore", "{}").await;
    let returned = world.service.record();
    world.grant("job-2", "python", "ada").await;
    for (object, expected) in [
        ("pod/a", 2),
        // The label may have changed too.
        ("node/w-17", returned - taken + 1),
        ("pod/c", 0),
        ("node/w-18", 0),
    ] {
        let path = format!("/v1/records?object={object}");
        let found = world.ask("GET", &path, "").await.json();
        let found = found["items"].as_array().unwrap().iter();
        let found: Vec<u64> = found.map(|item| item["seq"].as_u64().unwrap()).collect();
        assert_eq!(found.len() as u64, expected, "{object}");
        assert!(found.iter().all(|seq| (taken..=returned).contains(seq)));
    }
    let proof = world.ask("GET", "/v1/proofs/pod/a", "").await;
    assert_eq!(proof.status, 200, "{}", proof.text());
    let user = world.ask_as(user(&["ada"]), "GET", "/v1/proofs/node/w-17", "");
    user.await.is_problem("not-allowed");
}

/// Method: the reporter runs as in a server, and both pods use their whole limit for a while.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_label_is_on_record_with_its_numbers() {
    let machine = Machine::new();
    let (agent, world, reporter) = acting(&machine);
    let running = tokio::spawn(reporter.run(Arc::clone(&agent)));
    let began = Instant::now();
    let until = |label: Label, permille: u64| {
        let is_so = |view: &bursar_node::market::View| {
            let used_us = u64::try_from(began.elapsed().as_micros()).unwrap() * permille / 1_000;
            for name in ["a", "b"] {
                machine.used(name, used_us);
            }
            let clearing = view.clearing.as_ref();
            clearing.is_some_and(|clearing| clearing.label == label)
        };
        wait_for(&agent, is_so);
    };
    let mut follower = Follower::new(&world.router(operator()), "?kinds=node", None).await;
    until(Label::Congested, 800);
    let event = follower.next().await.unwrap();
    let event = match event.name.as_str() {
        // The first comparison may come before or after the stream is opened.
        "node.marketChanged" => follower.next().await.unwrap(),
        _ => event,
    };
    assert_eq!(event.name, "node.congested");
    let data: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!(data["object"], "node/w-17");
    assert_eq!(data["data"]["was"], "uncongested");
    assert_eq!(data["data"]["capacityMilli"], 1000);
    let need = data["data"]["needMilli"].as_u64().unwrap();
    assert!(1000 < need, "{need}");
    let sentence =
        format!("w-17: congested, was uncongested: 2 pods need {need}m, 1000m can be shared");
    assert_eq!(data["summary"], sentence);
    running.abort();
}

/// Method: the store fails for all writes that the reporter tries in a minute, some of which are
/// committed nevertheless. Meanwhile the agent acts.
#[tokio::test(start_paused = true)]
async fn changes_during_a_failure_of_the_store_are_recorded_once_afterwards() {
    let machine = Machine::new();
    let agent = machine.agent(Mode::Act);
    let world = World::sharing_cpu(Arc::clone(&agent));
    let reporter = Reporter::new(world.service.ledger(), "w-17").unwrap();
    for at in 0..12 {
        let fault = if at % 4 == 3 {
            Fault::CommitThenError
        } else {
            Fault::Error
        };
        world.store.inject(fault);
    }
    wait_for(&agent, |view| limits(view) == [110, 110]);
    assert_eq!(machine.limit("a"), "11000 100000");
    reporter.settle(&agent).await;
    assert_eq!(sentences(&world).await, TAKEN);
    agent.stop().unwrap();
    for _ in 0..3 {
        world.store.inject(Fault::CommitThenError);
    }
    reporter.settle(&agent).await;
    assert_eq!(
        sentences(&world).await,
        [&TAKEN[..], &RETURNED[1..]].concat()
    );
}

#[tokio::test(start_paused = true)]
async fn a_digest_of_the_agents_record_is_recorded_every_hour() {
    let machine = Machine::new();
    let (agent, world, reporter) = acting(&machine);
    let count = async || {
        let all = sentences(&world).await;
        let is_digest = |sentence: &&String| sentence.contains("its record stands at");
        all.iter().filter(is_digest).count()
    };
    for hours in 0..4 {
        reporter.settle(&agent).await;
        assert_eq!(count().await, hours);
        tokio::time::advance(ALMOST).await;
        reporter.settle(&agent).await;
        assert_eq!(count().await, hours, "too early");
        let lines = agent.view().clearings;
        wait_for(&agent, |view| lines < view.clearings);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let head = {
        let state = world.service.ledger().view().read();
        state.markets.get("w-17").unwrap().digest.unwrap().head
    };
    agent.stop().unwrap();
    let mut heads = Vec::new();
    let directory = machine.directory();
    bursar_node::market::record::read(&directory, |past| heads.push(past)).unwrap();
    let text = std::fs::read_to_string(directory.join("record.jsonl")).unwrap();
    assert!(
        text.contains(&head.to_string()),
        "the digest is a line of the record"
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_synced_has_no_digest() {
    let machine = Machine::new();
    let (agent, world, reporter) = acting(&machine);
    reporter.settle(&agent).await;
    tokio::time::advance(Duration::from_hours(1)).await;
    let digest = || {
        let state = world.service.ledger().view().read();
        state.markets.get("w-17").unwrap().digest
    };
    let aside = machine.directory().with_extension("aside");
    std::fs::rename(machine.directory(), &aside).unwrap();
    reporter.settle(&agent).await;
    assert_eq!(digest(), None);
    std::fs::rename(&aside, machine.directory()).unwrap();
    reporter.settle(&agent).await;
    assert!(digest().is_some());
}

/// The recorded labels, without numbers.
async fn labels(world: &World) -> Vec<String> {
    let records = world.ask("GET", "/v1/records?limit=1000", "").await.json();
    let records = records["items"].as_array().unwrap().clone();
    let sentences = records
        .iter()
        .flat_map(|record| record["summary"].as_array().unwrap());
    let sentences = sentences.map(|sentence| sentence.as_str().unwrap());
    let labels = sentences.filter_map(|sentence| sentence.split(": ").nth(1));
    let labels = labels.filter(|label| label.contains(", was "));
    labels.map(str::to_owned).collect()
}

/// Method: the sum of both floors exceeds the capacity, so that every clearing is overloaded.
#[tokio::test]
async fn a_node_is_overloaded_only_while_limits_are_written() {
    let overloaded = |machine: &Machine, mode| {
        let mut options = machine.options(mode);
        for cgroup in &mut options.cgroups {
            cgroup.params.min_milli = 600;
        }
        let agent = Arc::new(Agent::start(options).unwrap());
        wait_for(&agent, |view| {
            let clearing = view.clearing.as_ref();
            clearing.is_some_and(|clearing| clearing.label == Label::Overloaded)
        });
        let world = World::sharing_cpu(Arc::clone(&agent));
        let reporter = Reporter::new(world.service.ledger(), "w-17").unwrap();
        (agent, world, reporter)
    };
    let machine = Machine::new();
    let (agent, world, reporter) = overloaded(&machine, Mode::Observe);
    reporter.settle(&agent).await;
    assert_eq!(labels(&world).await, [""; 0]);

    let machine = Machine::new();
    let (agent, world, reporter) = overloaded(&machine, Mode::Act);
    let begun = "overloaded, was uncongested";
    let ended = "uncongested, was overloaded";
    reporter.settle(&agent).await;
    assert_eq!(labels(&world).await, [begun]);
    agent.restore(Deed::Real).unwrap();
    reporter.settle(&agent).await;
    assert_eq!(labels(&world).await, [begun, ended]);

    let machine = Machine::new();
    let (agent, world, reporter) = overloaded(&machine, Mode::Act);
    reporter.settle(&agent).await;
    reporter.settle_off(&machine.options(Mode::Observe)).await;
    assert_eq!(labels(&world).await, [begun, ended]);
}

#[tokio::test]
async fn a_market_that_is_switched_off_is_recorded_as_off() {
    let machine = Machine::new();
    let (agent, world, reporter) = acting(&machine);
    let options = machine.options(Mode::Observe);
    reporter.settle_off(&options).await;
    assert_eq!(sentences(&world).await, [""; 0], "the ledger has no market");
    reporter.settle(&agent).await;
    reporter.settle_off(&options).await;
    let all = sentences(&world).await;
    // The limits of a crashed agent are not restored yet.
    assert_eq!(all.len(), TAKEN.len() + 1, "{all:?}");
    assert_eq!(
        all[3],
        "w-17: the market is off, policy proportional…; it acted, policy proportional"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_is_sent_live_without_a_position() {
    let machine = Machine::new();
    let (agent, world, _) = acting(&machine);
    let router = world.router(operator());
    let mut follower = Follower::new(&router, "?kinds=pod", None).await;
    let mut others = Follower::new(&router, "?kinds=booking", None).await;
    let mut hidden = Follower::new(&world.router(user(&["ada"])), "", None).await;
    // `a` uses its whole limit.
    let began = Instant::now();
    wait_for(&agent, |view| {
        machine.used("a", u64::try_from(began.elapsed().as_micros()).unwrap());
        limits(view)[0] > 110
    });
    let event = follower.next().await.unwrap();
    assert_eq!(
        (event.name.as_str(), event.id.as_str()),
        ("pod.resized", "")
    );
    let event: Value = serde_json::from_str(&event.data).unwrap();
    let data = &event["data"];
    assert_eq!(event["object"], "pod/a");
    assert_eq!((&data["node"], &data["pod"]), (&"w-17".into(), &"a".into()));
    assert_eq!(data["fromMilli"], 110);
    assert_eq!(data["mode"], "uncongested");
    let (to, need) = (&data["toMilli"], &data["needMilli"]);
    assert_eq!(
        event["summary"],
        format!("a may use {to}m of CPU, 110m before: it needs {need}m, the node is uncongested")
    );
    // A stream without that kind, or of a caller that may not see it, gets the next booking instead.
    world.grant("job-1", "python", "ada").await;
    for follower in [&mut others, &mut hidden] {
        assert_eq!(follower.next().await.unwrap().name, "booking.granted");
    }
}

/// Method: far more resizes than the channel keeps, with records among them, happen before the
/// client reads anything. Eight pods are busy and idle by turns.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_stream_loses_resizes_but_no_records() {
    let machine = Machine::new();
    let mut options = machine.options(Mode::Act);
    let pods: Vec<String> = (0..8).map(|at| format!("p{at}")).collect();
    options.cgroups = pods.iter().map(|pod| machine.declare(pod)).collect();
    for cgroup in &mut options.cgroups {
        cgroup.params.min_milli = 10;
    }
    let agent = Arc::new(Agent::start(options).unwrap());
    let world = World::sharing_cpu(Arc::clone(&agent));
    let router = world.router(operator());
    let mut follower = Follower::new(&router, "", None).await;
    let before = agent.view().writes;
    let written = || agent.view().writes - before;
    let (most, mut granted) = (u64::try_from(RESIZES_MAX).unwrap(), Vec::new());
    let began = Instant::now();
    for _ in 0..100_000 {
        if most + 200 < written() {
            break;
        }
        let now_us = u64::try_from(began.elapsed().as_micros()).unwrap();
        let is_busy = now_us / 60_000 % 2 == 0;
        let used_us = if is_busy {
            now_us
        } else {
            now_us / 60_000 * 60_000
        };
        for pod in &pods {
            machine.used(pod, used_us);
        }
        // Records come among the lost resizes and among the others.
        if u64::try_from(granted.len()).unwrap() * 60 <= written() {
            granted.push(format!("job-{}", granted.len()));
            let job = granted.last().unwrap();
            world.grant(job, "python", "ada").await;
        }
        let seen = agent.view();
        let is_new = |view: &View| !std::ptr::eq(view, &raw const *seen);
        is_seen_within(&agent, Duration::from_millis(50), is_new);
    }
    granted.push("last".to_owned());
    world.grant("last", "python", "ada").await;
    assert!(most < written(), "{}", written());
    agent.stop().unwrap();
    let (mut resizes, mut records) = (0, Vec::new());
    while records.last() != granted.last() {
        let event = follower.next().await.unwrap();
        match event.name.as_str() {
            "pod.resized" => resizes += 1,
            "booking.granted" => {
                let data: Value = serde_json::from_str(&event.data).unwrap();
                let object = data["object"].as_str().unwrap();
                records.push(object.strip_prefix("booking/").unwrap().to_owned());
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(records, granted, "all, in order, and none twice");
    assert!(resizes <= RESIZES_MAX, "{resizes}");
}

#[tokio::test]
async fn an_observing_agent_resizes_nothing() {
    let machine = Machine::new();
    let agent = machine.agent(Mode::Observe);
    let mut resizes = agent.resizes();
    wait_for(&agent, |view| view.clearings > 20);
    assert!(resizes.try_recv().is_err());
}
