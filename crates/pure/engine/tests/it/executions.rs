//! Texts and snapshots of executions: the saga, sentences, explanations and refusals (X1).

use std::fmt::Write as _;

use bursar_booking::execution::{Exit, Isolation, Order};
use bursar_booking::{Command as BookingCommand, Fence};
use bursar_engine::codec::{command_text, decode_events, read_command_text};
use bursar_engine::explain::{StepState, booking, refused, saga};
use bursar_engine::summary::notices;
use bursar_engine::{Command, snapshot};
use bursar_units::Millis;

use crate::script;
use crate::world::{
    World, adopt, cancel, exited, force, id, limit_of, order, patient, request, reserve, set_limit,
    started, stop_failed, submit, submit_order,
};

/// A world with one slot of class `sh`.
fn one_slot() -> World {
    let mut world = World::new();
    world.run(set_limit(limit_of("sh", 1))).unwrap();
    world
}

/// Submits, then sends each command the given seconds after the one before.
fn after(world: &mut World, steps: impl IntoIterator<Item = (u64, Command)>) {
    for (secs, command) in steps {
        world.now = world.now.after(Millis::from_secs(secs));
        world.run(command).unwrap();
    }
}

/// The six steps and then the compensations: name, state, and the seconds it took.
fn saga_words(world: &World, name: &str) -> (String, String) {
    let saga = saga(&world.state.bookings, world.now, &id(name)).unwrap();
    let joined = |steps: &[bursar_engine::explain::Step]| {
        let told = |step: &bursar_engine::explain::Step| {
            let took = step.took.map(|took| format!(" {}s", took.ms() / 1_000));
            assert_eq!(took.is_some(), step.began.is_some());
            let is_silent = matches!(step.state, StepState::Pending | StepState::Skipped);
            assert_eq!(step.began.is_none(), is_silent, "{step:?}");
            format!(
                "{} {}{}",
                step.name,
                format!("{:?}", step.state).to_lowercase(),
                took.unwrap_or_default()
            )
        };
        let all: Vec<String> = steps.iter().map(told).collect();
        all.join(", ")
    };
    (joined(&saga.steps), joined(&saga.compensations))
}

/// Method: each way to end, with three seconds to start and five to run.
#[test]
fn the_saga_has_every_step_and_compensation_for_each_kind_of_end() {
    let begun = "validate done 0s, allocate done 0s, queue done 0s";
    let undone =
        |took: u64| format!("delete-process done {took}s, leave-queue skipped, release done 0s");
    let reason = || "no such file".to_owned();
    let ways = [
        (
            vec![(3, started("run")), (5, exited("run", Exit::Code(0)))],
            "create done 3s, monitor done 5s, finish done 0s",
            String::new(),
        ),
        (
            vec![(3, started("run")), (5, exited("run", Exit::Code(7)))],
            "create done 3s, monitor failed 5s, finish skipped",
            undone(0),
        ),
        (
            vec![(3, started("run")), (5, exited("run", Exit::Lost))],
            "create done 3s, monitor failed 5s, finish skipped",
            undone(0),
        ),
        (
            vec![(3, exited("run", Exit::NotStarted(reason())))],
            "create failed 3s, monitor skipped, finish skipped",
            undone(0),
        ),
        (
            vec![
                (3, started("run")),
                (5, cancel("run")),
                (2, exited("run", Exit::Signal(15))),
            ],
            "create done 3s, monitor failed 5s, finish skipped",
            undone(2),
        ),
        (
            vec![
                (3, cancel("run")),
                (1, exited("run", Exit::NotStarted(reason()))),
            ],
            "create failed 3s, monitor skipped, finish skipped",
            undone(1),
        ),
        // Not started within a minute.
        (
            vec![(64, exited("run", Exit::NotStarted(reason())))],
            "create failed 60s, monitor skipped, finish skipped",
            undone(4),
        ),
        // Not ended within an hour.
        (
            vec![(3, started("run")), (3_607, exited("run", Exit::Signal(9)))],
            "create done 3s, monitor failed 3600s, finish skipped",
            undone(7),
        ),
        (
            vec![(3, started("run")), (4, force("run", "gone"))],
            "create done 3s, monitor failed 4s, finish skipped",
            undone(0),
        ),
    ];
    for (steps, rest, compensations) in ways {
        let mut world = one_slot();
        world.run(submit("run", "sh", "acme")).unwrap();
        after(&mut world, steps.clone());
        world.now = world.now.after(Millis::from_secs(100));
        assert_eq!(
            saga_words(&world, "run"),
            (format!("{begun}, {rest}"), compensations),
            "{steps:?}"
        );
    }
}

