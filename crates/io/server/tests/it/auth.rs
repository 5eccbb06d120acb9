//! Authorization: every role, tenant and kind of connection.

use std::sync::Arc;

use axum::body::Body;
use bursar_engine::token::Role;
use bursar_node::executor::User;
use bursar_server::{Anonymous, Caller, CallerSource, Peer, router};
use http::Request;
use serde_json::json;

use crate::world::{Reply, World, caller, send, user, viewer};

/// A peer of the Unix socket of a server that runs as user 7.
fn socket(uid: u32) -> Peer {
    Peer::socket(User { uid, gid: 100 }, 7)
}

/// Sends a request over a kind of connection, with or without a token.
async fn over(
    world: &World,
    anonymous: Anonymous,
    peer: Peer,
    token: Option<&str>,
    request: (&str, &str, &str),
) -> Reply {
    let router = router(
        Arc::clone(&world.service),
        CallerSource::Connection(anonymous),
    );
    let (method, path, body) = request;
    let mut builder = Request::builder().method(method).uri(path).extension(peer);
    builder = builder.header("host", "127.0.0.1:7171");
    if let Some(token) = token {
        builder = builder.header("authorization", format!("Bearer {token}"));
    }
    send(&router, builder.body(Body::from(body.to_owned())).unwrap()).await
}

