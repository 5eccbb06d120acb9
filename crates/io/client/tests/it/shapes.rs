//! JSON of the API.

use bursar_client::api::instant;
use bursar_client::api::{
    Allocation, AllocationStatus, Batch, BatchAnswer, BatchResult, Booking, BookingRequest,
    Explanation, ListAnswer, Operation, State, StreamEvent, WaitsFor,
};
use bursar_client::{Problem, ids, nearest};
use bursar_units::{BookingId, INTEGER_MAX, Instant, Label};
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[test]
fn only_a_near_name_is_suggested() {
    let names = ["python", "pypi", "rust"];
    assert_eq!(nearest("pyhton", names), Some("python"));
    assert_eq!(nearest("haskell", names), None);
    assert_eq!(nearest("a", ["b"]), None);
}

/// Reads a value as a type and writes it again; the result must be equal.
fn survives<T: DeserializeOwned + Serialize>(shown: &Value) -> T {
    let typed: T = serde_json::from_value(shown.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), shown);
    typed
}

#[test]
fn a_reservation_and_its_answer_are_read_and_written() {
    let request: BookingRequest = survives(&json!({
        "class": "python", "tenant": "acme", "slots": 1, "ttlMs": 60000, "waitMs": 0
    }));
    assert_eq!((request.slots, request.wait_ms), (1, Some(0)));
    let granted: Booking = survives(&json!({
        "id": "job-9917", "state": "granted", "fence": 8812, "record": 48102,
        "expiresAt": "2026-11-16T10:01:12.000Z"
    }));
    assert_eq!(granted.expires_at.map(Instant::ms), Some(1_794_823_272_000));
    survives::<Booking>(&json!({
        "id": "job-9917", "state": "queued", "ahead": 3, "estimateMs": 40000,
        "restsOn": "last 200 executions"
    }));
    let problem: Problem = survives(&json!({
        "type": "/problems/over-limit", "title": "No slot is free", "status": 429,
        "code": "over-limit",
        "detail": "limit `python` is 100, in use 100, waiting 3",
        "limits": [{"name": "python", "dimension": "slots", "size": 100, "inUse": 100, "waiting": 3}],
        "holders": [{"tenant": "acme", "slots": 61}, {"tenant": "zeta", "slots": 30}],
        "retryAfterMs": 12000, "changes": ["send waitMs", "raise limit python"], "record": 48101
    }));
    assert_eq!(problem.title, problem.code.page().title);
}

#[test]
fn a_batch_and_its_answer_are_read_and_written() {
    let batch: Batch = serde_json::from_value(json!({"operations": [
        {"op": "release", "id": "job-9917", "fence": 8812, "outcome": "ok"},
        {"op": "reserve", "id": "job-9918", "class": "python", "tenant": "acme"}
    ]}))
    .unwrap();
    assert!(
        matches!(&batch.operations[1], Operation::Reserve { request, .. } if request.slots == 1)
    );
    let again: Batch = serde_json::from_str(&serde_json::to_string(&batch).unwrap()).unwrap();
    assert_eq!(again, batch);
    survives::<BatchAnswer>(&json!({
        "results": [
            {"id": "job-9917", "status": 200, "state": "ended", "end": "released", "applied": true},
            {"id": "job-9918", "status": 201, "state": "granted", "fence": 8813}
        ],
        "record": 48103
    }));
}

#[test]
fn a_refused_operation_of_a_batch_is_its_problem_with_its_id() {
    let answer: BatchAnswer = survives(&json!({
        "results": [{
            "id": "job-1", "type": "/problems/stale-fence", "title": "The booking is no longer yours",
            "status": 409, "code": "stale-fence", "detail": "it expired", "end": "expired"
        }],
        "record": 7
    }));
    assert!(
        matches!(&answer.results[0], BatchResult::Refused(refused) if refused.problem.status == 409)
    );
}

#[test]
fn an_explanation_ignores_the_parts_of_other_planes() {
    let explanation: Explanation = serde_json::from_value(json!({
        "object": {"kind": "Run", "namespace": "speech", "name": "asr-xl"},
        "headline": "speech/asr-xl waits for room", "state": "waiting", "waitsFor": "room",
        "reason": "NoRoom", "since": "2026-11-16T10:00:00.000Z",
        "why": {"needed": 24, "free": 0, "where": {"domain": "rack-a"}},
        "when": {"at": "2026-11-17T09:00:00.000Z", "latest": "2026-11-17T09:10:00.000Z"},
        "cut": null, "changes": ["ask for fewer GPUs"], "record": 48101
    }))
    .unwrap();
    assert_eq!(explanation.waits_for, Some(WaitsFor::Room));
    survives::<Explanation>(&json!({
        "object": {"kind": "Booking", "name": "job-1"},
        "headline": "job-1 waits for room: 100/100 slots of python are in use",
        "state": "queued", "waitsFor": "room", "reason": "LimitFull",
        "since": "2026-11-16T10:00:00.000Z",
        "why": {"ahead": 3,
                "limits": [{"name": "python", "dimension": "slots", "size": 100, "inUse": 100, "waiting": 3}],
                "holders": [{"tenant": "acme", "slots": 61}, {"others": 7, "slots": 9}]},
        "when": {"at": "2026-11-16T10:00:40.000Z", "restsOn": [{"basis": "last 200 executions"}]},
        "who": [{"tenant": "acme", "slots": 1, "limits": ["python"]}],
        "changes": ["raise limit python"], "record": 48101
    }));
}

