//! Executions: every stage with every command, and single cases.

use std::fmt::Write as _;

use bursar_booking::execution::{ADOPTION, Exit, Order, STOPS_UNTIL_STUCK, Verdict, Wanted};
use bursar_booking::{Bookings, End, Event, Outcome, Refusal, Request, Standing};
use bursar_units::Millis;

use crate::make::{
    Asked, Desk, Reply, at, at_once, execution, id, order, request, sized, slots_limit, stage_word,
    with_order,
};

const HOUR: u64 = 3_600_000;

const STAGES: [&str; 6] = [
    "queued", "starting", "running", "stopping", "stuck", "ended",
];

const COMMANDS: [&str; 18] = [
    "submit again",
    "started",
    "adopt",
    "exit 0",
    "exit 7",
    "signal 9",
    "lost",
    "not started",
    "stop 1 failed",
    "stop 2 failed",
    "stop 10 failed",
    "stop 11 failed",
    "cancel",
    "force",
    "release",
    "renew",
    "overdue",
    "resume",
];

/// One slot, and `run` in that stage at ten seconds; where `run` holds, `next` waits for its slot.
///
/// Submitted at 0 s and granted at once, it runs from 1 s, is stopped from 2 s, and no stop helps.
fn in_stage(stage: &str) -> Desk {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
    if stage == "queued" {
        desk.hold(0, "other", &request("python", "b"));
        desk.reserve(0, "run", &execution("python", "a")).unwrap();
        return desk;
    }
    desk.hold(0, "run", &execution("python", "a"));
    desk.reserve(0, "next", &request("python", "b")).unwrap();
    if stage != "starting" {
        desk.started(1_000, "run").unwrap();
    }
    if stage == "stopping" || stage == "stuck" {
        desk.cancel(2_000, "run").unwrap();
        desk.stop_failed(3_000, "run", 1).unwrap();
    }
    if stage == "stuck" {
        for attempt in 2..=STOPS_UNTIL_STUCK {
            desk.stop_failed(3_000, "run", attempt).unwrap();
        }
    }
    if stage == "ended" {
        desk.exited(4_000, "run", &Exit::Code(3)).unwrap();
    }
    desk
}

/// Command to `run` at ten seconds.
fn tell(desk: &mut Desk, command: &str) -> String {
    const NOW: u64 = 10_000;
    let refused = |refusal: Refusal| format!("refused: {refusal}");
    let answer = match command {
        "submit again" => desk.reserve(NOW, "run", &execution("python", "a")),
        "started" => desk.started(NOW, "run"),
        "adopt" => desk.adopt(NOW, "run", &execution("java", "c"), Some(9)),
        "exit 0" => desk.exited(NOW, "run", &Exit::Code(0)),
        "exit 7" => desk.exited(NOW, "run", &Exit::Code(7)),
        "signal 9" => desk.exited(NOW, "run", &Exit::Signal(9)),
        "lost" => desk.exited(NOW, "run", &Exit::Lost),
        "not started" => {
            let reason = "no such file".to_owned();
            desk.exited(NOW, "run", &Exit::NotStarted(reason))
        }
        "stop 1 failed" => desk.stop_failed(NOW, "run", 1),
        "stop 2 failed" => desk.stop_failed(NOW, "run", 2),
        "stop 10 failed" => desk.stop_failed(NOW, "run", 10),
        "stop 11 failed" => desk.stop_failed(NOW, "run", 11),
        "cancel" => desk.cancel(NOW, "run"),
        "force" => desk.force(NOW, "run"),
        "release" => desk.release(NOW, "run", 1),
        "renew" => desk.renew(NOW, "run", 1, None),
        "overdue" => {
            desk.tick(100 * 24 * HOUR);
            return "-".to_owned();
        }
        "resume" => {
            // The server was absent until two hours after the submission.
            desk.bookings.resume(at(2 * HOUR));
            bursar_booking::invariants::check(&desk.bookings).unwrap();
            return "-".to_owned();
        }
        other => panic!("{other} is no command"),
    };
    answer.map_or_else(refused, |reply| format!("{reply:?}"))
}

