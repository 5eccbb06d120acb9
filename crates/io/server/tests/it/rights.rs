//! No answer outlives the token of its caller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bursar_ledger::store::sqlite::SqliteStore;
use bursar_server::{Anonymous, CallerSource, Peer, router};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::clusters::{budget, envelope, gpus, node, run};
use crate::executions::{submit, world};
use crate::world::World;

/// End of an answer whose token has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ends {
    /// The event `signed-out`.
    SignedOut,
    /// The problem `unauthenticated`.
    Refused,
    /// An abort, so that it cannot be taken for complete.
    BrokenOff,
    /// None: the answer is complete at once.
    AtOnce,
}

use Ends::{AtOnce, BrokenOff, Refused, SignedOut};

/// Every route that may last: it waits, follows, or answers with a type other than JSON.
const ROUTES: [(&str, Ends); 13] = [
    ("/log/checkpoint", AtOnce),
    ("/log/tile/{path}", AtOnce),
    ("/metrics", AtOnce),
    ("/openapi.json", AtOnce),
    ("/problems/{code}", AtOnce),
    ("/v1/bookings/{id}", Refused),
    ("/v1/events", SignedOut),
    ("/v1/executions/{id}", Refused),
    ("/v1/executions/{id}/logs", BrokenOff),
    ("/v1/ledger/backup", BrokenOff),
    ("/v1/ledger/export", BrokenOff),
    ("/v1/proofs/{kind}/{id}", AtOnce),
    ("/v1/runs/{namespace}/{name}", Refused),
];

/// End of a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Revoked,
    Expired,
}

/// Lifetime of the tokens.
const LIFE: Duration = Duration::from_secs(20);
/// Time that an answer may outlive its token.
const LATE_MAX: Duration = Duration::from_secs(1);

