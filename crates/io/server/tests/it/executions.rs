//! `/v1/executions`: submit, read, cancel, list, output and secrets.

mod listing;
mod output;
mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::io::Cursor;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_client::api::{
    ExecutionOutcome, ExecutionRequest, ExecutionState, ListExecutions, LogStream,
};
use bursar_client::client::{Client, Follow, Mode, Options, Transport};
use bursar_engine::booking::Command;
use bursar_engine::booking::execution::{Exit, Isolation};
use bursar_engine::token::Role;
use bursar_journal::hash::Hash;
use bursar_node::executor::{
    Begun, Doing, Error, Executor, Job, Left, Life, Output, Stream, User, Work,
};
use bursar_node::null::Null;
use bursar_server::runner::Runner;
use bursar_server::{Caller, Via};
use bursar_units::{BookingId, Label};
use serde_json::{Value, json};

use crate::world::{Reply, World, caller, user, viewer};

/// An executor that stores programs and output and runs nothing. The test submits the results of
/// executions itself.
#[derive(Default)]
pub(crate) struct Paper {
    works: Mutex<Vec<Work>>,
    written: Mutex<BTreeMap<(BookingId, &'static str), Vec<u8>>>,
    is_full: bool,
}

impl Paper {
    pub(crate) fn write(&self, id: &str, stream: &'static str, text: &str) {
        let mut written = self.written.lock().unwrap();
        let file = written.entry((name(id), stream)).or_default();
        file.extend_from_slice(text.as_bytes());
    }
}

impl Executor for Paper {
    fn life<'a>(&'a self, _: &'a BookingId) -> Doing<'a, Result<Life, Error>> {
        Box::pin(ready(Ok(Life::Nothing)))
    }

    /// The index at which the work is or would be stored.
    fn digest(&self, work: &Work) -> Hash {
        let works = self.works.lock().unwrap();
        let known = works.iter().position(|kept| kept == work);
        let place = known.unwrap_or(works.len());
        Hash([u8::try_from(place).unwrap(); 32])
    }

    fn keep(&self, work: &Work) -> Result<Hash, Error> {
        if self.is_full {
            return Err(Error::Path {
                doing: "write",
                path: "work".into(),
                source: std::io::ErrorKind::StorageFull.into(),
            });
        }
        let digest = self.digest(work);
        let mut works = self.works.lock().unwrap();
        if !works.contains(work) {
            works.push(work.clone());
        }
        Ok(digest)
    }

    fn start<'a>(&'a self, _: &'a BookingId, _: &'a Job) -> Doing<'a, Begun> {
        Box::pin(std::future::pending())
    }

    fn exit<'a>(&'a self, _: &'a BookingId) -> Doing<'a, Exit> {
        Box::pin(std::future::pending())
    }

    fn stop<'a>(&'a self, _: &'a BookingId, _: Duration) -> Doing<'a, Result<(), Error>> {
        Box::pin(std::future::pending())
    }

    fn list(&self) -> Doing<'_, Result<Vec<BookingId>, Error>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn clean<'a>(&'a self, _: &'a BookingId, _: Left) -> Doing<'a, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }

    fn forget(&self, _: BTreeSet<Hash>) -> Doing<'_, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }

    fn output(&self, id: &BookingId, stream: Stream, from: u64) -> Result<Option<Output>, Error> {
        let stream = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        let written = self.written.lock().unwrap();
        Ok(written.get(&(id.clone(), stream)).map(|bytes| {
            let mut reading = Cursor::new(bytes.clone());
            reading.set_position(from);
            Box::new(reading) as Output
        }))
    }
}

pub(crate) fn world() -> (World, Arc<Paper>) {
    let paper = Arc::new(Paper::default());
    let executor: Arc<dyn Executor> = Arc::<Paper>::clone(&paper);
    (World::executing(executor), paper)
}

fn name(id: &str) -> BookingId {
    BookingId::new(id).unwrap()
}

