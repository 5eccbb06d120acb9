//! The sentences of the stream and of `ledger tail` (design 80, 4.5).

use bursar_booking::decide::Change;
use bursar_booking::{Command as BookingCommand, End, Limit, Outcome, Scope};
use bursar_engine::codec::decode_events;
use bursar_engine::summary::{Data, record_sentences, told};
use bursar_engine::{Command, Node, State, spine, summary};
use bursar_units::Millis;

use crate::script;
use crate::world::{
    World, cancel, change, force, id, label, limit_of, name, patient, request, reserve, set_limit,
};

/// Name, object and sentence of everything a command tells.
fn tells(world: &mut World, command: Command) -> Vec<String> {
    let events = world.events(command);
    told(&world.state, world.now, &events)
        .into_iter()
        .map(|(index, told)| format!("{index} {} {}: {}", told.name, told.object, told.summary))
        .collect()
}

fn check(world: &mut World, command: Command, expected: &[&str]) {
    assert_eq!(tells(world, command), expected);
}

#[test]
fn the_life_of_a_booking_is_told_in_sentences() {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 1))).unwrap();
    check(
        &mut world,
        reserve("job-1", request("python", "acme")),
        &["0 booking.granted booking/job-1: job-1 granted: 1 python slot for acme"],
    );
    check(
        &mut world,
        reserve("job-2", patient("python", "zeta")),
        &["0 booking.queued booking/job-2: job-2 waits for 1 python slot for zeta"],
    );
    world
        .run(reserve("job-3", patient("python", "zeta")))
        .unwrap();
    world.advance(37_400);
    let release = BookingCommand::Release {
        id: id("job-1"),
        fence: world.fence("job-1"),
        outcome: Some(Outcome::Failed),
        exit_code: Some(3),
    };
    check(
        &mut world,
        release.into(),
        &[
            "0 booking.released booking/job-1: job-1 released 1 python slot after 37s, failed with exit code 3",
            "1 booking.granted booking/job-2: job-2 granted after 37s: 1 python slot for zeta",
        ],
    );
    check(
        &mut world,
        cancel("job-3"),
        &["0 booking.cancelled booking/job-3: job-3 cancelled after waiting 37s"],
    );
    world.advance(5_000);
    check(
        &mut world,
        force("job-2", "node lost"),
        &["0 booking.released booking/job-2: job-2 taken back by an operator after 5s: node lost"],
    );
}

#[test]
fn what_time_does_is_told() {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 1))).unwrap();
    world
        .run(reserve("job-1", request("python", "acme")))
        .unwrap();
    let waits = bursar_booking::Request {
        wait: Millis::from_secs(30),
        ..request("python", "zeta")
    };
    world.run(reserve("job-2", waits)).unwrap();
    world
        .run(reserve("job-3", patient("python", "zeta")))
        .unwrap();
    world.now = world.now.after(Millis::from_secs(90));
    check(
        &mut world,
        force("job-3", "drained"),
        &["0 booking.released booking/job-3: job-3 taken back by an operator after 30s: drained"],
    );
    let seq = world.state.spine.head - 2;
    let bytes = &world.journal[usize::try_from(seq).unwrap()];
    let (time, events) = decode_events(seq, bytes, |_| None).unwrap();
    assert_eq!(
        record_sentences(&world.state, time, &events),
        [
            "job-2 refused: no python slot came free within 30s",
            "job-1 expired after 1m: not renewed within 1m",
            "job-3 granted after 1m: 1 python slot for zeta",
        ]
    );
    let (_, expired) = &told(&world.state, time, &events)[1];
    assert_eq!(
        (expired.name, &expired.tenant),
        ("booking.expired", &Some(label("acme")))
    );
    assert_eq!(
        expired.data,
        Data::Booking {
            slots: Some(1),
            waited: Some(Millis::ZERO),
            held: Some(Millis::from_secs(60)),
            end: Some(End::Expired),
            outcome: None,
            exit_code: None,
        }
    );
}

#[test]
fn one_that_was_forced_out_of_the_queue_is_not_told_as_released() {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 0))).unwrap();
    world
        .run(reserve("job-1", patient("python", "acme")))
        .unwrap();
    check(
        &mut world,
        force("job-1", "drained"),
        &[
            "0 booking.cancelled booking/job-1: job-1 taken out of the queue by an operator after 0s: drained",
        ],
    );
}