#[test]
fn an_event_is_read() {
    survives::<StreamEvent>(&json!({
        "at": "2026-11-17T09:00:06.902Z", "object": "booking/job-1",
        "summary": "job-1 was granted", "data": {"fence": 8812}
    }));
}

#[test]
fn a_list_is_read() {
    let list: ListAnswer<Booking> = survives(&json!({
        "items": [{"id": "a", "state": "granted"}], "nextCursor": "b", "record": 3
    }));
    assert_eq!(list.next_cursor.as_deref(), Some("b"));
}

#[test]
fn requests_refuse_unknown_fields_and_answers_ignore_them() {
    assert!(serde_json::from_value::<BookingRequest>(json!({"class": "a", "slot": 1})).is_err());
    let answer = json!({"id": "a", "state": "granted", "colour": "green"});
    assert!(serde_json::from_value::<Booking>(answer).is_ok());
}

#[test]
fn integers_end_at_two_to_the_fifty_third() {
    let asking = |slots: u64| {
        serde_json::from_value::<BookingRequest>(json!({"class": "a", "slots": slots})).is_ok()
    };
    assert!(asking(INTEGER_MAX) && !asking(INTEGER_MAX + 1));
}

#[test]
fn operations_refuse_the_fields_of_others_and_need_their_own() {
    for wrong in [
        json!({"op": "cancel", "id": "a", "fence": 1}),
        json!({"op": "renew", "id": "a"}),
        json!({"op": "reserve", "id": "a"}),
        json!({"op": "reserve", "id": "a", "class": "c", "fence": 1}),
        json!({"op": "steal", "id": "a"}),
    ] {
        assert!(
            serde_json::from_value::<Operation>(wrong.clone()).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn an_allocation_is_active_while_granted_and_released_after_any_end() {
    let mut booking = Booking::new(BookingId::new("job-1").unwrap(), State::Granted);
    booking.class = Some(Label::new("python").unwrap());
    let status = |booking: &Booking| Allocation::of(booking).map(|allocation| allocation.status);
    assert_eq!(status(&booking), Some(AllocationStatus::Active));
    assert_eq!(
        Allocation::of(&booking).unwrap().execution_id.as_str(),
        "job-1"
    );
    booking.state = State::Ended;
    assert_eq!(status(&booking), Some(AllocationStatus::Released));
    booking.state = State::Queued;
    assert_eq!(status(&booking), None);
}

#[test]
fn instants_are_utc_with_milliseconds() {
    assert_eq!(
        instant::format(Instant::from_ms(0)),
        "1970-01-01T00:00:00.000Z"
    );
    assert_eq!(
        instant::format(Instant::from_ms(1_794_823_272_005)),
        "2026-11-16T10:01:12.005Z"
    );
    assert_eq!(
        instant::format(Instant::from_ms(INTEGER_MAX)),
        "9999-12-30T22:00:00.999Z"
    );
    assert_eq!(
        instant::parse("2026-11-16T11:01:12.005+01:00")
            .unwrap()
            .ms(),
        1_794_823_272_005
    );
    for wrong in [
        "",
        "today",
        "2026-11-16",
        "2026-11-16T10:01:12",
        "1969-12-31T23:59:59Z",
    ] {
        assert!(instant::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn ids_end_in_a_uuid_of_version_seven() {
    let (one, other) = (ids::new("exec").unwrap(), ids::new("exec").unwrap());
    assert!(one.as_str().starts_with("exec-") && one.made_at().is_some() && one != other);
    assert!(ids::new("no spaces").is_err());
}

fn operations() -> impl Strategy<Value = Operation> {
    let id = "[A-Za-z0-9._:-]{1,20}".prop_map(|text| BookingId::new(&text).unwrap());
    let label = "[a-zäöü0-9:-]{1,10}".prop_map(|text| Label::new(&text).unwrap());
    let request =
        (label, 1..=INTEGER_MAX, any::<Option<u16>>()).prop_map(|(class, slots, wait)| {
            let wait_ms = wait.map(u64::from);
            BookingRequest {
                slots,
                wait_ms,
                ..BookingRequest::new(class)
            }
        });
    (
        id,
        request,
        prop_oneof![Just(0_u8), Just(1), Just(2)],
        0..=INTEGER_MAX,
    )
        .prop_map(|(id, request, kind, fence)| {
            use bursar_client::api::{ReleaseRequest, RenewRequest};
            match kind {
                0 => Operation::Reserve { id, request },
                1 => Operation::Renew {
                    id,
                    request: RenewRequest {
                        fence,
                        ttl_ms: request.wait_ms,
                    },
                },
                _ => {
                    let fence = Some(fence);
                    Operation::Release {
                        id,
                        request: ReleaseRequest {
                            fence,
                            ..Default::default()
                        },
                    }
                }
            }
        })
}

proptest! {
    #[test]
    fn operations_survive_the_wire(operation in operations()) {
        let text = serde_json::to_string(&operation).unwrap();
        prop_assert_eq!(serde_json::from_str::<Operation>(&text).unwrap(), operation);
    }

    #[test]
    fn instants_survive_the_wire(ms in 0_u64..253_402_207_200_999) {
        let text = instant::format(Instant::from_ms(ms));
        prop_assert_eq!(instant::parse(&text).unwrap().ms(), ms);
    }
}
