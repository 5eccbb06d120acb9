//! Output of executions.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bursar_engine::booking::execution::Exit;
use http::Request;
use http_body_util::BodyExt as _;

use super::{World, exited, started, submit, world};
use crate::world::operator;

async fn logs(world: &World, query: &str) -> String {
    let path = format!("/v1/executions/job/logs{query}");
    let reply = world.ask("GET", &path, "").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.headers["content-type"], "text/plain");
    assert_eq!(reply.headers["x-content-type-options"], "nosniff");
    reply.text()
}

/// A followed log.
struct Follower(Body);

impl Follower {
    async fn new(router: &Router, query: &str) -> Self {
        let request = Request::get(format!("/v1/executions/job/logs?follow=true{query}"));
        let request = request.body(Body::empty()).unwrap();
        let answer = tower::ServiceExt::oneshot(router.clone(), request)
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
        Self(answer.into_body())
    }

    async fn next(&mut self) -> Option<String> {
        let frame = self.0.frame().await?.unwrap();
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn each_stream_is_read_by_itself_and_from_any_byte() {
    let (world, paper) = world();
    submit(&world, "job").await;
    assert_eq!(logs(&world, "").await, "", "nothing is written yet");
    paper.write("job", "stdout", "out one\n");
    paper.write("job", "stderr", "error\n");
    assert_eq!(logs(&world, "").await, "out one\n");
    assert_eq!(logs(&world, "?stream=stdout&from=4").await, "one\n");
    assert_eq!(logs(&world, "?stream=stderr").await, "error\n");
    assert_eq!(logs(&world, "?from=99").await, "");
    let long = "x".repeat(300_000);
    paper.write("job", "stderr", &long);
    assert_eq!(logs(&world, "?stream=stderr&from=6").await, long);
    for query in ["?stream=both", "?follow=maybe", "?from=-1", "?tail=3"] {
        let path = format!("/v1/executions/job/logs{query}");
        world.ask("GET", &path, "").await.is_problem("invalid");
    }
}

#[tokio::test(start_paused = true)]
async fn a_followed_log_ends_after_the_execution_and_its_last_byte() {
    let (world, paper) = world();
    let router = world.router(operator());
    submit(&world, "job").await;
    let mut follower = Follower::new(&router, "").await;
    let mut late = Follower::new(&router, "&from=3").await;
    started(&world, "job").await;
    paper.write("job", "stdout", "one");
    assert_eq!(follower.next().await.unwrap(), "one");
    let before = tokio::time::Instant::now();
    let (next, ()) = tokio::join!(follower.next(), async {
        tokio::time::sleep(Duration::from_mins(7)).await;
        paper.write("job", "stdout", "two");
    });
    assert_eq!(next.unwrap(), "two");
    assert!(
        before.elapsed() <= Duration::from_millis(7 * 60_000 + 200),
        "it is seen soon"
    );
    let (last, ()) = tokio::join!(follower.next(), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        paper.write("job", "stdout", "three");
        exited(&world, "job", Exit::Code(0)).await;
    });
    assert_eq!(
        last.unwrap(),
        "three",
        "the end wakes it, and all was read before it ended"
    );
    assert_eq!(follower.next().await, None);
    assert_eq!(late.next().await.unwrap(), "twothree");
    assert_eq!(late.next().await, None);
    assert_eq!(logs(&world, "").await, "onetwothree", "it is kept");
}

#[tokio::test(start_paused = true)]
async fn missing_output_is_not_found_and_a_stopping_server_aborts() {
    let (world, _) = world();
    let router = world.router(operator());
    submit(&world, "job").await;
    let mut follower = Follower::new(&router, "").await;
    let (next, ()) = tokio::join!(follower.0.frame(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.service.stop();
    });
    assert!(
        next.unwrap().is_err(),
        "a false end would be taken for the real one"
    );
    exited(&world, "job", Exit::Code(0)).await;
    let gone = world.ask("GET", "/v1/executions/job/logs", "").await;
    let problem = gone.is_problem("not-found");
    assert_eq!(problem["detail"], "no output of job is stored");
}

#[tokio::test(start_paused = true)]
async fn streams_of_output_and_events_share_one_limit() {
    let (world, _) = world();
    let router = world.router(operator());
    submit(&world, "job").await;
    let mut followers = Vec::new();
    for _ in 0..bursar_server::service::STREAMS_MAX {
        followers.push(Follower::new(&router, "").await);
    }
    let path = "/v1/executions/job/logs?follow=true";
    world.ask("GET", path, "").await.is_problem("busy");
    world.ask("GET", "/v1/events", "").await.is_problem("busy");
    followers.pop();
    Follower::new(&router, "").await;
}
