//! All mistakes of a request are reported in one answer: those of the address, the headers, the
//! query and the body.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use bursar_server::{Anonymous, CallerSource, Peer, router};
use http::{HeaderValue, Request};
use serde_json::{Value, json};

use crate::world::{Reply, World, operator, send, user};

/// Addresses without a caller and without parameters that could be wrong.
const OPEN: [&str; 4] = ["/healthz", "/openapi.json", "/problems/{code}", "/readyz"];

/// Parameters that accept any text.
const FREE: [(&str, &str); 12] = [
    ("/v1/budgets", "cursor"),
    ("/v1/budgets/{namespace}/{name}", "If-Match"),
    ("/v1/envelopes", "cursor"),
    ("/v1/leases", "cursor"),
    ("/v1/leases", "run"),
    ("/v1/runs", "cursor"),
    ("/v1/runs/{namespace}/{name}", "If-Match"),
    ("/v1/limits", "cursor"),
    ("/v1/limits/{name}", "If-Match"),
    ("/v1/nodes", "cursor"),
    ("/v1/nodes/{name}", "If-Match"),
    ("/v1/tokens", "cursor"),
];

/// A wrong value for a query, and one for a header.
type Wrong = (&'static str, &'static [u8]);
/// Bytes that are not UTF-8, which no parameter accepts.
const UNTEXT: Wrong = ("%FF", b"\xff");
/// A text that only the parameters of [`FREE`] accept.
const TEXT: Wrong = ("%20", b"a b");

/// Field and message of each mistake.
fn sentences(problem: &Value) -> Vec<String> {
    let errors = problem["errors"].as_array().unwrap().iter();
    errors
        .map(|error| {
            format!(
                "{} {}",
                error["path"].as_str().unwrap_or(""),
                error["message"]
            )
        })
        .map(|sentence| sentence.replace('"', ""))
        .collect()
}

/// Fields that a problem names.
fn named(problem: &Value) -> Vec<&str> {
    let errors = problem["errors"].as_array().unwrap().iter();
    errors
        .map(|error| error["path"].as_str().unwrap_or(""))
        .collect()
}

async fn ask(world: &World, request: http::request::Builder, body: &str) -> Reply {
    let request = request.body(Body::from(body.to_owned())).unwrap();
    send(&world.router(operator()), request).await
}

/// Required fields of the body of an operation; `None` if it has no body.
fn required_fields(description: &Value, operation: &Value) -> Option<Vec<String>> {
    let schema = &operation.get("requestBody")?["content"]["application/json"]["schema"];
    let choices = schema["oneOf"].as_array().into_iter().flatten();
    let mut references = choices.chain([schema]).filter_map(|of| of["$ref"].as_str());
    let name = references.next().unwrap().rsplit('/').next().unwrap();
    let required = &description["components"]["schemas"][name]["required"];
    let fields = required.as_array().into_iter().flatten();
    Some(
        fields
            .map(|field| field.as_str().unwrap().to_owned())
            .collect(),
    )
}

/// A request in which everything is wrong, its body, and the names that its problem must have.
fn all_wrong(
    description: &Value,
    (path, method, operation): (&str, &str, &Value),
    wrong: Wrong,
) -> (http::request::Builder, &'static str, Vec<String>) {
    let (in_query, in_header) = wrong;
    let mut request = Request::builder().method(method.to_uppercase().as_str());
    let mut address = path.to_owned();
    let mut query = vec!["nonsense=1".to_owned()];
    let mut expected = vec!["nonsense".to_owned()];
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap();
        match parameter["in"].as_str().unwrap() {
            // The kind must be valid, because the name is checked by the rules of its kind.
            "path" if name == "kind" => {
                let is_scoped = path.contains("{namespace}");
                let kind = if is_scoped { "run" } else { "booking" };
                address = address.replace("{kind}", kind);
                continue;
            }
            "path" => address = address.replace(&format!("{{{name}}}"), "%20"),
            "query" => query.push(format!("{name}={in_query}")),
            "header" => {
                let value = HeaderValue::from_bytes(in_header).unwrap();
                request = request.header(name, value);
            }
            place => panic!("{method} {path}: {place}"),
        }
        let is_taken = wrong == TEXT && FREE.contains(&(path, name));
        expected.extend((!is_taken).then(|| name.to_owned()));
    }
    let request = request.uri(format!("{address}?{}", query.join("&")));
    let Some(fields) = required_fields(description, operation) else {
        return (request, "", expected);
    };
    expected.extend(fields);
    // Unknown fields of a Kubernetes node are accepted.
    if path != "/v1/nodes/{name}" {
        expected.push("nonsensical".to_owned());
    }
    (request, r#"{"nonsensical":1}"#, expected)
}

