//! `bursar market clear`: results that were calculated by hand, from files.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::house::{House, ended, tree};

/// Policy, capacity, pods as (min, max, weight, demand in percent), and the share of each.
type Row = (
    &'static str,
    u64,
    &'static [(u64, u64, u64, u64)],
    &'static [u64],
);

const ROWS: &[Row] = &[
    (
        "full-capacity",
        1000,
        &[(100, 1000, 100, 60), (100, 1000, 100, 40)],
        &[580, 420],
    ),
    (
        "full-capacity",
        1000,
        &[
            (100, 300, 100, 100),
            (100, 1000, 100, 50),
            (100, 1000, 100, 50),
        ],
        &[300, 350, 350],
    ),
    (
        "full-capacity",
        1000,
        &[(100, 1000, 200, 0), (100, 1000, 100, 0)],
        &[633, 367],
    ),
    (
        "full-capacity",
        1000,
        &[(100, 200, 100, 0), (100, 1000, 200, 0), (100, 1000, 100, 0)],
        &[200, 500, 300],
    ),
    (
        "full-capacity",
        1000,
        &[(100, 400, 100, 100), (100, 400, 100, 100)],
        &[400, 400],
    ),
    ("full-capacity", 1000, &[(100, 900, 100, 50)], &[900]),
    ("full-capacity", 1000, &[(100, 2000, 100, 50)], &[1000]),
    (
        "proportional",
        4000,
        &[(100, 1000, 100, 50), (500, 2000, 500, 25)],
        &[646, 995],
    ),
    (
        "proportional",
        1000,
        &[(100, 1000, 100, 60), (100, 1000, 100, 40)],
        &[583, 417],
    ),
    (
        "proportional",
        1000,
        &[
            (100, 300, 100, 100),
            (100, 1000, 100, 50),
            (100, 1000, 100, 50),
        ],
        &[208, 396, 396],
    ),
    (
        "proportional",
        1500,
        &[
            (100, 1000, 100, 90),
            (100, 1000, 100, 90),
            (100, 600, 100, 70),
        ],
        &[582, 582, 336],
    ),
];

fn file((policy, capacity, pods, _): &Row) -> String {
    let mut text = format!("capacityMilli: {capacity}\npolicy: {policy}\npods:\n");
    for ((min, max, weight, percent), id) in pods.iter().zip('a'..) {
        let ppm = percent * 10_000;
        writeln!(
            text,
            "- {{id: {id}, minMilli: {min}, maxMilli: {max}, weight: {weight}, demandPpm: {ppm}}}"
        )
        .unwrap();
    }
    text
}

#[test]
fn every_golden_row_is_the_result_of_a_file() {
    let house = House::new();
    for row in ROWS {
        std::fs::write(house.path("market.yaml"), file(row)).unwrap();
        let text = house.ok(&["market", "clear", "-f", "market.yaml", "-o", "json"]);
        let cleared: Value = serde_json::from_str(&text).unwrap();
        let pods = cleared["pods"].as_array().unwrap().iter();
        let got: Vec<u64> = pods
            .map(|pod| pod["allocatedMilli"].as_u64().unwrap())
            .collect();
        assert_eq!(got, row.3, "{row:?}");
        assert_eq!(cleared["capacityMilli"], row.1);
    }
}

#[test]
fn stdin_is_accepted_and_the_json_has_every_field() {
    let house = House::new();
    let mut child = house
        .command(&["market", "clear", "-f", "-", "-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = "capacityMilli: 1000\npods:\n\
                - {id: b, minMilli: 100, maxMilli: 1000, demandPpm: 400000}\n\
                - {id: a, minMilli: 100, maxMilli: 1000, demandPpm: 600000}\n";
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let cleared: Value = serde_json::from_str(&ended.stdout).unwrap();
    let expected = json!({
        "mode": "congested",
        "pricePpm": 1_367_500,
        "capacityMilli": 1000,
        "pods": [
            {"id": "a", "needMilli": 761, "allocatedMilli": 583, "boundBy": "share"},
            {"id": "b", "needMilli": 533, "allocatedMilli": 417, "boundBy": "share"},
        ],
    });
    assert_eq!(cleared, expected);
}

#[test]
fn the_table_can_be_read_without_unicode_and_is_at_most_100_columns_wide() {
    let house = House::new();
    let path = tree().join("docs/market.yaml");
    let mut command = house.command(&["market", "clear", "-f", path.to_str().unwrap()]);
    let ended = ended(command.env("LANG", "C").output().unwrap());
    assert!(ended.stdout.is_ascii(), "{}", ended.stdout);
    assert!(ended.stdout.contains("#####....."), "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.len() <= 100));
}
