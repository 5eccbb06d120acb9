//! Invalid requests: every mistake is reported in one answer, without texts of parsers.

use bursar_client::api::{BookingRequest, Operation};
use bursar_server::service::WriteMode;
use bursar_units::{BookingId, Label};
use serde_json::{Value, json};

use crate::world::{World, limit_body, operator, user};

/// Field and message of each mistake.
fn sentences(problem: &Value) -> Vec<String> {
    let errors = problem["errors"].as_array().unwrap();
    let sentence = |error: &Value| {
        let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("path"), text("message"))
            .trim()
            .to_owned()
    };
    errors.iter().map(sentence).collect()
}

#[tokio::test(start_paused = true)]
async fn a_body_or_operation_that_is_a_list_is_refused() {
    let world = World::new();
    let operation = r#"{"op":"reserve","id":"a","class":"python","tenant":"acme"}"#;
    let limit = limit_body("python", r#"{"slots":7}"#);
    for (method, path, body) in [
        ("POST", "/v1/bookings", format!("[[{operation}]]")),
        (
            "POST",
            "/v1/bookings",
            r#"{"operations":[["reserve","a","python","acme"]]}"#.to_owned(),
        ),
        ("PUT", "/v1/bookings/a", r#"["python","acme"]"#.to_owned()),
        ("POST", "/v1/bookings/a/renew", "[1]".to_owned()),
        ("POST", "/v1/bookings/a/release", "[1]".to_owned()),
        ("POST", "/v1/bookings/a/cancel", "[]".to_owned()),
        ("POST", "/v1/executions/a/cancel", "[]".to_owned()),
        (
            "POST",
            "/v1/tokens",
            r#"["ci",["view"],[],"90d"]"#.to_owned(),
        ),
        ("POST", "/v1/apply", format!("[[{limit}]]")),
        ("PUT", "/v1/limits/python", format!("[{limit}]")),
        (
            "POST",
            "/v1/ledger/prune",
            r#"["2026-11-16T10:00:00Z"]"#.to_owned(),
        ),
        ("POST", "/v1/ledger/exported", "[0,1]".to_owned()),
        ("POST", "/v1/ledger/rotate-key", "[]".to_owned()),
        ("POST", "/v1/nodes/a/restore", "[]".to_owned()),
    ] {
        let problem = world.ask(method, path, &body).await.is_problem("invalid");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.ends_with("object, not a list"),
            "{path} {body}: {detail}"
        );
    }
    world
        .ask("GET", "/v1/bookings/a", "")
        .await
        .is_problem("not-found");
}

#[tokio::test(start_paused = true)]
async fn a_missing_tenant_is_reported_with_the_other_mistakes() {
    let world = World::new();
    let ask = |path: &'static str, body: &'static str| {
        let caller = user(&["acme", "zeta"]);
        let world = &world;
        async move {
            let reply = world.ask_as(caller, "PUT", path, body).await;
            reply.is_problem("invalid")
        }
    };
    let problem = ask("/v1/bookings/a", r#"{"slots":-1}"#).await;
    assert_eq!(
        sentences(&problem),
        [
            "class is missing",
            "slots must not be negative",
            "tenant is missing; `app` may act as acme, zeta"
        ]
    );
    let detail = problem["detail"].as_str().unwrap();
    for field in ["class is missing", "slots must", "tenant is missing"] {
        assert!(detail.contains(field), "{detail}");
    }
    let problem = ask("/v1/executions/a", "{}").await;
    let text = sentences(&problem).join("\n");
    for field in [
        "class is missing",
        "command is missing",
        "tenant is missing",
    ] {
        assert!(text.contains(field), "{text}");
    }
    let named = ask("/v1/bookings/a", r#"{"tenant":"a b"}"#).await;
    assert_eq!(sentences(&named).len(), 2, "{named:#}");
}

#[tokio::test(start_paused = true)]
async fn all_wrong_parameters_are_reported_together_without_parser_texts() {
    let world = World::new();
    for (path, expected) in [
        (
            "/v1/bookings?limit=-0.5&tenant=a%20b&state=held&wiat=1",
            vec![
                "wiat is not a parameter of this address",
                "tenant has the character ' '; allowed are all but control characters, space and * / , =",
                "state is none of `queued`, `granted`, `ended`",
                "limit must be a whole number from 1 to 1000",
            ],
        ),
        (
            "/v1/records?from=x&cursor=7",
            vec![
                "from must be a whole number from 0",
                "from cannot be used together with `cursor`",
            ],
        ),
        (
            "/v1/bookings?status=held",
            vec!["status must be `active` or `released`"],
        ),
        ("/v1/bookings/a?wait=6m", vec!["wait must be at most 5m"]),
        (
            "/v1/bookings?class=a&language=b",
            vec!["language is an alias of `class`; the two differ"],
        ),
        (
            "/v1/bookings/a?fence=x&wait=5",
            vec![
                "fence must be a whole number from 0",
                "wait `5` is not a duration; write a whole number and a unit, as in 500ms, 10s, 5m, 36h or 7d",
            ],
        ),
        (
            "/v1/records?from=-1&limit=0&raw=maybe",
            vec![
                "from must be a whole number from 0",
                "limit must be a whole number from 1 to 1000",
                "raw must be `true` or `false`",
            ],
        ),
        (
            "/v1/executions/a/logs?stream=both&from=x&follow=5",
            vec![
                "stream must be `stdout` or `stderr`",
                "follow must be `true` or `false`",
                "from must be a whole number from 0",
            ],
        ),
        (
            "/v1/ledger/export?to=x",
            vec!["to must be a whole number from 0"],
        ),
        (
            "/v1/limits?limit=ten",
            vec!["limit must be a whole number from 1 to 1000"],
        ),
    ] {
        let problem = world.ask("GET", path, "").await.is_problem("invalid");
        assert_eq!(sentences(&problem), expected, "{path}");
    }
    let method = world.ask("PATCH", "/v1/bookings/a", "{}").await;
    assert_eq!(method.json()["detail"], "this path does not accept PATCH");
}

#[tokio::test(start_paused = true)]
async fn a_flag_without_a_value_is_refused() {
    let world = World::new();
    for given in ["dryRun", "dryRun="] {
        let path = format!("/v1/bookings/a?{given}");
        let body = r#"{"class":"python","tenant":"acme"}"#;
        let problem = world.ask("PUT", &path, body).await.is_problem("invalid");
        let expected = ["dryRun must be `true` or `false`"];
        assert_eq!(sentences(&problem), expected, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_label_with_invisible_characters_is_refused_but_an_old_one_is_still_read() {
    let world = World::new();
    let hidden = "ac\u{202e}me";
    let message = "has the invisible character U+202E; leave it out";
    let body = json!({"class": hidden, "tenant": hidden}).to_string();
    let problem = world.ask("PUT", "/v1/bookings/new", &body).await;
    assert_eq!(
        sentences(&problem.is_problem("invalid")),
        [format!("class {message}"), format!("tenant {message}")]
    );
    let batch = json!({"operations": [
        {"op": "reserve", "id": "good", "class": "python", "tenant": "acme"},
        {"op": "reserve", "id": "bad", "class": hidden, "tenant": "acme", "slots": 0},
    ]});
    let answer = world
        .ask("POST", "/v1/bookings", &batch.to_string())
        .await
        .json();
    assert_eq!(answer["results"][0]["status"], 201);
    assert_eq!(
        sentences(&answer["results"][1]),
        [
            format!("class {message}"),
            "slots must be at least 1".to_owned()
        ]
    );
    let forced = json!({"force": true, "reason": "gone\u{1b}[2J"}).to_string();
    let problem = world
        .ask("POST", "/v1/bookings/good/release", &forced)
        .await;
    assert_eq!(
        sentences(&problem.is_problem("invalid")),
        ["reason has the invisible character U+001B; leave it out"]
    );
    let limit = limit_body("a", &json!({"class": hidden, "tenant": hidden}).to_string());
    let problem = world.ask("PUT", "/v1/limits/a", &limit).await;
    assert_eq!(sentences(&problem.is_problem("invalid")).len(), 2);
    // As an earlier version accepted it.
    let label = Label::new(hidden).unwrap();
    let request = BookingRequest {
        tenant: Some(label.clone()),
        ..BookingRequest::new(label)
    };
    let id = BookingId::new("old").unwrap();
    let old = Operation::Reserve { id, request };
    world
        .service
        .operate(&operator(), old, WriteMode::Real)
        .await
        .unwrap();
    for path in [
        "/v1/bookings/old",
        "/v1/bookings?tenant=ac%E2%80%AEme",
        "/v1/records?limit=9",
    ] {
        let reply = world.ask("GET", path, "").await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.text().contains(hidden), "{path}: {}", reply.text());
    }
}