/// State of an execution in a few words, with its times in seconds.
fn stands(bookings: &Bookings, text: &str) -> String {
    let secs = |at: bursar_units::Instant| format!("{}s", at.ms() / 1_000);
    match bookings.standing(&id(text)) {
        None => "unknown".to_owned(),
        Some(Standing::Queued { until, .. }) => format!("queued until {}", secs(until)),
        Some(Standing::Granted(granted)) => {
            let progress = granted.progress().unwrap();
            let until = granted.until.map(|until| format!(" until {}", secs(until)));
            let cause = progress.stopping.map(|(since, cause)| {
                let failed = match bookings.wanted(&id(text)) {
                    Some(Wanted::Stop { failed }) => failed,
                    other => panic!("{other:?} is wanted of one that is stopped"),
                };
                format!(" since {}, {cause:?}, {failed} failed", secs(since))
            });
            let (until, cause) = (until.unwrap_or_default(), cause.unwrap_or_default());
            format!("{}{until}{cause}", stage_word(progress.stage))
        }
        Some(Standing::Ended(ended)) => {
            let course = ended.course().unwrap();
            let mut words = format!("{} at {}", course.verdict.word(), secs(ended.ended_at()));
            for (what, number) in [(" code", ended.exit_code()), (" signal", course.signal)] {
                words += &number.map(|n| format!("{what} {n}")).unwrap_or_default();
            }
            words += &ended
                .reason()
                .map(|why| format!(" ({why})"))
                .unwrap_or_default();
            words
        }
    }
}

/// Holder of the slot.
fn slot(desk: &Desk) -> &'static str {
    let holds = |text| {
        matches!(
            desk.bookings.standing(&id(text)),
            Some(Standing::Granted(_))
        )
    };
    match (holds("run"), holds("next"), holds("other")) {
        (true, false, false) => "its own",
        (false, true, false) => "next has it",
        (false, false, true) => "other has it",
        (false, false, false) => "nobody has it",
        (true, false, true) => "its own and other's",
        _ => panic!("one slot is held twice"),
    }
}

/// X1, every stage with every command: the answer, the state of `run` after it, and the holder of the
/// slot, which is free only after the process is gone or a forced end.
///
/// Method: the whole table is the text beside this file; `overdue` lets a hundred days pass,
/// `resume` two hours.
#[test]
fn every_stage_takes_every_command_as_the_table_says() {
    let mut table = String::new();
    for stage in STAGES {
        for command in COMMANDS {
            let mut desk = in_stage(stage);
            assert_eq!(standing_word(&desk), stage);
            let answer = tell(&mut desk, command);
            let (stands, slot) = (stands(&desk.bookings, "run"), slot(&desk));
            writeln!(
                table,
                "{stage:<8}  {command:<14}  {answer:<27}  {stands:<40}  {slot}"
            )
            .unwrap();
        }
    }
    assert_eq!(table, include_str!("executions.txt"), "\n{table}");
}

fn standing_word(desk: &Desk) -> &'static str {
    match desk.bookings.standing(&id("run")) {
        Some(Standing::Queued { .. }) => "queued",
        Some(Standing::Granted(granted)) => stage_word(granted.progress().unwrap().stage),
        Some(Standing::Ended(_)) => "ended",
        None => "unknown",
    }
}

/// X5: an unknown execution that runs is charged, even above limits, under the fence that its program
/// was given, and ends like any other. No other booking is granted before there is room.
#[test]
fn one_that_is_found_running_after_a_restore_is_charged_above_limits_and_ends_like_any_other() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 2))]);
    desk.hold(0, "held", &request("python", "b"));
    let found = with_order(sized(request("python", "a"), 3), order());
    assert_eq!(
        desk.adopt(1_000, "run", &found, Some(77)),
        Ok(Reply::Recorded)
    );
    assert_eq!(stands(&desk.bookings, "run"), "running until 3601s");
    assert_eq!(desk.fence_of("run"), Some(77));
    let progress = desk.bookings.executions().next().unwrap().2;
    assert!(progress.is_adopted);
    let over = bursar_booking::invariants::over_limit(&desk.bookings);
    assert_eq!((over[0].in_use, over[0].size), (4, 2));
    // The same submission finds it, another is refused, and neither starts a process.
    assert_eq!(desk.reserve(2_000, "run", &found), Ok(Reply::Repeated));
    let other = execution("python", "b");
    assert!(matches!(
        desk.reserve(2_000, "run", &other),
        Err(Refusal::IdReused { .. })
    ));
    assert_eq!(desk.adopt(2_000, "run", &found, None), Ok(Reply::Repeated));
    assert_eq!(
        desk.reserve(3_000, "next", &request("python", "b")),
        Ok(Reply::Queued)
    );
    desk.release(4_000, "held", 1).unwrap();
    assert_eq!(desk.fence_of("next"), None, "it is still above the limit");
    assert_eq!(desk.cancel(5_000, "run"), Ok(Reply::Stopping));
    desk.exited(6_000, "run", &Exit::Signal(15)).unwrap();
    assert_eq!(stands(&desk.bookings, "run"), "cancelled at 6s signal 15");
    assert_eq!(desk.fence_of("next"), Some(78), "fences go on above it");
    let ended = desk.bookings.ended().next().unwrap();
    assert!(ended.course().unwrap().is_adopted);
    // A fence of another holder is not given out again.
    desk.adopt(7_000, "late", &found, Some(78)).unwrap();
    assert_eq!(desk.fence_of("late"), Some(79));
    assert_eq!(
        desk.adopt(7_000, "plain", &request("python", "a"), None),
        Err(Refusal::NotAnExecution)
    );
}