#[test]
fn limits_nodes_and_tokens_are_told() {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 0))).unwrap();
    for at in 0..3 {
        world
            .run(reserve(&format!("job-{at}"), patient("python", "acme")))
            .unwrap();
    }
    let told = tells(&mut world, set_limit(limit_of("python", 1_200)));
    assert_eq!(
        told[0],
        "0 limit.changed limit/python: limit python set: 1,200 slots for class python, 3 waiting bookings granted"
    );
    assert_eq!(told.len(), 4);
    check(
        &mut world,
        set_limit(limit_of("python", 0)),
        &["0 limit.changed limit/python: limit python paused: 0 slots for class python"],
    );
    let pair = Limit {
        gpus: Some(1),
        ..Limit::unbounded(name("pair"), Some(Scope::Each), Some(Scope::Each))
    };
    let node = Node {
        name: name("a01"),
        cpu_milli: 96_000,
        memory_bytes: 1_000 << 30,
        gpus: 8,
        labels: std::collections::BTreeMap::new(),
        unschedulable: false,
    };
    let change = change([
        bursar_engine::Change::from(Change::SetLimit(pair)),
        spine::Change::SetNode(node).into(),
        spine::Change::DropNode { name: name("a01") }.into(),
        Change::DropLimit { name: name("pair") }.into(),
    ]);
    check(
        &mut world,
        change,
        &[
            "0 limit.changed limit/pair: limit pair set: 1 gpu for each class and each tenant",
            "1 node.joined node/a01: node a01 joined: cpu 96, memory 1000Gi, gpus 8",
            "2 node.lost node/a01: node a01 left",
            "3 limit.changed limit/pair: limit pair removed",
        ],
    );
}

/// Method: every record of a life in which everything happens; the state has moved on since.
#[test]
fn every_event_has_a_sentence_in_lower_case_without_a_full_stop() {
    let world = script::everything_happens();
    let mut names = std::collections::BTreeSet::new();
    for (seq, bytes) in (0..).zip(&world.journal) {
        let (time, events) = decode_events(seq, bytes, |_| None).unwrap();
        let sentences = record_sentences(&world.state, time, &events);
        assert_eq!(sentences.len(), events.len());
        for sentence in sentences {
            assert!(
                !sentence.is_empty() && !sentence.ends_with('.'),
                "{sentence}"
            );
            assert!(!sentence.starts_with(char::is_uppercase), "{sentence}");
        }
        names.extend(
            told(&world.state, time, &events)
                .into_iter()
                .map(|(_, told)| told.name),
        );
    }
    let names: Vec<&str> = names.into_iter().collect();
    assert_eq!(
        names,
        [
            "booking.cancelled",
            "booking.expired",
            "booking.granted",
            "booking.queued",
            "booking.refused",
            "booking.released",
            "execution.adopted",
            "execution.started",
            "execution.stopping",
            "execution.stuck",
            "ledger.anchored",
            "ledger.begun",
            "ledger.pruned",
            "ledger.rekeyed",
            "ledger.restored",
            "ledger.resumed",
            "ledger.upgraded",
            "limit.changed",
            "node.congested",
            "node.joined",
            "node.lost",
            "node.marketChanged",
            "node.marketDigested",
            "pod.originalReturned",
            "pod.originalTaken",
            "token.created",
            "token.revoked",
        ]
    );
}

#[test]
fn what_the_state_has_forgotten_is_told_without_it() {
    let mut world = World::new();
    world
        .run(reserve("job-1", request("python", "acme")))
        .unwrap();
    let fence = world.fence("job-1");
    let events = world.events(BookingCommand::Release {
        id: id("job-1"),
        fence,
        outcome: None,
        exit_code: Some(1),
    });
    let (_, told) = &told(&State::default(), world.now, &events)[0];
    assert_eq!(told.summary, "job-1 released, exit code 1");
    assert_eq!((&told.tenant, &told.class), (&None, &None));
}

#[test]
fn the_fence_is_never_told() {
    let mut world = World::new();
    for at in 0..1_234 {
        let job = format!("job-{at}");
        world.run(reserve(&job, request("python", "acme"))).unwrap();
        world.release(&job).unwrap();
    }
    let events = world.events(reserve("last", request("python", "acme")));
    assert_eq!(world.fence("last").0, 1_235);
    let all = format!(
        "{:?} {:?}",
        summary::told(&world.state, world.now, &events),
        record_sentences(&world.state, world.now, &events)
    );
    assert!(!all.contains("1235") && !all.contains("1,235"), "{all}");
}
