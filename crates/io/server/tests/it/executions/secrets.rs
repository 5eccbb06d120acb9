//! What is run, and what with, is told to nobody (L13).

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
fn tells_nothing(what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{what} tells {secret}: {text}");
    }
}

/// All that the stream has to tell until the last execution is over.
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
async fn no_answer_record_event_or_metric_tells_what_is_run() {
    let (world, paper) = world();
    for id in ["done", "stopped"] {
        tells_nothing("a submission", &put(&world, id, BODY).await.text());
        tells_nothing("a repeat", &put(&world, id, BODY).await.text());
        started(&world, id).await;
    }
    assert_eq!(
        paper.works.lock().unwrap().len(),
        1,
        "the same work is kept once"
    );
    let other = BODY.replace("TOKEN", "OTHER");
    tells_nothing("a refusal", &put(&world, "done", &other).await.text());
    for wrong in [
        BODY.replace(r#""s3cret-value""#, r#"["s3cret-value"]"#),
        BODY.replace(r#"["--token=s3cret-arg"]"#, r#""s3cret-arg""#),
        BODY.replace(r#"{"TOKEN":"s3cret-value"}"#, r#""s3cret-value""#),
        BODY.replace("s3cret-value", r"s3cret-value\u0000"),
        BODY.replace("s3cret-arg", r"s3cret-arg\u0000"),
        BODY.replace("/bin/s3cret-command", r"s3cret-command\u0000"),
        BODY.replace(r#""/s3cret-place""#, r#""s3cret-place""#),
    ] {
        let told = put(&world, "wrong", &wrong).await;
        told.is_problem("invalid");
        tells_nothing("a mistake", &told.text());
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
        tells_nothing(path, &reply.text());
    }
    let told = events(&world).await;
    for name in [
        "execution.started",
        "execution.stopping",
        "booking.released",
    ] {
        assert!(told.contains(&format!("event: {name}")), "{name} in {told}");
    }
    tells_nothing("the stream", &told);
}

#[test]
fn a_request_that_is_printed_tells_nothing() {
    let request: bursar_client::api::ExecutionRequest = serde_json::from_str(BODY).unwrap();
    tells_nothing("the request", &format!("{request:?}"));
}