/// The slot is free in the record that says that the process is gone.
///
/// Method: every command in every stage again; a grant to `next` follows an exit or a force.
#[test]
fn the_slot_is_free_in_the_record_that_says_that_the_process_is_gone() {
    for stage in ["starting", "running", "stopping", "stuck"] {
        for command in COMMANDS {
            let mut desk = in_stage(stage);
            let before = desk.log.len();
            tell(&mut desk, command);
            let events: Vec<&Event> = desk.log[before..].iter().map(|(_, event)| event).collect();
            let is_gone = matches!(
                events.first(),
                Some(
                    Event::Exited { .. }
                        | Event::Ended {
                            end: End::Forced,
                            ..
                        }
                )
            );
            let is_granted = matches!(events.get(1), Some(Event::Granted { .. }));
            assert_eq!(is_gone, is_granted, "{stage}, {command}: {events:?}");
            assert_eq!(is_gone, slot(&desk) != "its own", "{stage}, {command}");
        }
    }
}

#[test]
fn after_ten_stops_that_failed_it_is_stuck_and_keeps_its_slot_until_its_process_is_gone() {
    let mut desk = in_stage("running");
    desk.cancel(2_000, "run").unwrap();
    for attempt in 1..=9 {
        assert_eq!(desk.stop_failed(3_000, "run", attempt), Ok(Reply::Recorded));
        assert_eq!(standing_word(&desk), "stopping", "{attempt}");
        assert_eq!(
            desk.stop_failed(3_000, "run", attempt),
            Ok(Reply::Repeated),
            "an attempt that was counted counts once"
        );
    }
    assert_eq!(desk.stop_failed(4_000, "run", 10), Ok(Reply::Recorded));
    assert_eq!((standing_word(&desk), slot(&desk)), ("stuck", "its own"));
    assert_eq!(
        desk.bookings.wanted(&id("run")),
        Some(Wanted::Stop { failed: 10 }),
        "it is still to be stopped"
    );
    desk.tick(30 * HOUR);
    assert_eq!((standing_word(&desk), slot(&desk)), ("stuck", "its own"));
    desk.reserve(30 * HOUR, "next", &request("python", "b"))
        .unwrap();
    desk.reserve(30 * HOUR, "later", &request("python", "b"))
        .unwrap();
    assert_eq!(
        desk.exited(31 * HOUR, "run", &Exit::Signal(9)),
        Ok(Reply::Ended)
    );
    assert_eq!(verdict(&desk, "run"), Some(Verdict::Cancelled));
    assert_ne!(slot(&desk), "its own");
}

