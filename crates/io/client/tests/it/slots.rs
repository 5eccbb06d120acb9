//! Slots are renewed while they are held and released afterwards.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_client::Code;
use bursar_client::api::{AllocationStatus, BookingRequest, End, Outcome};
use bursar_client::client::Client;
use bursar_client::ids;
use bursar_client::repository::{Error, NewAllocation, Renewal, ResourceAllocationRepository};
use bursar_client::slot::{self, Asked, Lost, Slot};
use bursar_units::Label;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::fake::{Log, Reply, granted, problem, script, within};

const TTL: Duration = Duration::from_secs(30);

fn request() -> BookingRequest {
    let ttl_ms = Some(u64::try_from(TTL.as_millis()).unwrap());
    BookingRequest {
        ttl_ms,
        ..BookingRequest::new(Label::new("python").unwrap())
    }
}

fn count(log: &Log, word: &str) -> usize {
    log.lines()
        .iter()
        .filter(|line| line.ends_with(word))
        .count()
}

async fn hold(client: &Client) -> Slot {
    Slot::reserve(client, &request()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_renewed_at_a_third_of_its_ttl_while_it_is_held() {
    let (client, log) = within(|_| granted("a", 7));
    let slot = hold(&client).await;
    assert!(slot.id().as_str().starts_with("slot-") && slot.fence() == 7);
    assert!(timeout(TTL * 10, slot.lost()).await.is_err());
    let renewals = count(&log, "/renew");
    assert!((30..=37).contains(&renewals), "{renewals}");
    slot.release(Outcome::Failed, Some(3)).await.unwrap();
    let seen = log.all();
    let release = seen.last().unwrap();
    assert_eq!(
        release.body,
        json!({"fence": 7, "outcome": "failed", "exitCode": 3})
    );
    sleep(TTL).await;
    assert_eq!(
        (count(&log, "/renew"), count(&log, "/release")),
        (renewals, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_holder_notices_that_the_server_has_ended_the_booking() {
    for code in [Code::StaleFence, Code::NotFound] {
        let (client, _) = within(script([granted("a", 7), problem(code)]));
        let slot = hold(&client).await;
        let before = Instant::now();
        let lost = slot.lost().await;
        assert!(matches!(lost, Lost::Fenced { .. }), "{lost}");
        assert!(before.elapsed() <= TTL / 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_loses_the_slot_at_its_deadline() {
    for reply in [Reply::Vanish, Reply::Hang, problem(Code::Unavailable)] {
        let (client, _) = within(script([granted("a", 7), reply.clone()]));
        let slot = hold(&client).await;
        let before = Instant::now();
        let lost = slot.lost().await;
        let Lost::Unrenewed { cause, .. } = &lost else {
            panic!("{lost}");
        };
        assert!(cause.is_some(), "{lost}");
        assert_eq!(before.elapsed().as_millis(), TTL.as_millis(), "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_ttl_loses_nothing() {
    let calls = Mutex::new(0);
    let (client, _) = within(move |_| {
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        if *calls % 9 == 2 {
            problem(Code::Internal)
        } else {
            granted("a", 7)
        }
    });
    let slot = hold(&client).await;
    assert!(timeout(TTL * 5, slot.lost()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_slot_is_released() {
    let (client, log) = within(|_| granted("a", 7));
    drop(hold(&client).await);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(log.all().last().unwrap().body, json!({"fence": 7}));
    assert_eq!((count(&log, "/release"), count(&log, "/renew")), (1, 0));
}

/// A server that grants and does not answer between two times; with the number of answered releases.
fn away_between(from: Duration, to: Duration) -> (Client, Log, Arc<AtomicU32>) {
    let began = Instant::now();
    let released = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&released);
    let (client, log) = within(move |seen| {
        let is_away = (from..to).contains(&began.elapsed());
        match (is_away, seen.line.ends_with("/release")) {
            (true, _) => Reply::Vanish,
            (false, true) => {
                count.fetch_add(1, Ordering::SeqCst);
                Reply::Json(200, json!({"id": "a", "state": "ended"}))
            }
            (false, false) => granted("a", 7),
        }
    });
    (client, log, released)
}

/// Method: three cases: no release succeeds until the deadline; the runtime ends before; there is no
/// runtime.
#[test]
fn a_dropped_slot_that_was_not_released_is_logged() {
    for (how, is_away, cause) in [
        ("deadline", true, "the connection was reset"),
        ("runtime ends", true, "the runtime has ended"),
        ("no runtime", true, "the runtime has ended"),
        ("given back", false, ""),
    ] {
        let said = Said::default();
        let _listens = tracing::subscriber::set_default(said.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let slot = runtime.block_on(async {
            let to = if is_away { TTL * 9 } else { Duration::ZERO };
            let (client, _, _) = away_between(Duration::from_secs(1), to);
            let slot = hold(&client).await;
            sleep(Duration::from_secs(1)).await;
            if how == "no runtime" {
                return Some(slot);
            }
            drop(slot);
            let is_short = how == "runtime ends";
            sleep(if is_short { TTL / 3 } else { TTL * 2 }).await;
            None
        });
        drop(slot);
        drop(runtime);
        let said = said.0.lock().unwrap().join("");
        if is_away {
            assert!(said.contains("slot.not-given-back"), "{how}: {said}");
            assert!(
                said.contains(cause) && said.contains("ends=20"),
                "{how}: {said}"
            );
        } else {
            assert_eq!(said, "", "{how}");
        }
    }
}

/// Collects the warnings of the log.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Said {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(
            &mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                write!(line, "{field}={value:?} ").unwrap();
            },
        );
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let lines = causes.flat_map(|cause| [cause.to_string(), "\n".to_owned()]);
    lines.collect()
}

/// Method: the deadline passes while the server is away, with and without a chance for the renewing
/// task to notice, and with different answers to the release.
#[tokio::test(start_paused = true)]
async fn the_release_of_an_expired_slot_is_an_error_for_any_answer() {
    let never = Duration::from_hours(1);
    for back in [TTL + Duration::from_secs(1), never] {
        let (client, log, _) = away_between(Duration::from_secs(1), back);
        let slot = hold(&client).await;
        sleep(TTL + Duration::from_secs(1)).await;
        let error = slot.release(Outcome::Ok, None).await.unwrap_err();
        assert!(matches!(error, slot::Error::Fenced { .. }), "{error}");
        let text = chain(&error);
        assert!(text.contains("no renewal has succeeded since 20"), "{text}");
        assert!(text.contains("stopped answering"), "{text}");
        assert!(text.contains("the connection was reset"), "{text}");
        assert!(count(&log, "/release") > 0, "it is given back all the same");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_with_an_expired_token_is_an_error_with_that_cause() {
    let (client, log) = within(script([granted("a", 7), problem(Code::Unauthenticated)]));
    let slot = hold(&client).await;
    assert!(matches!(slot.lost().await, Lost::Unrenewed { .. }));
    let error = slot.release(Outcome::Ok, None).await.unwrap_err();
    assert!(matches!(error, slot::Error::Fenced { .. }), "{error}");
    assert!(
        chain(&error).ends_with("is over\nno\n"),
        "{}",
        chain(&error)
    );
    assert_eq!(count(&log, "/release"), 1, "a refusal is not repeated");
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_forced_booking_is_an_error() {
    let forced = json!({"id": "a", "state": "ended", "end": "forced", "applied": false,
                        "reason": "maintenance"});
    for (answer, words) in [
        (Reply::Json(200, forced), "forced, maintenance"),
        (problem(Code::StaleFence), "no"),
        (problem(Code::NotFound), "no"),
    ] {
        let (client, log) = within(script([granted("a", 7), answer]));
        let slot = hold(&client).await;
        let error = slot.release(Outcome::Ok, None).await.unwrap_err();
        assert!(matches!(error, slot::Error::Fenced { .. }), "{error}");
        let text = chain(&error);
        assert!(
            text.ends_with(&format!("has ended it: {words}\n")),
            "{text}"
        );
        sleep(TTL).await;
        assert_eq!(count(&log, "/release"), 1, "an answer ends the repetition");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_survives_a_restart_of_the_server() {
    let away = Duration::from_secs(8);
    let (client, log, _) = away_between(Duration::from_millis(1), away);
    let slot = hold(&client).await;
    sleep(Duration::from_millis(1)).await;
    slot.release(Outcome::Failed, Some(3)).await.unwrap();
    let body = json!({"fence": 7, "outcome": "failed", "exitCode": 3});
    let releases: Vec<_> = log
        .all()
        .into_iter()
        .filter(|seen| seen.line.ends_with("/release"))
        .collect();
    assert!(releases.len() > 2, "{releases:?}");
    assert!(releases.iter().all(|seen| seen.body == body));
}

/// A release without an answer returns after ten seconds and is repeated until the deadline.
#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_in_the_background_until_the_deadline() {
    let never = Duration::from_hours(1);
    for (back, times) in [(Duration::from_secs(20), 1), (never, 0)] {
        let (client, log, released) = away_between(Duration::from_millis(1), back);
        let slot = hold(&client).await;
        sleep(Duration::from_millis(1)).await;
        let began = Instant::now();
        let error = slot.release(Outcome::Ok, None).await.unwrap_err();
        assert!(began.elapsed() <= slot::RELEASE_WAIT);
        assert!(matches!(error, slot::Error::NotGivenBack { .. }), "{error}");
        let text = chain(&error);
        assert!(text.contains("its ttl ends it at 20"), "{text}");
        assert!(text.contains("the connection was reset"), "{text}");
        sleep(TTL).await;
        let tried = count(&log, "/release");
        let last = log.all().pop().unwrap();
        assert_eq!(last.body, json!({"fence": 7, "outcome": "ok"}));
        sleep(TTL * 10).await;
        assert_eq!(count(&log, "/release"), tried, "it has an end");
        assert_eq!(released.load(Ordering::SeqCst), times);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_slot_and_a_dropped_release_are_released_after_a_restart() {
    for is_released in [false, true] {
        let back = Duration::from_secs(20);
        let (client, log, released) = away_between(Duration::from_millis(1), back);
        let slot = hold(&client).await;
        sleep(Duration::from_millis(1)).await;
        let outcome = if is_released {
            let release = slot.release(Outcome::Failed, None);
            assert!(timeout(Duration::from_secs(1), release).await.is_err());
            json!({"fence": 7, "outcome": "failed"})
        } else {
            drop(slot);
            json!({"fence": 7})
        };
        sleep(TTL).await;
        let last = log.all().pop().unwrap();
        assert!(last.line.ends_with("/release"), "{}", last.line);
        assert_eq!(last.body, outcome);
        assert_eq!(released.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_slot_is_renewed_at_its_grant() {
    let queued = Reply::Json(202, json!({"id": "a", "state": "queued"}));
    let (client, log) = within(script([queued.clone(), queued, granted("a", 7)]));
    let slot = hold(&client).await;
    let lines = log.lines();
    assert!(
        lines[1].ends_with("?wait=30s") && lines[2].ends_with("?wait=30s"),
        "{lines:?}"
    );
    assert!(lines[3].ends_with("/renew"));
    drop(slot);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_leaves_the_queue_or_releases() {
    for (answer, calls) in [
        (Reply::Json(200, json!({"id": "a", "state": "ended"})), 0),
        (problem(Code::Conflict), 1),
    ] {
        let (client, log) = within(move |seen| {
            if seen.line.ends_with("/cancel") {
                answer.clone()
            } else if seen.line.starts_with("PUT") {
                Reply::Json(202, json!({"id": "a", "state": "queued"}))
            } else if seen.line.contains("wait") {
                Reply::Hang
            } else {
                granted("a", 7)
            }
        });
        let request = request();
        let waiting = Slot::reserve(&client, &request);
        assert!(timeout(Duration::from_secs(5), waiting).await.is_err());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(
            (count(&log, "/cancel"), count(&log, "/release")),
            (1, calls)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_returned_and_nothing_is_undone() {
    let (client, log) = within(|_| problem(Code::OverLimit));
    assert!(matches!(
        Slot::reserve(&client, &request()).await,
        Err(slot::Error::Client(_))
    ));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(log.all().len(), 1);
    let over = json!({"id": "a", "state": "ended", "end": "wait-over"});
    let (client, _) = within(move |_| Reply::Json(200, over.clone()));
    let error = Slot::reserve(&client, &request()).await.unwrap_err();
    assert!(matches!(
        error,
        slot::Error::NotGranted {
            end: Some(End::WaitOver),
            ..
        }
    ));
    assert!(error.to_string().ends_with("was not granted: wait-over"));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_client_sees_the_queue_and_can_leave_it() {
    let (client, log) = within(|seen| {
        let ahead = if seen.line.starts_with("PUT") { 3 } else { 2 };
        let state = if seen.line.ends_with("/cancel") {
            "ended"
        } else {
            "queued"
        };
        Reply::Json(200, json!({"id": "a", "state": state, "ahead": ahead}))
    });
    let id = ids::new("job").unwrap();
    let mut asked = Asked::new(&client, &id, &request()).await.unwrap();
    assert_eq!(asked.booking().ahead, Some(3));
    let looked = asked.look(Duration::from_secs(2)).await.unwrap();
    assert_eq!(looked.ahead, Some(2));
    asked.leave().await.unwrap();
    assert_eq!(
        log.lines().last().unwrap(),
        &format!("POST /v1/bookings/{id}/cancel")
    );
    sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&log, "/cancel"), 1);
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_only_a_booking_of_a_new_id_is_released() {
    for reply in [Reply::Vanish, Reply::Hang, problem(Code::OutcomeUnknown)] {
        let (client, log) = within(move |seen| {
            if seen.line.starts_with("PUT") {
                reply.clone()
            } else if seen.line.ends_with("/cancel") {
                problem(Code::Conflict)
            } else {
                granted("a", 7)
            }
        });
        let (id, request) = (ids::new("job").unwrap(), request());
        // The wait is over too early, or the outcome is unknown.
        for patience in [Duration::from_secs(1), Duration::from_mins(2)] {
            let waiting = Slot::reserve_as(&client, &id, &request);
            assert!(!matches!(timeout(patience, waiting).await, Ok(Ok(_))));
            sleep(Duration::from_secs(1)).await;
        }
        let lines = log.lines();
        assert!(
            lines.iter().all(|line| line.starts_with("PUT")),
            "{lines:?}"
        );
        assert!(Slot::reserve(&client, &request).await.is_err());
        sleep(Duration::from_secs(1)).await;
        assert_eq!((count(&log, "/cancel"), count(&log, "/release")), (1, 1));
    }
}

/// A server that is away for `length` after its first answer, and then grants.
fn away_for(length: Duration) -> Client {
    let began = Instant::now();
    let (client, _) = within(move |seen| {
        if seen.line.starts_with("PUT") {
            Reply::Json(202, json!({"id": "a", "state": "queued"}))
        } else if began.elapsed() < length {
            Reply::Vanish
        } else {
            granted("a", 7)
        }
    });
    client
}

#[tokio::test(start_paused = true)]
async fn a_wait_survives_an_outage_as_long_as_the_ttl() {
    assert_eq!(hold(&away_for(TTL / 6 * 5)).await.fence(), 7);
    let (client, began) = (away_for(TTL * 10), Instant::now());
    let error = Slot::reserve(&client, &request()).await.unwrap_err();
    assert!(matches!(error, slot::Error::Client(_)), "{error}");
    assert!(
        (TTL..TTL * 2).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
}

fn new_allocation() -> NewAllocation<'static> {
    NewAllocation {
        allocation_id: "exec-1",
        execution_id: "exec-1",
        language: "python",
        cpu_request: "100m",
        memory_request: "128Mi",
        cpu_limit: "500m",
        memory_limit: "256Mi",
    }
}

fn granted_allocation() -> Reply {
    let granted = json!({"id": "exec-1", "state": "granted", "fence": 7, "class": "python"});
    Reply::Json(200, granted)
}

/// A server that holds one booking.
fn one_booking() -> (Client, Log) {
    let state = Arc::new(Mutex::new("none"));
    within(move |seen| {
        let mut state = state.lock().unwrap();
        if seen.line.starts_with("PUT") {
            *state = "granted";
        } else if seen.line.ends_with("/release") {
            *state = "ended";
        } else if seen.line.contains("?class=") {
            let item = json!({"id": "exec-1", "state": "granted"});
            return Reply::Json(200, json!({"items": [item], "record": 1}));
        }
        Reply::Json(
            200,
            json!({
                "id": "exec-1", "state": *state, "fence": 7, "class": "python", "cpuMilli": 100,
                "memoryBytes": 134_217_728, "grantedAt": "2026-11-16T10:00:00.000Z"
            }),
        )
    })
}

#[tokio::test(start_paused = true)]
async fn the_repository_has_its_three_operations() {
    for renewal in [Renewal::Background, Renewal::Day] {
        let (client, log) = one_booking();
        let repository = ResourceAllocationRepository::new(client, None, renewal);
        let allocation = repository
            .create_allocation(&new_allocation())
            .await
            .unwrap();
        assert_eq!(allocation.status, AllocationStatus::Active);
        assert_eq!(allocation.allocated_at.unwrap().ms(), 1_794_823_200_000);
        let body = &log.all()[0].body;
        assert_eq!(
            (&body["cpuMilli"], &body["cpuLimitMilli"]),
            (&json!(100), &json!(500))
        );
        assert_eq!(
            (&body["waitMs"], &body["executionId"]),
            (&json!(0), &json!(null))
        );
        let day = renewal == Renewal::Day;
        assert_eq!(
            body["ttlMs"],
            if day { json!(86_400_000) } else { json!(null) }
        );
        assert_eq!(repository.count_active("python").await.unwrap(), 1);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(count(&log, "/renew") > 0, !day);
        let released = repository.release_allocation("exec-1").await.unwrap();
        assert_eq!(released.status, AllocationStatus::Released);
        // A second release has no effect.
        repository.release_allocation("exec-1").await.unwrap();
        assert_eq!(count(&log, "/release"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_lost_allocation_is_an_error() {
    let began = Instant::now();
    let (client, _) = within(move |_| {
        if began.elapsed() < Duration::from_secs(1) {
            granted_allocation()
        } else {
            Reply::Vanish
        }
    });
    let repository = ResourceAllocationRepository::new(client, None, Renewal::Background);
    let new = new_allocation();
    repository.create_allocation(&new).await.unwrap();
    sleep(Duration::from_mins(2)).await;
    let error = repository.release_allocation("exec-1").await.unwrap_err();
    let is_fenced = matches!(error, Error::Slot(slot::Error::Fenced { .. }));
    assert!(is_fenced, "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_release_of_an_allocation_survives_a_restart() {
    for renewal in [Renewal::Background, Renewal::Day] {
        let began = Instant::now();
        let (client, log) = within(move |_| {
            if (5..13).contains(&began.elapsed().as_secs()) {
                Reply::Vanish
            } else {
                granted_allocation()
            }
        });
        let repository = ResourceAllocationRepository::new(client, None, renewal);
        let new = new_allocation();
        repository.create_allocation(&new).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        repository.release_allocation("exec-1").await.unwrap();
        assert!(count(&log, "/release") > 0);
    }
}

/// Method: the server goes away right after it has answered the release.
#[tokio::test(start_paused = true)]
async fn a_released_allocation_is_returned_as_released() {
    for renewal in [Renewal::Background, Renewal::Day] {
        let left = Mutex::new(None);
        let (client, log) = within(move |seen| {
            let mut left = left.lock().unwrap();
            if seen.line.ends_with("/release") {
                *left = Some(Instant::now());
            } else if left.is_some_and(|left| left.elapsed() < Duration::from_secs(3)) {
                return Reply::Vanish;
            }
            granted_allocation()
        });
        let repository = ResourceAllocationRepository::new(client, None, renewal);
        let new = new_allocation();
        repository.create_allocation(&new).await.unwrap();
        repository.release_allocation("exec-1").await.unwrap();
        assert_eq!(count(&log, "/release"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_limit_has_the_message_of_the_repository() {
    let (client, _) = within(|_| problem(Code::OverLimit));
    let repository = ResourceAllocationRepository::new(client, None, Renewal::Background);
    let error = repository
        .create_allocation(&new_allocation())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Refused(_)));
    assert!(
        error.to_string().starts_with("Resource limit exceeded"),
        "{error}"
    );
    let wrong = NewAllocation {
        cpu_limit: "much",
        ..new_allocation()
    };
    let error = repository.create_allocation(&wrong).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cpu_limit: `much` is not a quantity"),
        "{error}"
    );
}
