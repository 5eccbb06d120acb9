//! Records of this machine's market, with the real binary and kernel: each change is recorded once,
//! however the server ends (M12). Needs root, as the executions do.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use crate::house::{House, Server};
use crate::market_node::{Group, LOOKS_MAX, WROTE_MILLI, acting, node, until_lowered};

/// Sentences of all records about the market.
fn recorded(house: &House) -> Vec<String> {
    let records = house.ok(&["ledger", "tail", "--from", "0", "-o", "json"]);
    let records: Value = serde_json::from_str(&records).unwrap();
    let sentences = records.as_array().unwrap().iter();
    let sentences = sentences.flat_map(|record| record["summary"].as_array().unwrap());
    let sentences = sentences.map(|sentence| sentence.as_str().unwrap());
    let node = node(house);
    let is_about = |sentence: &&str| {
        sentence.starts_with(&format!("{node}: ")) || sentence.contains(&format!(" on {node} "))
    };
    sentences.filter(is_about).map(str::to_owned).collect()
}

/// Reads the records until the condition holds. Each read is a process, so no sleep is needed.
fn until(house: &House, is_there: impl Fn(&[String]) -> bool) -> Vec<String> {
    let mut last = Vec::new();
    for _ in 0..LOOKS_MAX {
        last = recorded(house);
        if is_there(&last) {
            return last;
        }
    }
    panic!("the records do not come: {last:#?}");
}

fn count(sentences: &[String], part: &str) -> usize {
    sentences
        .iter()
        .filter(|sentence| sentence.contains(part))
        .count()
}

/// The first `count` events about originals of pods, from the beginning of the ledger.
fn pod_events(server: &Server, count: usize) -> Vec<(String, Value)> {
    let address = server.address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    let kinds = "pod.originalTaken,pod.originalReturned";
    let request =
        format!("GET /v1/events?from=0&kinds={kinds} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut events = Vec::new();
    let mut name = String::new();
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        if let Some(event) = line.strip_prefix("event: ") {
            event.clone_into(&mut name);
        } else if let Some(data) = line.strip_prefix("data: ") {
            events.push((name.clone(), serde_json::from_str(data).unwrap()));
            if events.len() == count {
                break;
            }
        }
    }
    events
}

#[test]
fn an_original_is_recorded_once_when_taken_and_once_when_returned() {
    let (house, group) = (House::new(), Group::new());
    let server = acting(&house, &group);
    until_lowered(&house);
    let taken = format!("takes part: it came with a limit of {WROTE_MILLI}m, which is kept");
    until(&house, |recorded| count(recorded, &taken) == 1);

    // The killed server has recorded everything; the next one adds nothing.
    server.kill();
    assert!(group.milli() < WROTE_MILLI);
    let server = acting(&house, &group);
    until_lowered(&house);
    let all = recorded(&house);
    assert_eq!(count(&all, &taken), 1, "{all:#?}");
    assert_eq!(count(&all, "the market acts"), 1, "{all:#?}");
    assert_eq!(count(&all, "is given back"), 0, "{all:#?}");

    // The restore is recorded before the command ends.
    house.ok(&["node", "restore", "--all"]);
    let all = recorded(&house);
    let returned = format!("is given back: it came with a limit of {WROTE_MILLI}m");
    assert_eq!(count(&all, &returned), 1, "{all:#?}");
    assert_eq!(count(&all, "the market observes"), 1, "{all:#?}");
    let events = pod_events(&server, 2);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["pod.originalTaken", "pod.originalReturned"]);
    assert_eq!(events[0].1["object"], "pod/web");
    assert_eq!(events[0].1["data"]["milli"], WROTE_MILLI);
    assert_eq!(events[1].1["data"]["node"], node(&house));
    let tail = house.ok(&["ledger", "tail", "pod/web"]);
    assert!(tail.contains(" takes part: ") && tail.contains(" is given back: "));
    assert!(!tail.contains(" joined: "), "{tail}");
    assert_eq!(server.interrupt(), 0);

    // A server that stops records the end; the next one records a new start.
    let server = acting(&house, &group);
    until_lowered(&house);
    until(&house, |recorded| count(recorded, &taken) == 2);
    assert_eq!(server.interrupt(), 0);
    let server = house.up(&["--market", "off"]);
    let all = recorded(&house);
    assert_eq!(count(&all, &returned), 2, "{all:#?}");
    assert_eq!(count(&all, "the market is off"), 1, "{all:#?}");
    assert_eq!(server.interrupt(), 0);
    let data = house.data();
    let checked = house.ok(&[
        "ledger",
        "check",
        "--redecide",
        "--store",
        data.to_str().unwrap(),
    ]);
    assert!(checked.contains("ok    market"), "{checked}");
}

/// Method: a minimum that exceeds every machine.
#[test]
fn a_change_of_the_label_or_of_the_settings_is_recorded() {
    let (house, group) = (House::new(), Group::new());
    let settings = group.settings_between(&house, ("512", "512"));
    let settings = settings.to_str().unwrap();
    let server = house.up(&["--market", "act", "--config", settings]);
    let all = until(&house, |recorded| {
        count(recorded, "overloaded, was uncongested") == 1
    });
    let overloaded = all.iter().find(|one| one.contains("overloaded")).unwrap();
    let words = ": overloaded, was uncongested: 1 pod needs 512000m, ";
    assert!(overloaded.contains(words), "{overloaded}");
    assert!(overloaded.ends_with("m can be shared"), "{overloaded}");
    assert_eq!(server.interrupt(), 0);
    let server = acting(&house, &group);
    // The CPU use of other processes is not known to this test.
    until(&house, |recorded| {
        count(recorded, "congested, was overloaded") == 1
    });
    assert_eq!(server.interrupt(), 0);
    // The policy is part of the settings; the declaration of a cgroup is not.
    let text = std::fs::read_to_string(settings).unwrap();
    let text = text.replacen("[market]\n", "[market]\npolicy = \"weighted-nash\"\n", 1);
    std::fs::write(settings, text).unwrap();
    let server = house.up(&["--market", "act", "--config", settings]);
    let all = recorded(&house);
    assert_eq!(count(&all, "the market acts, policy"), 2, "{all:#?}");
    let last = all.iter().rfind(|one| one.contains("the market")).unwrap();
    assert!(last.contains("the market acts, policy weighted-nash, settings "));
    assert!(last.ends_with("; it acted, policy proportional"), "{last}");
    assert_eq!(server.interrupt(), 0);
}
