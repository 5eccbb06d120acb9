//! Transcripts on virtual time.

use crate::house::{House, tree};

fn check(path: &std::path::Path) {
    let house = House::new();
    let ended = house.run(&["scenario", "--check", path.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn the_transcripts_hold() {
    let mut directories = vec![tree().join("crates/io/cli/tests/scenarios")];
    let mut count = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                check(&path);
                count += 1;
            }
        }
    }
    assert!(count >= 3, "{count} transcripts were found");
}

#[test]
fn the_transcripts_of_the_guide_to_bookings_hold() {
    check(&tree().join("docs/bookings.md"));
}

#[test]
fn the_transcripts_of_the_guide_to_the_market_hold() {
    check(&tree().join("docs/market.md"));
}

#[test]
fn the_transcripts_of_the_guide_to_runs_hold() {
    check(&tree().join("docs/runs.md"));
}

#[test]
fn the_transcripts_of_the_guide_to_budgets_hold() {
    check(&tree().join("docs/concepts/budgets.md"));
}

const SCRIPT: &str =
    "a script\n$ bursar limits -o name\nlimit/default\nlimit/tenants\n$ advance 5s\n";

#[test]
fn a_difference_is_shown_and_exits_1_and_update_rewrites_the_file() {
    let house = House::new();
    let wrong = SCRIPT.replace("limit/default", "limit/other");
    std::fs::write(house.path("a.scenario"), &wrong).unwrap();
    let checked = house.run(&["scenario", "--check", "a.scenario"]);
    assert_eq!(checked.code, 1);
    assert!(
        checked.stdout.contains("-limit/other\n+limit/default\n"),
        "{}",
        checked.stdout
    );
    assert_eq!(
        std::fs::read_to_string(house.path("a.scenario")).unwrap(),
        wrong
    );
    house.ok(&["scenario", "--update", "a.scenario"]);
    assert_eq!(
        std::fs::read_to_string(house.path("a.scenario")).unwrap(),
        SCRIPT
    );
    house.ok(&["scenario", "--check", "a.scenario"]);
}

#[test]
fn a_script_as_json_is_one_object_per_command() {
    let house = House::new();
    let script = "$ bursar limits -o json\n$ bursar booking show nobody\n";
    std::fs::write(house.path("a.scenario"), script).unwrap();
    let text = house.ok(&["scenario", "-o", "json", "a.scenario"]);
    let objects: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects[0]["line"], 1);
    assert_eq!(
        objects[0]["stdout"]["items"][0]["metadata"]["name"],
        "default"
    );
    assert_eq!(objects[1]["exit"], 1);
    assert_eq!(objects[1]["stdout"], "");
    assert!(
        objects[1]["stderr"]
            .as_str()
            .unwrap()
            .starts_with("error: no booking")
    );
}