/// Each kind of end frees the slot, and the booking has the result of the work.
#[test]
fn every_way_of_an_execution_to_end_frees_its_slot_and_says_how_it_went() {
    type Way = fn(&mut Desk);
    let ways: [(Way, Verdict, End, Option<Outcome>); 12] = [
        (
            |desk| drop(desk.exited(5_000, "run", &Exit::Code(0))),
            Verdict::Completed,
            End::Released,
            Some(Outcome::Ok),
        ),
        (
            |desk| drop(desk.exited(5_000, "run", &Exit::Code(-1))),
            Verdict::Failed,
            End::Released,
            Some(Outcome::Failed),
        ),
        (
            |desk| drop(desk.exited(5_000, "run", &Exit::Signal(11))),
            Verdict::Failed,
            End::Released,
            Some(Outcome::Failed),
        ),
        (
            |desk| drop(desk.exited(5_000, "run", &Exit::Lost)),
            Verdict::Lost,
            End::Released,
            Some(Outcome::Failed),
        ),
        (
            |desk| {
                let reason = "no such file".to_owned();
                drop(desk.exited(5_000, "run", &Exit::NotStarted(reason)));
            },
            Verdict::Failed,
            End::Released,
            Some(Outcome::Failed),
        ),
        // The start timeout passed, and the process never ran.
        (
            |desk| {
                desk.tick(60_000);
                let reason = "never spawned".to_owned();
                drop(desk.exited(61_000, "run", &Exit::NotStarted(reason)));
            },
            Verdict::Failed,
            End::Released,
            Some(Outcome::Failed),
        ),
        // The start timeout passed, but the process ran and completed before the stop.
        (
            |desk| {
                desk.tick(60_000);
                assert_eq!(desk.started(60_001, "run"), Ok(Reply::Recorded));
                assert_eq!(standing_word(desk), "stopping", "that it ran is only noted");
                drop(desk.exited(61_000, "run", &Exit::Code(0)));
            },
            Verdict::Failed,
            End::Released,
            Some(Outcome::Failed),
        ),
        // The longest run time passed; exit code 0 after that is a timeout, too.
        (
            |desk| {
                desk.started(1_000, "run").unwrap();
                desk.tick(HOUR + 1_000);
                assert_eq!(standing_word(desk), "stopping");
                drop(desk.exited(HOUR + 2_000, "run", &Exit::Code(0)));
            },
            Verdict::TimedOut,
            End::Released,
            Some(Outcome::Failed),
        ),
        // The timeout came first: a later cancel does not change the cause.
        (
            |desk| {
                desk.started(1_000, "run").unwrap();
                desk.tick(HOUR + 1_000);
                assert_eq!(desk.cancel(HOUR + 1_500, "run"), Ok(Reply::Repeated));
                drop(desk.exited(HOUR + 2_000, "run", &Exit::Signal(15)));
            },
            Verdict::TimedOut,
            End::Released,
            Some(Outcome::Failed),
        ),
        (
            |desk| {
                desk.started(1_000, "run").unwrap();
                desk.cancel(2_000, "run").unwrap();
                drop(desk.exited(3_000, "run", &Exit::Signal(15)));
            },
            Verdict::Cancelled,
            End::Released,
            Some(Outcome::Failed),
        ),
        // The result is lost while it is stopped: the cancel has its effect.
        (
            |desk| {
                desk.started(1_000, "run").unwrap();
                desk.cancel(2_000, "run").unwrap();
                drop(desk.exited(3_000, "run", &Exit::Lost));
            },
            Verdict::Cancelled,
            End::Released,
            Some(Outcome::Failed),
        ),
        (
            |desk| drop(desk.force(5_000, "run")),
            Verdict::Lost,
            End::Forced,
            None,
        ),
    ];
    for (number, (way, expected, end, outcome)) in ways.into_iter().enumerate() {
        let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
        desk.hold(0, "run", &execution("python", "a"));
        way(&mut desk);
        let Some(Standing::Ended(ended)) = desk.bookings.standing(&id("run")) else {
            panic!("way {number} did not end it");
        };
        assert_eq!(
            (
                ended.course().unwrap().verdict,
                ended.end(),
                ended.outcome()
            ),
            (expected, end, outcome),
            "way {number}"
        );
        assert_eq!(desk.live(), (0, 0), "way {number}");
        assert_eq!(desk.bookings.wanted(&id("run")), None, "way {number}");
        desk.hold(50 * HOUR, "next", &at_once("python", "a"));
    }
}