/// Submits a result, as the runner would.
async fn submit_result(world: &World, command: Command) {
    let by = Label::new("bursar").unwrap();
    let outcomes = world
        .service
        .ledger()
        .submit(by, vec![command.into()])
        .await;
    outcomes.unwrap().pop().unwrap().result.unwrap();
}

async fn started(world: &World, id: &str) {
    let (id, isolation) = (name(id), Isolation::Cgroup);
    submit_result(world, Command::Started { id, isolation }).await;
}

async fn exited(world: &World, id: &str, exit: Exit) {
    let id = name(id);
    submit_result(world, Command::Exited { id, exit }).await;
}

async fn put(world: &World, id: &str, body: &str) -> Reply {
    world
        .ask("PUT", &format!("/v1/executions/{id}"), body)
        .await
}

pub(crate) async fn submit(world: &World, id: &str) -> Reply {
    put(
        world,
        id,
        r#"{"class":"python","tenant":"acme","command":"true","waitMs":60000}"#,
    )
    .await
}

async fn get(world: &World, id: &str) -> Value {
    let reply = world.ask("GET", &format!("/v1/executions/{id}"), "").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

async fn cancel(world: &World, id: &str) -> Value {
    let path = format!("/v1/executions/{id}/cancel");
    let reply = world.ask("POST", &path, "").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// The states of steps, or of compensations, by name.
fn states(steps: &Value) -> Vec<(&str, &str)> {
    steps
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            (
                step["name"].as_str().unwrap(),
                step["state"].as_str().unwrap(),
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_execution_goes_from_its_slot_through_its_process_to_its_end() {
    let (world, _) = world();
    let body = r#"{"class":"python","tenant":"acme","command":"python3","args":["-c","1"],
        "env":{"A":"b"},"directory":"/srv","cpuMilli":500,"memoryLimitBytes":1048576,"pids":32,
        "maxTimeMs":90000}"#;
    let begun = put(&world, "job", body).await;
    assert_eq!(begun.status, 201);
    let begun = begun.json();
    assert_eq!(
        (&begun["state"], &begun["fence"]),
        (&json!("starting"), &json!(1))
    );

    tokio::time::advance(Duration::from_secs(1)).await;
    started(&world, "job").await;
    let seen = get(&world, "job").await;
    for (field, value) in [
        ("state", json!("running")),
        ("isolation", json!("cgroup")),
        ("class", json!("python")),
        ("tenant", json!("acme")),
        ("slots", json!(1)),
        ("cpuMilli", json!(500)),
        ("memoryLimitBytes", json!(1_048_576)),
        ("pids", json!(32)),
        ("startTimeoutMs", json!(60_000)),
        ("maxTimeMs", json!(90_000)),
        ("graceMs", json!(10_000)),
        ("submittedAt", json!("2026-11-16T10:00:00.000Z")),
        ("grantedAt", json!("2026-11-16T10:00:00.000Z")),
        ("startedAt", json!("2026-11-16T10:00:01.000Z")),
        ("outcome", Value::Null),
        ("compensations", Value::Null),
    ] {
        assert_eq!(seen[field], value, "{field} of {seen:#}");
    }
    assert_eq!(
        states(&seen["steps"]),
        [
            ("validate", "done"),
            ("allocate", "done"),
            ("queue", "done"),
            ("create", "done"),
            ("monitor", "active"),
            ("finish", "pending")
        ]
    );
    assert_eq!(
        seen["steps"][3]["tookMs"], 1_000,
        "from the grant to the process"
    );

    tokio::time::advance(Duration::from_secs(4)).await;
    exited(&world, "job", Exit::Code(7)).await;
    let ended = get(&world, "job").await;
    for (field, value) in [
        ("state", json!("ended")),
        ("outcome", json!("failed")),
        ("exitCode", json!(7)),
        ("endedAt", json!("2026-11-16T10:00:05.000Z")),
    ] {
        assert_eq!(ended[field], value, "{field} of {ended:#}");
    }
    assert_eq!(
        states(&ended["compensations"]),
        [
            ("delete-process", "done"),
            ("leave-queue", "skipped"),
            ("release", "done")
        ]
    );
    let again = put(&world, "job", body).await;
    assert_eq!(
        (again.status.as_u16(), &again.json()["outcome"]),
        (200, &json!("failed"))
    );
}

#[tokio::test(start_paused = true)]
async fn the_booking_of_an_execution_shows_its_course() {
    let (world, _) = world();
    submit(&world, "job").await;
    started(&world, "job").await;
    let booking = world.ask("GET", "/v1/bookings/job", "").await.json();
    assert_eq!(
        (&booking["state"], &booking["slots"]),
        (&json!("granted"), &json!(1))
    );
    assert_eq!(
        (&booking["ttlMs"], &booking["expiresAt"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(booking["execution"]["state"], "running");
    assert_eq!(booking["execution"]["steps"].as_array().unwrap().len(), 6);
    let typed: bursar_client::api::Booking = serde_json::from_value(booking).unwrap();
    let allocation = bursar_client::api::Allocation::of(&typed).unwrap();
    assert_eq!(allocation.allocation_id, allocation.execution_id);

    exited(&world, "job", Exit::Signal(9)).await;
    let listed = world
        .ask("GET", "/v1/bookings?status=released", "")
        .await
        .json();
    let booking = &listed["items"][0];
    assert_eq!(
        (&booking["end"], &booking["outcome"]),
        (&json!("released"), &json!("failed"))
    );
    assert_eq!(booking["execution"]["outcome"], "failed");
    assert_eq!(booking["execution"]["signal"], 9);
    assert_eq!(
        booking["execution"]["steps"],
        Value::Null,
        "a list has no steps"
    );
    let plain = world.grant("plain", "python", "acme").await;
    assert_eq!(plain, 2);
    let plain = world.ask("GET", "/v1/bookings/plain", "").await.json();
    assert_eq!(plain["execution"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn only_its_process_or_an_operator_frees_the_slot_of_an_execution() {
    let (world, _) = world();
    submit(&world, "job").await;
    for (action, body) in [("release", r#"{"fence":1}"#), ("renew", r#"{"fence":1}"#)] {
        let path = format!("/v1/bookings/job/{action}");
        let problem = world.ask("POST", &path, body).await.is_problem("conflict");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("is an execution"),
            "{problem:#}"
        );
    }
    let body = r#"{"force":true,"reason":"the machine burnt down"}"#;
    let forced = world
        .ask("POST", "/v1/bookings/job/release", body)
        .await
        .json();
    assert_eq!(
        (&forced["end"], &forced["applied"]),
        (&json!("forced"), &json!(true))
    );
    let ended = get(&world, "job").await;
    assert_eq!(
        (&ended["outcome"], &ended["reason"]),
        (&json!("lost"), &json!("the machine burnt down"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_limit_refuses_or_queues_and_a_wait_may_be_over() {
    let (world, _) = world();
    world
        .limit("python", r#"{"class":"python","slots":1}"#)
        .await;
    submit(&world, "first").await;
    let at_once = r#"{"class":"python","tenant":"acme","command":"true"}"#;
    put(&world, "now", at_once).await.is_problem("over-limit");
    let waits = submit(&world, "second").await;
    assert_eq!(waits.status, 202);
    let waits = waits.json();
    assert_eq!(
        (&waits["state"], &waits["ahead"]),
        (&json!("queued"), &json!(0))
    );
    assert!(waits["waitUntil"].is_string());
    assert_eq!(submit(&world, "second").await.status, 202, "it still waits");
    tokio::time::sleep(Duration::from_secs(61)).await;
    let over = get(&world, "second").await;
    assert_eq!(
        (&over["state"], &over["outcome"]),
        (&json!("ended"), &json!("wait-over"))
    );
    assert_eq!(over["grantedAt"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_applied_once_wherever_the_execution_is() {
    let (world, _) = world();
    world
        .limit("python", r#"{"class":"python","slots":1}"#)
        .await;
    submit(&world, "first").await;
    submit(&world, "second").await;
    let left = cancel(&world, "second").await;
    assert_eq!(
        (&left["state"], &left["applied"]),
        (&json!("ended"), &json!(true))
    );
    assert_eq!(left["outcome"], "cancelled");
    assert_eq!(cancel(&world, "second").await["applied"], false);

    started(&world, "first").await;
    let path = "/v1/executions/first/cancel?dryRun=true";
    let planned = world.ask("POST", path, "").await.json();
    assert_eq!(
        (&planned["state"], &planned["applied"]),
        (&json!("stopping"), &json!(true))
    );
    assert_eq!(
        get(&world, "first").await["state"],
        "running",
        "a dry run stops nothing"
    );
    let stops = cancel(&world, "first").await;
    assert_eq!(
        (&stops["state"], &stops["applied"]),
        (&json!("stopping"), &json!(true))
    );
    assert_eq!(stops["cause"], "cancelled");
    assert_eq!(cancel(&world, "first").await["applied"], false);
    let by_booking = world
        .ask("POST", "/v1/bookings/first/cancel", "")
        .await
        .json();
    assert_eq!(by_booking["applied"], false, "the same through its booking");
    for attempt in 1..=10 {
        submit_result(
            &world,
            Command::StopFailed {
                id: name("first"),
                attempt,
            },
        )
        .await;
    }
    let stuck = get(&world, "first").await;
    assert_eq!(
        (&stuck["state"], &stuck["stopsFailed"]),
        (&json!("stuck"), &json!(10))
    );
    exited(&world, "first", Exit::Signal(9)).await;
    assert_eq!(get(&world, "first").await["outcome"], "cancelled");
    assert_eq!(cancel(&world, "first").await["applied"], false);
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_returns_with_the_next_state_or_when_its_wait_is_over() {
    let (world, _) = world();
    submit(&world, "job").await;
    let look = |wait: &str| {
        let path = format!("/v1/executions/job?wait={wait}");
        let world = &world;
        async move { world.ask("GET", &path, "").await }
    };
    let (seen, ()) = tokio::join!(look("30s"), async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        started(&world, "job").await;
    });
    assert_eq!(seen.json()["state"], "running");
    let before = tokio::time::Instant::now();
    assert_eq!(look("30s").await.json()["state"], "running");
    assert_eq!(before.elapsed().as_secs(), 30);
    exited(&world, "job", Exit::Code(0)).await;
    let before = tokio::time::Instant::now();
    assert_eq!(look("30s").await.json()["outcome"], "completed");
    assert_eq!(
        before.elapsed().as_secs(),
        0,
        "an ended execution does not change"
    );
    look("6m").await.is_problem("invalid");
}

#[tokio::test(start_paused = true)]
async fn wrong_bodies_are_refused_with_all_their_mistakes() {
    let (world, paper) = world();
    let check = async |fields: &str, paths: &[&str]| {
        let body = format!(r#"{{"class":"python","tenant":"acme"{fields}}}"#);
        let problem = put(&world, "job", &body).await.is_problem("invalid");
        let errors = problem["errors"].as_array().unwrap();
        let found: Vec<&str> = errors
            .iter()
            .map(|error| error["path"].as_str().unwrap())
            .collect();
        assert_eq!(found, paths, "{fields}: {problem:#}");
    };
    check("", &["command"]).await;
    check(r#","command":"""#, &["command"]).await;
    check(r#","command":7"#, &["command"]).await;
    check(r#","command":"a\u0000b""#, &["command"]).await;
    check(r#","command":"a","args":["x","y\u0000"]"#, &["args[1]"]).await;
    check(r#","command":"a","args":"x""#, &["args"]).await;
    check(r#","command":"a","env":{"A=B":"c"}"#, &["env"]).await;
    check(r#","command":"a","env":{"":"c"}"#, &["env"]).await;
    check(r#","command":"a","env":{"A":"b\u0000"}"#, &["env.A"]).await;
    check(r#","command":"a","env":{"A":7}"#, &["env.A"]).await;
    check(r#","command":"a","env":["A"]"#, &["env"]).await;
    check(r#","command":"a","directory":"srv""#, &["directory"]).await;
    check(r#","command":"a","directory":"/s\u0000""#, &["directory"]).await;
    check(r#","command":"a","pids":0"#, &["pids"]).await;
    check(r#","command":"a","pids":4294967296"#, &["pids"]).await;
    check(
        r#","command":"a","cpuLimitMilli":0,"memoryLimitBytes":0"#,
        &["cpuLimitMilli", "memoryLimitBytes"],
    )
    .await;
    check(r#","command":"a","slots":0"#, &["slots"]).await;
    check(
        r#","command":"a","startTimeoutMs":999"#,
        &["startTimeoutMs"],
    )
    .await;
    check(r#","command":"a","maxTimeMs":2592000001"#, &["maxTimeMs"]).await;
    check(r#","command":"a","graceMs":3600001"#, &["graceMs"]).await;
    check(r#","command":"a","retryOf":"nobody""#, &["retryOf"]).await;
    check(r#","command":"a","retryOf":"a b""#, &["retryOf"]).await;
    check(r#","command":"a","comand":"b""#, &["comand"]).await;
    check(
        r#","command":"","args":["\u0000"],"pids":0"#,
        &["command", "args[0]", "pids"],
    )
    .await;
    let large = format!(
        r#"{{"class":"python","command":"{}"}}"#,
        "a".repeat(1 << 20)
    );
    put(&world, "job", &large).await.is_problem("too-large");
    let works = paper.works.lock().unwrap();
    assert!(
        works.iter().all(|work| work.command == "a"),
        "only valid programs were stored"
    );
}

#[tokio::test(start_paused = true)]
async fn an_id_names_one_program_and_one_set_of_times() {
    let (world, _) = world();
    submit(&world, "job").await;
    let same = r#"{"class":"python","tenant":"acme","command":"true","waitMs":60000"#;
    let check = async |body: &str, field: &str| {
        let problem = put(&world, "job", body).await.is_problem("id-reused");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(&format!("`{field}`")), "{detail}");
    };
    let other = same.replace("true", "false");
    check(&format!("{other}}}"), "command").await;
    check(&format!(r#"{same},"args":["x"]}}"#), "command").await;
    check(&format!(r#"{same},"env":{{"A":"b"}}}}"#), "command").await;
    check(&format!(r#"{same},"graceMs":1}}"#), "graceMs").await;
    check(&format!(r#"{same},"slots":2}}"#), "slots").await;
    let spelled_out = format!(r#"{same},"maxTimeMs":3600000,"args":[]}}"#);
    assert_eq!(put(&world, "job", &spelled_out).await.status, 200);
    let booking = r#"{"class":"python","tenant":"acme","waitMs":60000}"#;
    world
        .ask("PUT", "/v1/bookings/job", booking)
        .await
        .is_problem("id-reused");
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_a_new_execution_that_names_one_that_ended() {
    let (world, _) = world();
    submit(&world, "first").await;
    let body = r#"{"class":"python","tenant":"acme","command":"true","retryOf":"first"}"#;
    put(&world, "second", body).await.is_problem("conflict");
    exited(&world, "first", Exit::Lost).await;
    assert_eq!(put(&world, "second", body).await.status, 201);
    assert_eq!(get(&world, "second").await["retryOf"], "first");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing_and_stores_nothing() {
    let (world, paper) = world();
    let body = r#"{"class":"python","tenant":"acme","command":"true"}"#;
    let record = world.service.record();
    let planned = put(&world, "job?dryRun=true", body).await;
    assert_eq!(planned.status, 201);
    let planned = planned.json();
    assert_eq!(
        (&planned["state"], &planned["dryRun"]),
        (&json!("starting"), &json!(true))
    );
    assert!(paper.works.lock().unwrap().is_empty());
    assert_eq!(world.service.record(), record);
    world
        .ask("GET", "/v1/executions/job", "")
        .await
        .is_problem("not-found");
    put(&world, "job", body).await;
    assert_eq!(
        put(&world, "job?dryRun=true", body).await.status,
        200,
        "a repeat is one"
    );
    let other = r#"{"class":"python","tenant":"acme","command":"false"}"#;
    put(&world, "job?dryRun=true", other)
        .await
        .is_problem("id-reused");
}

#[tokio::test(start_paused = true)]
async fn another_tenant_sees_nothing_and_a_viewer_neither_fence_nor_output() {
    let (world, paper) = world();
    submit(&world, "job").await;
    paper.write("job", "stdout", "hello");
    let zeta = || user(&["zeta"]);
    for (method, path) in [
        ("GET", "/v1/executions/job"),
        ("GET", "/v1/executions/job/logs"),
        ("POST", "/v1/executions/job/cancel"),
        ("GET", "/v1/bookings/job"),
        ("GET", "/v1/explain/booking/job"),
    ] {
        world
            .ask_as(zeta(), method, path, "")
            .await
            .is_problem("not-found");
    }
    let listed = world
        .ask_as(zeta(), "GET", "/v1/executions", "")
        .await
        .json();
    assert_eq!(listed["items"], json!([]));
    let seen = world
        .ask_as(viewer(), "GET", "/v1/executions/job", "")
        .await
        .json();
    assert_eq!(
        (&seen["state"], &seen["fence"]),
        (&json!("starting"), &Value::Null)
    );
    for (method, path) in [
        ("GET", "/v1/executions/job/logs"),
        ("POST", "/v1/executions/job/cancel"),
    ] {
        world
            .ask_as(viewer(), method, path, "")
            .await
            .is_problem("not-allowed");
    }
    let body = r#"{"class":"python","tenant":"acme","command":"true"}"#;
    for stranger in [zeta(), viewer()] {
        world
            .ask_as(stranger, "PUT", "/v1/executions/other", body)
            .await
            .is_problem("not-allowed");
    }
}

#[tokio::test(start_paused = true)]
async fn an_execution_runs_as_the_user_of_the_socket_or_of_the_server() {
    let (world, paper) = world();
    let ada = User {
        uid: 1000,
        gid: 100,
    };
    let caller = Caller {
        via: Via::User(ada),
        ..caller("ada", &[Role::Use], &["ada"])
    };
    let body = r#"{"class":"python","command":"true"}"#;
    let begun = world
        .ask_as(caller, "PUT", "/v1/executions/job", body)
        .await;
    assert_eq!(begun.status, 201, "{begun:?}");
    let is_root = rustix::process::geteuid().is_root();
    let works = paper.works.lock().unwrap();
    assert_eq!(works[0].user, is_root.then_some(ada));
}

#[tokio::test(start_paused = true)]
async fn executions_are_refused_without_an_executor_or_storage() {
    let body = r#"{"class":"python","tenant":"acme","command":"true"}"#;
    let without = World::new();
    let problem = put(&without, "job", body).await.is_problem("unavailable");
    assert_eq!(problem["detail"], "this server does not run executions");
    let full = Paper {
        is_full: true,
        ..Paper::default()
    };
    let full = World::executing(Arc::new(full));
    put(&full, "job", body).await.is_problem("unavailable");
    full.ask("GET", "/v1/executions/job", "")
        .await
        .is_problem("not-found");
}

#[tokio::test(start_paused = true)]
async fn a_plain_booking_is_not_an_execution() {
    let (world, _) = world();
    world.grant("plain", "python", "acme").await;
    for (method, path) in [
        ("GET", "/v1/executions/plain"),
        ("GET", "/v1/executions/plain/logs"),
        ("POST", "/v1/executions/plain/cancel"),
    ] {
        let problem = world.ask(method, path, "").await.is_problem("not-found");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("plain booking"),
            "{problem:#}"
        );
    }
    assert_eq!(
        world.ask("GET", "/v1/executions", "").await.json()["items"],
        json!([])
    );
}

#[tokio::test(start_paused = true)]
async fn the_explanation_has_the_saga() {
    let (world, _) = world();
    submit(&world, "job").await;
    cancel(&world, "job").await;
    let explained = world.ask("GET", "/v1/explain/booking/job", "").await.json();
    assert_eq!(explained["state"], "stopping");
    assert_eq!(states(&explained["saga"]["steps"])[3], ("create", "failed"));
    assert_eq!(
        states(&explained["saga"]["compensations"])[0],
        ("delete-process", "active")
    );
    world.grant("plain", "python", "acme").await;
    let plain = world
        .ask("GET", "/v1/explain/booking/plain", "")
        .await
        .json();
    assert_eq!(plain["saga"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn many_executions_end_and_free_their_slots() {
    let executor: Arc<dyn Executor> = Arc::new(Null::default());
    let world = World::executing(Arc::clone(&executor));
    world
        .limit("python", r#"{"class":"python","slots":4}"#)
        .await;
    let ledger = world.service.ledger().clone();
    let runner = Runner::new(ledger, executor, world.service.metrics().runner());
    let running = tokio::spawn(runner.run());
    for n in 0..40 {
        let command = ["true", "false", "sleep"][n % 3];
        let body = format!(
            r#"{{"class":"python","tenant":"t{}","command":"{command}","args":["9"],"waitMs":600000}}"#,
            n % 5
        );
        put(&world, &format!("job-{n}"), &body).await;
    }
    for n in 0..40 {
        let path = format!("/v1/executions/job-{n}?wait=5m");
        while world.ask("GET", &path, "").await.json()["state"] != "ended" {}
    }
    let count = async |outcome: &str| {
        let path = format!("/v1/executions?outcome={outcome}&limit=100");
        let items = world.ask("GET", &path, "").await.json()["items"].clone();
        items.as_array().unwrap().len()
    };
    assert_eq!((count("completed").await, count("failed").await), (27, 13));
    let held = world
        .ask("GET", "/v1/bookings?state=granted", "")
        .await
        .json();
    assert_eq!(held["items"], json!([]));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn the_client_reads_what_the_server_sends() {
    let (world, paper) = world();
    let router = world.router(crate::world::operator());
    let client = Client::new(Transport::within(router), Options::usual());
    let class = Label::new("python").unwrap();
    let request = ExecutionRequest::new(class, "true".to_owned());
    let id = name("job");
    let begun = client.submit(&id, &request, Mode::Do).await.unwrap();
    assert_eq!(begun.course.state, ExecutionState::Starting);
    let mut logs = client
        .logs(&id, LogStream::Stdout, Follow::UntilEnded)
        .await
        .unwrap();
    let (seen, ()) = tokio::join!(client.execution_wait(&id, Duration::from_secs(9)), async {
        started(&world, "job").await;
        paper.write("job", "stdout", "hello");
    });
    assert_eq!(seen.unwrap().course.state, ExecutionState::Running);
    assert_eq!(logs.chunk().await.unwrap().unwrap(), "hello");
    let stops = client.cancel_execution(&id, Mode::Do).await.unwrap();
    assert_eq!(stops.applied, Some(true));
    exited(&world, "job", Exit::Signal(15)).await;
    assert_eq!(logs.chunk().await.unwrap(), None);
    let query = ListExecutions {
        outcome: Some([ExecutionOutcome::Cancelled].into()),
        ..ListExecutions::default()
    };
    let listed = client.all_executions(&query).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(client.execution(&id).await.unwrap().course.signal, Some(15));
    let explained = client.explain("booking", "job").await.unwrap();
    assert_eq!(explained.saga.unwrap().steps.len(), 6);
}