async fn token(world: &World, name: &str, roles: &str, tenants: &str) -> String {
    let body = format!(r#"{{"name":"{name}","roles":{roles},"tenants":{tenants},"expires":"1h"}}"#);
    let made = world.ask("POST", "/v1/tokens", &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["secret"].as_str().unwrap().to_owned()
}

const READ: (&str, &str, &str) = ("GET", "/v1/bookings", "");
const WRITE: (&str, &str, &str) = (
    "PUT",
    "/v1/bookings/a",
    r#"{"class":"python","tenant":"acme"}"#,
);

#[tokio::test(start_paused = true)]
async fn the_role_of_a_caller_follows_from_its_connection() {
    let world = World::new();
    let status = async |anonymous, peer, request| {
        over(&world, anonymous, peer, None, request)
            .await
            .status
            .as_u16()
    };
    assert_eq!(status(Anonymous::Read, Peer::Loopback, READ).await, 200);
    assert_eq!(status(Anonymous::Read, Peer::Loopback, WRITE).await, 403);
    assert_eq!(status(Anonymous::None, Peer::Loopback, READ).await, 401);
    assert_eq!(
        status(Anonymous::Read, Peer::Remote, READ).await,
        401,
        "a remote caller needs a token"
    );
    assert_eq!(
        status(Anonymous::None, socket(7), WRITE).await,
        201,
        "the server's own user is an operator"
    );
    assert_eq!(
        status(Anonymous::None, socket(0), WRITE).await,
        200,
        "so does root"
    );
    assert_eq!(
        status(Anonymous::None, socket(8), WRITE).await,
        403,
        "other users act as their own tenant"
    );
    let own = ("PUT", "/v1/bookings/own", r#"{"class":"python"}"#);
    assert_eq!(status(Anonymous::None, socket(654_321), own).await, 201);
    let own = world.ask("GET", "/v1/bookings/own", "").await.json();
    assert_eq!(own["tenant"], "uid-654321", "the tenant is the user's name");
    for open in ["/healthz", "/readyz", "/problems/busy", "/openapi.json"] {
        assert_eq!(
            status(Anonymous::None, Peer::Remote, ("GET", open, "")).await,
            200,
            "{open}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_works_until_it_expires_or_is_revoked_and_never_falls_back() {
    let world = World::new();
    let secret = token(&world, "app", r#"["use"]"#, r#"["acme"]"#).await;
    let with = async |secret: &str, request| {
        over(
            &world,
            Anonymous::Read,
            Peer::Loopback,
            Some(secret),
            request,
        )
        .await
    };
    assert_eq!(with(&secret, WRITE).await.status, 201);
    with("bursar_wrong", READ)
        .await
        .is_problem("unauthenticated");
    let identity = with(&secret, ("GET", "/v1/identity", "")).await.json();
    assert_eq!(identity["via"], "token");
    assert_eq!(identity["tenants"], json!(["acme"]));
    assert_eq!(identity["expiresAt"], "2026-11-16T11:00:00.000Z");
    let listed = world.ask("GET", "/v1/tokens", "").await;
    assert!(!listed.text().contains(&secret), "a secret is shown once");

    tokio::time::advance(std::time::Duration::from_hours(1)).await;
    let dead = with(&secret, READ).await;
    assert!(
        dead.is_problem("unauthenticated")["detail"]
            .as_str()
            .unwrap()
            .contains("expired")
    );
    assert_eq!(dead.headers["www-authenticate"], "Bearer");
    let other = token(&world, "other", r#"["view"]"#, "[]").await;
    assert_eq!(with(&other, READ).await.status, 200);
    assert_eq!(
        world.ask("DELETE", "/v1/tokens/other", "").await.status,
        200
    );
    with(&other, READ).await.is_problem("unauthenticated");
    world
        .ask("DELETE", "/v1/tokens/oter", "")
        .await
        .is_problem("not-found");
    world
        .ask("POST", "/v1/tokens", r#"{"name":"app","roles":["view"]}"#)
        .await
        .is_problem("conflict");
    for wrong in [
        r#"{"name":"x","roles":[]}"#,
        r#"{"name":"x","roles":["use"]}"#,
        r#"{"name":"x","roles":["view"],"tenants":["a"]}"#,
        r#"{"name":"x","roles":["view"],"expires":"soon"}"#,
        r#"{"name":"x","roles":["view"],"expires":"9999d"}"#,
        r#"{"name":"x","roles":["admin"]}"#,
    ] {
        world
            .ask("POST", "/v1/tokens", wrong)
            .await
            .is_problem("invalid");
    }
    let dry = world
        .ask(
            "POST",
            "/v1/tokens?dryRun=true",
            r#"{"name":"dry","roles":["view"]}"#,
        )
        .await
        .json();
    assert_eq!((&dry["secret"], &dry["dryRun"]), (&json!(""), &json!(true)));
}

#[tokio::test(start_paused = true)]
async fn a_caller_can_neither_act_as_a_tenant_it_was_not_given_nor_see_its_bookings() {
    let world = World::new();
    let fence = world.grant("theirs", "python", "zeta").await;
    let release = format!(r#"{{"fence":{fence}}}"#);
    let app = || user(&["acme"]);
    let reserve = r#"{"class":"python","tenant":"zeta"}"#;
    let refused = world
        .ask_as(app(), "PUT", "/v1/bookings/x", reserve)
        .await
        .is_problem("not-allowed");
    let detail = refused["detail"].as_str().unwrap();
    assert!(
        detail.contains("acme") && detail.contains("zeta"),
        "it names both: {detail}"
    );
    for (method, path, body) in [
        ("GET", "/v1/bookings/theirs", ""),
        ("GET", "/v1/explain/booking/theirs", ""),
        ("GET", "/v1/proofs/booking/theirs", ""),
        ("POST", "/v1/bookings/theirs/release", release.as_str()),
        ("POST", "/v1/bookings/theirs/renew", release.as_str()),
        ("POST", "/v1/bookings/theirs/cancel", ""),
        ("PUT", "/v1/bookings/theirs/note", r#"{"text":"x"}"#),
    ] {
        let reply = world.ask_as(app(), method, path, body).await;
        let problem = reply.is_problem("not-found");
        assert_eq!(
            problem["suggestion"],
            json!(null),
            "{path} gives nothing away"
        );
    }
    let near = world
        .ask_as(app(), "GET", "/v1/bookings/their", "")
        .await
        .is_problem("not-found");
    assert_eq!(
        near["suggestion"],
        json!(null),
        "a hidden name is not suggested"
    );
    let listed = world.ask_as(app(), "GET", "/v1/bookings", "").await.json();
    assert_eq!(listed["items"], json!([]));
    // A booking stays hidden from a request that tries to overwrite it.
    let taken = world
        .ask_as(app(), "PUT", "/v1/bookings/theirs", r#"{"class":"python"}"#)
        .await;
    let problem = taken.is_problem("id-reused");
    assert!(!problem.to_string().contains("zeta"), "{problem:#}");
    let batch = json!({"operations":[{"op":"release","id":"theirs","fence":fence},
        {"op":"reserve","id":"mine","class":"python"},{"op":"cancel","id":"mine"}]});
    let results = world
        .ask_as(app(), "POST", "/v1/bookings", &batch.to_string())
        .await
        .json();
    let status: Vec<_> = results["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["status"].clone())
        .collect();
    assert_eq!(json!(status), json!([404, 201, 409]), "{results:#}");
    // Reserving the id of another tenant in the same batch does not make it the caller's.
    let batch = json!({"operations":[{"op":"reserve","id":"theirs","class":"python"},
        {"op":"release","id":"theirs","fence":fence},{"op":"cancel","id":"theirs"},
        {"op":"renew","id":"theirs","fence":fence}]});
    let results = world
        .ask_as(app(), "POST", "/v1/bookings", &batch.to_string())
        .await
        .json();
    let status: Vec<_> = results["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["status"].clone())
        .collect();
    assert_eq!(json!(status), json!([409, 404, 404, 404]), "{results:#}");
    assert_eq!(
        world.ask("GET", "/v1/bookings/theirs", "").await.json()["state"],
        "granted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dns_rebinding_page_reads_nothing() {
    let world = World::new();
    let router = router(
        Arc::clone(&world.service),
        CallerSource::Connection(Anonymous::Read),
    );
    let status = async |target: &str, hosts: &[&str]| {
        let request = Request::builder().uri(target).extension(Peer::Loopback);
        let request = hosts
            .iter()
            .fold(request, |request, host| request.header("host", *host));
        let reply = send(&router, request.body(Body::empty()).unwrap()).await;
        reply.status.as_u16()
    };
    for host in [
        "127.0.0.1",
        "127.0.0.1:7171",
        "127.255.0.9:1",
        "localhost",
        "LocalHost:65535",
        "localhost.",
        "localhost.:7171",
        "[::1]",
        "[::1]:7171",
        "[::ffff:127.0.0.1]:80",
    ] {
        assert_eq!(status("/v1/bookings", &[host]).await, 200, "{host}");
    }
    for host in [
        "",
        ".",
        ":7171",
        "evil.example:7171",
        "127.0.0.1.evil.example",
        "127.0.0.1.evil.example:7171",
        "localhost.evil.example",
        "evil.localhost",
        "localhost..",
        "127.0.0.1.",
        "127.1",
        "2130706433",
        "0177.0.0.1",
        "localhost:7171@evil.example",
        "localhost@evil.example",
        "evil.example@localhost",
        "localhost:evil.example",
        "localhost:",
        "localhost:+80",
        "localhost:65536",
        "localhost:80:80",
        "localhost/evil.example",
        "localhost evil.example",
        "[::1].evil.example",
        "[::1]evil",
        "[::1",
        "::1",
        "[::1%25lo]",
        "[127.0.0.1]",
        "[2001:db8::1]",
        "10.0.0.1",
    ] {
        assert_eq!(status("/v1/bookings", &[host]).await, 401, "{host}");
    }
    let local = "localhost";
    assert_eq!(status("/v1/bookings", &[]).await, 401, "no host");
    assert_eq!(
        status("/v1/bookings", &[local, local]).await,
        401,
        "a second host may be the real one"
    );
    let whole = "http://127.0.0.1:7171/v1/bookings";
    assert_eq!(status(whole, &[local]).await, 200);
    let foreign = "http://evil.example/v1/bookings";
    assert_eq!(status(foreign, &[local]).await, 401);
    let named = "http://localhost@evil.example/v1/bookings";
    assert_eq!(status(named, &[local]).await, 401);
}

#[tokio::test(start_paused = true)]
async fn a_viewer_sees_everything_but_fences_and_changes_nothing() {
    let world = World::new();
    world.grant("a", "python", "acme").await;
    let seen = world
        .ask_as(viewer(), "GET", "/v1/bookings/a", "")
        .await
        .json();
    assert_eq!(
        (&seen["tenant"], &seen["fence"]),
        (&json!("acme"), &json!(null))
    );
    assert_eq!(
        world.ask("GET", "/v1/bookings/a", "").await.json()["fence"],
        1
    );
    let own = world
        .ask_as(user(&["acme"]), "GET", "/v1/bookings/a", "")
        .await
        .json();
    assert_eq!(own["fence"], 1);
}

#[tokio::test(start_paused = true)]
async fn each_role_reaches_exactly_its_routes() {
    let world = World::new();
    world.grant("a", "python", "acme").await;
    let limit = crate::world::limit_body("new", r#"{"class":"new","slots":1}"#);
    let apply = format!(r#"{{"objects":[{limit}]}}"#);
    let force = r#"{"force":true,"reason":"stuck"}"#;
    let token = r#"{"name":"t","roles":["view"]}"#;
    let prune = r#"{"before":"2026-01-01T00:00:00Z"}"#;
    // Method, address, body, then whether each role is allowed: view, use, operate.
    let matrix: [(&str, &str, &str, [bool; 3]); 28] = [
        ("GET", "/v1/bookings", "", [true, true, true]),
        ("GET", "/v1/bookings/a", "", [true, true, true]),
        ("GET", "/v1/limits", "", [true, true, true]),
        ("GET", "/v1/limits/default", "", [true, true, true]),
        ("GET", "/v1/nodes", "", [true, true, true]),
        ("GET", "/v1/identity", "", [true, true, true]),
        ("GET", "/v1/ledger", "", [true, true, true]),
        ("GET", "/v1/explain/limit/default", "", [true, true, true]),
        ("GET", "/log/tile/0/000.p/1", "", [true, true, true]),
        ("GET", "/log/inclusion/0", "", [true, true, true]),
        ("GET", "/v1/records", "", [true, false, true]),
        (
            "GET",
            "/v1/records?object=limit/default",
            "",
            [true, false, true],
        ),
        ("GET", "/v1/records?raw=true", "", [false, false, true]),
        ("GET", "/v1/ledger/export", "", [false, false, true]),
        ("GET", "/v1/proofs/record/0", "", [false, false, true]),
        ("GET", "/log/tile/entries/000.p/1", "", [false, false, true]),
        ("GET", "/metrics", "", [true, false, true]),
        ("GET", "/v1/tokens", "", [false, false, true]),
        (
            "PUT",
            "/v1/bookings/b?dryRun=true",
            r#"{"class":"python","tenant":"acme"}"#,
            [false, true, true],
        ),
        (
            "POST",
            "/v1/bookings/a/release?dryRun=true",
            r#"{"fence":1}"#,
            [false, true, true],
        ),
        (
            "POST",
            "/v1/bookings/a/release?dryRun=true",
            force,
            [false, false, true],
        ),
        (
            "PUT",
            "/v1/limits/new?dryRun=true",
            &limit,
            [false, false, true],
        ),
        (
            "DELETE",
            "/v1/limits/default?dryRun=true",
            "",
            [false, false, true],
        ),
        (
            "POST",
            "/v1/apply?dryRun=true",
            &apply,
            [false, false, true],
        ),
        (
            "POST",
            "/v1/tokens?dryRun=true",
            token,
            [false, false, true],
        ),
        (
            "POST",
            "/v1/ledger/exported",
            r#"{"from":0,"below":0}"#,
            [false, false, true],
        ),
        (
            "POST",
            "/v1/ledger/prune?dryRun=true",
            prune,
            [false, false, true],
        ),
        (
            "POST",
            "/v1/ledger/rotate-key?dryRun=true",
            "",
            [false, false, true],
        ),
    ];
    let callers: [Caller; 3] = [
        viewer(),
        user(&["acme"]),
        caller("op", &[Role::Operate], &[]),
    ];
    for (method, path, body, who) in matrix {
        for (caller, gets_in) in callers.iter().zip(who) {
            let reply = world.ask_as(caller.clone(), method, path, body).await;
            let is_refused = reply.status == 403;
            assert_eq!(
                !is_refused, gets_in,
                "{} {method} {path}: {}",
                caller.name, reply.status
            );
            assert!(reply.status != 500);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_tenant_is_the_callers_only_one() {
    let world = World::new();
    let body = r#"{"class":"python"}"#;
    let of = async |caller: Caller, id: &str| {
        world
            .ask_as(caller, "PUT", &format!("/v1/bookings/{id}"), body)
            .await
    };
    assert_eq!(of(user(&["acme"]), "one").await.status, 201);
    let several = of(user(&["acme", "zeta"]), "two")
        .await
        .is_problem("invalid");
    assert!(
        several["errors"][0]["message"]
            .as_str()
            .unwrap()
            .contains("acme, zeta")
    );
    assert_eq!(
        of(caller("op", &[Role::Operate], &[]), "three")
            .await
            .status,
        201
    );
    assert_eq!(
        world.ask("GET", "/v1/bookings/three", "").await.json()["tenant"],
        "op"
    );
    of(viewer(), "four").await.is_problem("not-allowed");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_key_returns_the_same_token() {
    let world = World::new();
    let router = world.router(crate::world::operator());
    let ask = async |key: &str, body: &'static str| {
        let request = Request::post("/v1/tokens").header("idempotency-key", key);
        send(&router, request.body(Body::from(body)).unwrap()).await
    };
    let first = ask("k1", r#"{"name":"app","roles":["view"]}"#).await;
    let record = world.service.record();
    let again = ask("k1", r#"{"name":"app","roles":["view"]}"#).await;
    assert_eq!(
        (again.status.as_u16(), &again.json()["secret"]),
        (201, &first.json()["secret"])
    );
    assert_eq!(world.service.record(), record, "one record");
    ask("k1", r#"{"name":"app","roles":["operate"]}"#)
        .await
        .is_problem("id-reused");
    ask("k2", r#"{"name":"app","roles":["view"]}"#)
        .await
        .is_problem("conflict");
    ask("not a key", r#"{"name":"x","roles":["view"]}"#)
        .await
        .is_problem("invalid");
}