#[test]
fn one_that_waits_ends_with_its_wait_or_by_cancel_and_never_ran() {
    let mut desk = in_stage("queued");
    let short = Request {
        wait: Millis::from_secs(5),
        ..request("python", "a")
    };
    let short = with_order(short, order());
    desk.reserve(0, "short", &short).unwrap();
    desk.tick(4_999);
    assert_eq!(verdict(&desk, "short"), None);
    desk.tick(5_000);
    assert_eq!(verdict(&desk, "short"), Some(Verdict::WaitOver));
    desk.cancel(6_000, "run").unwrap();
    assert_eq!(verdict(&desk, "run"), Some(Verdict::Cancelled));
    for text in ["short", "run"] {
        let Some(Standing::Ended(ended)) = desk.bookings.standing(&id(text)) else {
            panic!("{text} has ended");
        };
        let course = ended.course().unwrap();
        assert_eq!((ended.granted(), ended.outcome()), (None, None), "{text}");
        assert_eq!((course.started, course.stopping), (None, None), "{text}");
    }
    assert_eq!(slot(&desk), "other has it");
}

/// In an earlier design a create after its delete ran for ever.
#[test]
fn a_delete_that_overtakes_the_start_leaves_nothing() {
    let mut desk = in_stage("starting");
    assert_eq!(desk.cancel(1, "run"), Ok(Reply::Stopping));
    assert_eq!(
        desk.bookings.wanted(&id("run")),
        Some(Wanted::Stop { failed: 0 }),
        "nothing is to be started any more"
    );
    // The report of the start comes late: it is recorded, and the stop goes on.
    assert_eq!(desk.started(2, "run"), Ok(Reply::Recorded));
    assert_eq!((standing_word(&desk), slot(&desk)), ("stopping", "its own"));
    assert_eq!(desk.exited(3, "run", &Exit::Signal(9)), Ok(Reply::Ended));
    assert_eq!(slot(&desk), "next has it");
    assert_eq!(desk.started(4, "run"), Ok(Reply::AlreadyEnded));
    assert_eq!(desk.bookings.wanted(&id("run")), None);

    // The same while it waits: it is never granted.
    let mut desk = in_stage("queued");
    desk.cancel(1, "run").unwrap();
    desk.force(2, "other").unwrap();
    assert_eq!(slot(&desk), "nobody has it");
    assert_eq!(desk.grants(), ["other"]);
}

#[test]
fn after_an_absence_a_starting_execution_has_its_full_time_and_a_running_one_ten_seconds() {
    let back = 2 * HOUR;
    let mut desk = in_stage("starting");
    desk.bookings.resume(at(back));
    desk.tick(back + 59_999);
    assert_eq!(standing_word(&desk), "starting");
    desk.tick(back + 60_000);
    assert_eq!(standing_word(&desk), "stopping");

    // It is overdue, but a result from the absence goes before a timeout.
    let mut desk = in_stage("running");
    desk.bookings.resume(at(back));
    desk.tick(back + ADOPTION.ms() - 1);
    assert_eq!(standing_word(&desk), "running");
    desk.tick(back + ADOPTION.ms());
    assert_eq!(standing_word(&desk), "stopping");

    // An absence does not extend the time of one that is not overdue.
    let mut desk = in_stage("running");
    desk.bookings.resume(at(HOUR / 2));
    assert_eq!(stands(&desk.bookings, "run"), "running until 3601s");
}

#[test]
fn the_same_submission_twice_hours_apart_gives_one_grant() {
    let mut desk = Desk::new();
    let asked = execution("python", "a");
    desk.hold(0, "run", &asked);
    desk.started(1, "run").unwrap();
    assert_eq!(desk.reserve(HOUR / 2, "run", &asked), Ok(Reply::Repeated));
    desk.exited(HOUR / 2, "run", &Exit::Code(0)).unwrap();
    assert_eq!(desk.reserve(20 * HOUR, "run", &asked), Ok(Reply::Repeated));
    assert_eq!(verdict(&desk, "run"), Some(Verdict::Completed));
    assert_eq!((desk.grants().len(), desk.live()), (1, (0, 0)));
}

