//! Runs and budgets on a real server: watching, namespaces and output for programs.

use serde_json::Value;

use crate::house::{House, tree};

/// A node with 8 simulated GPUs and a budget of `lab` for them.
fn lab(house: &House) {
    let file = tree().join("crates/io/cli/tests/scenarios/runs/lab.yaml");
    house.ok(&["apply", "-f", file.to_str().unwrap()]);
}

fn submit<'a>(name: &'a str, gpus: &'a str, duration: &'a str) -> Vec<&'a str> {
    let words = "run submit --flavor h100 --owner lab";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.extend(["--name", name, "--gpus", gpus, "--duration", duration]);
    words
}

/// Promise: a watch ends with the run, and its exit code says how. Method: a simulated run of one
/// second, and one that is cancelled.
#[test]
fn a_watch_exits_0_if_the_run_ended_well_and_1_if_not() {
    let house = House::new();
    let _server = house.up(&[]);
    lab(&house);
    house.ok(&submit("short", "2", "1s"));
    let ended = house.run(&["run", "watch", "short"]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let last = ended.stdout.lines().last().unwrap_or_default();
    assert!(last.contains("run default/short ended"), "{last}");

    house.ok(&submit("long", "2", "1h"));
    let started = house.run(&["run", "watch", "long", "--until", "started"]);
    assert_eq!(started.code, 0, "{}{}", started.stdout, started.stderr);
    let watch = house.command(&["run", "watch", "long"]).spawn();
    let mut watch = watch.unwrap();
    house.ok(&["run", "cancel", "long"]);
    assert_eq!(watch.wait().unwrap().code(), Some(1));
}

/// Promise: flags beat the environment, and the environment beats the context.
#[test]
fn the_namespace_comes_from_flag_environment_context_or_default() {
    let house = House::new();
    let server = house.up(&[]);
    lab(&house);
    let listed = |words: &[&str], variable: Option<&str>| {
        let mut command = house.command(words);
        if let Some(namespace) = variable {
            command.env("BURSAR_NAMESPACE", namespace);
        }
        let output = command.output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(listed(&["runs"], None).starts_with("no runs in namespace default\n"));
    std::fs::create_dir_all(house.path(".config/bursar")).unwrap();
    let address = &server.address;
    let text = format!(
        "current = \"lab\"\n[context.lab]\nserver = \"{address}\"\nnamespace = \"speech\"\n"
    );
    std::fs::write(house.path(".config/bursar/config.toml"), text).unwrap();
    assert!(listed(&["runs"], None).contains("in namespace speech\n"));
    assert!(listed(&["runs"], Some("rai")).contains("in namespace rai\n"));
    assert!(listed(&["runs", "-n", "bio"], Some("rai")).contains("in namespace bio\n"));
    assert!(listed(&["runs", "-A"], Some("rai")).starts_with("no runs\n"));
    let wrong = listed(&["runs"], Some("No"));
    assert!(
        wrong.starts_with("error: BURSAR_NAMESPACE is not valid"),
        "{wrong}"
    );
}

/// Promise: JSON has the object with its status and explanation; refusals are problems on stderr.
#[test]
fn programs_get_the_run_with_its_status_and_the_walk_of_a_refusal() {
    let house = House::new();
    let _server = house.up(&[]);
    lab(&house);
    let json = |words: &[&str]| -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&house.ok(&words)).unwrap()
    };
    let run = json(&submit("a", "6", "1h"));
    assert_eq!(run["status"]["gpus"], 6);
    assert_eq!(run["takes"][0]["envelope"], "default/lab/h100");
    let plan = json(&[&submit("b", "6", "1h")[..], &["--dry-run"]].concat());
    assert_eq!(plan["dryRun"], true);
    assert_eq!(plan["explanation"]["waitsFor"], "budget");
    assert_eq!(json(&["runs"])["items"].as_array().unwrap().len(), 1);
    let envelopes = json(&["budgets"]);
    assert_eq!(envelopes["items"][0]["gpusUsed"], 6);
    let usage = json(&["budget", "usage", "--by", "run"]);
    assert_eq!(usage["items"][0]["run"], "default/a");
    let refused = house.run(&[&submit("c", "16", "1h")[..], &["-o", "json"]].concat());
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    let problem: Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(problem["code"], "never-fits");
    assert_eq!(problem["trace"][0]["envelope"], "default/lab/h100");
}

/// A text of events without the ends of claims.
fn without_ends(text: &str) -> String {
    let mut parts = text.split("\"until\":");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + "\"until\":" + part.trim_start_matches(|letter: char| letter.is_ascii_digit())
    })
}

/// Promise: a plan has the events that the submission writes, byte for byte. Method: a start and a
/// wait; the events of the plan and the record of the export are compared as text.
#[test]
fn the_events_of_a_plan_are_those_that_the_ledger_exports() {
    let house = House::new();
    let _server = house.up(&[]);
    lab(&house);
    for (name, gpus, state) in [("a", "6", "starting"), ("b", "6", "waiting")] {
        let words = submit(name, gpus, "1h");
        let plan: Vec<&str> = { words.iter() }
            .map(|word| if *word == "submit" { "plan" } else { *word })
            .chain(["-o", "json"])
            .collect();
        let plan = house.ok(&plan);
        let value: Value = serde_json::from_str(&plan).unwrap();
        assert_eq!(value["status"]["state"], state, "{plan}");
        let (_, rest) = plan.split_once("\"events\":").unwrap();
        let mut planned = serde_json::Deserializer::from_str(rest)
            .into_iter::<Vec<&serde_json::value::RawValue>>();
        let planned = planned.next().unwrap().unwrap();
        let planned: Vec<&str> = planned.iter().map(|event| event.get()).collect();
        let planned = format!("[{}]", planned.join(","));
        let done = house.ok(&[&words[..], &["-o", "json"]].concat());
        let done: Value = serde_json::from_str(&done).unwrap();
        let record = done["record"].as_u64().unwrap();
        let file = house.path(&format!("{name}.jsonl"));
        house.ok(&["ledger", "export", "--out", file.to_str().unwrap()]);
        let export = std::fs::read_to_string(file).unwrap();
        let written = { export.lines() }.find(|line| line.contains(&format!("\"seq\":{record},")));
        let written = written.unwrap_or_else(|| panic!("no record {record} in {export}"));
        // The plan and the submission have different times.
        let (written, planned) = (without_ends(written), without_ends(&planned));
        assert!(
            written.contains(&format!("\"ev\":{planned}")),
            "{written}\n{planned}"
        );
    }
}
