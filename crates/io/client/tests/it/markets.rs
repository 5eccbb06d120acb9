//! A node in a file is read whole or not at all, and every mistake is shown at its line.

use bursar_client::object::{File, Simulation, read_market, read_simulation};
use bursar_market::clear::{Market, Policy, Want};
use bursar_market::simulate::Work;
use proptest::prelude::{any, proptest};

fn read(text: &str) -> Result<Market, String> {
    let file = File {
        name: "market.yaml".to_owned(),
        bytes: text.as_bytes().to_vec(),
    };
    read_market(&file).map_err(|mistakes| mistakes.to_string())
}

/// All mistakes, one line each, with their positions.
fn mistakes(text: &str) -> Vec<String> {
    let file = File {
        name: "m".to_owned(),
        bytes: text.as_bytes().to_vec(),
    };
    let mistakes = read_market(&file).unwrap_err().mistakes;
    mistakes
        .iter()
        .map(|mistake| {
            let place = mistake.line.map_or(0, |line| line * 100 + mistake.column);
            let text = format!("{place} {} {}", mistake.path, mistake.message);
            text.replace("  ", " ")
        })
        .collect()
}

#[test]
fn a_file_with_all_fields_is_read() {
    let market = read(
        "capacityMilli: 1000
policy: proportional            # full-capacity, weighted-nash
quantumMilli: 1
pods:                           # demandPpm, or needMilli instead
- {id: a, minMilli: 100, maxMilli: 1000, weight: 100, demandPpm: 600000}
- {id: b, minMilli: 100, maxMilli: 1000, needMilli: 533}
",
    )
    .unwrap();
    assert_eq!(
        (market.capacity_milli, market.policy, market.quantum_milli),
        (1000, Policy::Proportional, 1)
    );
    let (a, b) = (&market.pods[0], &market.pods[1]);
    assert_eq!((a.want, a.weight), (Want::Demand(600_000), 100));
    assert_eq!((b.want, b.headroom_permille), (Want::Need(533), 100));
}

#[test]
fn absent_fields_have_defaults() {
    let text = "capacityMilli: 5\npods:\n- {id: x, minMilli: 70, maxMilli: 7, needMilli: 3}\n\
                - {id: y, minMilli: 0, maxMilli: 0, demandPpm: 0, weight: null}\n";
    let market = read(text).unwrap();
    assert_eq!(
        (market.policy, market.quantum_milli),
        (Policy::default(), 1)
    );
    // The default weight follows the request and is at least 1.
    assert_eq!((market.pods[0].weight, market.pods[1].weight), (70, 1));
    let json = r#"{"capacityMilli": 5, "pods": [{"id": "x", "minMilli": 70, "maxMilli": 7, "needMilli": 3},
                   {"id": "y", "minMilli": 0, "maxMilli": 0, "demandPpm": 0}]}"#;
    assert_eq!(read(json).unwrap(), market);
}

#[test]
fn all_mistakes_are_reported_at_once_with_their_lines() {
    let text = "capacityMilli: -4
polcy: proportional
quantumMilli: 0
pods:
- {id: a, minMilli: 100, maxMilli: 1000000001, weight: 1.5, demandPpm: 600000, needMilli: 3}
- {id: a, minMilli: \"100\", maxMilli: 1000}
- {id: \"\", minMilli: 1, maxMilli: 1, demandPpm: 1000001, cooling: 1, current: 4}
- 7
";
    assert_eq!(
        mistakes(text),
        [
            "116 capacityMilli must not be negative",
            "201 polcy is not a field",
            "315 quantumMilli must be at least 1",
            "536 pods[0].maxMilli must be at most 1000000000",
            "556 pods[0].weight must be a whole number from 0 to 1000000000",
            "591 pods[0].needMilli cannot be combined with demandPpm",
            "608 pods[1].id names the same pod again",
            "608 pods[1] needs demandPpm or needMilli",
            "621 pods[1].minMilli must be a whole number from 0 to 1000000000",
            "708 pods[2].id must not be empty",
            "749 pods[2].demandPpm must be at most 1000000",
            "758 pods[2].cooling is not a field",
            "770 pods[2].current is not a field",
            "803 pods[3] must be an object, not a number",
        ]
    );
    let shown = read(text).unwrap_err();
    assert!(
        shown.ends_with("error: 14 mistakes in market.yaml, nothing was cleared (1 document read)"),
        "{shown}"
    );
}

#[test]
fn a_file_that_is_not_a_node_is_refused() {
    for (text, expected) in [
        ("", "0 has no node to clear"),
        ("# nothing\n---\n", "0 has no node to clear"),
        ("- 1\n", "101 must be an object, not a list"),
        ("pods: []\n", "101 capacityMilli is missing"),
        ("capacityMilli: 1\n", "101 pods is missing"),
        ("capacityMilli: 1\npods: {}\n", "207 pods must be a list"),
    ] {
        assert_eq!(mistakes(text)[0], expected, "{text}");
    }
    let two = "capacityMilli: 1\npods: []\n---\ncapacityMilli: 1\npods: []\n";
    assert_eq!(mistakes(two), ["401 a second document begins here"]);
}

/// Method: one pod more than allowed, each with few fields. Reading them takes seconds in a test
/// build, so the clearing of as many is a test of the market crate.
#[test]
fn a_hundred_thousand_pods_are_accepted_and_one_more_is_refused() {
    let pods = (0..100_001).map(|pod| {
        format!("- {{id: p{pod}, minMilli: {pod}, maxMilli: 9, weight: 0, needMilli: 5}}\n")
    });
    let file = format!("capacityMilli: 1\npods:\n{}", pods.collect::<String>());
    let expected = "10000303 pods[100000] is one too many, at most 100000 are cleared";
    assert_eq!(mistakes(&file), [expected]);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in any::<Vec<u8>>()) {
        let _read = read_market(&File { name: "m".to_owned(), bytes });
    }
}

/// Reads a load; the mistakes as one text.
fn read_load(text: &str) -> Result<Simulation, String> {
    let file = File {
        name: "simulate.yaml".to_owned(),
        bytes: text.as_bytes().to_vec(),
    };
    read_simulation(&file).map_err(|mistakes| mistakes.to_string())
}

#[test]
fn a_load_is_read_by_pod_and_second() {
    let text = "capacityMilli: 800\nwritesPerHour: 60\nseconds: 30\nwork: waits\npods:\n\
                - {id: b, minMilli: 50, maxMilli: 1000, want: [[2, 20], [13, 600]]}\n\
                - {id: a, minMilli: 70, maxMilli: 1000, want: []}\n";
    let load = read_load(text).unwrap();
    let names: Vec<&str> = load.world.pods.iter().map(|(id, _)| &**id).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(load.world.settings.writes_per_hour, 60);
    assert_eq!((load.world.work, load.world.seconds), (Work::Waits, 30));
    let wants = [1, 2, 12, 13, 30].map(|second| load.want_milli(second, 1));
    assert_eq!(wants, [0, 20, 20, 600, 600]);
    assert_eq!(load.want_milli(30, 0), 0);
    assert_eq!(load.world.pods[0].1.weight, 70, "the default weight");
}

#[test]
fn a_load_that_would_take_too_long_is_refused() {
    let pods = (0..200).map(|id| format!("- {{id: p{id}, minMilli: 1, maxMilli: 2, want: []}}\n"));
    let pods = pods.collect::<Vec<String>>().concat();
    let refused = read_load(&format!("capacityMilli: 8\nseconds: 604800\npods:\n{pods}"));
    let refused = refused.unwrap_err();
    assert!(refused.contains("is too long for 200 pods"), "{refused}");
}