#[test]
fn another_order_under_the_same_id_is_refused_and_the_field_is_named() {
    let mut desk = Desk::new();
    let first = order();
    desk.hold(0, "old", &execution("python", "a"));
    desk.exited(1, "old", &Exit::Code(1)).unwrap();
    desk.hold(2, "run", &execution("python", "a"));
    let mut others = [(); 6].map(|()| first.clone());
    others[0].work.0[31] = 8;
    others[1].pids = Some(64);
    others[2].start_timeout = Millis::from_secs(61);
    others[3].max_time = Millis::from_secs(61);
    others[4].grace = Millis::ZERO;
    others[5].retry_of = Some(id("old"));
    let fields = [
        "command",
        "pids",
        "startTimeoutMs",
        "maxTimeMs",
        "graceMs",
        "retryOf",
    ];
    for (other, field) in others.into_iter().zip(fields) {
        let asked = with_order(request("python", "a"), other);
        let refused = Err(Refusal::IdReused { field });
        assert_eq!(desk.reserve(3, "run", &asked), refused);
    }
    let plain = Request {
        ttl: Millis::ZERO,
        ..request("python", "a")
    };
    let refused = Err(Refusal::IdReused { field: "command" });
    assert_eq!(desk.reserve(3, "run", &plain), refused);
    let larger = with_order(sized(request("python", "a"), 2), order());
    let refused = Err(Refusal::IdReused { field: "slots" });
    assert_eq!(desk.reserve(3, "run", &larger), refused);
}

#[test]
fn only_an_execution_that_has_ended_is_tried_again() {
    let mut desk = Desk::new();
    let again = |first: &str| {
        let retry_of = Some(id(first));
        with_order(
            request("python", "a"),
            Order {
                retry_of,
                ..order()
            },
        )
    };
    desk.hold(0, "plain", &request("python", "a"));
    desk.hold(0, "first", &execution("python", "a"));
    for (of, refusal) in [
        ("nobody", Refusal::RetryOfUnknown),
        ("plain", Refusal::RetryOfUnknown),
        ("first", Refusal::RetryOfLive),
        ("second", Refusal::RetryOfUnknown),
    ] {
        assert_eq!(desk.reserve(1, "second", &again(of)), Err(refusal), "{of}");
    }
    let fence = desk.fence_of("plain").unwrap();
    desk.release(2, "plain", fence).unwrap();
    let plain = desk.reserve(2, "second", &again("plain"));
    assert_eq!(plain, Err(Refusal::RetryOfUnknown), "nothing ran under it");
    desk.exited(3, "first", &Exit::Code(1)).unwrap();
    desk.hold(4, "second", &again("first"));
    assert_eq!(
        desk.reserve(5, "second", &again("first")),
        Ok(Reply::Repeated)
    );

    // A queued execution has not ended either.
    let mut desk = in_stage("queued");
    let waiting = desk.reserve(1, "second", &again("run"));
    assert_eq!(waiting, Err(Refusal::RetryOfLive));
}

/// A day later the first one is forgotten: a repeat of its retry is still the same request.
#[test]
fn a_retry_outlives_the_memory_of_what_it_retries() {
    let mut desk = Desk::new();
    desk.hold(0, "first", &execution("python", "a"));
    desk.exited(1, "first", &Exit::Lost).unwrap();
    let retry_of = Some(id("first"));
    let again = with_order(
        request("python", "a"),
        Order {
            retry_of,
            ..order()
        },
    );
    desk.hold(2, "second", &again);
    desk.started(3, "second").unwrap();
    let fence = desk.hold(25 * HOUR, "other", &request("python", "a"));
    desk.release(25 * HOUR + 1, "other", fence).unwrap();
    assert!(desk.bookings.standing(&id("first")).is_none());
    assert_eq!(
        desk.reserve(25 * HOUR + 2, "second", &again),
        Ok(Reply::Repeated)
    );
}

#[test]
fn times_out_of_bounds_are_refused_and_the_field_is_named() {
    const MONTH: u64 = 30 * 24 * HOUR;
    let with = |field: &str, ms: u64| {
        let mut order = order();
        *match field {
            "startTimeoutMs" => &mut order.start_timeout,
            "maxTimeMs" => &mut order.max_time,
            _ => &mut order.grace,
        } = Millis::from_ms(ms);
        with_order(at_once("python", "a"), order)
    };
    for (field, min_ms, max_ms) in [
        ("startTimeoutMs", 1_000, HOUR),
        ("maxTimeMs", 1_000, MONTH),
        ("graceMs", 0, HOUR),
    ] {
        let mut desk = Desk::new();
        desk.hold(0, "least", &with(field, min_ms));
        desk.hold(0, "most", &with(field, max_ms));
        let outside = [Some(max_ms + 1), u64::checked_sub(min_ms, 1)];
        for ms in outside.into_iter().flatten() {
            let limit = None;
            let refused = Err(Refusal::TimeOutOfBounds {
                field,
                min_ms,
                max_ms,
                limit,
            });
            assert_eq!(
                desk.reserve(0, "outside", &with(field, ms)),
                refused,
                "{ms}"
            );
        }
    }
}

