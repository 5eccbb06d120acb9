//! Metrics: values match the state, and labels are bounded.

use std::collections::BTreeMap;

use bursar_server::metrics::CLASS_LABELS_MAX;

use crate::world::World;

/// The samples of one metric by its labels.
fn samples(text: &str, name: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (metric, value) = line.rsplit_once(' ')?;
            let labels = metric.strip_prefix(name)?;
            (labels.is_empty() || labels.starts_with('{'))
                .then(|| (labels.to_owned(), value.parse().unwrap()))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn gauges_equal_the_state_counted_naively() {
    let world = World::new();
    world
        .limit("python", r#"{"class":"python","slots":2}"#)
        .await;
    for (id, class, slots, wait) in [
        ("a", "python", 2, 0),
        ("b", "python", 1, 9_000_000),
        ("c", "rust", 3, 0),
        ("d", "rust", 1, 0),
    ] {
        let body = format!(
            r#"{{"class":"{class}","tenant":"acme","slots":{slots},"waitMs":{wait},"ttlMs":86400000}}"#
        );
        world.ask("PUT", &format!("/v1/bookings/{id}"), &body).await;
    }
    tokio::time::advance(std::time::Duration::from_secs(90)).await;
    let text = world.ask("GET", "/metrics", "").await.text();
    let listed = world.ask("GET", "/v1/bookings", "").await.json();
    let mut in_use: BTreeMap<String, u64> = BTreeMap::new();
    for item in listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["state"] == "granted")
    {
        let class = format!("{{class=\"{}\"}}", item["class"].as_str().unwrap());
        *in_use.entry(class).or_default() += item["slots"].as_u64().unwrap();
    }
    assert_eq!(samples(&text, "booking_slots_in_use"), in_use);
    let python = "{class=\"python\"}";
    assert_eq!(samples(&text, "booking_waiting")[python], 1);
    assert_eq!(samples(&text, "booking_waiting_oldest_seconds")[python], 90);
    assert_eq!(samples(&text, "booking_granted_total")[""], 3);
    assert_eq!(
        samples(&text, "ledger_records")[""],
        world.service.record() + 1
    );
    assert_eq!(
        samples(&text, "http_requests_total")["{route=\"/v1/bookings/{id}\",status=\"201\"}"],
        3
    );
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test(start_paused = true)]
async fn at_most_a_hundred_classes_have_labels() {
    let world = World::new();
    for n in 0..150 {
        let slots = if n == 149 { 5 } else { 1 };
        let body = format!(r#"{{"class":"class-{n:03}","tenant":"acme","slots":{slots}}}"#);
        world
            .ask("PUT", &format!("/v1/bookings/job-{n}"), &body)
            .await;
    }
    let text = world.ask("GET", "/metrics", "").await.text();
    let in_use = samples(&text, "booking_slots_in_use");
    assert_eq!(in_use.len(), CLASS_LABELS_MAX + 1);
    assert_eq!(
        in_use.values().sum::<u64>(),
        154,
        "nothing is left out of the sum"
    );
    assert_eq!(in_use["{class=\"others\"}"], 50);
    assert_eq!(
        in_use["{class=\"class-149\"}"], 5,
        "the largest has its own label"
    );
}

/// Method: a method that no route has is refused at every address.
#[tokio::test(start_paused = true)]
async fn every_route_has_its_label_and_nothing_else_does() {
    let world = World::new();
    let description: serde_json::Value =
        serde_json::from_str(bursar_server::http::DESCRIPTION).unwrap();
    let paths = description["paths"].as_object().unwrap();
    let mut expected = BTreeMap::new();
    for path in paths.keys() {
        let real = path.replace("{path}", "0/x001/234").replace(['{', '}'], "");
        world.ask("PATCH", &real, "").await;
        expected.insert(format!("{{route=\"{path}\",status=\"405\"}}"), 1);
    }
    let nowhere = ["/", "/v2", "/v1/bookings/a/b/c", "/metrics/x", "//"];
    for address in nowhere {
        world.ask("PATCH", address, "").await;
    }
    expected.insert("{route=\"none\",status=\"404\"}".to_owned(), 5);
    let text = world.ask("GET", "/metrics", "").await.text();
    assert_eq!(samples(&text, "http_requests_total"), expected);
}
