//! Programs, arguments and environments are never revealed (L13).

use std::time::Duration;

use axum::body::Body;
use bursar_engine::booking::execution::Exit;
use http::Request;
use http_body_util::BodyExt as _;

use super::{World, cancel, exited, put, started, world};
use crate::world::operator;

const SECRETS: [&str; 4] = [
    "s3cret-value",
    "s3cret-arg",
    "s3cret-command",
    "s3cret-place",
];
const BODY: &str = r#"{"class":"python","tenant":"acme","command":"/bin/s3cret-command",
    "args":["--token=s3cret-arg"],"env":{"TOKEN":"s3cret-value"},"directory":"/s3cret-place"}"#;

#[track_caller]
fn reveals_nothing(what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{what} tells {secret}: {text}");
    }
}

/// Reads the stream until the last execution has ended.
async fn events(world: &World) -> String {
    let request = Request::get("/v1/events?from=0&kinds=booking,execution");
    let request = request.body(Body::empty()).unwrap();
    let answer = tower::ServiceExt::oneshot(world.router(operator()), request).await;
    let (mut body, mut text) = (answer.unwrap().into_body(), String::new());
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(Duration::from_secs(1), body.frame()).await
    {
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    text
}

#[tokio::test(start_paused = true)]
async fn no_answer_record_event_or_metric_reveals_the_program() {
    let (world, paper) = world();
    for id in ["done", "stopped"] {
        reveals_nothing("a submission", &put(&world, id, BODY).await.text());
        reveals_nothing("a repeat", &put(&world, id, BODY).await.text());
        started(&world, id).await;
    }
    assert_eq!(
        paper.works.lock().unwrap().len(),
        1,
        "the same program is stored once"
    );
    let other = BODY.replace("TOKEN", "OTHER");
    reveals_nothing("a refusal", &put(&world, "done", &other).await.text());
    for wrong in [
        BODY.replace(r#""s3cret-value""#, r#"["s3cret-value"]"#),
        BODY.replace(r#"["--token=s3cret-arg"]"#, r#""s3cret-arg""#),
        BODY.replace(r#"{"TOKEN":"s3cret-value"}"#, r#""s3cret-value""#),
        BODY.replace("s3cret-value", r"s3cret-value\u0000"),
        BODY.replace("s3cret-arg", r"s3cret-arg\u0000"),
        BODY.replace("/bin/s3cret-command", r"s3cret-command\u0000"),
        BODY.replace(r#""/s3cret-place""#, r#""s3cret-place""#),
    ] {
        let reply = put(&world, "wrong", &wrong).await;
        reply.is_problem("invalid");
        reveals_nothing("a mistake", &reply.text());
    }
    cancel(&world, "stopped").await;
    exited(&world, "stopped", Exit::Signal(15)).await;
    exited(&world, "done", Exit::Code(0)).await;
    for path in [
        "/v1/executions",
        "/v1/executions/done",
        "/v1/bookings",
        "/v1/bookings/done",
        "/v1/explain/booking/done",
        "/v1/records?raw=true&limit=1000",
        "/v1/ledger/export",
        "/v1/proofs/booking/done",
        "/metrics",
    ] {
        let reply = world.ask("GET", path, "").await;
        assert_eq!(reply.status, 200, "{path}");
        reveals_nothing(path, &reply.text());
    }
    let events = events(&world).await;
    for name in [
        "execution.started",
        "execution.stopping",
        "booking.released",
    ] {
        assert!(
            events.contains(&format!("event: {name}")),
            "{name} in {events}"
        );
    }
    reveals_nothing("the stream", &events);
}

#[test]
fn the_debug_text_of_a_request_reveals_nothing() {
    let request: bursar_client::api::ExecutionRequest = serde_json::from_str(BODY).unwrap();
    reveals_nothing("the request", &format!("{request:?}"));
}