/// The longest ttl of a limit is for plain bookings: an execution has no ttl.
#[test]
fn the_longest_ttl_of_a_limit_does_not_bind_an_execution() {
    let strict = bursar_booking::Limit {
        ttl_max: Millis::from_secs(2),
        ..slots_limit("python", "", 10)
    };
    let mut desk = Desk::with_limits(&[("python", strict)]);
    desk.hold(0, "run", &execution("python", "a"));
    desk.tick(59_999);
    assert_eq!(standing_word(&desk), "starting");
}

#[test]
fn reports_of_the_executor_about_a_plain_booking_are_refused() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
    let fence = desk.hold(0, "plain", &request("python", "a"));
    let no = || Err(Refusal::NotAnExecution);
    assert_eq!(desk.started(1, "plain"), no());
    assert_eq!(desk.exited(1, "plain", &Exit::Code(0)), no());
    assert_eq!(desk.stop_failed(1, "plain", 1), no());
    assert_eq!(desk.started(1, "nobody"), Err(Refusal::NotFound));
    assert_eq!(desk.bookings.wanted(&id("plain")), None);
    assert_eq!(desk.bookings.all_wanted().count(), 0);
    desk.release(2, "plain", fence).unwrap();
    assert_eq!(
        desk.exited(3, "plain", &Exit::Code(0)),
        Ok(Reply::AlreadyEnded)
    );
}

/// An earlier design never freed the row of a successful run: run 101 was refused.
#[test]
fn a_hundred_and_thirty_executions_one_after_another_all_finish_under_a_limit_of_a_hundred() {
    let mut desk = Desk::new();
    for number in 0..130 {
        let text = format!("run-{number}");
        desk.hold(number * 10, &text, &at_once_execution());
        desk.started(number * 10 + 1, &text).unwrap();
        let code = i32::try_from(number % 3).unwrap();
        desk.exited(number * 10 + 2, &text, &Exit::Code(code))
            .unwrap();
    }
    assert_eq!(desk.live(), (0, 0));
}

/// A normal execution takes three records with one event each (X1).
#[test]
fn a_normal_life_is_submitted_started_and_exited() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
    desk.log.clear();
    desk.hold(0, "run", &at_once_execution());
    desk.started(1, "run").unwrap();
    desk.exited(2, "run", &Exit::Code(0)).unwrap();
    let kinds: Vec<&str> = desk
        .log
        .iter()
        .map(|(_, event)| match event {
            Event::Submitted(submission) if submission.booking.fence.is_some() => "submitted",
            Event::Started { .. } => "started",
            Event::Exited { .. } => "exited",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["submitted", "started", "exited"]);
}

/// Thousands become overdue at once: a record has 256 of them, each at its own time.
#[test]
fn a_record_holds_at_most_256_stops() {
    let mut desk = Desk::with_limits(&[("default", slots_limit("each", "", 1_000))]);
    for number in 0..600 {
        desk.fill(0, &format!("run-{number}"), &execution("python", "a"));
    }
    let mut sizes = Vec::new();
    while desk.bookings.due(at(HOUR)).next().is_some() {
        let before = desk.log.len();
        desk.tick_once(HOUR);
        assert!(
            desk.log[before..]
                .iter()
                .all(|(when, _)| *when == at(60_000))
        );
        sizes.push(desk.log.len() - before);
    }
    assert_eq!((sizes, desk.live()), (vec![256, 256, 88], (600, 0)));
    assert_eq!(desk.bookings.all_wanted().count(), 600);
    assert!(
        desk.bookings
            .all_wanted()
            .all(|(_, wanted)| wanted == Wanted::Stop { failed: 0 })
    );
}

fn at_once_execution() -> Asked {
    with_order(at_once("python", "a"), order())
}

fn verdict(desk: &Desk, text: &str) -> Option<Verdict> {
    match desk.bookings.standing(&id(text)) {
        Some(Standing::Ended(ended)) => Some(ended.course()?.verdict),
        _ => None,
    }
}
