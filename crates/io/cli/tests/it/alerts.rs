//! Alerts and dashboards are valid and name only metrics that a server serves.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use bursar_server::metrics::market::NAMES;
use serde_json::Value;

use crate::house::{House, tree};

/// The documented alerts.
const ALERTS: [&str; 9] = [
    "BursarAgentSilent",
    "BursarEnvelopeExhausted",
    "BursarEnvelopeNear",
    "BursarEnvelopeNearlyGone",
    "BursarExecutionStuck",
    "BursarInvariantBroken",
    "BursarNeedAboveCapacity",
    "BursarNodeOverloaded",
    "BursarRunWaitsLong",
];
/// Dashboards, with their variables.
const DASHBOARDS: [(&str, [&str; 2]); 2] = [
    ("bursar.json", ["datasource", "node"]),
    ("budgets.json", ["datasource", "meter"]),
];
/// Keywords of the query language that no parenthesis follows.
const WORDS: [&str; 10] = [
    "and",
    "bool",
    "by",
    "group_left",
    "group_right",
    "ignoring",
    "offset",
    "on",
    "or",
    "unless",
];

/// Applies budgets, and submits a run that borrows and one that no sponsor lends to: metrics of
/// budgets exist only with them.
fn use_budgets(house: &House) {
    let files = tree().join("docs/concepts/budgets");
    let file = |name: &str| files.join(name).to_str().unwrap().to_owned();
    for name in ["nodes.yaml", "budgets.yaml", "geo.yaml", "wide.yaml"] {
        house.ok(&["apply", "-f", &file(name)]);
    }
    let run = "{apiVersion: bursar.dev/v1alpha1, kind: Run, metadata: {name: denied}, spec: {owner: nobody, \
        flavor: h100, totalGPUs: 1, funding: {allowBorrow: true, sponsors: [\"org:geo\"]}}}";
    std::fs::write(house.path("denied.yaml"), run).unwrap();
    assert_eq!(house.run(&["run", "submit", "-f", "denied.yaml"]).code, 1);
}

/// The lines of a server's metrics, with its comments.
fn metric_lines() -> Vec<String> {
    let house = House::new();
    let server = house.up(&[]);
    // Metrics of a class exist once a slot of it is held.
    house.ok(&["booking", "reserve", "python", "--id", "job-1"]);
    use_budgets(&house);
    let host = server.address.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Names of all metrics: those of a server, also without a series, and those of the market, which
/// exist only with pods.
fn served() -> BTreeSet<String> {
    let lines = metric_lines();
    let (comments, series): (Vec<&String>, Vec<&String>) =
        lines.iter().partition(|line| line.starts_with('#'));
    let series = series
        .into_iter()
        .filter_map(|line| line.split(['{', ' ']).next());
    let names = series.chain(NAMES.iter().copied()).map(str::to_owned);
    // `# TYPE NAME KIND`: the series of a counter end in `_total`.
    let typed = comments.into_iter().filter_map(|line| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        let end = if kind == "counter" { "_total" } else { "" };
        Some(format!("{}{end}", name.trim_end_matches("_total")))
    });
    names.chain(typed).collect()
}

/// Names of the labels of a metric.
fn labels(lines: &[String], name: &str) -> BTreeSet<String> {
    let start = format!("{name}{{");
    let line = lines.iter().find(|line| line.starts_with(&start));
    let (list, _) = line.unwrap()[start.len()..].split_once('}').unwrap();
    let names = list.split(',').filter_map(|label| label.split('=').next());
    names.map(str::to_owned).collect()
}

/// The alert rules by name.
fn alerts() -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(tree().join("deploy/alerts.yaml")).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let groups = file["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let name = |rule: &Value| rule["alert"].as_str().unwrap().to_owned();
    rules.map(|rule| (name(rule), rule.clone())).collect()
}

/// The metrics that a query names: words that are neither functions, labels nor keywords.
fn metrics(query: &str) -> BTreeSet<String> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let mut found = BTreeSet::new();
    let mut rest = query;
    let mut is_list_of_labels = false;
    while let Some(first) = rest.chars().next() {
        let length = rest.chars().take_while(|letter| is_word(*letter)).count();
        let (word, after) = rest.split_at(length);
        if word.is_empty() {
            rest = match first {
                '{' => rest.split_once('}').unwrap().1,
                '[' => rest.split_once(']').unwrap().1,
                '"' => rest[1..].split_once('"').unwrap().1,
                '(' if is_list_of_labels => rest.split_once(')').unwrap().1,
                _ => &rest[first.len_utf8()..],
            };
            is_list_of_labels &= first == ' ';
            continue;
        }
        rest = after;
        is_list_of_labels = ["by", "on", "without", "ignoring"].contains(&word);
        let is_call = after.trim_start().starts_with('(');
        let is_number = first.is_ascii_digit();
        if !is_call && !is_number && !WORDS.contains(&word) && word != "by" {
            // `sum by (x) (y)`: labels may come before the arguments of a function.
            let is_function = after.trim_start().starts_with("by ");
            if !is_function {
                found.insert(word.to_owned());
            }
        }
    }
    found
}