#[test]
fn every_lasting_route_is_tested_here() {
    let description: Value = serde_json::from_str(bursar_server::http::DESCRIPTION).unwrap();
    let lasts = |operation: &Value| {
        let parameters = operation["parameters"].as_array();
        let waits = parameters.into_iter().flatten().any(|parameter| {
            parameter["in"] == "query"
                && (parameter["name"] == "wait" || parameter["name"] == "follow")
        });
        let types = operation["responses"]["200"]["content"].as_object();
        let is_json = types.is_some_and(|types| {
            // The OpenAPI description is JSON without an API type.
            types.keys().eq(["application/json"])
                && types["application/json"]["schema"].get("$ref").is_some()
        });
        waits || !is_json
    };
    let paths = description["paths"].as_object().unwrap().iter();
    let found: Vec<&str> = paths
        .filter(|(_, methods)| methods.get("get").is_some_and(lasts))
        .map(|(path, _)| path.as_str())
        .collect();
    let known = BTreeMap::from(ROUTES);
    let unknown: Vec<_> = found
        .iter()
        .filter(|path| !known.contains_key(*path))
        .collect();
    assert!(unknown.is_empty(), "add {unknown:?} to ROUTES");
    for path in known.keys() {
        assert!(found.contains(path), "there is no {path} any more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lasting_answer_ends_within_a_second_of_its_token() {
    for end in [End::Revoked, End::Expired] {
        for (path, ends) in ROUTES {
            if ends != AtOnce {
                outlived(path, ends, end).await;
            }
        }
        outlived("/v1/bookings?minRecord=999999", Refused, end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_valid_token_ends_no_answer() {
    let world = World::new();
    let router = connections(&world);
    let token = token(&world).await;
    let answer = ask(&router, "/v1/events", Some(&token)).await;
    let mut body = answer.into_body();
    assert_eq!(next(&mut body).await.unwrap(), ": bursar\n\n");
    assert_eq!(next(&mut body).await.unwrap(), ": alive\n\n");
    // The right of an anonymous caller does not end.
    let mut body = ask(&router, "/v1/events", None).await.into_body();
    for _ in 0..20 {
        assert!(next(&mut body).await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn no_event_after_a_revocation_is_sent() {
    let world = World::new();
    let router = connections(&world);
    let token = token(&world).await;
    let mut body = ask(&router, "/v1/events", Some(&token)).await.into_body();
    assert_eq!(next(&mut body).await.unwrap(), ": bursar\n\n");
    let heard = async {
        let last = next(&mut body).await.unwrap();
        assert!(last.starts_with("event: signed-out\n"), "{last}");
        assert_eq!(next(&mut body).await, None);
    };
    let happens = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.ask("DELETE", "/v1/tokens/app", "").await;
        world.grant("later", "python", "acme").await;
    };
    tokio::join!(heard, happens);
}

/// Opens a lasting answer, ends its token, and checks the end of the answer.
async fn outlived(path: &str, ends: Ends, end: End) {
    let (world, paper) = world();
    world.limit("one", r#"{"class":"one","slots":1}"#).await;
    world.grant("held", "one", "acme").await;
    let wait = r#"{"class":"one","tenant":"acme","waitMs":3600000}"#;
    world.ask("PUT", "/v1/bookings/job", wait).await;
    submit(&world, "run").await;
    paper.write("run", "stdout", "written");
    let gpus = json!({"objects": [node("a01", "rack-a"),
        budget("acme", &json!({"owner": "acme", "envelopes": [envelope(8)]})),
        run("acme", "one", &gpus("acme", 8))]});
    let applied = world.ask("POST", "/v1/apply", &gpus.to_string()).await;
    assert_eq!(applied.status, 200, "{applied:?}");
    SqliteStore::open(&world.file()).unwrap();
    let router = connections(&world);
    let token = token(&world).await;
    let made = tokio::time::Instant::now();
    let ended = async {
        match end {
            End::Revoked => {
                // Not a round time, so that no check passes by chance.
                tokio::time::sleep(Duration::from_millis(7_010)).await;
                let revoked = world.ask("DELETE", "/v1/tokens/app", "").await;
                assert_eq!(revoked.status, 200, "{revoked:?}");
            }
            End::Expired => tokio::time::sleep_until(made + LIFE).await,
        }
        tokio::time::Instant::now()
    };
    let target = path
        .replace("/v1/bookings/{id}", "/v1/bookings/job?wait=4m")
        .replace(
            "/v1/executions/{id}/logs",
            "/v1/executions/run/logs?follow=true",
        )
        .replace("/v1/executions/{id}", "/v1/executions/run?wait=4m")
        .replace("/v1/runs/{namespace}/{name}", "/v1/runs/acme/one?wait=4m");
    let asked = async {
        let answer = ask(&router, &target, Some(&token)).await;
        (answer, tokio::time::Instant::now())
    };
    let context = format!("{path} {end:?}");
    if ends == Refused {
        let ((answer, answered), ended) = tokio::join!(asked, ended);
        assert_eq!(answer.status(), 401, "{context}");
        assert!(answered.duration_since(ended) <= LATE_MAX, "{context}");
        return;
    }
    let (answer, _) = asked.await;
    assert_eq!(answer.status(), 200, "{context}");
    let mut body = answer.into_body();
    if ends == SignedOut {
        assert_eq!(next(&mut body).await.unwrap(), ": bursar\n\n");
    } else if path.ends_with("logs") {
        assert_eq!(next(&mut body).await.unwrap(), "written");
    }
    let last = async {
        let mut last = None;
        // A copy is read slowly: its first piece after the end of the token is requested now.
        if path.ends_with("export") || path.ends_with("backup") {
            tokio::time::sleep(LIFE + LIFE).await;
        }
        loop {
            match body.frame().await {
                None => return (Ok(last), tokio::time::Instant::now()),
                Some(Ok(frame)) => {
                    let text = String::from_utf8(frame.into_data().unwrap().to_vec());
                    last = Some(text.unwrap());
                }
                Some(Err(error)) => return (Err(error), tokio::time::Instant::now()),
            }
        }
    };
    let last = tokio::time::timeout(10 * LIFE, last);
    let (last, ended) = tokio::join!(last, ended);
    let (last, at) = last.unwrap_or_else(|_| panic!("{context} does not end"));
    // Without a request for the next piece the connection ends the answer (`listen.rs`).
    if !path.starts_with("/v1/ledger") {
        assert!(at.duration_since(ended) <= LATE_MAX, "{context}");
    }
    match (ends, last) {
        (SignedOut, Ok(Some(last))) => {
            let data = last
                .strip_prefix("event: signed-out\ndata: ")
                .unwrap_or_else(|| panic!("{context}: {last}"));
            let problem: Value = serde_json::from_str(data.trim_end()).unwrap();
            assert_eq!(problem["code"], "unauthenticated", "{context}");
            let detail = problem["detail"].as_str().unwrap();
            let cause = if end == End::Revoked {
                "revoked"
            } else {
                "expired"
            };
            assert!(detail.contains(cause), "{context}: {detail}");
        }
        (BrokenOff, Err(_)) => {}
        (_, last) => panic!("{context}: {last:?}"),
    }
}

/// The router for connections from this machine.
fn connections(world: &World) -> Router {
    let callers = CallerSource::Connection(Anonymous::Read);
    router(Arc::clone(&world.service), callers)
}

async fn token(world: &World) -> String {
    let body = r#"{"name":"app","roles":["operate"],"expires":"20s"}"#;
    let made = world.ask("POST", "/v1/tokens", body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["secret"].as_str().unwrap().to_owned()
}

async fn ask(router: &Router, target: &str, token: Option<&str>) -> Response<Body> {
    let mut request = Request::get(target)
        .extension(Peer::Loopback)
        .header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Body::empty()).unwrap();
    tower::ServiceExt::oneshot(router.clone(), request)
        .await
        .unwrap()
}

async fn next(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}
