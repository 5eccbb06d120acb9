//! A plan has what the command then does, byte for byte.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clusters::{
    budget, cluster, envelope, events_text, get, gpus, journal_text, put, run, user,
};
use crate::ended::exit;
use crate::events::Follower;
use crate::world::{World, operator};

/// Plans a run and submits it; the events of the plan are those of the record. The answer.
async fn plan_and_put(world: &World, object: &Value) -> Value {
    let plan = put(world, operator(), object, "?dryRun=true").await;
    let planned = events_text(&plan.text());
    let done = put(world, operator(), object, "").await;
    assert_eq!(plan.status, done.status, "{}", done.text());
    let (mut plan, done) = (plan.json(), done.json());
    let record = journal_text(world, done["record"].as_u64().unwrap());
    let written = format!("\"ev\":{planned}}}");
    assert!(record.ends_with(&written), "{record}\n{written}");
    // The rest of the answer is the same too, but for what says that it is a plan.
    for field in ["events", "dryRun", "record"] {
        plan.as_object_mut().unwrap().remove(field);
    }
    let mut rest = done.clone();
    rest.as_object_mut().unwrap().remove("record");
    for answer in [&mut plan, &mut rest] {
        let metadata = answer["metadata"].as_object_mut().unwrap();
        metadata.remove("resourceVersion");
        let explanation = answer["explanation"].as_object_mut().unwrap();
        explanation.remove("record");
    }
    assert_eq!(plan, rest);
    done
}

fn child(owner: &str, size: u64) -> Value {
    json!({"owner": owner, "parents": ["org:ai"], "envelopes": [envelope(size)]})
}

/// Method: speech pays for a run of rai, which may also borrow of bio. Speech then takes its GPUs
/// back, and bio pays.
#[tokio::test(start_paused = true)]
async fn the_plan_of_a_start_that_recalls_gpus_has_the_events_of_all_runs() {
    let world = cluster().await;
    let small = budget("rai", &child("org:ai:rai", 8));
    put(&world, operator(), &small, "").await;
    plan_and_put(&world, &run("rai", "first", &gpus("org:ai:rai", 8))).await;
    let mut spec = gpus("org:ai:rai", 8);
    spec["funding"] = json!({"allowBorrow": true, "sponsors": ["org:bio"]});
    let shares = plan_and_put(&world, &run("rai", "shares", &spec)).await;
    assert_eq!(shares["takes"][0]["pool"], "family", "{shares:#}");
    let own = plan_and_put(&world, &run("speech", "own", &gpus("org:ai:speech", 32))).await;
    assert_eq!(own["status"]["state"], "starting", "{own:#}");
    let record = journal_text(&world, own["record"].as_u64().unwrap());
    for cause in ["recall", "refund"] {
        assert!(record.contains(&format!("\"{cause}\"")), "{record}");
    }
    let shares = get(&world, "/v1/runs/rai/shares").await;
    let claim = &shares["status"]["claims"][0];
    assert_eq!(claim["envelope"], "bio/q4/h100", "{shares:#}");
}

#[tokio::test(start_paused = true)]
async fn the_plans_of_a_wait_and_of_an_edit_have_their_events() {
    let world = cluster().await;
    let first = plan_and_put(&world, &run("rai", "llm", &gpus("org:ai:rai", 32))).await;
    assert_eq!(first["status"]["state"], "starting");
    plan_and_put(&world, &run("bio", "fold", &gpus("org:bio", 32))).await;
    let waits = plan_and_put(&world, &run("speech", "asr", &gpus("org:ai:speech", 32))).await;
    assert_eq!(waits["status"]["state"], "waiting", "{waits:#}");
    let mut edited = gpus("org:ai:speech", 32);
    edited["priority"] = json!(7);
    edited["maxDuration"] = json!("72h");
    let edited = plan_and_put(&world, &run("speech", "asr", &edited)).await;
    assert_eq!(edited["change"], "changed");
    assert_eq!(edited["spec"]["priority"], 7);
    tokio::time::advance(Duration::from_mins(1)).await;
    exit(&world, "rai/llm").await;
    let now = get(&world, "/v1/runs/speech/asr").await;
    assert_eq!(now["status"]["state"], "starting", "{now:#}");
}

/// Method: the budget is widened, so that a waiting run starts, and a run of it is submitted.
#[tokio::test(start_paused = true)]
async fn the_plan_of_a_budget_with_a_run_has_the_results_of_its_apply() {
    let world = cluster().await;
    let solo = |size: u64| {
        budget(
            "solo",
            &json!({"owner": "org:solo", "envelopes": [envelope(size)]}),
        )
    };
    put(&world, operator(), &solo(8), "").await;
    put(
        &world,
        operator(),
        &run("solo", "a", &gpus("org:solo", 8)),
        "",
    )
    .await;
    put(
        &world,
        operator(),
        &run("solo", "b", &gpus("org:solo", 8)),
        "",
    )
    .await;
    let objects = [solo(24), run("solo", "c", &gpus("org:solo", 8))];
    let body = json!({ "objects": objects }).to_string();
    let head = get(&world, "/v1/runs").await["record"].clone();
    let plan = world.ask("POST", "/v1/apply?dryRun=true", &body).await;
    assert!(plan.status.is_success(), "{}", plan.text());
    assert_eq!(
        get(&world, "/v1/runs").await["record"],
        head,
        "a plan writes nothing"
    );
    let done = world.ask("POST", "/v1/apply", &body).await.json();
    let plan = plan.json();
    assert_eq!(plan["dryRun"], true);
    let planned = plan["results"].to_string();
    let planned = planned.replace("would start on", "starts on");
    assert_eq!(planned, done["results"].to_string());
    assert_eq!(plan["results"].as_array().unwrap().len(), 2);
    for name in ["a", "b", "c"] {
        let run = get(&world, &format!("/v1/runs/solo/{name}")).await;
        assert_eq!(run["status"]["state"], "starting", "{run:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_namespace_has_the_events_of_its_runs_and_budgets_alone() {
    let world = cluster().await;
    for (namespace, owner) in [("bio", "org:bio"), ("rai", "org:ai:rai")] {
        let object = run(namespace, "r", &gpus(owner, 8));
        put(&world, operator(), &object, "").await;
    }
    world.grant("job", "python", "acme").await;
    exit(&world, "bio/r").await;
    exit(&world, "rai/r").await;
    let last = budget("rai", &child("org:ai:rai", 40));
    put(&world, operator(), &last, "").await;
    let hear = async |caller, query: &str, until: &str| {
        let mut follower = Follower::new(&world.router(caller), query, None).await;
        let mut heard = Vec::new();
        while heard.last().is_none_or(|name| name != until) {
            let event = follower.next().await.unwrap();
            let data: Value = serde_json::from_str(&event.data).unwrap();
            let object = data["object"].as_str().unwrap();
            assert!(object.contains("/rai/"), "{event:?}");
            heard.push(event.name);
        }
        heard
    };
    let query = "?from=0&ns=rai";
    let all = [
        "budget.changed",
        "run.submitted",
        "run.funded",
        "lease.opened",
        "lease.closed",
        "run.ended",
    ];
    assert_eq!(hear(operator(), query, "run.ended").await, all);
    let own = user(&["org:ai:rai"]);
    assert_eq!(hear(own.clone(), query, "run.ended").await, all);
    let ended = "?from=0&ns=rai&kinds=run.ended,budget";
    let heard = hear(own, ended, "run.ended").await;
    assert_eq!(heard, ["budget.changed", "run.ended"]);
}