#[test]
fn metrics_are_found_in_queries() {
    for (query, expected) in [
        ("max by (node) (a_b{mode=~\"x|y\"}) == 1", "a_b"),
        ("time() - c{n=\"$n\"} > 60", "c"),
        ("rate(d_total{a=\"b\"}[5m]) * 60", "d_total"),
        ("topk(10, e) / 1000", "e"),
        ("f / 1e6", "f"),
        ("g{a=\"b\"} and ignoring (a) g == 1", "g"),
        ("clamp_min(3 * max by (n) (last_over_time(h[1d])), 60)", "h"),
        (
            "label_replace(max by (n) (i), \"of\", \"x\", \"\", \"\") >= 0.8 < 0.95",
            "i",
        ),
        ("sum by (a, b) (j) >= 1 and on () max(j) > 0", "j"),
    ] {
        let found: Vec<String> = metrics(query).into_iter().collect();
        assert_eq!(found, [expected], "{query}");
    }
}

#[test]
fn every_alert_exists_and_names_only_served_metrics() {
    let served = served();
    let alerts = alerts();
    for rule in alerts.values() {
        let expr = rule["expr"].as_str().unwrap();
        let metrics = metrics(expr);
        assert!(!metrics.is_empty(), "{expr}");
        assert!(metrics.is_subset(&served), "{expr}: {metrics:?}");
        for field in ["summary", "description"] {
            assert!(rule["annotations"][field].is_string(), "{rule}");
        }
        assert!(rule["for"].is_string() && rule["labels"]["severity"].is_string());
    }
    assert!(alerts.keys().eq(ALERTS), "{:?}", alerts.keys());
}

/// A failed scrape ends a series at once, so the present value is missing exactly when the agent is
/// dead. The alert uses the last value of the past day instead.
#[test]
fn the_alert_on_silence_uses_the_last_values_and_the_agents_own_interval() {
    let alerts = alerts();
    let expr = alerts["BursarAgentSilent"]["expr"].as_str().unwrap();
    let metrics = metrics(expr);
    let paced = [
        "market_acts",
        "market_clearing_interval_seconds",
        "market_last_clearing_seconds",
    ];
    assert!(metrics.iter().eq(paced), "{expr}");
    for name in metrics {
        // By node: an agent that restarts may be scraped under another address.
        let of_the_past = format!("max by (node) (last_over_time({name}[1d]))");
        assert_eq!(expr.matches(&name).count(), 1, "{expr}");
        assert!(expr.contains(&of_the_past), "{expr}");
    }
    let (silence, most) = expr.split_once(" > ").unwrap();
    let (most, _) = most.split_once(" and on (node) ").unwrap();
    assert!(silence.starts_with("time() - "), "{expr}");
    assert!(most.starts_with("clamp_min(3 * "), "{expr}");
    assert!(most.ends_with(", 60)"), "{expr}");
}

/// An observing agent writes no limits. A present value is guarded by `market_acts` of the same
/// series, because one agent may observe a node that another manages. An agent that is gone is
/// judged by its last value.
#[test]
fn no_alert_fires_for_a_node_that_is_only_observed() {
    let of_now = "and ignoring (mode) market_acts == 1";
    let of_the_past = "and on (node) max by (node) (last_over_time(market_acts[1d])) == 1";
    for (name, rule) in alerts() {
        let expr = rule["expr"].as_str().unwrap();
        let metrics = metrics(expr);
        if !metrics.iter().any(|metric| NAMES.contains(&&**metric)) {
            continue;
        }
        let Some((_, after)) = expr.split_once("apex_allocation_mode{") else {
            assert!(expr.ends_with(of_the_past), "{name}: {expr}");
            continue;
        };
        let (_, after) = after.split_once('}').unwrap();
        assert!(after.trim_start().starts_with(of_now), "{name}: {expr}");
        assert!(!after.contains("apex_"), "{name}: {expr}");
    }
    let lines = metric_lines();
    let mut of_mode = labels(&lines, "apex_allocation_mode");
    assert!(of_mode.remove("mode"));
    assert_eq!(of_mode, labels(&lines, "market_acts"));
}

#[test]
fn every_panel_names_only_served_metrics_and_no_two_panels_overlap() {
    let served = served();
    for (file, variables) in DASHBOARDS {
        let text = std::fs::read_to_string(tree().join("deploy/grafana").join(file)).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let mut cells = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let expr = target["expr"].as_str().unwrap();
                let metrics = metrics(expr);
                assert!(!metrics.is_empty(), "{expr}");
                assert!(metrics.is_subset(&served), "{expr}: {metrics:?}");
            }
            let at = |field: &str| panel["gridPos"][field].as_u64().unwrap();
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(x < 24 && cells.insert((x, y)), "{}", panel["title"]);
                }
            }
        }
        let list = dashboard["templating"]["list"].as_array().unwrap().iter();
        let names: Vec<&str> = list.filter_map(|v| v["name"].as_str()).collect();
        assert_eq!(names, variables);
    }
}