#[tokio::test(start_paused = true)]
async fn every_route_names_every_parameter_and_field_that_is_wrong() {
    let world = World::new();
    let description: Value = serde_json::from_str(bursar_server::http::DESCRIPTION).unwrap();
    let paths = description["paths"].as_object().unwrap().iter();
    let routes: Vec<(&str, &str, &Value)> = paths
        .filter(|(path, _)| !OPEN.contains(&path.as_str()))
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().iter();
            methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        })
        .collect();
    assert!(40 < routes.len(), "{}", routes.len());
    for route @ (path, method, _) in routes {
        for wrong in [UNTEXT, TEXT] {
            let (request, body, expected) = all_wrong(&description, route, wrong);
            let problem = ask(&world, request, body).await.is_problem("invalid");
            let names = named(&problem);
            for name in &expected {
                assert!(
                    names.contains(&name.as_str()),
                    "{method} {path} with {wrong:?} does not name {name}: {problem:#}"
                );
            }
            let once: BTreeSet<String> = sentences(&problem).into_iter().collect();
            assert_eq!(once.len(), names.len(), "{method} {path}: {problem:#}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_mistakes_of_a_declared_object_are_reported() {
    let world = World::new();
    for (path, body, expected) in [
        (
            "/v1/limits/x",
            json!({"slots": -2}),
            vec!["slots", "apiVersion", "kind", "metadata", "spec"],
        ),
        (
            "/v1/limits/x",
            json!({"kind": 7, "metadata": {"name": "y"}, "spec": {"slots": -2}}),
            vec!["apiVersion", "kind", "spec.slots", "metadata.name"],
        ),
        (
            "/v1/nodes/x",
            json!({"apiVersion": "v2", "status": {"allocatable": {"cpu": "much"}}}),
            vec!["apiVersion", "kind", "metadata", "status.allocatable.cpu"],
        ),
        (
            "/v1/limits/x",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"},
                "status": {"allocatable": {}}}),
            vec!["kind"],
        ),
    ] {
        let reply = world.ask("PUT", path, &body.to_string()).await;
        assert_eq!(named(&reply.is_problem("invalid")), expected, "{body}");
    }
    let apply = json!({"objects": [
        {"apiVersion": "bursar.dev/v1alpha1", "spec": {"slots": -2}}, {"slots": -2},
    ], "dryRun": true});
    let reply = world
        .ask("POST", "/v1/apply?dryrun", &apply.to_string())
        .await;
    assert_eq!(
        named(&reply.is_problem("invalid")),
        [
            "dryrun",
            "dryRun",
            "objects[0].kind",
            "objects[1].apiVersion",
            "objects[1].kind",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn all_wrong_parameters_of_a_route_are_reported_together() {
    let world = World::new();
    for (path, expected) in [
        (
            "/v1/events?kinds=nope&tenant=%20&from=x&minRecord=y",
            vec!["minRecord", "tenant", "from", "kinds"],
        ),
        (
            "/v1/events?kinds=nope,limit,bookings.granted,nope",
            vec!["kinds", "kinds"],
        ),
        (
            "/v1/nodes/A/market?since=x&at=y&minRecord=z",
            vec!["minRecord", "name", "since", "at", "at"],
        ),
        (
            "/v1/records?from=x&cursor=y&object=wedding/a&limit=5000",
            vec!["from", "from", "limit", "object", "cursor"],
        ),
        (
            "/v1/bookings?limit=5000&cursor=7&class=%20&language=a",
            vec!["class", "language", "limit", "cursor"],
        ),
        ("/v1/ledger/export?from=x&to=y", vec!["from", "to"]),
        (
            "/v1/explain/wedding/a?minRecord=x",
            vec!["minRecord", "kind"],
        ),
        (
            "/v1/proofs/wedding/a?minRecord=x",
            vec!["minRecord", "kind"],
        ),
        ("/log/inclusion/x?minRecord=y", vec!["minRecord", "record"]),
        ("/log/tile/x?minRecord=1", vec!["minRecord", "path"]),
        ("/v1/limits/%FF?minRecord=x", vec!["address", "minRecord"]),
        (
            "/v1/limits?a=1&a=2&limit=5&limit=5&limit=5",
            vec!["a", "limit"],
        ),
    ] {
        let problem = world.ask("GET", path, "").await.is_problem("invalid");
        assert_eq!(named(&problem), expected, "{path}: {problem:#}");
    }
    // A single mistake with its own code keeps that code.
    for (path, code, detail) in [
        (
            "/v1/limits?limit=5000",
            "too-large",
            "limit is 5000, a page has at most 1000 items",
        ),
        (
            "/v1/explain/wedding/a",
            "not-found",
            "`wedding` is not a kind here; the kinds are booking, limit",
        ),
        (
            "/v1/records?object=wedding/a",
            "not-found",
            "`wedding` is not a kind here; the kinds are record, booking, limit, node, pod, token, \
             budget, envelope, run, lease",
        ),
    ] {
        let problem = world.ask("GET", path, "").await.is_problem(code);
        assert_eq!(problem["detail"], detail);
    }
}

#[tokio::test(start_paused = true)]
async fn mistakes_of_the_address_the_headers_the_query_and_the_body_are_one_answer() {
    let world = World::new();
    let untext = HeaderValue::from_bytes(b"\xff").unwrap();
    for (request, body, expected) in [
        (
            Request::put("/v1/bookings/a%20b?dryRun=maybe&wiat=1"),
            r#"{"clas":"python","slots":-1}"#,
            vec!["wiat", "id", "dryRun", "clas", "slots"],
        ),
        (
            Request::put("/v1/limits/A?x=1").header("If-Match", untext.clone()),
            r#"{"slots":-2}"#,
            vec![
                "x",
                "name",
                "If-Match",
                "slots",
                "apiVersion",
                "kind",
                "metadata",
                "spec",
            ],
        ),
        (
            Request::post("/v1/ledger/prune?x=1&dryRun=2").header("Idempotency-Key", "a b"),
            r#"{"after":"now"}"#,
            vec!["x", "Idempotency-Key", "dryRun", "after", "before"],
        ),
        (
            Request::get("/v1/events?from=x").header("Last-Event-ID", "7"),
            "",
            vec!["Last-Event-ID", "from"],
        ),
        (
            Request::post("/v1/executions/a%20b/cancel?x=1"),
            r#"{"force":true}"#,
            vec!["x", "id", "force"],
        ),
        // A body that is not an object is a mistake like the others.
        (Request::put("/v1/bookings/a%20b"), "[]", vec!["id", ""]),
    ] {
        let problem = ask(&world, request, body).await.is_problem("invalid");
        assert_eq!(named(&problem), expected, "{problem:#}");
    }
    // An unreadable body has no fields to name.
    for (body, code) in [("{", "malformed"), ("", "malformed")] {
        let request = Request::put("/v1/bookings/a%20b?wiat=1");
        let problem = ask(&world, request, body).await.is_problem(code);
        assert_eq!(problem.get("errors"), None, "{problem:#}");
    }
    let large = json!({"operations": vec![json!({"op": "cancel", "id": "a"}); 1025]});
    let request = Request::post("/v1/bookings?wiat=1");
    ask(&world, request, &large.to_string())
        .await
        .is_problem("too-large");
}

#[tokio::test(start_paused = true)]
async fn a_required_tenant_is_reported_with_all_other_mistakes() {
    let world = World::new();
    let ask = async |method: &str, path: &str, body: &str| {
        let caller = user(&["acme", "zeta"]);
        world.ask_as(caller, method, path, body).await
    };
    for (path, body, expected) in [
        (
            "/v1/bookings/a%20b",
            r#"{"class":"python"}"#,
            vec!["id", "tenant"],
        ),
        (
            "/v1/executions/a?x=1",
            r#"{"class":"python","command":"true","tenant":null}"#,
            vec!["x", "tenant"],
        ),
        (
            "/v1/bookings/a",
            r#"{"tenant":null,"class":"python","slots":"1"}"#,
            vec!["slots", "tenant"],
        ),
        (
            "/v1/bookings/a%20b",
            r#"{"class":"python","tenant":"acme"}"#,
            vec!["id"],
        ),
    ] {
        let problem = ask("PUT", path, body).await.is_problem("invalid");
        assert_eq!(named(&problem), expected, "{problem:#}");
    }
    let batch = json!({"operations": [
        {"op": "reserve", "id": "a", "class": "python", "slots": 0},
        {"op": "reserve", "id": "b", "class": "python", "tenant": "acme"},
    ]});
    let answer = ask("POST", "/v1/bookings", &batch.to_string()).await.json();
    assert_eq!(named(&answer["results"][0]), ["slots", "tenant"]);
    assert_eq!(answer["results"][1]["status"], 201);
}

#[tokio::test(start_paused = true)]
async fn an_unauthenticated_caller_learns_no_mistakes() {
    let world = World::new();
    let source = CallerSource::Connection(Anonymous::None);
    let router = router(Arc::clone(&world.service), source);
    for request in [
        Request::get("/v1/events?kinds=nope&minRecord=y"),
        Request::put("/v1/limits/%FF?x=1"),
    ] {
        let request = request
            .extension(Peer::Loopback)
            .header("host", "127.0.0.1:7171");
        let request = request.body(Body::from("{")).unwrap();
        let problem = send(&router, request).await.is_problem("unauthenticated");
        assert_eq!(problem.get("errors"), None, "{problem:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_with_mistakes_does_not_wait_for_a_record() {
    let world = World::new();
    let begun = tokio::time::Instant::now();
    let path = "/v1/bookings?minRecord=999999&limit=x";
    world.ask("GET", path, "").await.is_problem("invalid");
    assert_eq!(begun.elapsed().as_millis(), 0);
    let path = "/v1/bookings?minRecord=999999";
    world.ask("GET", path, "").await.is_problem("unavailable");
    assert!(1 < begun.elapsed().as_secs());
}

#[tokio::test(start_paused = true)]
async fn many_mistakes_get_a_short_answer() {
    let world = World::new();
    let many: Vec<String> = (0..1_000).map(|at| format!("p{at}")).collect();
    for path in [
        format!("/v1/limits?{}", many.join("=1&")),
        format!("/v1/events?kinds={}", many.join(",")),
    ] {
        let problem = world.ask("GET", &path, "").await.is_problem("invalid");
        assert_eq!(named(&problem).len(), 64);
    }
}
