//! Visibility of limits, usage, records and fences for every role.

use std::sync::Arc;

use axum::body::Body;
use bursar_engine::token::Role;
use bursar_ledger::committer::Committer;
use bursar_server::{Anonymous, Caller, CallerSource, Peer, router};
use http::Request;
use serde_json::{Value, json};

use crate::events::Follower;
use crate::world::{Reply, World, caller, operator, send, user, viewer};

/// A ledger with limits of every kind, and two tenants that use them.
async fn shared() -> World {
    let world = World::new();
    for (name, spec) in [
        ("everything", r#"{"slots":40}"#),
        ("acme", r#"{"tenant":"acme","slots":7}"#),
        ("zeta", r#"{"tenant":"zeta","slots":9}"#),
        ("python", r#"{"class":"python","slots":3}"#),
        (
            "python-zeta",
            r#"{"class":"python","tenant":"zeta","slots":8}"#,
        ),
        (
            "python-each",
            r#"{"class":"python","tenant":"each","slots":6}"#,
        ),
        ("tenants", r#"{"tenant":"each","slots":20}"#),
    ] {
        let reply = world.limit(name, spec).await;
        let ships = name == "tenants";
        assert_eq!(reply.status, if ships { 200 } else { 201 }, "{reply:?}");
    }
    world.grant("own", "python", "acme").await;
    world.grant("theirs-1", "python", "zeta").await;
    world.grant("theirs-2", "secret-project", "zeta").await;
    world.grant("third", "python", "yota").await;
    world
}

fn acme() -> Caller {
    user(&["acme"])
}

async fn get(world: &World, caller: Caller, path: &str) -> Reply {
    world.ask_as(caller, "GET", path, "").await
}

async fn anonymous(world: &World, path: &str) -> Reply {
    let callers = CallerSource::Connection(Anonymous::Read);
    let router = router(Arc::clone(&world.service), callers);
    let request = Request::get(path)
        .extension(Peer::Loopback)
        .header("host", "localhost");
    send(&router, request.body(Body::empty()).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_tenant_sees_its_own_limits_and_the_numbers_of_shared_ones() {
    let world = shared().await;
    let listed = get(&world, acme(), "/v1/limits").await.json();
    let items = listed["items"].as_array().unwrap();
    let use_of = |limit: &Value| {
        let status = &limit["status"];
        let counters: Vec<_> = status["counters"].as_array().unwrap().iter().collect();
        let name = |counter: &Value| {
            let part = |part: &str| counter[part].as_str().unwrap_or("*").to_owned();
            format!(
                "{}/{} {}",
                part("class"),
                part("tenant"),
                counter["inUse"]["slots"]
            )
        };
        let counters: Vec<String> = counters.into_iter().map(name).collect();
        let name = limit["metadata"]["name"].as_str().unwrap().to_owned();
        (
            name,
            status["inUse"]["slots"].as_u64().unwrap(),
            counters.join(", "),
        )
    };
    let expected = [
        ("acme", 1, "*/acme 1"),
        ("default", 0, ""),
        ("everything", 4, "*/* 4"),
        ("python", 3, "python/* 3"),
        ("python-each", 1, "python/acme 1"),
        ("tenants", 0, ""),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, used, counters)| ((*name).to_owned(), *used, (*counters).to_owned()))
        .collect();
    assert_eq!(items.iter().map(use_of).collect::<Vec<_>>(), expected);
    for name in ["zeta", "python-zeta", "nothing"] {
        let mut problems = Vec::new();
        for path in ["/v1/limits", "/v1/explain/limit"] {
            let hidden = get(&world, acme(), &format!("{path}/{name}")).await;
            let problem = hidden.is_problem("not-found");
            assert_eq!(
                problem["detail"],
                format!("no limit `{name}`"),
                "as if absent"
            );
            problems.push(problem);
        }
        assert!(
            !problems
                .iter()
                .any(|problem| problem["suggestion"] == "zeta"
                    || problem["suggestion"] == "python-zeta"),
            "{problems:?}"
        );
    }
    let near = get(&world, acme(), "/v1/limits/zetb").await;
    assert_eq!(near.is_problem("not-found")["suggestion"], json!(null));
    for limit in expected {
        for path in ["/v1/limits", "/v1/explain/limit"] {
            let seen = get(&world, acme(), &format!("{path}/{}", limit.0)).await;
            assert_eq!(seen.status, 200, "{path} {limit:?}");
            let text = seen.text();
            for name in ["zeta", "yota", "secret-project"] {
                assert!(!text.contains(name), "{path} {limit:?}: {text}");
            }
        }
    }
    let whole = get(&world, viewer(), "/v1/limits").await.json();
    assert_eq!(
        whole["items"].as_array().unwrap().len(),
        8,
        "a viewer sees all"
    );
}

#[tokio::test(start_paused = true)]
async fn no_answer_to_a_tenant_names_another() {
    let world = shared().await;
    let wait = r#"{"class":"python","tenant":"acme","waitMs":60000}"#;
    let queued = world.ask_as(acme(), "PUT", "/v1/bookings/late", wait).await;
    assert_eq!(queued.status, 202, "{queued:?}");
    let now = r#"{"class":"python","tenant":"acme"}"#;
    let refused = world.ask_as(acme(), "PUT", "/v1/bookings/now", now).await;
    refused.is_problem("over-limit");
    let batch = r#"{"operations":[{"op":"reserve","id":"b","class":"python","tenant":"acme"},
        {"op":"cancel","id":"theirs-1"},{"op":"reserve","id":"theirs-2","class":"python"}]}"#;
    let batch = world.ask_as(acme(), "POST", "/v1/bookings", batch).await;
    let mut seen = vec![("refused".to_owned(), refused), ("batch".to_owned(), batch)];
    let description: Value = serde_json::from_str(bursar_server::http::DESCRIPTION).unwrap();
    for (path, methods) in description["paths"].as_object().unwrap() {
        // The stream does not end; it has its own tests.
        if methods.get("get").is_none() || path == "/v1/events" {
            continue;
        }
        for (id, kind, name) in [
            ("theirs-1", "booking", "theirs-1"),
            ("own", "booking", "own"),
            ("late", "limit", "python"),
            ("4", "record", "zeta"),
            ("zeta", "limit", "zeta"),
        ] {
            let path = path
                .replace("{id}", id)
                .replace("{kind}", kind)
                .replace("{namespace}", "theirs")
                .replace("{name}", name)
                .replace("{record}", "4")
                .replace("{code}", "busy")
                .replace("{path}", "0/000.p/1");
            let reply = get(&world, acme(), &path).await;
            seen.push((path, reply));
        }
    }
    for (path, reply) in seen {
        let text = String::from_utf8_lossy(&reply.bytes).into_owned();
        // The answer repeats the requested name, which reveals nothing.
        let text = text
            .replace("no limit `zeta`", "")
            .replace("no booking `zeta`", "")
            .replace("no node `zeta`", "")
            .replace("no lease `zeta`", "")
            .replace("no run `zeta`", "")
            .replace("no budget `zeta`", "")
            .replace("node `zeta`", "")
            .replace("/zeta", "");
        for name in ["zeta", "yota", "secret-project"] {
            assert!(!text.contains(name), "{path}: {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_with_many_counters_shows_the_largest_and_counts_the_rest() {
    let world = World::new();
    let more = world
        .limit("tenants", r#"{"tenant":"each","slots":9000}"#)
        .await;
    assert_eq!(more.status, 200, "{more:?}");
    let reserve = |n: u64, slots: u64| {
        json!({"op":"reserve","id":format!("b-{n}"),"class":format!("class-{n:04}"),
               "tenant":"acme","slots":slots})
    };
    for from in [0, 1_000] {
        let large = [(7, 3), (1_999, 2)];
        let slots = |n: u64| {
            large
                .iter()
                .find(|(of, _)| *of == n)
                .map_or(1, |(_, slots)| *slots)
        };
        let operations: Vec<Value> = (from..from + 1_000).map(|n| reserve(n, slots(n))).collect();
        let batch = json!({ "operations": operations }).to_string();
        assert_eq!(world.ask("POST", "/v1/bookings", &batch).await.status, 200);
    }
    for path in ["/v1/limits/default", "/v1/limits"] {
        let reply = world.ask("GET", path, "").await;
        assert!(
            reply.bytes.len() < 30_000,
            "{path}: {} bytes",
            reply.bytes.len()
        );
        let limit = reply.json();
        let limit = limit.get("items").map_or(&limit, |items| &items[0]);
        let status = &limit["status"];
        let counters = status["counters"].as_array().unwrap();
        assert_eq!(
            (counters.len(), &status["countersLeftOut"]),
            (100, &json!(1_900))
        );
        assert_eq!(
            status["inUse"]["slots"], 2_003,
            "the sum includes all counters"
        );
        let classes: Vec<&str> = counters
            .iter()
            .map(|c| c["class"].as_str().unwrap())
            .collect();
        assert!(classes.is_sorted(), "{classes:?}");
        assert!(classes.contains(&"class-0007") && classes.contains(&"class-1999"));
    }
}

/// Method: the caller holds nothing in the class that the limit names.
#[tokio::test(start_paused = true)]
async fn the_use_of_a_shared_class_is_visible_before_the_first_booking() {
    let world = World::new();
    let made = world
        .limit("python", r#"{"class":"python","slots":3}"#)
        .await;
    assert_eq!(made.status, 201);
    world.grant("theirs", "python", "zeta").await;
    world.grant("hidden", "secret-project", "zeta").await;
    let python = get(&world, acme(), "/v1/limits/python").await.json();
    assert_eq!(python["status"]["inUse"]["slots"], 1);
    let explained = get(&world, acme(), "/v1/explain/limit/python").await.json();
    assert!(
        explained["headline"].as_str().unwrap().contains("1/3"),
        "{explained:#}"
    );
    let default = get(&world, acme(), "/v1/limits/default").await;
    assert!(!String::from_utf8_lossy(&default.bytes).contains("secret-project"));
}

/// Method: there are more records than an anonymous caller may read back.
#[tokio::test(start_paused = true)]
async fn an_anonymous_caller_cannot_read_the_whole_past() {
    let world = World::new();
    let more = world
        .limit("tenants", r#"{"tenant":"each","slots":90000}"#)
        .await;
    assert_eq!(more.status, 200, "{more:?}");
    for batch in 0..10 {
        let reserve = |n: u64| {
            json!({"op":"reserve","id":format!("b-{batch}-{n}"),"class":format!("c-{batch}-{n}"),
                   "tenant":"acme"})
        };
        let operations: Vec<Value> = (0..1_010).map(reserve).collect();
        let body = json!({ "operations": operations }).to_string();
        assert_eq!(world.ask("POST", "/v1/bookings", &body).await.status, 200);
    }
    let callers = CallerSource::Connection(Anonymous::Read);
    let unknown =
        router(Arc::clone(&world.service), callers).layer(axum::Extension(Peer::Loopback));
    let mut follower = Follower::new(&unknown, "?from=0", None).await;
    assert_eq!(follower.next().await.unwrap().name, "reset");
    let known = world.router(acme());
    let mut follower = Follower::new(&known, "?from=0", None).await;
    assert_eq!(follower.next().await.unwrap().name, "booking.granted");
}

#[tokio::test(start_paused = true)]
async fn only_operators_and_the_holder_see_a_fence() {
    let world = World::new();
    // Fences that cannot be confused with other numbers.
    for n in 0..40 {
        let fence = world.grant(&format!("n-{n}"), "python", "zeta").await;
        let body = format!(r#"{{"fence":{fence}}}"#);
        let path = format!("/v1/bookings/n-{n}/release");
        assert_eq!(world.ask("POST", &path, &body).await.status, 200);
    }
    let fence = world.grant("own", "python", "acme").await;
    let record = world.service.record();
    let (proof, raw) = (
        "/v1/proofs/booking/own",
        "/v1/records?object=booking/own&raw=true",
    );
    let by_number = format!("/v1/proofs/record/{record}");
    let has_fence = |reply: &Reply| {
        let text = reply.text().replace("\\\"", "\"");
        text.contains("\"fence\"") || text.contains(&format!("\"fence\":{fence}"))
    };
    for path in [proof, raw, by_number.as_str()] {
        for own in [
            operator(),
            user(&["acme"]),
            caller("both", &[Role::Use, Role::View], &["acme"]),
        ] {
            let reply = get(&world, own, path).await;
            assert_eq!(reply.status, 200, "{path}: {reply:?}");
            assert!(has_fence(&reply), "{path}: {}", reply.text());
        }
        get(&world, viewer(), path).await.is_problem("not-allowed");
        anonymous(&world, path).await.is_problem("not-allowed");
        let other = get(&world, user(&["zeta"]), path).await;
        let code = if path == by_number {
            "not-allowed"
        } else {
            "not-found"
        };
        other.is_problem(code);
    }
    let both = caller("both", &[Role::Use, Role::View], &["zeta"]);
    for path in [proof, raw, by_number.as_str()] {
        get(&world, both.clone(), path)
            .await
            .is_problem("not-allowed");
    }
    for path in [
        "/v1/bookings",
        "/v1/bookings/own",
        "/v1/records",
        "/v1/explain/booking/own",
        "/v1/executions",
        "/v1/limits",
    ] {
        for reply in [
            get(&world, viewer(), path).await,
            anonymous(&world, path).await,
        ] {
            assert_eq!(reply.status, 200, "{path}");
            assert!(!has_fence(&reply), "{path}: {}", reply.text());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_anonymous_caller_reads_hashes_and_sentences_and_cannot_search() {
    let world = World::new();
    world.grant("a", "python", "acme").await;
    world
        .service
        .ledger()
        .on_store(Committer::checkpoint)
        .await
        .unwrap()
        .unwrap();
    for path in [
        "/v1/records",
        "/log/checkpoint",
        "/log/tile/0/000.p/1",
        "/log/inclusion/1",
        "/v1/bookings",
        "/v1/limits",
    ] {
        assert_eq!(anonymous(&world, path).await.status, 200, "{path}");
    }
    for path in [
        "/v1/records?object=booking/a",
        "/v1/records?object=record/1",
        "/v1/records?raw=true",
        "/v1/proofs/booking/a",
        "/v1/proofs/record/1",
        "/v1/ledger/export",
        "/log/tile/entries/000.p/1",
    ] {
        anonymous(&world, path).await.is_problem("not-allowed");
    }
    let viewed = get(&world, viewer(), "/v1/records?object=booking/a").await;
    assert_eq!(viewed.json()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn inclusion_is_proven_by_hashes_alone() {
    use bursar_journal::hash::Hash;
    let world = World::new();
    for n in 0..300 {
        world
            .grant(&format!("a-{n}"), &format!("class-{n}"), "acme")
            .await;
    }
    world
        .service
        .ledger()
        .on_store(Committer::checkpoint)
        .await
        .unwrap()
        .unwrap();
    let signed = world.service.record() + 1;
    for record in [0, 255, 256, signed - 1] {
        let shown = anonymous(&world, &format!("/log/inclusion/{record}")).await;
        assert_eq!(shown.status, 200, "{shown:?}");
        assert!(!shown.text().contains("class-"), "no payload");
        let shown = shown.json();
        let hash = |text: &Value| text.as_str().unwrap().parse::<Hash>().unwrap();
        let path: Vec<Hash> = shown["inclusion"]
            .as_array()
            .unwrap()
            .iter()
            .map(hash)
            .collect();
        let size = shown["records"].as_u64().unwrap();
        let note = shown["checkpoint"].as_str().unwrap();
        let key = shown["keys"][0].as_str().unwrap().parse().unwrap();
        let checkpoint = bursar_journal::checkpoint::Checkpoint::open(note, &key).unwrap();
        assert_eq!((checkpoint.size, size), (signed, signed));
        bursar_journal::merkle::verify_inclusion(
            &hash(&shown["leaf"]),
            record,
            size,
            &checkpoint.root,
            &path,
        )
        .unwrap();
    }
    let later = anonymous(&world, &format!("/log/inclusion/{signed}")).await;
    later.is_problem("not-found");
    anonymous(&world, "/log/inclusion/x")
        .await
        .is_problem("invalid");
}

#[tokio::test(start_paused = true)]
async fn a_taken_id_reveals_neither_its_owner_nor_its_request() {
    let world = World::new();
    world.grant("theirs", "python", "zeta").await;
    world.grant("mine", "python", "acme").await;
    let asked = r#"{"class":"other","tenant":"acme","slots":3}"#;
    let taken = world
        .ask_as(acme(), "PUT", "/v1/bookings/theirs", asked)
        .await;
    let problem = taken.is_problem("id-reused");
    assert_eq!(
        problem["detail"],
        "id `theirs` is in use for another request"
    );
    assert_eq!(problem["changes"], json!(["use a new id"]));
    let batch = json!({"operations":[{"op":"reserve","id":"theirs","class":"other"}]}).to_string();
    for path in ["/v1/bookings", "/v1/bookings?dryRun=true"] {
        let results = world.ask_as(acme(), "POST", path, &batch).await.json();
        let result = &results["results"][0];
        assert_eq!(result["detail"], problem["detail"], "{results:#}");
    }
    let own = world
        .ask_as(acme(), "PUT", "/v1/bookings/mine", asked)
        .await;
    let detail = own.is_problem("id-reused")["detail"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        detail.contains("differs"),
        "its owner learns more: {detail}"
    );
}

#[tokio::test(start_paused = true)]
async fn records_of_an_own_booking_reveal_nothing_about_others() {
    let world = World::new();
    world
        .limit("python", r#"{"class":"python","slots":1}"#)
        .await;
    let fence = world.grant("theirs", "python", "zeta").await;
    let wait = r#"{"class":"python","tenant":"acme","waitMs":60000}"#;
    world.ask("PUT", "/v1/bookings/mine", wait).await;
    let release = format!(r#"{{"fence":{fence}}}"#);
    world
        .ask_as(
            user(&["zeta"]),
            "POST",
            "/v1/bookings/theirs/release",
            &release,
        )
        .await;
    let path = "/v1/records?object=booking/mine&raw=true";
    let own = get(&world, acme(), path).await.json();
    let items = own["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{own:#}");
    assert!(
        items[0]["raw"].is_object(),
        "the first record names no other tenant"
    );
    assert_eq!(items[1]["raw"], json!(null), "the second does");
    assert_eq!(items[1]["by"], json!(null));
    let text = own.to_string();
    assert!(
        text.contains("mine granted") && !text.contains("theirs"),
        "{own:#}"
    );
    get(&world, acme(), "/v1/records?object=booking/theirs")
        .await
        .is_problem("not-found");
    get(&world, acme(), "/v1/records?object=limit/python")
        .await
        .is_problem("not-allowed");
    get(&world, acme(), "/v1/records")
        .await
        .is_problem("not-allowed");
}

#[tokio::test(start_paused = true)]
async fn the_next_owner_of_a_forgotten_id_does_not_see_its_past() {
    let world = World::new();
    let fence = world.grant("again", "python", "zeta").await;
    let first = world.service.record();
    let release = format!(r#"{{"fence":{fence}}}"#);
    world
        .ask("POST", "/v1/bookings/again/release", &release)
        .await;
    tokio::time::sleep(std::time::Duration::from_hours(30)).await;
    // When a booking ends, the ledger forgets those that ended a day before.
    let fence = world.grant("last", "python", "zeta").await;
    let release = format!(r#"{{"fence":{fence}}}"#);
    world
        .ask("POST", "/v1/bookings/last/release", &release)
        .await;
    world.grant("again", "python", "acme").await;
    for record in [first, first + 1] {
        let path = format!("/v1/proofs/record/{record}");
        get(&world, acme(), &path).await.is_problem("not-allowed");
    }
    get(&world, acme(), "/v1/proofs/booking/again")
        .await
        .is_problem("not-allowed");
    let records = get(&world, acme(), "/v1/records?object=booking/again&raw=true")
        .await
        .json();
    let items = records["items"].as_array().unwrap();
    assert_eq!(items.len(), 3, "{records:#}");
    for past in &items[..2] {
        assert_eq!(
            (&past["raw"], &past["summary"]),
            (&json!(null), &json!([])),
            "{past:#}"
        );
    }
    assert!(items[2]["raw"].is_object());
    let mut follower =
        crate::events::Follower::new(&world.router(acme()), "?from=0&kinds=booking", None).await;
    let heard = follower.next().await.unwrap();
    assert!(heard.data.contains("for acme"), "{heard:?}");
}
