//! Lists of runs and leases: ended ones, pages, and one lease by its number.

use std::time::Duration;

use bursar_engine::Command;
use bursar_engine::cluster::{Command as ClusterCommand, Exit};
use bursar_ledger::writer::own_principal;
use serde_json::Value;

use crate::clusters::{cluster, get, gpus, put, run};
use crate::world::{World, operator};

/// The executor reports that all processes of a run have ended.
pub(crate) async fn exit(world: &World, path: &str) {
    let status = &get(world, &format!("/v1/runs/{path}")).await["status"];
    let exited = ClusterCommand::RunExited {
        uid: serde_json::from_value(status["uid"].clone()).unwrap(),
        incarnation: 0,
        pods: Vec::new(),
        exit: Exit::Ok {},
    };
    let commands = vec![Command::from(exited)];
    let sent = world.ledger.submit(own_principal(), commands).await;
    for outcome in sent.unwrap() {
        outcome.result.unwrap();
    }
}

async fn count(world: &World, path: &str) -> usize {
    let list = get(world, &format!("/v1/{path}")).await;
    list["items"].as_array().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn ended_runs_and_leases_are_listed_for_a_day_or_since_a_time() {
    let world = cluster().await;
    let object = run("bio", "r", &gpus("org:bio", 8));
    put(&world, operator(), &object, "").await;
    tokio::time::advance(Duration::from_hours(1)).await;
    exit(&world, "bio/r").await;
    tokio::time::advance(Duration::from_hours(23)).await;
    for (path, expected) in [
        ("runs", 1),
        ("leases", 1),
        ("runs?since=-22h", 0),
        ("leases?since=-22h", 0),
    ] {
        assert_eq!(count(&world, path).await, expected, "{path}");
    }
    tokio::time::advance(Duration::from_hours(2)).await;
    for (path, expected) in [
        ("runs", 0),
        ("leases", 0),
        ("runs?since=-26h", 1),
        ("leases?since=-26h", 1),
        ("runs?since=-26h&state=running", 0),
    ] {
        assert_eq!(count(&world, path).await, expected, "{path}");
    }
}

/// Method: two runs of one record and one of another, of which one has ended. The pages of one lease
/// have the leases of the whole list, and each number within a lease finds it.
#[tokio::test(start_paused = true)]
async fn pages_of_leases_have_every_lease_once_and_each_is_found_by_its_numbers() {
    let world = cluster().await;
    let objects = [
        run("rai", "a", &gpus("org:ai:rai", 16)),
        run("bio", "b", &gpus("org:bio", 8)),
    ];
    let body = serde_json::json!({ "objects": objects }).to_string();
    let reply = world.ask("POST", "/v1/apply", &body).await;
    assert!(reply.status.is_success(), "{}", reply.text());
    let object = run("speech", "c", &gpus("org:ai:speech", 16));
    put(&world, operator(), &object, "").await;
    exit(&world, "rai/a").await;
    let whole = get(&world, "/v1/leases").await;
    let whole = whole["items"].as_array().unwrap();
    let runs: Vec<&str> = whole
        .iter()
        .map(|lease| lease["run"].as_str().unwrap())
        .collect();
    assert_eq!(runs, ["bio/b", "speech/c", "speech/c", "rai/a", "rai/a"]);
    let (mut paged, mut cursor): (Vec<Value>, _) = (Vec::new(), String::new());
    loop {
        let page = get(&world, &format!("/v1/leases?limit=1{cursor}")).await;
        paged.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["nextCursor"].as_str() else {
            break;
        };
        cursor = format!("&cursor={}", next.replace(' ', "%20"));
    }
    assert_eq!(paged, *whole);
    for lease in whole {
        let id = lease["lease"].as_str().unwrap();
        let (record, number) = id.rsplit_once('.').unwrap();
        let first: u64 = number.parse().unwrap();
        for number in first..first + 8 {
            let found = get(&world, &format!("/v1/leases/{record}.{number}")).await;
            assert_eq!(found, *lease, "{number}");
        }
    }
    let none = world.ask("GET", "/v1/leases/lease-1.1", "").await;
    none.is_problem("not-found");
}