#[test]
fn an_unknown_command_of_a_script_exits_2_after_the_others() {
    let house = House::new();
    std::fs::write(house.path("a.scenario"), "$ sleep 5\n$ advance 5s\n").unwrap();
    let ended = house.run(&["scenario", "a.scenario"]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let text = ended.stdout;
    assert!(
        text.contains("no command `sleep`") && text.contains("$ advance"),
        "{text}"
    );
}

#[test]
fn a_script_writes_no_files_beside_itself() {
    let house = House::new();
    let script = "$ bursar ledger export --out all.jsonl\n$ bursar man pages\n";
    std::fs::write(house.path("a.scenario"), script).unwrap();
    house.ok(&["scenario", "a.scenario"]);
    let found: Vec<_> = std::fs::read_dir(house.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(found, ["a.scenario"]);
}

#[test]
fn a_million_virtual_seconds_pass_quickly_and_bookings_expire() {
    let house = House::new();
    let script = "\
$ bursar booking reserve python --id a --ttl 24h -o name
booking/a
$ advance 23h
$ bursar bookings -o name
booking/a
$ advance 11d
$ bursar bookings -o name
";
    std::fs::write(house.path("a.scenario"), script).unwrap();
    house.ok(&["scenario", "--check", "a.scenario"]);
}

/// Copies the files of the scenario `runs` and runs a script beside them.
fn with_runs(house: &House, script: &str) -> crate::house::Ended {
    let files = tree().join("crates/io/cli/tests/scenarios/runs");
    for file in ["lab.yaml", "four.yaml", "next.yaml"] {
        std::fs::copy(files.join(file), house.path(file)).unwrap();
    }
    std::fs::write(house.path("a.scenario"), script).unwrap();
    house.run(&["scenario", "a.scenario"])
}

#[test]
fn the_policy_beside_a_script_is_recorded_once_and_the_default_is_not() {
    let script = "$ bursar limits -o name\n$ crash\n$ bursar ledger tail --from 3 -o json\n";
    let policies = |toml: &str| {
        let house = House::new();
        std::fs::write(house.path("bursar.toml"), toml).unwrap();
        let ended = with_runs(&house, script);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stdout.matches("the policy was recorded").count()
    };
    assert_eq!(policies("[resolver]\npatience = \"23h\"\n"), 1);
    assert_eq!(policies("[resolver]\npatience = \"1h\"\n"), 0);
    assert_eq!(policies(""), 0);
}

#[test]
fn a_policy_that_is_not_available_yet_ends_a_scenario_with_2_and_is_named() {
    let house = House::new();
    let toml = "# ours\n[resolver]\nmode = \"enforce\"\n";
    std::fs::write(house.path("bursar.toml"), toml).unwrap();
    let ended = with_runs(&house, "$ advance 1s\n");
    assert_eq!(ended.code, 2);
    let wrong = "bursar.toml:2: this value of `mode` in `[resolver]` is not available yet";
    assert!(ended.stderr.contains(wrong), "{}", ended.stderr);
}

#[test]
fn a_script_with_runs_has_one_outcome() {
    let house = House::new();
    let script = "\
$ clock 2026-10-01T00:00:00Z
$ bursar apply -f lab.yaml
$ bursar apply -f four.yaml
$ bursar apply -f next.yaml
$ overrun run/b 700h
$ overrun run/d 1h
$ crash
$ away 10h
$ advance 60d
$ bursar ledger tail -o json
$ metrics
";
    let first = with_runs(&house, script);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(
        first.stdout.contains("default/b ended ok"),
        "{}",
        first.stdout
    );
    for _ in 0..5 {
        assert_eq!(with_runs(&house, script).stdout, first.stdout);
    }
}

#[test]
fn money_that_moved_while_the_server_was_away_has_its_own_time() {
    let house = House::new();
    let files = tree().join("crates/io/cli/tests/scenarios/away");
    let file = |name: &str| files.join(name).display().to_string();
    let out = house.path("all.jsonl");
    let script = format!(
        "$ clock 2026-11-16T00:00:00Z\n$ bursar apply -f {} -f {}\n$ bursar apply -f {}\n\
         $ clock 09:00\n$ away 3h\n$ bursar ledger export --out {}\n",
        file("nodes.yaml"),
        file("budget.yaml"),
        file("a.yaml"),
        out.display()
    );
    std::fs::write(house.path("a.scenario"), script).unwrap();
    house.ok(&["scenario", "a.scenario"]);
    let records = std::fs::read_to_string(out).unwrap();
    let record = records.lines().find(|line| line.contains("epochClosed"));
    let record: serde_json::Value = serde_json::from_str(record.unwrap()).unwrap();
    // 12:00 and 10:00.
    assert_eq!(record["t"], 1_794_830_400_000_u64);
    let events = record["ev"].as_array().unwrap();
    let times = events
        .iter()
        .flat_map(|event| event.as_object().unwrap().values());
    for event in times {
        assert_eq!(event["t"], 1_794_823_200_000_u64, "{event}");
    }
}
