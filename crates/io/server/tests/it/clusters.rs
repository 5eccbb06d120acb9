//! Budgets, runs, leases and usage: rights, answers, refusals.

use std::collections::BTreeSet;

use bursar_engine::token::Role;
use bursar_ledger::store::Store as _;
use bursar_server::Caller;
use bursar_units::Label;
use serde_json::{Value, json};

use crate::world::{Reply, World, caller, operator};

const API: &str = "bursar.dev/v1alpha1";

pub(crate) fn node(name: &str, domain: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
        "topology.kubernetes.io/region": "us-west", "bursar.dev/cluster": "west-1",
        "bursar.dev/domain": domain, "bursar.dev/flavor": "h100"}},
        "status": {"allocatable": {"cpu": "96", "memory": "1000Gi", "nvidia.com/gpu": "8"}}})
}

pub(crate) fn budget(namespace: &str, spec: &Value) -> Value {
    json!({"apiVersion": API, "kind": "Budget",
        "metadata": {"name": "q4", "namespace": namespace}, "spec": spec})
}

pub(crate) fn envelope(concurrency: u64) -> Value {
    json!({"name": "h100", "flavor": "h100", "concurrency": concurrency, "maxGPUHours": 40_000})
}

pub(crate) fn run(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": API, "kind": "Run",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

pub(crate) fn gpus(owner: &str, total: u64) -> Value {
    json!({"owner": owner, "flavor": "h100", "totalGPUs": total, "podGPUs": 8})
}

pub(crate) fn owning(roles: &[Role], owners: &[&str]) -> Caller {
    Caller {
        owners: owners
            .iter()
            .map(|of| Label::new(of).unwrap())
            .collect::<BTreeSet<_>>(),
        ..caller("app", roles, &[])
    }
}

pub(crate) fn user(owners: &[&str]) -> Caller {
    owning(&[Role::Use], owners)
}

/// Two racks of four nodes; org:ai:rai, its sibling org:ai:speech, and org:bio, which lends.
pub(crate) async fn cluster() -> World {
    let world = World::new();
    let racks = ["a", "b"];
    let nodes = racks.iter().flat_map(|rack| {
        (1..5).map(move |number| node(&format!("{rack}0{number}"), &format!("rack-{rack}")))
    });
    let mut objects: Vec<Value> = nodes.collect();
    let child = |owner: &str, size| json!({"owner": owner, "parents": ["org:ai"], "envelopes": [envelope(size)]});
    objects.push(budget("rai", &child("org:ai:rai", 48)));
    objects.push(budget("speech", &child("org:ai:speech", 32)));
    let lends = json!({"owner": "org:bio", "envelopes": [{"name": "h100", "flavor": "h100",
        "concurrency": 32, "lending": {"allow": true, "to": ["org:ai:rai"], "maxConcurrency": 16}}]});
    objects.push(budget("bio", &lends));
    let body = json!({"objects": objects}).to_string();
    let reply = world.ask("POST", "/v1/apply", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    world
}

pub(crate) async fn put(world: &World, by: Caller, object: &Value, query: &str) -> Reply {
    let metadata = &object["metadata"];
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let (namespace, name) = (metadata["namespace"].as_str(), metadata["name"].as_str());
    let path = format!(
        "/v1/{kind}s/{}/{}{query}",
        namespace.unwrap(),
        name.unwrap()
    );
    world.ask_as(by, "PUT", &path, &object.to_string()).await
}

pub(crate) async fn get(world: &World, path: &str) -> Value {
    let reply = world.ask("GET", path, "").await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.json()
}

/// The text of a record.
pub(crate) fn journal_text(world: &World, record: u64) -> String {
    let reader = world.store.reader().unwrap();
    let record = reader.records(record, 1).unwrap().remove(0);
    String::from_utf8(record.bytes.unwrap()).unwrap()
}

fn journal(world: &World, record: u64) -> Value {
    serde_json::from_str(&journal_text(world, record)).unwrap()
}

/// The list `events` of an answer, as text.
pub(crate) fn events_text(answer: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Planned<'a> {
        #[serde(borrow)]
        events: &'a serde_json::value::RawValue,
    }
    serde_json::from_str::<Planned<'_>>(answer)
        .unwrap()
        .events
        .get()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_plan_has_the_events_that_the_submission_writes() {
    let world = cluster().await;
    let object = run("rai", "llm", &gpus("org:ai:rai", 16));
    let plan = put(&world, operator(), &object, "?dryRun=true").await;
    assert_eq!(plan.status, 201, "{}", plan.text());
    let planned = events_text(&plan.text());
    let plan = plan.json();
    assert_eq!(plan["dryRun"], true);
    let done = put(&world, operator(), &object, "").await;
    assert_eq!(done.status, 201, "{}", done.text());
    let done = done.json();
    let record = journal_text(&world, done["record"].as_u64().unwrap());
    let written = format!("\"ev\":{planned}}}");
    assert!(record.ends_with(&written), "{record}\n{written}");
    assert_eq!(done["status"]["uid"], plan["status"]["uid"]);
    assert_eq!(done["takes"], plan["takes"]);
    assert_eq!(
        done["takes"],
        json!([{"envelope": "rai/q4/h100", "pool": "own", "gpus": 16}])
    );
    assert!(done.get("events").is_none());
    let again = put(&world, operator(), &object, "").await;
    assert_eq!(again.status, 200, "{}", again.text());
    assert_eq!(again.json()["change"], "unchanged");
}

#[tokio::test(start_paused = true)]
async fn a_plan_of_a_run_that_waits_has_its_events_too() {
    let world = cluster().await;
    put(
        &world,
        operator(),
        &run("rai", "llm", &gpus("org:ai:rai", 32)),
        "",
    )
    .await;
    let object = run("rai", "more", &gpus("org:ai:rai", 32));
    put(&world, operator(), &object, "").await;
    let object = run("speech", "asr", &gpus("org:ai:speech", 24));
    let plan = put(&world, operator(), &object, "?dryRun=true")
        .await
        .json();
    let done = put(&world, operator(), &object, "").await.json();
    assert_eq!(done["status"]["state"], "waiting", "{done:#}");
    let record = journal(&world, done["record"].as_u64().unwrap());
    assert_eq!(record["ev"], plan["events"]);
    assert!(!done["trace"].as_array().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_acted_as_only_by_those_who_were_given_it() {
    let world = cluster().await;
    let spoofed = run("bio", "fold", &gpus("org:bio", 8));
    let unnamed = run("rai", "x", &json!({"flavor": "h100", "totalGPUs": 8}));
    let own = run("rai", "llm", &gpus("org:ai:rai", 8));
    let both = ["org:ai:rai", "org:ai:speech"];
    for (by, object, status) in [
        (user(&["org:ai:rai"]), &spoofed, 403),
        (user(&[]), &own, 403),
        (owning(&[Role::View], &["org:ai:rai"]), &own, 403),
        (user(&both), &unnamed, 422),
        (user(&["org:ai:rai"]), &own, 201),
        (user(&["org:ai:rai"]), &unnamed, 201),
        (operator(), &spoofed, 201),
    ] {
        let who = format!("{by:?}");
        let reply = put(&world, by, object, "").await;
        assert_eq!(reply.status, status, "{who} {}", reply.text());
    }
    let reply = put(&world, user(&both), &spoofed, "").await;
    let problem = reply.is_problem("not-allowed");
    let detail = "`app` may act as org:ai:rai, org:ai:speech, not as owner `org:bio`";
    assert_eq!(problem["detail"], detail);
    let reply = put(&world, user(&both), &unnamed, "").await;
    let problem = reply.is_problem("invalid");
    assert_eq!(problem["errors"][0]["path"], "spec.owner");
    let stated = get(&world, "/v1/runs/rai/x").await;
    assert_eq!(stated["spec"]["owner"], "org:ai:rai");
}

#[tokio::test(start_paused = true)]
async fn budgets_and_nodes_need_operate_and_an_apply_of_own_runs_does_not() {
    let world = cluster().await;
    let own = run("rai", "one", &gpus("org:ai:rai", 8));
    let other = run("bio", "two", &gpus("org:bio", 8));
    let declared = budget(
        "rai",
        &json!({"owner": "org:ai:rai", "envelopes": [envelope(999)]}),
    );
    for (objects, status) in [
        (json!([own, declared]), 403),
        (json!([own, node("a09", "rack-a")]), 403),
        (json!([own, other]), 403),
        (json!([declared]), 403),
        (json!([own]), 201),
    ] {
        let body = json!({ "objects": objects }).to_string();
        let reply = world
            .ask_as(user(&["org:ai:rai"]), "POST", "/v1/apply", &body)
            .await;
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    for (method, path, body) in [
        ("PUT", "/v1/budgets/rai/q4", declared.to_string()),
        ("DELETE", "/v1/budgets/rai/q4", String::new()),
        (
            "POST",
            "/v1/budgets/rai/q4/rotate",
            r#"{"envelope":"h100"}"#.to_owned(),
        ),
    ] {
        let reply = world
            .ask_as(user(&["org:ai:rai"]), method, path, &body)
            .await;
        reply.is_problem("not-allowed");
    }
    let runs = get(&world, "/v1/runs").await;
    assert_eq!(runs["items"].as_array().unwrap().len(), 1, "{runs:#}");
}

#[tokio::test(start_paused = true)]
async fn a_user_sees_its_own_runs_budgets_leases_and_usage_alone() {
    let world = cluster().await;
    for (namespace, owner) in [("rai", "org:ai:rai"), ("bio", "org:bio")] {
        put(
            &world,
            operator(),
            &run(namespace, "r", &gpus(owner, 32)),
            "",
        )
        .await;
    }
    tokio::time::advance(std::time::Duration::from_hours(1)).await;
    let waits = run("rai", "waits", &gpus("org:ai:rai", 16));
    let mine = || user(&["org:ai:rai"]);
    let reply = put(&world, mine(), &waits, "").await;
    assert_eq!(
        reply.json()["status"]["waitsFor"],
        "room",
        "{}",
        reply.text()
    );
    for path in [
        "/v1/runs",
        "/v1/budgets",
        "/v1/envelopes",
        "/v1/leases",
        "/v1/usage",
        "/v1/usage?by=run",
        "/v1/usage?by=day",
        "/v1/usage?by=envelope",
        "/v1/explain/run/rai/waits",
        "/v1/runs/rai/waits",
    ] {
        let reply = world.ask_as(mine(), "GET", path, "").await;
        assert_eq!(reply.status, 200, "{path} {}", reply.text());
        assert!(!reply.text().contains("bio"), "{path} {}", reply.text());
        let is_full = path.ends_with("day") || reply.text().contains("rai");
        assert!(is_full, "{path} {}", reply.text());
    }
    let explained = world
        .ask_as(mine(), "GET", "/v1/explain/run/rai/waits", "")
        .await
        .json();
    let holders = explained["why"]["holders"].as_array().unwrap();
    let others = holders.iter().find(|holder| holder["others"] == 1).unwrap();
    assert_eq!(others["gpus"], 32, "{explained:#}");
    for (method, path) in [
        ("GET", "/v1/runs/bio/r"),
        ("POST", "/v1/runs/bio/r/cancel"),
        ("GET", "/v1/budgets/bio/q4"),
        ("GET", "/v1/explain/run/bio/r"),
    ] {
        let reply = world.ask_as(mine(), method, path, "").await;
        let problem = reply.is_problem("not-found");
        assert!(
            !problem["suggestion"].to_string().contains("bio"),
            "{problem:#}"
        );
    }
    let seen = owning(&[Role::View], &[]);
    let reply = world
        .ask_as(seen.clone(), "POST", "/v1/runs/bio/r/cancel", "")
        .await;
    reply.is_problem("not-allowed");
    let all = world.ask_as(seen, "GET", "/v1/runs", "").await.json();
    assert_eq!(all["items"].as_array().unwrap().len(), 3);
    let lease = get(&world, "/v1/leases?run=bio/r").await["items"][0]["lease"].clone();
    let path = format!("/v1/leases/{}", lease.as_str().unwrap());
    assert_eq!(get(&world, &path).await["run"], "bio/r");
    world
        .ask_as(mine(), "GET", &path, "")
        .await
        .is_problem("not-found");
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_run_and_its_headlines_have_the_numbers() {
    let world = cluster().await;
    let mut spec = gpus("org:ai:rai", 32);
    spec["expectedDuration"] = json!("48h");
    let reply = put(&world, operator(), &run("rai", "llm", &spec), "")
        .await
        .json();
    let status = &reply["status"];
    assert_eq!(status["gpus"], 32);
    assert_eq!(status["gpusAsked"], 32);
    assert_eq!(status["claims"][0]["class"], "Owned");
    assert_eq!(status["claims"][0]["until"], "2026-11-18T10:00:00.000Z");
    assert_eq!(status["statedEnd"], "2026-11-18T10:00:00.000Z");
    assert_eq!(status["domains"], json!(["us-west/west-1/rack-a"]));
    assert_eq!(
        reply["explanation"]["who"][0]["heldGpuMs"],
        32_u64 * 48 * 3_600_000
    );
    put(
        &world,
        operator(),
        &run("speech", "b", &gpus("org:ai:speech", 16)),
        "",
    )
    .await;
    let mut spec = gpus("org:ai:speech", 24);
    spec["location"] = json!({"domain": "rack-a"});
    let reply = put(&world, operator(), &run("speech", "asr-xl", &spec), "").await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let reply = reply.json();
    let headline = "speech/asr-xl waits for room, not for budget: 0/24 GPUs are free in rack-a";
    assert_eq!(reply["explanation"]["headline"], headline);
    assert_eq!(reply["status"]["reason"], "NoRoom");
    assert_eq!(reply["status"]["place"], 1);
    let holder = &reply["explanation"]["why"]["holders"][0];
    assert_eq!(holder["object"], "run/rai/llm");
    assert_eq!(holder["statedEnd"], "2026-11-18T10:00:00.000Z");
    let reply = world
        .ask("POST", "/v1/runs/speech/asr-xl/cancel", "")
        .await
        .json();
    assert_eq!(reply["status"]["outcome"], "cancelled");
    let ended = reply["explanation"]["headline"].as_str().unwrap();
    assert!(
        ended.starts_with("speech/asr-xl was cancelled after waiting"),
        "{ended}"
    );
    let again = world.ask("POST", "/v1/runs/speech/asr-xl/cancel", "").await;
    assert_eq!(again.json()["change"], "unchanged");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_budget_names_the_meter_its_value_and_its_limit() {
    let world = cluster().await;
    let alone = json!({"owner": "org:solo", "envelopes": [envelope(16)]});
    put(&world, operator(), &budget("solo", &alone), "").await;
    put(
        &world,
        operator(),
        &run("solo", "a", &gpus("org:solo", 16)),
        "",
    )
    .await;
    let reply = put(
        &world,
        operator(),
        &run("solo", "b", &gpus("org:solo", 8)),
        "",
    )
    .await
    .json();
    let headline =
        "solo/b waits for budget: 16/16 GPUs of solo/q4/h100 are in use, it asks for 8 GPUs";
    assert_eq!(reply["explanation"]["headline"], headline, "{reply:#}");
    assert_eq!(reply["status"]["waitsFor"], "budget");
    let refused = put(
        &world,
        operator(),
        &run("solo", "c", &gpus("org:solo", 8)),
        "?now=true",
    )
    .await;
    let problem = refused.is_problem("would-wait");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .starts_with("solo/c waits for budget")
    );
    assert!(!problem["trace"].as_array().unwrap().is_empty());
    world
        .ask("GET", "/v1/runs/solo/c", "")
        .await
        .is_problem("not-found");
    let budget = get(&world, "/v1/budgets/solo/q4").await;
    let conditions = budget["status"]["conditions"].as_array().unwrap();
    let of = |kind| conditions.iter().find(|of| of["type"] == kind).unwrap();
    assert_eq!(of("Exhausted")["status"], "True", "{budget:#}");
    assert_eq!(
        of("Exhausted")["message"],
        "solo/q4/h100 had too little room for a start or claim at 2026-11-16T10:00:00.000Z, with 16 of 16 GPUs in use"
    );
    assert_eq!(of("CrossingCaps")["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_budget_has_its_room_and_how_long_it_lasts() {
    let world = cluster().await;
    put(
        &world,
        operator(),
        &run("rai", "llm", &gpus("org:ai:rai", 32)),
        "",
    )
    .await;
    tokio::time::advance(std::time::Duration::from_hours(10)).await;
    let budget = get(&world, "/v1/budgets/rai/q4").await;
    let status = &budget["status"];
    assert_eq!(
        status["family"],
        json!([
        {"owner": "org:ai:speech", "relation": "sibling"},
        {"owner": "org:ai", "relation": "ancestor"}])
    );
    assert_eq!(status["headroom"][0]["gpus"], 16);
    let meter = &status["meters"][0];
    assert_eq!(meter["meter"], "rai/q4/h100");
    assert_eq!(meter["accruedGpuMs"], 320_u64 * 3_600_000);
    // 39,680 hours are left at 32 GPUs: 1,240 hours.
    assert_eq!(meter["lastsTo"], "2027-01-07T12:00:00.000Z");
    let envelopes = get(&world, "/v1/envelopes?owner=org:ai:rai").await;
    assert_eq!(envelopes["items"][0]["gpusUsed"], 32);
    assert_eq!(envelopes["items"][0]["headroom"]["gpus"], 16);
    let bio = get(&world, "/v1/budgets/bio/q4").await;
    assert_eq!(bio["status"]["meters"][1]["meter"], "lending/bio/q4/h100");
    assert!(bio["status"]["meters"][0].get("lastsTo").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_budget_names_its_fields_and_its_effect() {
    let world = cluster().await;
    put(
        &world,
        operator(),
        &run("rai", "llm", &gpus("org:ai:rai", 32)),
        "",
    )
    .await;
    let spec = |size: u64| json!({"owner": "org:ai:rai", "parents": ["org:ai"], "envelopes": [envelope(size)]});
    let planned = put(
        &world,
        operator(),
        &budget("rai", &spec(40)),
        "?dryRun=true",
    )
    .await;
    let reply = put(&world, operator(), &budget("rai", &spec(40)), "").await;
    assert_eq!(reply.status, 200);
    let result = &reply.json()["results"][0];
    assert_eq!(planned.json()["results"][0], *result);
    assert_eq!(
        *result,
        json!({"object": "budget/rai/q4", "change": "changed",
        "fields": [{"path": "envelopes[h100].concurrency", "from": "48", "to": "40"}],
        "effect": "in use 32"})
    );
    let result = put(&world, operator(), &budget("rai", &spec(40)), "")
        .await
        .json();
    assert_eq!(result["results"][0]["change"], "unchanged");
    let mut edited = gpus("org:ai:rai", 32);
    edited["maxDuration"] = json!("72h");
    edited["priority"] = json!(5);
    let body = json!({"objects": [run("rai", "llm", &edited)]}).to_string();
    let result = world.ask("POST", "/v1/apply", &body).await.json();
    assert_eq!(
        result["results"][0]["fields"],
        json!([
        {"path": "maxDuration", "to": "72h"}, {"path": "priority", "to": "5"}]),
        "{result:#}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_can_never_start_is_refused_with_the_walk() {
    let world = cluster().await;
    let reply = put(
        &world,
        operator(),
        &run("bio", "fold-xl", &gpus("org:bio", 40)),
        "",
    )
    .await;
    let problem = reply.is_problem("never-fits");
    let detail =
        "bio/fold-xl can never start: it asks for 40 h100 at once and may be given at most 32";
    assert_eq!(problem["detail"], detail);
    assert_eq!(
        problem["note"],
        "org:bio has no family, and the run names no sponsor"
    );
    assert_eq!(problem["changes"], json!(["ask for at most 32"]));
    let row = &problem["trace"][0];
    assert_eq!(row["envelope"], "bio/q4/h100");
    assert_eq!(row["relation"], "own");
    assert_eq!(row["room"], 32);
    let mut spec = gpus("org:bio", 8);
    spec["flavor"] = json!("h200");
    let reply = put(&world, operator(), &run("bio", "x", &spec), "").await;
    let detail = "bio/x can never start: it asks for 8 h200, and no declared node there has it; there are h100";
    assert_eq!(reply.is_problem("never-fits")["detail"], detail);
    let mut spec = gpus("org:bio", 8);
    spec["location"] = json!({"domain": "rack-z"});
    let reply = put(&world, operator(), &run("bio", "x", &spec), "").await;
    let problem = reply.is_problem("never-fits");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("8 h100 in rack-z"),
        "{problem:#}"
    );
    let mut spec = gpus("org:ai:speech", 32);
    spec["podGPUs"] = json!(16);
    let reply = put(&world, operator(), &run("speech", "x", &spec), "").await;
    reply.is_problem("never-fits");
}

#[tokio::test(start_paused = true)]
async fn a_run_learns_no_names_of_envelopes_by_naming_sponsors() {
    let world = cluster().await;
    let mut spec = gpus("org:ai:speech", 8 * 16);
    spec["funding"] = json!({"allowBorrow": true, "sponsors": ["org:bio"]});
    let by = user(&["org:ai:speech"]);
    let reply = put(&world, by, &run("speech", "x", &spec), "").await;
    let problem = reply.is_problem("never-fits");
    assert!(!problem.to_string().contains("bio/q4"), "{problem:#}");
    let metrics = world.ask("GET", "/metrics", "").await.text();
    let denied =
        r#"budget_lending_denied_total{envelope="bio/q4/h100",borrower="org:ai:speech"} 1"#;
    assert!(metrics.contains(denied), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn used_time_is_leased_time_in_every_grouping() {
    let world = cluster().await;
    let mut spec = gpus("org:ai:rai", 32);
    put(&world, operator(), &run("rai", "own", &spec), "").await;
    spec["totalGPUs"] = json!(24);
    spec["funding"] = json!({"allowBorrow": true, "sponsors": ["org:bio"]});
    let reply = put(&world, operator(), &run("rai", "more", &spec), "").await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    // 16 hours, over midnight.
    tokio::time::advance(std::time::Duration::from_hours(16)).await;
    let leased = 56_u64 * 16 * 3_600_000;
    for by in ["owner", "run", "day", "envelope"] {
        let usage = get(&world, &format!("/v1/usage?by={by}")).await;
        assert_eq!(usage["total"]["leasedGpuMs"], leased, "{usage:#}");
        let parts = [
            "ownedGpuMs",
            "sharedGpuMs",
            "borrowedGpuMs",
            "unfundedGpuMs",
        ];
        for row in usage["items"].as_array().unwrap() {
            let sum: u64 = parts.iter().map(|part| row[part].as_u64().unwrap()).sum();
            assert_eq!(row["leasedGpuMs"], sum, "{row:#}");
        }
    }
    let days = get(&world, "/v1/usage?by=day&since=2026-11-17T03:00:00Z").await;
    assert_eq!(days["since"], "2026-11-17T00:00:00.000Z");
    assert_eq!(days["items"][0]["day"], "2026-11-17");
    assert_eq!(days["total"]["leasedGpuMs"], 56_u64 * 2 * 3_600_000);
    // The runs began on the day before; each grouping counts the second day alone.
    let run = get(&world, "/v1/usage?by=run&since=2026-11-17").await;
    assert_eq!(run["items"].as_array().unwrap().len(), 2, "{run:#}");
    for row in run["items"].as_array().unwrap() {
        let debits = row["debits"].as_array().unwrap().iter();
        let debits: u64 = debits.map(|debit| debit["gpuMs"].as_u64().unwrap()).sum();
        assert_eq!(debits, row["leasedGpuMs"].as_u64().unwrap(), "{row:#}");
    }
    for by in ["owner", "day", "envelope"] {
        let usage = get(&world, &format!("/v1/usage?by={by}&since=2026-11-17")).await;
        assert_eq!(usage["total"], days["total"], "{usage:#}");
        assert_eq!(usage["total"], run["total"], "{by}");
    }
    // Both days are counted whole, to now at most.
    for until in ["2026-11-16", "2026-11-16T10:30:00Z"] {
        let until = get(&world, &format!("/v1/usage?since=2026-11-16&until={until}")).await;
        assert_eq!(until["until"], "2026-11-17T00:00:00.000Z");
        assert_eq!(until["total"]["leasedGpuMs"], 56_u64 * 14 * 3_600_000);
    }
    let until = get(&world, "/v1/usage?until=2026-11-17T01:00:00Z").await;
    assert_eq!(until["total"]["leasedGpuMs"], leased);
    let reversed = "/v1/usage?since=2026-11-16T12:00:00Z&until=2026-11-16T11:00:00Z";
    let reply = world.ask("GET", reversed, "").await;
    reply.is_problem("invalid");
    let reply = world
        .ask("GET", "/v1/usage?since=-1h&until=2026-11-15T00:00:00Z", "")
        .await;
    reply.is_problem("invalid");
}

#[tokio::test(start_paused = true)]
async fn lent_time_is_counted_for_the_lender_and_in_the_metrics() {
    let world = cluster().await;
    put(
        &world,
        operator(),
        &run("rai", "own", &gpus("org:ai:rai", 32)),
        "",
    )
    .await;
    let taken = put(
        &world,
        operator(),
        &run("speech", "own", &gpus("org:ai:speech", 16)),
        "",
    )
    .await;
    assert_eq!(taken.status, 201);
    let small =
        json!({"owner": "org:ai:speech", "parents": ["org:ai"], "envelopes": [envelope(16)]});
    put(&world, operator(), &budget("speech", &small), "").await;
    let small = json!({"owner": "org:ai:rai", "parents": ["org:ai"], "envelopes": [envelope(32)]});
    put(&world, operator(), &budget("rai", &small), "").await;
    let mut spec = gpus("org:ai:rai", 8);
    spec["funding"] = json!({"allowBorrow": true, "sponsors": ["org:bio"]});
    let reply = put(&world, operator(), &run("rai", "borrows", &spec), "")
        .await
        .json();
    assert_eq!(
        reply["status"]["claims"][0]["class"], "Borrowed",
        "{reply:#}"
    );
    tokio::time::advance(std::time::Duration::from_hours(1)).await;
    let usage = get(&world, "/v1/usage").await;
    let rows = usage["items"].as_array().unwrap();
    let of = |owner| rows.iter().find(|row| row["owner"] == owner).unwrap();
    assert_eq!(of("org:bio")["lentGpuMs"], 8 * 3_600_000);
    assert_eq!(of("org:bio")["leasedGpuMs"], 0);
    assert_eq!(of("org:ai:rai")["borrowedGpuMs"], 8 * 3_600_000);
    assert_eq!(usage["total"]["lentGpuMs"], 8 * 3_600_000);
    let leases = get(&world, "/v1/leases?run=rai/borrows").await;
    let payer = json!([{"envelope": "bio/q4/h100", "class": "Borrowed"}]);
    assert_eq!(leases["items"][0]["paidBy"], payer);
    let metrics = world.ask("GET", "/metrics", "").await.text();
    for line in [
        r#"budget_concurrency_used{meter="lending/bio/q4/h100",part="active"} 8"#,
        r#"budget_concurrency_limit{meter="lending/bio/q4/h100"} 16"#,
        r#"budget_gpu_hours_used{meter="rai/q4/h100"} 32.0"#,
        r#"budget_gpu_hours_limit{meter="rai/q4/h100"} 40000.0"#,
        r#"budget_gpu_ms_total{envelope="bio/q4/h100",class="Borrowed"} 28800000"#,
        r#"budget_lent_gpu_hours_total{envelope="bio/q4/h100",borrower="org:ai:rai"} 8.0"#,
        r#"run_waiting_oldest_seconds{waits_for="room"} 0"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_epoch_is_closed_once_for_a_key() {
    let world = cluster().await;
    put(
        &world,
        operator(),
        &run("rai", "llm", &gpus("org:ai:rai", 8)),
        "",
    )
    .await;
    tokio::time::advance(std::time::Duration::from_hours(1)).await;
    let rotate = |key: &'static str, body: &'static str| {
        let request = http::Request::builder()
            .method("POST")
            .uri("/v1/budgets/rai/q4/rotate")
            .header("Idempotency-Key", key)
            .body(axum::body::Body::from(body))
            .unwrap();
        let router = world.router(operator());
        async move { crate::world::send(&router, request).await }
    };
    for _ in 0..2 {
        let reply = rotate("key-1", r#"{"envelope":"h100"}"#).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let meter = &reply.json()["status"]["meters"][0];
        assert_eq!(meter["epoch"], 1, "{meter:#}");
        assert_eq!(meter["closed"][0]["accruedGpuMs"], 8 * 3_600_000);
    }
    rotate("key-1", r#"{"envelope":"a100"}"#)
        .await
        .is_problem("id-reused");
    rotate("key-2", r#"{"envelope":"a100"}"#)
        .await
        .is_problem("not-found");
}

/// Everything that a refusal must leave alone, with the head of the ledger.
async fn everything(world: &World) -> Vec<Value> {
    let mut all = Vec::new();
    for list in ["runs", "leases", "budgets", "nodes", "usage?by=run"] {
        all.push(get(world, &format!("/v1/{list}")).await);
    }
    all
}

/// Input that must be refused with its path: the object, the code, and a part of the answer. A run
/// goes on meanwhile, and nothing changes.
#[tokio::test(start_paused = true)]
async fn bad_input_is_refused_by_its_path() {
    let world = cluster().await;
    let running = run("bio", "running", &gpus("org:bio", 8));
    assert_eq!(put(&world, operator(), &running, "").await.status, 201);
    tokio::time::advance(std::time::Duration::from_hours(1)).await;
    let before = everything(&world).await;
    let with = |field: &str, value: Value| {
        let mut of = envelope(8);
        of[field] = value;
        budget("x", &json!({"owner": "org:x", "envelopes": [of]}))
    };
    let cap = |members: Value| {
        budget(
            "x",
            &json!({"owner": "org:x", "envelopes": [envelope(8)], "aggregateCaps":
            [{"name": "all", "flavor": "h100", "envelopes": members, "maxConcurrency": 8}]}),
        )
    };
    let cap_with = |field: &str, value: Value| {
        let mut of = cap(json!(["h100"]));
        of["spec"]["aggregateCaps"][0][field] = value;
        of
    };
    let window = |start: &str, end: &str| {
        let mut of = envelope(8);
        of["start"] = json!(start);
        of["end"] = json!(end);
        budget("x", &json!({"owner": "org:x", "envelopes": [of]}))
    };
    let wide = |total: u64| run("bio", "x", &gpus("org:bio", total));
    let run_with = |field: &str, value: Value| {
        let mut spec = gpus("org:bio", 8);
        spec[field] = value;
        run("bio", "x", &spec)
    };
    let twice = json!({"owner": "org:x", "envelopes": [envelope(1), envelope(2)]});
    let cycle = json!({"owner": "org:ai", "parents": ["org:ai:rai"], "envelopes": []});
    let itself = json!({"owner": "org:x", "parents": ["org:x"], "envelopes": []});
    let cases = [
        (budget("x", &twice), "invalid", "given twice"),
        (
            budget("x", &cycle),
            "invalid",
            "budget/x/q4: spec.parents[0]",
        ),
        (budget("x", &itself), "invalid", "spec.parents[0]"),
        (
            with("maxGPUHours", json!(-1)),
            "invalid",
            "spec.envelopes[0].maxGPUHours",
        ),
        (
            with("maxGPUHours", json!(u64::MAX)),
            "invalid",
            "spec.envelopes[0].maxGPUHours",
        ),
        (
            with("concurrency", json!(0)),
            "invalid",
            "spec.envelopes[0].concurrency",
        ),
        (
            with("concurrency", json!(1.5)),
            "invalid",
            "spec.envelopes[0].concurrency",
        ),
        (
            with("lending", json!({"allow": true, "to": ["a*b"]})),
            "invalid",
            "lending.to[0]",
        ),
        (
            with("concurency", json!(1)),
            "invalid",
            "did you mean `concurrency`?",
        ),
        (
            window("2026-10-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            "invalid",
            "is before start",
        ),
        (
            cap(json!(["missing"])),
            "invalid",
            "budget/x/q4: spec.aggregateCaps[0].envelopes[0]",
        ),
        (
            cap(json!(["rai/q4/h100"])),
            "invalid",
            "does not descend from org:x",
        ),
        (cap(json!([])), "invalid", "spec.aggregateCaps[0].envelopes"),
        (wide(1_000_000), "invalid", "spec.totalGPUs"),
        (wide(1_000_001), "invalid", "spec.totalGPUs"),
        (wide(0), "invalid", "spec.totalGPUs"),
        (wide(12), "invalid", "spec.podGPUs"),
        (run_with("flavor", json!("h300")), "never-fits", "8 h300"),
        (
            run_with("location", json!({"region": "mars"})),
            "never-fits",
            "in mars",
        ),
        (
            run_with("elastic", json!({"min": 1})),
            "invalid",
            "spec.elastic",
        ),
        (run_with("priority", json!(101)), "invalid", "spec.priority"),
        (
            run_with("priority", json!(-101)),
            "invalid",
            "spec.priority",
        ),
        (
            cap_with("end", json!("2026-01-01T00:00:00")),
            "invalid",
            "spec.aggregateCaps[0].end",
        ),
        (
            cap_with("renew", json!("quarter")),
            "invalid",
            "spec.aggregateCaps[0]",
        ),
        (
            cap_with("maxGPUHours", json!(-1)),
            "invalid",
            "spec.aggregateCaps[0].maxGPUHours",
        ),
        (
            with(
                "lending",
                json!({"allow": true, "to": ["*"], "maxConcurrency": 0}),
            ),
            "invalid",
            "lending.maxConcurrency",
        ),
        (
            with(
                "lending",
                json!({"allow": true, "to": ["*"], "maxGPUHours": -1}),
            ),
            "invalid",
            "lending.maxGPUHours",
        ),
        (
            run_with("expectedDuration", json!("-1h")),
            "invalid",
            "spec.expectedDuration",
        ),
        (run_with("owner", json!("")), "invalid", "spec.owner"),
    ];
    for (object, code, part) in cases {
        let reply = put(&world, operator(), &object, "").await;
        assert!(reply.status.is_client_error(), "{object} {}", reply.text());
        let problem = reply.is_problem(code);
        let text = problem.to_string();
        assert!(text.contains(part), "`{part}` is not in {problem:#}");
        if code == "invalid" {
            assert!(problem["errors"][0]["path"].is_string(), "{problem:#}");
        }
        assert_eq!(everything(&world).await, before, "{object}");
    }
    let both = json!({"objects": [
        budget("x", &json!({"owner": "org:x", "parents": ["org:y"], "envelopes": []})),
        budget("y", &json!({"owner": "org:y", "parents": ["org:x"], "envelopes": []}))]});
    let reply = world.ask("POST", "/v1/apply", &both.to_string()).await;
    let errors = &reply.is_problem("invalid")["errors"];
    let of = |at: usize| (errors[at]["object"].clone(), errors[at]["path"].clone());
    let path = json!("spec.parents[0]");
    assert_eq!(of(0), (json!("budget/x/q4"), path.clone()));
    assert_eq!(of(1), (json!("budget/y/q4"), path));
}

#[tokio::test(start_paused = true)]
async fn a_node_with_leases_is_not_removed_and_everything_is_as_before() {
    let world = cluster().await;
    put(
        &world,
        operator(),
        &run("bio", "r", &gpus("org:bio", 8)),
        "",
    )
    .await;
    let before = everything(&world).await;
    let node = before[1]["items"][0]["node"].as_str().unwrap();
    let reply = world.ask("DELETE", &format!("/v1/nodes/{node}"), "").await;
    assert_eq!(reply.status, 409, "{}", reply.text());
    reply.is_problem("conflict");
    assert_eq!(everything(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_not_found_comes_with_the_namespaces_that_the_caller_may_see() {
    let world = cluster().await;
    for (namespace, owner) in [("rai", "org:ai:rai"), ("bio", "org:bio")] {
        let object = run(namespace, "r", &gpus(owner, 8));
        put(&world, operator(), &object, "").await;
    }
    for (by, expected) in [
        (operator(), json!(["bio", "rai"])),
        (user(&["org:bio"]), json!(["bio"])),
        (user(&["org:x"]), Value::Null),
    ] {
        for path in ["/v1/runs/lab/r", "/v1/explain/run/lab/r"] {
            let reply = world.ask_as(by.clone(), "GET", path, "").await;
            assert_eq!(
                reply.is_problem("not-found")["namespaces"],
                expected,
                "{path}"
            );
        }
    }
    let reply = world.ask("GET", "/v1/budgets/lab/q4", "").await;
    let namespaces = &reply.is_problem("not-found")["namespaces"];
    assert_eq!(*namespaces, json!(["bio", "rai", "speech"]));
}

#[tokio::test(start_paused = true)]
async fn lists_have_pages_and_filters() {
    let world = cluster().await;
    for name in ["c", "a", "b"] {
        put(
            &world,
            operator(),
            &run("rai", name, &gpus("org:ai:rai", 8)),
            "",
        )
        .await;
    }
    put(
        &world,
        operator(),
        &run("bio", "z", &gpus("org:bio", 16)),
        "",
    )
    .await;
    let first = get(&world, "/v1/runs?limit=2").await;
    let cursor = first["nextCursor"].as_str().unwrap().replace(' ', "%20");
    let second = get(&world, &format!("/v1/runs?limit=2&cursor={cursor}")).await;
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items
            .map(|run| run["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        [names(&first), names(&second)].concat(),
        ["z", "a", "b", "c"]
    );
    assert!(second.get("nextCursor").is_none_or(Value::is_null));
    for (query, expected) in [
        ("namespace=bio", vec!["z"]),
        ("owner=org:ai:rai", vec!["a", "b", "c"]),
        ("state=waiting", vec![]),
        ("state=starting,running&namespace=bio", vec!["z"]),
    ] {
        assert_eq!(
            names(&get(&world, &format!("/v1/runs?{query}")).await),
            expected,
            "{query}"
        );
    }
    world.ask("POST", "/v1/runs/rai/a/cancel", "").await;
    let leases = get(&world, "/v1/leases").await;
    let runs: Vec<&str> = leases["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lease| lease["run"].as_str().unwrap())
        .collect();
    assert_eq!(runs, ["bio/z", "bio/z", "rai/a", "rai/b", "rai/c"]);
    let lease = &leases["items"][1];
    let id = lease["lease"].as_str().unwrap();
    let (record, number) = id.rsplit_once('.').unwrap();
    let inner: u64 = number.parse::<u64>().unwrap() + 7;
    assert_eq!(
        get(&world, &format!("/v1/leases/{record}.{inner}")).await,
        *lease
    );
    assert_eq!(lease["ordinals"], "0-7");
    assert_eq!(lease["role"], "Active");
}
