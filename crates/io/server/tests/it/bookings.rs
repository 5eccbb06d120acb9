//! Reserve, read, renew, release, cancel, batch, list.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{World, user};

#[tokio::test(start_paused = true)]
async fn a_slot_is_granted_renewed_released_once_and_remembered() {
    let world = World::new();
    let body = r#"{"class":"python","tenant":"acme","ttlMs":60000}"#;
    let granted = world.ask("PUT", "/v1/bookings/job-1", body).await;
    assert_eq!(granted.status, 201);
    let json = granted.json();
    assert_eq!(
        (&json["state"], &json["fence"]),
        (&json!("granted"), &json!(1))
    );
    assert_eq!(json["expiresAt"], "2026-11-16T10:01:00.000Z");
    assert_eq!(
        granted.headers["bursar-record"],
        json["record"].to_string().as_str()
    );

    let repeated = world.ask("PUT", "/v1/bookings/job-1", body).await;
    assert_eq!(
        (repeated.status.as_u16(), &repeated.json()["fence"]),
        (200, &json!(1))
    );
    assert_eq!(
        repeated.json()["record"],
        json["record"],
        "a repeat writes nothing"
    );

    tokio::time::advance(Duration::from_secs(30)).await;
    let renewed = world
        .ask("POST", "/v1/bookings/job-1/renew", r#"{"fence":1}"#)
        .await;
    assert_eq!(renewed.json()["expiresAt"], "2026-11-16T10:01:30.000Z");
    let seen = world
        .ask("GET", "/v1/bookings/job-1?fence=1", "")
        .await
        .json();
    assert_eq!(
        seen["expiresAt"], "2026-11-16T10:01:30.000Z",
        "a renewal is visible at once"
    );
    assert_eq!(seen["held"], true);
    assert_eq!(
        world
            .ask("GET", "/v1/bookings/job-1?fence=2", "")
            .await
            .json()["held"],
        false
    );

    let release = r#"{"fence":1,"outcome":"failed","exitCode":7}"#;
    let released = world
        .ask("POST", "/v1/bookings/job-1/release", release)
        .await
        .json();
    assert_eq!(
        (&released["end"], &released["applied"]),
        (&json!("released"), &json!(true))
    );
    let again = world
        .ask("POST", "/v1/bookings/job-1/release", r#"{"fence":1}"#)
        .await;
    assert_eq!(again.status, 200);
    assert_eq!(again.json()["applied"], false);
    assert_eq!(again.json()["exitCode"], 7, "the first outcome is kept");

    let stale = world
        .ask("POST", "/v1/bookings/job-1/renew", r#"{"fence":1}"#)
        .await;
    let problem = stale.is_problem("stale-fence");
    assert_eq!(problem["end"], "released");
    assert!(problem["endedAt"].is_string());
}

#[tokio::test(start_paused = true)]
async fn a_full_limit_refuses_with_numbers_and_holders_or_queues() {
    let world = World::new();
    world
        .limit("python", r#"{"class":"python","slots":2}"#)
        .await;
    world.grant("a", "python", "acme").await;
    world.grant("b", "python", "zeta").await;

    let body = r#"{"class":"python","tenant":"acme"}"#;
    let refused = world
        .ask("PUT", "/v1/bookings/c", body)
        .await
        .is_problem("over-limit");
    let limit = json!({"name":"python","dimension":"slots","size":2,"inUse":2,"waiting":0});
    assert_eq!(refused["limits"], json!([limit]));
    assert!(
        refused["detail"]
            .as_str()
            .unwrap()
            .contains("limit `python` is 2, in use 2, waiting 0")
    );
    assert_eq!(
        refused["holders"],
        json!([{"tenant":"acme","slots":1},{"tenant":"zeta","slots":1}])
    );
    let as_acme = world
        .ask_as(user(&["acme"]), "PUT", "/v1/bookings/c", body)
        .await;
    assert_eq!(
        as_acme.json()["holders"],
        json!([{"tenant":"acme","slots":1},{"others":1,"slots":1}]),
        "a caller with `use` alone does not see the names of others"
    );

    let wait = r#"{"class":"python","tenant":"acme","waitMs":60000}"#;
    let queued = world.ask("PUT", "/v1/bookings/c", wait).await;
    assert_eq!(queued.status, 202);
    assert_eq!(
        (&queued.json()["state"], &queued.json()["ahead"]),
        (&json!("queued"), &json!(0))
    );
    let explained = world.ask("GET", "/v1/explain/booking/c", "").await.json();
    assert_eq!(
        (&explained["waitsFor"], &explained["reason"]),
        (&json!("room"), &json!("LimitFull"))
    );

    let never = r#"{"class":"python","tenant":"acme","slots":3}"#;
    world
        .ask("PUT", "/v1/bookings/d", never)
        .await
        .is_problem("never-fits");
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_returns_at_the_grant_or_when_its_wait_is_over() {
    let world = World::new();
    world
        .limit("python", r#"{"class":"python","slots":1}"#)
        .await;
    let fence = world.grant("a", "python", "acme").await;
    let wait = r#"{"class":"python","tenant":"acme","waitMs":3600000}"#;
    world.ask("PUT", "/v1/bookings/b", wait).await;

    let begun = tokio::time::Instant::now();
    let answer = world.ask("GET", "/v1/bookings/b?wait=10s", "").await.json();
    assert_eq!(answer["state"], "queued");
    assert_eq!(
        begun.elapsed().as_secs(),
        10,
        "it waited for the whole time"
    );

    let release = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let body = format!(r#"{{"fence":{fence}}}"#);
        world.ask("POST", "/v1/bookings/a/release", &body).await
    };
    let begun = tokio::time::Instant::now();
    let (answer, _) = tokio::join!(world.ask("GET", "/v1/bookings/b?wait=1m", ""), release);
    assert_eq!(answer.json()["state"], "granted");
    assert_eq!(
        begun.elapsed().as_secs(),
        3,
        "it returned when it was granted"
    );
    world
        .ask("GET", "/v1/bookings/b?wait=6m", "")
        .await
        .is_problem("invalid");
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_decided_in_order_and_each_operation_has_its_own_answer() {
    let world = World::new();
    world
        .limit("python", r#"{"class":"python","slots":1}"#)
        .await;
    let fence = world.grant("a", "python", "acme").await;
    let batch = json!({"operations": [
        {"op":"reserve","id":"b","class":"python","tenant":"acme"},
        {"op":"release","id":"a","fence":fence,"outcome":"ok"},
        {"op":"reserve","id":"b","class":"python","tenant":"acme"},
        {"op":"reserve","id":"c","class":"python","tenant":"acme","waitMs":1000},
        {"op":"cancel","id":"c"},
        {"op":"renew","id":"nobody","fence":1},
    ]});
    for path in ["/v1/bookings?dryRun=true", "/v1/bookings"] {
        let answer = world.ask("POST", path, &batch.to_string()).await;
        let results = answer.json()["results"].clone();
        let status: Vec<&Value> = results
            .as_array()
            .unwrap()
            .iter()
            .map(|result| &result["status"])
            .collect();
        assert_eq!(
            json!(status),
            json!([429, 200, 201, 202, 200, 404]),
            "{path} {results:#}"
        );
        assert_eq!(results[0]["code"], "over-limit");
        assert_eq!(results[2]["fence"], fence + 1);
        assert_eq!(results[4]["end"], "cancelled");
    }
    let many: Vec<Value> = (0..1_025)
        .map(|n| json!({"op":"cancel","id":format!("x{n}")}))
        .collect();
    let too_many = json!({ "operations": many }).to_string();
    world
        .ask("POST", "/v1/bookings", &too_many)
        .await
        .is_problem("too-large");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_like_the_real_write_and_changes_nothing() {
    let world = World::new();
    let before = world.service.record();
    let body = r#"{"class":"python","tenant":"acme"}"#;
    let planned = world.ask("PUT", "/v1/bookings/a?dryRun=true", body).await;
    assert_eq!(world.service.record(), before);
    let real = world.ask("PUT", "/v1/bookings/a", body).await;
    assert_eq!(planned.status, real.status);
    let (mut planned, mut real) = (planned.json(), real.json());
    assert_eq!(
        planned.as_object_mut().unwrap().remove("dryRun"),
        Some(json!(true))
    );
    for json in [&mut planned, &mut real] {
        json.as_object_mut().unwrap().remove("record");
    }
    assert_eq!(planned, real);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_paged_filtered_and_complete() {
    let world = World::new();
    for n in 0..25 {
        let class = if n % 2 == 0 { "python" } else { "rust" };
        let fence = world.grant(&format!("job-{n:02}"), class, "acme").await;
        if n >= 15 {
            let body = format!(r#"{{"fence":{fence}}}"#);
            world
                .ask("POST", &format!("/v1/bookings/job-{n:02}/release"), &body)
                .await;
        }
    }
    let all = ids(&world, "").await;
    assert_eq!(all.len(), 25);
    assert_eq!(all[0], "job-00", "live bookings come by id");
    assert_eq!(all[15], "job-24", "then ended bookings, newest first");
    assert_eq!(ids(&world, "&class=python&state=ended").await.len(), 5);
    assert_eq!(ids(&world, "&language=rust&status=active").await.len(), 7);
    assert_eq!(ids(&world, "&id=job-03").await, ["job-03"]);
    assert_eq!(ids(&world, "&execution=job-20").await, ["job-20"]);
    assert_eq!(ids(&world, "&tenant=zeta").await, Vec::<String>::new());
    world
        .ask("GET", "/v1/bookings?limit=1001", "")
        .await
        .is_problem("too-large");
    world
        .ask("GET", "/v1/bookings?limit=0", "")
        .await
        .is_problem("invalid");
    world
        .ask("GET", "/v1/bookings?cursor=x", "")
        .await
        .is_problem("invalid");
    let typo = world
        .ask("GET", "/v1/bookings?tennant=a", "")
        .await
        .is_problem("invalid");
    assert_eq!(typo["errors"][0]["suggestion"], "did you mean `tenant`?");
}

/// Reads all ids of a list, three per page.
async fn ids(world: &World, filter: &str) -> Vec<String> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/bookings?limit=3{filter}{cursor}");
        let page = world.ask("GET", &path, "").await.json();
        let items = page["items"].as_array().unwrap();
        all.extend(
            items
                .iter()
                .map(|item| item["id"].as_str().unwrap().to_owned()),
        );
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// Method: both requests are decided in one batch, so the view has the grant when the first of them
/// is answered.
#[tokio::test(start_paused = true)]
async fn an_answer_shows_the_decision_and_not_later_changes() {
    let world = World::new();
    world.limit("one", r#"{"class":"python","slots":1}"#).await;
    let fence = world.grant("holds", "python", "acme").await;
    let waits = r#"{"class":"python","tenant":"acme","waitMs":60000}"#;
    let free = format!(
        r#"{{"operations":[{{"op":"release","id":"holds","fence":{fence}}},
                           {{"op":"reserve","id":"other","class":"rust","tenant":"acme"}}]}}"#
    );
    let (queued, freed) = tokio::join!(
        world.ask("PUT", "/v1/bookings/waits", waits),
        world.ask("POST", "/v1/bookings", &free)
    );
    assert_eq!(freed.status, 200, "{}", freed.text());
    assert_eq!(
        (queued.status.as_u16(), &queued.json()["state"]),
        (202, &json!("queued"))
    );
    let record = |reply: &crate::world::Reply| reply.json()["record"].as_u64().unwrap();
    assert!(record(&queued) < record(&freed));
    let seen = world.ask("GET", "/v1/bookings/waits", "").await.json();
    assert_eq!(seen["state"], "granted");
    // A repeat shows the current state.
    let again = world.ask("PUT", "/v1/bookings/waits", waits).await;
    assert_eq!(
        (again.status.as_u16(), &again.json()["fence"]),
        (200, &seen["fence"])
    );
}

#[tokio::test(start_paused = true)]
async fn a_note_of_the_owner_or_of_an_operator_is_shown_and_recorded() {
    let world = World::new();
    world.grant("job", "python", "acme").await;
    let path = "/v1/bookings/job/note";
    let noted = world
        .ask_as(
            user(&["acme"]),
            "PUT",
            path,
            r#"{"text":" waits for data "}"#,
        )
        .await
        .json();
    assert_eq!(
        (&noted["note"], &noted["applied"]),
        (&json!("waits for data"), &json!(true))
    );
    let body = r#"{"text":"the data is there"}"#;
    let noted = world.ask("PUT", path, body).await.json();
    assert_eq!(noted["applied"], json!(true), "an operator may, too");
    let repeated = world.ask("PUT", path, body).await.json();
    assert_eq!(
        (&repeated["applied"], &repeated["record"]),
        (&json!(false), &noted["record"]),
        "a repeat writes nothing"
    );
    for path in ["/v1/bookings/job", "/v1/explain/booking/job"] {
        let shown = world.ask("GET", path, "").await.json();
        assert_eq!(shown["note"], "the data is there", "{path}");
    }
    let records = world.ask("GET", "/v1/records", "").await.json();
    let sentences = records["items"].to_string();
    assert!(
        sentences.contains("job has a note: the data is there"),
        "{sentences}"
    );
    let dry = world
        .ask(
            "PUT",
            "/v1/bookings/job/note?dryRun=true",
            r#"{"text":"never"}"#,
        )
        .await
        .json();
    assert_eq!(
        (&dry["note"], &dry["dryRun"]),
        (&json!("never"), &json!(true))
    );
    let long = json!({"text": "x".repeat(201)}).to_string();
    for (body, message) in [
        (r#"{"text":"  "}"#, "is empty"),
        (long.as_str(), "is longer than 200 characters"),
        ("{}", "is missing"),
    ] {
        let problem = world.ask("PUT", path, body).await.is_problem("invalid");
        assert_eq!(
            problem["errors"],
            json!([{"path": "text", "message": message}])
        );
    }
    let shown = world.ask("GET", "/v1/bookings/job", "").await.json();
    assert_eq!(shown["note"], "the data is there");
}
