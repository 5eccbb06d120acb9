//! Problems: one table of codes, a page for each, and every kind of bad request.

use bursar_client::Code;
use bursar_ledger::intake::Failure;
use bursar_ledger::store::memory::Fault;
use bursar_server::service::of_failure;
use serde_json::json;

use crate::world::{World, operator, send};

#[tokio::test(start_paused = true)]
async fn every_code_has_its_status_and_a_page() {
    let world = World::new();
    for code in Code::ALL {
        let page = world.ask("GET", &format!("/problems/{code}"), "").await;
        assert_eq!(page.status, 200);
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        let text = page.text();
        assert!(
            text.contains(code.word()) && text.contains(code.page().title),
            "{text}"
        );
        assert!(text.contains(&format!("HTTP {}", code.status())), "{text}");
        assert!(!text.contains('`'), "backticks are for terminals: {text}");
    }
    let none = world
        .ask("GET", "/problems/over-limits", "")
        .await
        .is_problem("not-found");
    assert_eq!(none["suggestion"], "over-limit");
}

#[test]
fn every_failure_of_the_ledger_has_its_code() {
    for (failure, code) in [
        (Failure::Busy, Code::Busy),
        (Failure::SlowDown, Code::SlowDown),
        (Failure::DiskLow, Code::DiskLow),
        (Failure::NotLeader, Code::NotLeader),
        (Failure::Unavailable, Code::Unavailable),
        (Failure::OutcomeUnknown, Code::OutcomeUnknown),
        (Failure::Internal, Code::Internal),
    ] {
        let problem = of_failure(&failure);
        assert_eq!((problem.code, problem.status), (code, code.status()));
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_bodies_are_malformed_and_name_the_position() {
    let world = World::new();
    let deep = format!(r#"{{"class":{}1{}}}"#, "[".repeat(4_000), "]".repeat(4_000));
    for (body, word) in [
        (String::new(), "empty"),
        ("{".to_owned(), "line 1 column 1"),
        (r#"{"class":"python""#.to_owned(), "line 1"),
        ("class: python".to_owned(), "line 1 column 1"),
        (deep, "recursion limit"),
        (r#"{"class":"python"} x"#.to_owned(), "trailing"),
    ] {
        let problem = world
            .ask("PUT", "/v1/bookings/a", &body)
            .await
            .is_problem("malformed");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(word), "{detail}");
    }
    let request = http::Request::put("/v1/bookings/a");
    let request = request
        .body(b"{\"class\":\"\xff\xfe\"}".to_vec().into())
        .unwrap();
    send(&world.router(operator()), request)
        .await
        .is_problem("malformed");
}

#[tokio::test(start_paused = true)]
async fn all_mistakes_of_a_body_are_reported_with_suggestions() {
    let world = World::new();
    let body =
        r#"{"class":"a b","slot":1,"ttlMS":5,"tenant":"acme","priority":"asap","waitMs":-1}"#;
    let problem = world
        .ask("PUT", "/v1/bookings/a", body)
        .await
        .is_problem("invalid");
    let mut errors: Vec<(String, String)> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            let suggestion = error["suggestion"].as_str().unwrap_or_default();
            (
                error["path"].as_str().unwrap().to_owned(),
                suggestion.to_owned(),
            )
        })
        .collect();
    errors.sort();
    let meant = |name: &str| format!("did you mean `{name}`?");
    assert_eq!(
        errors,
        [
            ("class".to_owned(), String::new()),
            (
                "priority".to_owned(),
                "one of urgent, high, normal, low, batch".to_owned()
            ),
            ("slot".to_owned(), meant("slots")),
            ("ttlMS".to_owned(), meant("ttlMs")),
            (
                "waitMs".to_owned(),
                "0 to 9007199254740991 is allowed".to_owned()
            ),
        ]
    );
    let batch = r#"{"operations":[{"op":"cancel","id":"a"},{"op":"release","id":"a","fense":1},{"op":"reserve","id":"a/b"}]}"#;
    let problem = world
        .ask("POST", "/v1/bookings", batch)
        .await
        .is_problem("invalid");
    let paths: Vec<_> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["path"].clone())
        .collect();
    assert_eq!(
        json!(paths),
        json!([
            "operations[1].fense",
            "operations[1].fence",
            "operations[2].id",
            "operations[2].class"
        ]),
        "{problem:#}"
    );
    let twice = r#"{"class":"python","class":"rust","tenant":"acme"}"#;
    world
        .ask("PUT", "/v1/bookings/a", twice)
        .await
        .is_problem("invalid");
}

#[tokio::test(start_paused = true)]
async fn numbers_and_names_out_of_bounds_are_invalid_and_name_the_field() {
    let world = World::new();
    for (field, value) in [
        ("slots", "0"),
        ("slots", "-1"),
        ("slots", "1.5"),
        ("slots", "9007199254740992"),
        ("slots", "99999999999999999999999999"),
        ("slots", "\"1\""),
        ("slots", "4294967296"),
        ("ttlMs", "999"),
        ("ttlMs", "86400001"),
        ("waitMs", "86400001"),
        ("cpuMilli", "18446744073709551615"),
    ] {
        let body = format!(r#"{{"class":"python","tenant":"acme","{field}":{value}}}"#);
        let reply = world.ask("PUT", "/v1/bookings/a", &body).await;
        let problem = reply.is_problem("invalid");
        assert_eq!(problem["errors"][0]["path"], field, "{value}: {problem:#}");
    }
    for id in ["a%20b", "%C3%A4", &"x".repeat(129), "a%2Fb"] {
        let reply = world.ask("GET", &format!("/v1/bookings/{id}"), "").await;
        assert_eq!(reply.is_problem("invalid")["errors"][0]["path"], "id");
    }
    world
        .ask("GET", "/v1/bookings/%ff", "")
        .await
        .is_problem("invalid");
    world
        .ask("GET", "/v1/bookings?class=%ff", "")
        .await
        .is_problem("invalid");
    world
        .ask("GET", "/v1/bookings/a?minRecord=x", "")
        .await
        .is_problem("invalid");
}

#[tokio::test(start_paused = true)]
async fn the_bounds_of_a_refusal_are_fields_of_its_problem() {
    let world = World::new();
    let spec = r#"{"class":"python","slots":1,"maxQueue":1,"maxWait":"1h","maxTTL":"10m"}"#;
    world.limit("one", spec).await;
    world.grant("holds", "python", "acme").await;
    for (number, (rest, bounds)) in [
        (r#""waitMs":3600000"#, json!(null)),
        (
            r#""waitMs":3600001"#,
            json!({"field": "waitMs", "min": 0, "max": 3_600_000, "limit": "one"}),
        ),
        (
            r#""ttlMs":600001"#,
            json!({"field": "ttlMs", "min": 1_000, "max": 600_000, "limit": "one"}),
        ),
        (
            r#""waitMs":1000"#,
            json!({"field": "maxQueue", "min": 0, "max": 1, "limit": "one"}),
        ),
        (r#""slots":1"#, json!(null)),
    ]
    .into_iter()
    .enumerate()
    {
        let body = format!(r#"{{"class":"python","tenant":"acme",{rest}}}"#);
        let path = format!("/v1/bookings/job-{number}");
        let problem = world.ask("PUT", &path, &body).await.json();
        assert_eq!(problem["bounds"], bounds, "{problem:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_addresses_and_methods_are_problems() {
    let world = World::new();
    let problem = world
        .ask("GET", "/v1/booking", "")
        .await
        .is_problem("not-found");
    assert_eq!(problem["suggestion"], "/v1/bookings");
    let method = world.ask("PATCH", "/v1/bookings/a", "{}").await;
    assert_eq!(method.status, 405);
    method.is_problem("not-found");
    assert!(method.headers.contains_key("allow"));
}

#[tokio::test(start_paused = true)]
async fn a_body_over_a_mebibyte_is_too_large_with_or_without_a_length() {
    let world = World::new();
    let body = format!(r#"{{"class":"{}"}}"#, "x".repeat(1 << 20));
    world
        .ask("PUT", "/v1/bookings/a", &body)
        .await
        .is_problem("too-large");
    let chunks = (0..20).map(|_| Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b' '; 1 << 16])));
    let body = axum::body::Body::from_stream(futures_util::stream::iter(chunks));
    let request = http::Request::put("/v1/bookings/a").body(body).unwrap();
    send(&world.router(operator()), request)
        .await
        .is_problem("too-large");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_times_out() {
    let world = World::new();
    let body = axum::body::Body::from_stream(futures_util::stream::pending::<
        Result<bytes::Bytes, std::io::Error>,
    >());
    let request = http::Request::put("/v1/bookings/a").body(body).unwrap();
    let begun = tokio::time::Instant::now();
    send(&world.router(operator()), request)
        .await
        .is_problem("malformed");
    assert_eq!(begun.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_answered_and_a_repeat_finds_it() {
    for (fault, status) in [(Fault::Error, 201), (Fault::CommitThenError, 200)] {
        let world = World::new();
        // The first record of the term is committed; the next append fails.
        world.store.inject(fault);
        let body = r#"{"class":"python","tenant":"acme"}"#;
        world
            .ask("PUT", "/v1/bookings/a", body)
            .await
            .is_problem("outcome-unknown");
        let repeated = world.ask("PUT", "/v1/bookings/a", body).await;
        assert_eq!(repeated.status, status, "{fault:?}");
        assert_eq!(repeated.json()["fence"], 1, "granted exactly once");
    }
    let world = World::new();
    world.store.inject(Fault::Refuse);
    let body = r#"{"class":"python","tenant":"acme"}"#;
    world
        .ask("PUT", "/v1/bookings/a", body)
        .await
        .is_problem("not-leader");
    world
        .ask("GET", "/v1/bookings/a", "")
        .await
        .is_problem("not-found");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_durable_in_time_is_an_unknown_outcome() {
    let world = World::stuck();
    let begun = tokio::time::Instant::now();
    let body = r#"{"class":"python","tenant":"acme"}"#;
    world
        .ask("PUT", "/v1/bookings/a", body)
        .await
        .is_problem("outcome-unknown");
    assert_eq!(begun.elapsed().as_secs(), 25);
    world
        .ask("GET", "/readyz", "")
        .await
        .is_problem("unavailable");
    assert_eq!(world.ask("GET", "/healthz", "").await.status, 200);
    let late = world
        .ask("GET", "/v1/limits?minRecord=99", "")
        .await
        .is_problem("unavailable");
    assert!(late["detail"].as_str().unwrap().contains("record 99"));
}

#[tokio::test(start_paused = true)]
async fn an_id_cannot_be_reused_for_another_request() {
    let world = World::new();
    world.grant("a", "python", "acme").await;
    let other = r#"{"class":"python","tenant":"acme","slots":2}"#;
    let problem = world
        .ask("PUT", "/v1/bookings/a", other)
        .await
        .is_problem("id-reused");
    assert!(problem["detail"].as_str().unwrap().contains("`slots`"));
    world
        .ask("POST", "/v1/bookings/a/cancel", "")
        .await
        .is_problem("conflict");
    world
        .ask("POST", "/v1/bookings/a/release", r#"{"fence":9}"#)
        .await
        .is_problem("stale-fence");
    world
        .ask("POST", "/v1/bookings/a/release", "{}")
        .await
        .is_problem("invalid");
    let near = world
        .ask("GET", "/v1/bookings/ab", "")
        .await
        .is_problem("not-found");
    assert_eq!(
        near["suggestion"],
        json!(null),
        "one letter is near to everything"
    );
}

#[tokio::test(start_paused = true)]
async fn an_id_older_than_the_memory_is_too_old() {
    let world = World::new();
    let fence = world.grant("a", "python", "acme").await;
    world
        .ask(
            "POST",
            "/v1/bookings/a/release",
            &format!(r#"{{"fence":{fence}}}"#),
        )
        .await;
    tokio::time::advance(std::time::Duration::from_hours(25)).await;
    let fence = world.grant("b", "python", "acme").await;
    world
        .ask(
            "POST",
            "/v1/bookings/b/release",
            &format!(r#"{{"fence":{fence}}}"#),
        )
        .await;
    // A UUIDv7 of 1 January 2026.
    let old = "job-019b7653-b800-7000-8000-000000000000";
    let body = r#"{"class":"python","tenant":"acme"}"#;
    world
        .ask("PUT", &format!("/v1/bookings/{old}"), body)
        .await
        .is_problem("id-too-old");
}
