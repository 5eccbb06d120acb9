//! The stream of events: resuming without loss or repeat, filters, limits and keep-alive.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bursar_server::Caller;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::world::{World, operator, user};

/// An in-process client of the stream.
pub(crate) struct Follower {
    body: Body,
    buffer: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: String,
}

impl Follower {
    pub(crate) async fn new(router: &Router, query: &str, last: Option<&str>) -> Self {
        let mut request = Request::get(format!("/v1/events{query}")).header("host", "localhost");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response =
            tower::ServiceExt::oneshot(router.clone(), request.body(Body::empty()).unwrap());
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            body: response.into_body(),
            buffer: String::new(),
        }
    }

    /// Reads the next block that is not a comment.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            if !block.starts_with(':') {
                let field = |name: &str| {
                    let line = block.lines().find_map(|line| line.strip_prefix(name));
                    line.unwrap_or_default().to_owned()
                };
                return Some(Event {
                    id: field("id: "),
                    name: field("event: "),
                    data: field("data: "),
                });
            }
        }
    }

    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.find("\n\n") {
                let block: String = self.buffer.drain(..end + 2).collect();
                return Some(block.trim_end().to_owned());
            }
            let frame = self.body.frame().await?.ok()?;
            self.buffer
                .push_str(std::str::from_utf8(frame.data_ref()?).unwrap());
        }
    }
}

async fn work(world: &World, from: u64, to: u64) {
    for n in from..to {
        let tenant = if n % 3 == 0 { "zeta" } else { "acme" };
        let id = format!("job-{n}");
        let fence = world.grant(&id, "python", tenant).await;
        let body = format!(r#"{{"fence":{fence}}}"#);
        world
            .ask("POST", &format!("/v1/bookings/{id}/release"), &body)
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_stream_has_no_loss_and_no_repeat() {
    let world = World::new();
    let router = world.router(operator());
    work(&world, 0, 50).await;
    let working = work(&world, 50, 400);
    let following = async {
        let mut heard: Vec<Event> = Vec::new();
        let mut seed = 7_usize;
        while heard.len() < 800 {
            let last = heard.last().map(|event| event.id.clone());
            let query = if last.is_none() {
                "?kinds=booking&from=0"
            } else {
                "?kinds=booking"
            };
            let mut follower = Follower::new(&router, query, last.as_deref()).await;
            seed = seed * 31 % 97;
            for _ in 0..=seed {
                if heard.len() < 800 {
                    heard.push(follower.next().await.unwrap());
                }
            }
        }
        heard
    };
    let (heard, ()) = tokio::join!(following, working);
    let mut whole = Follower::new(&router, "?kinds=booking&from=0", None).await;
    for (at, event) in heard.iter().enumerate() {
        assert_eq!(whole.next().await.as_ref(), Some(event), "event {at}");
    }
    assert_eq!(
        heard
            .iter()
            .filter(|event| event.name == "booking.granted")
            .count(),
        400
    );
    let data: Value = serde_json::from_str(&heard[0].data).unwrap();
    assert_eq!(data["object"], "booking/job-0");
    assert_eq!(data["summary"], "job-0 granted: 1 python slot for zeta");
}

#[tokio::test(start_paused = true)]
async fn a_slow_stream_reads_the_store_and_misses_nothing() {
    let world = World::new();
    let router = world.router(operator());
    let mut follower = Follower::new(&router, "?kinds=booking.granted", None).await;
    // More batches than the broadcast channel keeps.
    work(&world, 0, 1_200).await;
    for n in 0..1_200 {
        let event = follower.next().await.unwrap();
        assert!(
            event.data.contains(&format!("booking/job-{n}\"")),
            "{n}: {event:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_only_wanted_events_the_caller_may_see() {
    let world = World::new();
    let hear = async |caller: Caller, query: &str, count: usize| {
        let mut follower = Follower::new(&world.router(caller), query, None).await;
        let mut objects = Vec::new();
        for _ in 0..count {
            let event = follower.next().await.unwrap();
            let data: Value = serde_json::from_str(&event.data).unwrap();
            objects.push(format!(
                "{} {}",
                event.name,
                data["object"].as_str().unwrap()
            ));
        }
        objects
    };
    world
        .limit("python", r#"{"class":"python","slots":9}"#)
        .await;
    work(&world, 0, 6).await;
    let own = hear(user(&["zeta"]), "?from=0", 4).await;
    let expected = [
        "booking.granted booking/job-0",
        "booking.released booking/job-0",
        "booking.granted booking/job-3",
        "booking.released booking/job-3",
    ];
    assert_eq!(
        own, expected,
        "neither others' bookings nor limits nor tokens"
    );
    assert_eq!(hear(operator(), "?from=0&tenant=zeta", 4).await, expected);
    assert_eq!(
        hear(operator(), "?from=0&kinds=limit", 3).await,
        [
            "limit.changed limit/default",
            "limit.changed limit/tenants",
            "limit.changed limit/python"
        ]
    );
    for (kinds, suggestion) in [
        ("bookings", "did you mean `booking`?"),
        ("limit,booking.grant", "did you mean `booking.granted`?"),
        ("run.start", "did you mean `run.started`?"),
        ("pod.resize", "did you mean `pod.resized`?"),
    ] {
        let path = format!("/v1/events?kinds={kinds}");
        let problem = world.ask("GET", &path, "").await.is_problem("invalid");
        assert_eq!(problem["errors"][0]["suggestion"], suggestion, "{kinds}");
    }
    let known = "?kinds=pod.resized,run.started,run,booking.noted";
    Follower::new(&world.router(operator()), known, None).await;
    world
        .ask("GET", "/v1/events?from=x", "")
        .await
        .is_problem("invalid");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_position_is_reset_once_and_the_stream_continues() {
    let world = World::new();
    let router = world.router(operator());
    for (query, last) in [("?from=999999", None), ("", Some("999999.3"))] {
        let mut follower = Follower::new(&router, query, last).await;
        let reset = follower.next().await.unwrap();
        assert_eq!((reset.name.as_str(), reset.id.as_str()), ("reset", ""));
        let record: Value = serde_json::from_str(&reset.data).unwrap();
        assert_eq!(record["record"], world.service.record());
        let id = format!("after-{}", last.is_some());
        world.grant(&id, "python", "acme").await;
        assert_eq!(follower.next().await.unwrap().name, "booking.granted");
    }
    let request = Request::get("/v1/events")
        .header("last-event-id", "nonsense")
        .body(Body::empty());
    crate::world::send(&router, request.unwrap())
        .await
        .is_problem("invalid");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_sends_comments_and_ends_when_the_server_stops() {
    let world = World::new();
    let mut follower = Follower::new(&world.router(operator()), "", None).await;
    assert_eq!(follower.block().await.unwrap(), ": bursar");
    let begun = tokio::time::Instant::now();
    assert_eq!(follower.block().await.unwrap(), ": alive");
    assert_eq!(begun.elapsed(), Duration::from_secs(15));
    world.service.stop();
    assert_eq!(follower.block().await, None);
}

#[tokio::test(start_paused = true)]
async fn there_are_at_most_a_thousand_streams() {
    let world = World::new();
    let router = world.router(operator());
    let mut open = Vec::new();
    for _ in 0..1_000 {
        open.push(Follower::new(&router, "", None).await);
    }
    let refused = world.ask("GET", "/v1/events", "").await;
    refused.is_problem("busy");
    assert_eq!(refused.headers["retry-after"], "1");
    open.pop();
    let _again = Follower::new(&router, "", None).await;
}
