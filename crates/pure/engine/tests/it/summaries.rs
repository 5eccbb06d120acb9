//! Sentences of the stream and of `ledger tail`.

use bursar_booking::decide::Change;
use bursar_booking::sentence::{self, BookingData};
use bursar_booking::{Command as BookingCommand, End, Limit, Outcome, Scope};
use bursar_engine::codec::decode_events;
use bursar_engine::event::stream_names;
use bursar_engine::summary::{Data, notices};
use bursar_engine::{Command, Event, Node, spine};
use bursar_units::Millis;

use crate::script;
use crate::world::{
    World, cancel, change, force, id, label, limit_of, name, patient, request, reserve, set_limit,
};

/// Name, object and sentence of every event of a command.
fn tells(world: &mut World, command: Command) -> Vec<String> {
    let events = world.events(command);
    let notices = (0..).zip(notices(world.now, &events));
    let streamed = notices.filter_map(|(index, notice)| {
        let (name, object, summary) = (notice.stream?, notice.object, notice.summary);
        Some(format!("{index} {name} {object}: {summary}"))
    });
    streamed.collect()
}

fn check(world: &mut World, command: Command, expected: &[&str]) {
    assert_eq!(tells(world, command), expected);
}

#[test]
fn every_event_of_a_booking_has_its_sentence() {
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
fn events_of_ticks_have_their_sentences() {
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
    let notices = notices(time, &events);
    let sentences: Vec<&str> = notices
        .iter()
        .map(|notice| notice.summary.as_str())
        .collect();
    assert_eq!(
        sentences,
        [
            "job-2 refused: no python slot came free within 30s",
            "job-1 expired after 1m: not renewed within 1m",
            "job-3 granted after 1m: 1 python slot for zeta",
        ]
    );
    let expired = &notices[1];
    assert_eq!(
        (expired.stream, &expired.tenant),
        (Some("booking.expired"), &Some(label("acme")))
    );
    assert_eq!(
        expired.data,
        Data::Booking(sentence::Data::Booking(BookingData {
            slots: Some(1),
            waited: Some(Millis::ZERO),
            held: Some(Millis::from_secs(60)),
            end: Some(End::Expired),
            outcome: None,
            exit_code: None,
            note: None,
        }))
    );
}

#[test]
fn the_sentence_of_a_forced_end_in_the_queue_does_not_say_released() {
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
fn events_of_limits_nodes_and_tokens_have_their_sentences() {
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
        unschedulable: true,
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
            "1 node.joined node/a01: node a01 declared: cpu 96, memory 1000Gi, gpus 8, cordoned",
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
        let notices = notices(time, &events);
        assert_eq!(notices.len(), events.len());
        for notice in notices {
            let sentence = notice.summary;
            names.extend(notice.stream);
            assert!(
                !sentence.is_empty() && !sentence.ends_with('.'),
                "{sentence}"
            );
            assert!(!sentence.starts_with(char::is_uppercase), "{sentence}");
        }
    }
    assert!(names.is_subset(&stream_names()), "{names:?}");
    let names: Vec<&str> = names.into_iter().collect();
    assert_eq!(
        names,
        [
            "booking.cancelled",
            "booking.expired",
            "booking.granted",
            "booking.noted",
            "booking.queued",
            "booking.refused",
            "booking.released",
            "budget.changed",
            "budget.removed",
            "envelope.exhausted",
            "envelope.near",
            "envelope.renewed",
            "execution.adopted",
            "execution.started",
            "execution.stopping",
            "execution.stuck",
            "lease.closed",
            "lease.opened",
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
            "policy.changed",
            "run.demoted",
            "run.edited",
            "run.ended",
            "run.ending",
            "run.funded",
            "run.started",
            "run.submitted",
            "token.created",
            "token.revoked",
        ]
    );
}

/// Method: the same record with and without the description of its booking, which came with level 2.
#[test]
fn an_older_record_says_less_and_nothing_else() {
    let mut world = World::new();
    world
        .run(reserve("job-1", request("python", "acme")))
        .unwrap();
    let fence = world.fence("job-1");
    let mut events = world.events(BookingCommand::Release {
        id: id("job-1"),
        fence,
        outcome: None,
        exit_code: Some(1),
    });
    let now = &notices(world.now, &events)[0];
    assert_eq!(
        now.summary,
        "job-1 released 1 python slot after 0s, exit code 1"
    );
    if let Event::Booking(bursar_booking::Event::Ended { of, .. }) = &mut events[0] {
        *of = None;
    }
    let older = &notices(world.now, &events)[0];
    assert_eq!(older.summary, "job-1 released, exit code 1");
    assert_eq!((&older.tenant, &older.class), (&None, &None));
    assert_eq!(older.stream, now.stream);
}

#[test]
fn no_sentence_has_a_fence() {
    let mut world = World::new();
    for at in 0..1_234 {
        let job = format!("job-{at}");
        world.run(reserve(&job, request("python", "acme"))).unwrap();
        world.release(&job).unwrap();
    }
    let events = world.events(reserve("last", request("python", "acme")));
    assert_eq!(world.fence("last").0, 1_235);
    let all = format!("{:?}", notices(world.now, &events));
    assert!(!all.contains("1235") && !all.contains("1,235"), "{all}");
}
