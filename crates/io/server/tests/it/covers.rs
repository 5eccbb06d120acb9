//! Log lines of covers that failed.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::clusters::{budget, cluster, envelope, gpus, put, run};
use crate::world::{World, operator};

/// Collects the events of the log that have a name of a budget.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Said {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(
            &mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                write!(line, "{field}={value:?} ").unwrap();
            },
        );
        if line.contains("message=budget.") {
            self.0.lock().unwrap().push(line.trim_end().to_owned());
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The lines that a request writes.
async fn said(world: &World, object: &Value, query: &str) -> Vec<String> {
    let said = Said::default();
    let _listens = tracing::subscriber::set_default(said.clone());
    put(world, operator(), object, query).await;
    let lines = said.0.lock().unwrap();
    lines.clone()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_cap_is_logged_with_its_meter() {
    let world = cluster().await;
    let capped = json!({"owner": "org:x", "envelopes": [envelope(16)], "aggregateCaps":
        [{"name": "all", "flavor": "h100", "envelopes": ["h100"], "maxConcurrency": 8}]});
    put(&world, operator(), &budget("x", &capped), "").await;
    let first = said(&world, &run("x", "a", &gpus("org:x", 8)), "").await;
    assert_eq!(first, Vec::<String>::new(), "it starts");
    let object = run("x", "b", &gpus("org:x", 8));
    let planned = said(&world, &object, "?dryRun=true").await;
    assert_eq!(planned, Vec::<String>::new(), "a plan is not an attempt");
    let waits = said(&world, &object, "").await;
    let expected = [
        r#"message=budget.cover-failed run=x/b owner="org:x" reason="AggregateCapExceeded" wanted=8 short=8"#,
        r#"message=budget.cap-breached run=x/b owner="org:x" meter="cap/x/q4/all" dimension="gpus""#,
    ];
    assert_eq!(waits, expected);
    let again = said(&world, &object, "").await;
    assert_eq!(again, Vec::<String>::new(), "nothing changed");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_refused_is_logged_with_the_lender_that_does_not_lend() {
    let world = cluster().await;
    let mut spec = gpus("org:ai:speech", 8 * 16);
    spec["funding"] = json!({"allowBorrow": true, "sponsors": ["org:bio"]});
    let refused = said(&world, &run("speech", "x", &spec), "").await;
    let denied = r#"message=budget.lending-denied run=speech/x owner="org:ai:speech" envelope="bio/q4/h100""#;
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].starts_with("message=budget.cover-failed run=speech/x"));
    assert_eq!(refused[1], denied);
}