#[test]
fn the_saga_of_one_under_way_has_one_step_that_is_being_done() {
    let mut world = one_slot();
    world.run(submit("run", "sh", "acme")).unwrap();
    world
        .run(submit_order("next", patient("sh", "zeta"), order()))
        .unwrap();
    world.now = world.now.after(Millis::from_secs(2));
    let begun = "validate done 0s, allocate done 0s, queue done 0s";
    let waits = "validate done 0s, allocate done 0s, queue active 2s, create pending, \
                 monitor pending, finish pending";
    assert_eq!(
        saga_words(&world, "next"),
        (waits.to_owned(), String::new())
    );
    let starts = format!("{begun}, create active 2s, monitor pending, finish pending");
    assert_eq!(saga_words(&world, "run"), (starts, String::new()));
    world.run(started("run")).unwrap();
    world.now = world.now.after(Millis::from_secs(4));
    let runs = format!("{begun}, create done 2s, monitor active 4s, finish pending");
    assert_eq!(saga_words(&world, "run"), (runs, String::new()));
    world.run(cancel("run")).unwrap();
    world.now = world.now.after(Millis::from_secs(1));
    let stops = format!("{begun}, create done 2s, monitor failed 4s, finish skipped");
    let undone = "delete-process active 1s, leave-queue skipped, release pending".to_owned();
    assert_eq!(saga_words(&world, "run"), (stops, undone));

    // Out of the queue: by hand, or because its wait is over.
    world.run(cancel("next")).unwrap();
    let left = "validate done 0s, allocate done 0s, queue failed 7s, create skipped, \
                monitor skipped, finish skipped";
    let undone = "delete-process skipped, leave-queue done 0s, release skipped";
    assert_eq!(
        saga_words(&world, "next"),
        (left.to_owned(), undone.to_owned())
    );
    world
        .run(reserve("plain", request("python", "acme")))
        .unwrap();
    assert_eq!(saga(&world.state.bookings, world.now, &id("plain")), None);
    assert_eq!(saga(&world.state.bookings, world.now, &id("nobody")), None);
}

