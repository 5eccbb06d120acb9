//! Lists and metrics of executions.

use bursar_engine::booking::execution::Exit;
use serde_json::{Value, json};

use super::{BTreeMap, BTreeSet, World, cancel, exited, put, started, submit, world};

/// Creates one execution in each state and some ended ones, among plain bookings.
async fn populate(world: &World) {
    world.limit("rust", r#"{"class":"rust","slots":1}"#).await;
    world.grant("a-plain", "python", "acme").await;
    for id in ["begun", "runs", "stops", "done", "broke", "gone"] {
        submit(world, id).await;
    }
    for id in ["runs", "stops", "done", "broke"] {
        started(world, id).await;
    }
    cancel(world, "stops").await;
    world.grant("rusty", "rust", "acme").await;
    let waits = r#"{"class":"rust","tenant":"zeta","command":"true","waitMs":60000}"#;
    put(world, "waits", waits).await;
    exited(world, "done", Exit::Code(0)).await;
    exited(world, "broke", Exit::Code(1)).await;
    exited(world, "gone", Exit::Lost).await;
}

async fn ids(world: &World, query: &str) -> Vec<String> {
    let listed = world
        .ask("GET", &format!("/v1/executions?{query}"), "")
        .await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let id = |item: &Value| item["id"].as_str().unwrap().to_owned();
    listed.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(id)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn filters_and_pages_return_exactly_the_matching_executions() {
    let (world, _) = world();
    populate(&world).await;
    let check = async |query: &str, expected: &[&str]| {
        assert_eq!(ids(&world, query).await, expected, "{query}");
    };
    let all = ["begun", "runs", "stops", "waits", "gone", "broke", "done"];
    check("", &all).await;
    check("state=queued", &["waits"]).await;
    check("state=starting", &["begun"]).await;
    check("state=running,stopping", &["runs", "stops"]).await;
    check("state=ended", &["gone", "broke", "done"]).await;
    check("state=stuck", &[]).await;
    check("outcome=failed", &["broke"]).await;
    check("outcome=completed,lost", &["gone", "done"]).await;
    check("state=running&outcome=failed", &[]).await;
    check("class=rust", &["waits"]).await;
    check("tenant=zeta", &["waits"]).await;
    check("id=runs", &["runs"]).await;
    check("id=a-plain", &[]).await;
    check("id=runs&outcome=failed", &[]).await;
    for (query, path) in [
        ("state=runing", "state"),
        ("outcome=ok", "outcome"),
        ("cursor=x", "cursor"),
        ("execution=x", "execution"),
    ] {
        let wrong = world
            .ask("GET", &format!("/v1/executions?{query}"), "")
            .await;
        assert_eq!(wrong.is_problem("invalid")["errors"][0]["path"], path);
    }
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world
            .ask("GET", &format!("/v1/executions?limit=2{cursor}"), "")
            .await
            .json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        found.extend(
            items
                .iter()
                .map(|item| item["id"].as_str().unwrap().to_owned()),
        );
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, all);
    let bookings = world
        .ask("GET", "/v1/bookings?state=granted", "")
        .await
        .json();
    let ids = bookings["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].clone());
    let ids: Vec<Value> = ids.collect();
    assert_eq!(
        json!(ids),
        json!(["a-plain", "begun", "runs", "rusty", "stops"])
    );
}

/// The samples of one metric by the value of its label.
fn samples(text: &str, name: &str) -> BTreeMap<String, u64> {
    let sample = |line: &str| {
        let (metric, value) = line.rsplit_once(' ')?;
        let label = metric.strip_prefix(name)?.strip_prefix('{')?;
        let (_, label) = label.strip_suffix("\"}")?.split_once('"')?;
        Some((label.to_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(sample).collect()
}

#[tokio::test(start_paused = true)]
async fn answers_and_metrics_distinguish_out_of_memory() {
    let (world, _) = world();
    let (code, signal) = (None, Some(9));
    let reason = "its cgroup cannot be made".to_owned();
    for (id, exit) in [
        ("hungry", Exit::OutOfMemory { code, signal }),
        ("locked", Exit::Code(126)),
        ("absent", Exit::Code(127)),
        ("broken", Exit::Code(1)),
        ("killed", Exit::Signal(9)),
        ("unborn", Exit::NotStarted(reason)),
        ("well", Exit::Code(0)),
    ] {
        submit(&world, id).await;
        exited(&world, id, exit).await;
    }
    let hungry = world.ask("GET", "/v1/executions/hungry", "").await.json();
    assert_eq!(hungry["outOfMemory"], true);
    let killed = world.ask("GET", "/v1/executions/killed", "").await.json();
    assert_eq!(killed.get("outOfMemory"), None);
    let text = world.ask("GET", "/metrics", "").await.text();
    let words = [
        "out-of-memory",
        "not-executable",
        "not-found",
        "exit-code",
        "signal",
        "not-started",
    ];
    let each_once = words.map(|word| (word.to_owned(), 1));
    assert_eq!(
        samples(&text, "executions_failed_total"),
        BTreeMap::from(each_once)
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_equal_a_naive_count_at_every_scrape() {
    let (world, _) = world();
    let zero = world.ask("GET", "/metrics", "").await.text();
    assert_eq!(
        samples(&zero, "executions_ended_total")
            .values()
            .sum::<u64>(),
        0
    );
    populate(&world).await;
    for round in 0..3 {
        submit(&world, &format!("more-{round}")).await;
        exited(&world, &format!("more-{round}"), Exit::Code(0)).await;
        world.ask("GET", "/metrics", "").await;
    }
    let text = world.ask("GET", "/metrics", "").await.text();
    let listed = world.ask("GET", "/v1/executions", "").await.json();
    let mut naive: BTreeMap<(&str, String), u64> = BTreeMap::new();
    for item in listed["items"].as_array().unwrap() {
        let text_of = |field: &str| item[field].as_str().unwrap().to_owned();
        let key = match item["outcome"].as_str() {
            Some(_) => ("executions_ended_total", text_of("outcome")),
            None => ("executions", text_of("state")),
        };
        *naive.entry(key).or_default() += 1;
    }
    for (metric, labels) in [("executions", 5), ("executions_ended_total", 6)] {
        let shown = samples(&text, metric);
        let words: BTreeSet<&String> = shown.keys().collect();
        assert_eq!(words.len(), labels, "{metric} has every label: {words:?}");
        for (label, count) in shown {
            let expected = naive.get(&(metric, label.clone())).copied();
            assert_eq!(count, expected.unwrap_or_default(), "{metric} {label}");
        }
    }
    let ran = |metric: &str| {
        let line = text.lines().find(|line| line.starts_with(metric)).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(
        ran("execution_run_seconds_count"),
        "2",
        "two of the ended executions ran"
    );
    assert_eq!(ran("execution_start_seconds_count"), "2");
    assert_eq!(ran("executions_adopted_total"), "0");
}