/// Method: a ledger with executions in every stage, written and read; the lines are beside this
/// file.
#[test]
fn a_snapshot_holds_executions_in_every_stage() {
    let world = script::executions_in_every_stage();
    let text = snapshot::write(&world.state).unwrap();
    let read = snapshot::read(&text).unwrap();
    assert_eq!(snapshot::write(&read).unwrap(), text);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(r#""id":"run-"#))
        .collect();
    assert_eq!(
        lines.join("\n"),
        include_str!("executions.jsonl").trim_end()
    );
}

/// Name and sentence of every event of a command and of the tick before it.
fn tells(world: &mut World, command: Command) -> String {
    let head = world.state.spine.head;
    let events = world.events(command);
    // Events of the tick come first.
    let from = usize::try_from(head).unwrap();
    let records = world.journal[from..].iter().zip(head..);
    let mut words = String::new();
    for (bytes, seq) in records {
        let (time, events) = decode_events(seq, bytes, |_| None).unwrap();
        for notice in notices(time, &events) {
            let name = notice.stream.unwrap_or("(quiet)");
            writeln!(words, "{name}: {}", notice.summary).unwrap();
        }
    }
    assert!(!events.is_empty());
    words
}

/// Method: a life, one command after another, each some seconds after the one before.
#[test]
fn every_event_of_an_execution_has_its_sentence() {
    let mut world = one_slot();
    let patient_run = |name: &str| submit_order(name, patient("sh", "zeta"), order());
    let unkept = BookingCommand::Started {
        id: id("run-2"),
        isolation: Isolation::None,
    };
    let reason = || "no such file".to_owned();
    let mut told = String::new();
    for (secs, command) in [
        (0, submit("run-1", "sh", "acme")),
        (0, patient_run("run-2")),
        (0, patient_run("run-3")),
        (1, started("run-1")),
        (4, exited("run-1", Exit::Code(0))),
        (1, unkept.into()),
        (2, exited("run-2", Exit::Code(7))),
        (1, cancel("run-3")),
        (1, stop_failed("run-3", 1)),
        (1, exited("run-3", Exit::Signal(9))),
        (0, submit("run-4", "sh", "acme")),
        (1, exited("run-4", Exit::NotStarted(reason()))),
        (0, submit("run-5", "sh", "acme")),
        (1, exited("run-5", Exit::Lost)),
        (0, submit("run-6", "sh", "acme")),
        (61, exited("run-6", Exit::NotStarted(reason()))),
        (0, submit("run-7", "sh", "acme")),
        (1, started("run-7")),
        (3_601, stop_failed("run-7", 1)),
    ] {
        world.now = world.now.after(Millis::from_secs(secs));
        told += &tells(&mut world, command);
    }
    for attempt in 2..=10 {
        told += &tells(&mut world, stop_failed("run-7", attempt));
    }
    told += &tells(&mut world, force("run-7", "the machine is gone"));
    assert_eq!(told, SENTENCES, "\n{told}");
}

/// Texts of an adoption (X5); the command stored beside the program reads back as it was.
#[test]
fn sentences_and_explanations_say_that_an_adopted_execution_was_found_after_a_restore() {
    let mut world = one_slot();
    world.run(submit("run-1", "sh", "acme")).unwrap();
    let asked = patient("sh", "zeta");
    let adopt = adopt("run-2", asked, Some(Fence(12)), Isolation::Cgroup);
    let kept = command_text(&adopt).unwrap();
    assert_eq!(read_command_text(&kept).unwrap(), adopt);
    let told = tells(&mut world, adopt);
    assert_eq!(
        told,
        "execution.adopted: run-2 adopted: 1 sh slot for zeta; it was found running after a \
         restore\n"
    );
    let explained = booking(&world.state, world.now, &id("run-2")).unwrap();
    assert_eq!(
        explained.headline,
        "run-2 runs for 0s so far, 1h left; it was found running after a restore"
    );
}

/// Common failures are explained, with the number.
#[test]
fn out_of_memory_not_executable_and_not_found_are_said_in_words() {
    let memory = |code, signal| Exit::OutOfMemory { code, signal };
    for (exit, words) in [
        (
            memory(None, Some(9)),
            "failed after 0s, signal 9, out of memory: the kernel killed it at its memory limit",
        ),
        (
            memory(Some(137), None),
            "failed after 0s, exit 137, out of memory: the kernel killed a process of it at its \
             memory limit",
        ),
        (
            memory(Some(0), None),
            "completed after 0s, out of memory: the kernel killed a process of it at its memory \
             limit",
        ),
        (
            Exit::Code(126),
            "failed after 0s, exit 126, the program could not be executed: it is not executable, \
             or permission is missing",
        ),
        (
            Exit::Code(127),
            "failed after 0s, exit 127, the program was not found",
        ),
        (Exit::Signal(9), "failed after 0s, signal 9"),
    ] {
        let mut world = one_slot();
        world.run(submit("run", "sh", "acme")).unwrap();
        world.run(started("run")).unwrap();
        let told = tells(&mut world, exited("run", exit.clone()));
        let streamed = format!("booking.released: run {words}, 1 sh slot released\n");
        assert_eq!(told, streamed, "{exit:?}");
        let explained = booking(&world.state, world.now, &id("run")).unwrap();
        assert!(
            explained.headline.ends_with(words),
            "{}",
            explained.headline
        );
    }
}

const SENTENCES: &str = "\
booking.granted: run-1 granted: 1 sh slot for acme
booking.queued: run-2 waits for 1 sh slot for zeta
booking.queued: run-3 waits for 1 sh slot for zeta
execution.started: run-1 runs
booking.released: run-1 completed after 5s, 1 sh slot released
booking.granted: run-2 granted after 5s: 1 sh slot for zeta
execution.started: run-2 runs, not kept apart (isolation: none)
booking.released: run-2 failed after 3s, exit 7, 1 sh slot released
booking.granted: run-3 granted after 8s: 1 sh slot for zeta
execution.stopping: run-3 is stopped: cancelled
(quiet): run-3 does not end, stop 1 failed
booking.released: run-3 cancelled after 3s, signal 9, 1 sh slot released
booking.granted: run-4 granted: 1 sh slot for acme
booking.released: run-4 failed after 1s, no such file, 1 sh slot released
booking.granted: run-5 granted: 1 sh slot for acme
booking.released: run-5 lost after 1s, nobody knows how it ended, 1 sh slot released
booking.granted: run-6 granted: 1 sh slot for acme
execution.stopping: run-6 is stopped: it did not start in time
booking.released: run-6 failed after 1m 01s, no such file, 1 sh slot released
booking.granted: run-7 granted: 1 sh slot for acme
execution.started: run-7 runs
execution.stopping: run-7 is stopped: it ran for as long as it may
(quiet): run-7 does not end, stop 1 failed
(quiet): run-7 does not end, stop 2 failed
(quiet): run-7 does not end, stop 3 failed
(quiet): run-7 does not end, stop 4 failed
(quiet): run-7 does not end, stop 5 failed
(quiet): run-7 does not end, stop 6 failed
(quiet): run-7 does not end, stop 7 failed
(quiet): run-7 does not end, stop 8 failed
(quiet): run-7 does not end, stop 9 failed
execution.stuck: run-7 is stuck: 10 stops failed, it keeps its slot
booking.released: run-7 taken back by an operator after 1h: the machine is gone
";

/// Explanation of every stage and every kind of end.
#[test]
fn an_execution_says_where_it_stands_and_how_it_ended() {
    let mut world = script::executions_in_every_stage();
    world.now = world.now.after(Millis::from_secs(3));
    let mut says = String::new();
    for name in [
        "run-waits",
        "run-starts",
        "run-runs",
        "run-stops",
        "run-stuck",
        "run-well",
        "run-again",
        "run-signal",
        "run-lost",
        "run-never",
        "run-stopped",
        "run-next",
        "run-left",
        "run-over",
        "run-forced",
    ] {
        let told = booking(&world.state, world.now, &id(name)).unwrap();
        assert!(told.saga.is_some(), "{name}");
        let line = [
            format!("{}: {}", told.stage.word(), told.headline),
            told.changes.join(" or "),
        ];
        says += line.join(" | ").trim_end_matches([' ', '|']);
        says += "\n";
    }
    world.run(exited("run-stuck", Exit::Signal(9))).unwrap();
    let told = booking(&world.state, world.now, &id("run-stuck")).unwrap();
    writeln!(says, "{}: {}", told.stage.word(), told.headline).unwrap();
    assert_eq!(says, HEADLINES, "\n{says}");
}

const HEADLINES: &str = "\
queued: run-waits waits for a sh slot: 1/1 in use, nobody ahead | raise limit sh
starting: run-starts is being started for 3s, 57s left | cancel it
running: run-runs runs for 3s so far, 59m 57s left | cancel it
stopping: run-stops is being stopped for 3s: somebody asked for it, 1 stop failed
stuck: run-stuck is stuck for 3s: it ran for as long as it may, 10 stops failed, it keeps 1 sh slot | end its process, or force-release it as an operator
ended: run-well ended: completed after 0s | ask again under a new id
ended: run-again ended: failed after 0s, exit 7 | ask again under a new id
ended: run-signal ended: failed after 0s, signal 11 | ask again under a new id
ended: run-lost ended: lost after 0s, nobody knows how it ended | ask again under a new id
ended: run-never ended: failed after 0s, no such file | ask again under a new id
ended: run-stopped ended: cancelled after 0s, signal 9 | ask again under a new id
ended: run-next ended: failed after 1m 01s, the executor was busy | ask again under a new id
ended: run-left ended: cancelled after waiting 0s | ask again under a new id
ended: run-over ended: never granted in the 5s it would wait | ask again under a new id
ended: run-forced ended: taken by an operator after 0s: the machine is gone | ask again under a new id
ended: run-stuck ended: timed out after 1h, signal 9
";

#[test]
fn refusals_about_executions_say_what_why_and_the_way_out() {
    let mut world = one_slot();
    world.run(submit("run", "sh", "acme")).unwrap();
    world
        .run(reserve("plain", request("python", "acme")))
        .unwrap();
    let fence = world.fence("run");
    let release = BookingCommand::Release {
        id: id("run"),
        fence,
        outcome: None,
        exit_code: None,
    };
    let renew = BookingCommand::Renew {
        id: id("run"),
        fence,
        ttl: None,
    };
    let with = |change: fn(&mut Order)| {
        let mut order = order();
        change(&mut order);
        submit_order("new", request("python", "acme"), order)
    };
    let mut check = |command: Command, expected: &str, changes: &[&str]| {
        let refusal = world.run(command.clone()).unwrap_err();
        let told = refused(&world.state, &command, &refusal);
        assert_eq!(format!("{}: {}", told.headline, told.detail), expected);
        assert_eq!(told.changes, changes);
    };
    for command in [release, renew] {
        check(
            command.into(),
            "`run` is an execution: its slot is free when its process is gone",
            &["cancel it"],
        );
    }
    for command in [
        started("plain"),
        exited("plain", Exit::Code(0)),
        stop_failed("plain", 1),
    ] {
        check(
            command,
            "`plain` is a plain booking: nothing runs under it here",
            &[],
        );
    }
    check(
        with(|order| order.retry_of = Some(id("nobody"))),
        "execution `nobody` is not known: only an execution that has ended, and is remembered, \
         can be retried",
        &["submit it without `retryOf`"],
    );
    check(
        with(|order| order.retry_of = Some(id("run"))),
        "execution `run` has not ended: only an execution that has ended can be retried",
        &["wait until it has ended", "cancel it"],
    );
    check(
        with(|order| order.start_timeout = Millis::from_hours(2)),
        "`startTimeoutMs` is out of bounds: asked 2h, allowed are 1s to 1h",
        &["send startTimeoutMs from 1000 to 3600000"],
    );
    check(
        with(|order| order.max_time = Millis::from_ms(10)),
        "`maxTimeMs` is out of bounds: asked 10ms, allowed are 1s to 30d",
        &["send maxTimeMs from 1000 to 2592000000"],
    );
    check(
        with(|order| order.grace = Millis::from_hours(2)),
        "`graceMs` is out of bounds: asked 2h, allowed are 0s to 1h",
        &["send graceMs from 0 to 3600000"],
    );
    let other = Order {
        pids: Some(1),
        ..order()
    };
    check(
        submit_order("run", request("sh", "acme"), other),
        "id `run` is in use for another request: `pids` differs from what was asked under it before",
        &["use a new id", "repeat the request unchanged"],
    );
}
