//! `bursar up`: start, use, stop, kill and restart.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::house::House;

#[test]
fn from_up_to_a_released_booking() {
    let house = House::new();
    let server = house.up(&[]);
    assert!(
        server.announcement.contains("\"records\":0"),
        "{}",
        server.announcement
    );
    let granted = house.ok(&["booking", "reserve", "python", "--id", "job-1"]);
    assert!(
        granted.starts_with("booking job-1 granted, fence 1 (record "),
        "{granted}"
    );
    let released = house.ok(&[
        "booking",
        "release",
        "job-1",
        "--fence",
        "1",
        "--outcome",
        "ok",
    ]);
    assert!(released.starts_with("booking job-1 released"), "{released}");
    house.ok(&["audit", "proof", "booking/job-1"]);
    let verified = house.ok(&["audit", "verify", "job-1.proof"]);
    assert!(verified.contains("ok    included"), "{verified}");
    assert_eq!(server.interrupt(), 0);
    assert!(!house.path("run/bursar/api.sock").exists());
    let checked = house.ok(&["ledger", "check"]);
    assert!(
        checked.contains("ok    bookings      1 ended once"),
        "{checked}"
    );
}

#[test]
fn a_second_server_on_the_same_data_exits_3_and_names_the_first() {
    let house = House::new();
    let server = house.up(&[]);
    let second = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, 3);
    assert!(
        second
            .stderr
            .contains(&format!("in use by process {}", server.pid())),
        "{}",
        second.stderr
    );
}

#[test]
fn every_acknowledged_booking_survives_kill_9() {
    let house = House::new();
    for round in 0..3 {
        let server = house.up(&[]);
        // Many requests are in flight when the server dies; every `granted` one must survive.
        let mut asking: Vec<_> = (0..12)
            .map(|number| {
                let id = format!("job-{round}-{number}");
                let words = [
                    "booking",
                    "reserve",
                    "python",
                    "--id",
                    &id,
                    "--ttl",
                    "1h",
                    "--timeout",
                    "1s",
                ];
                let child = house
                    .command(&words)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn();
                (format!("booking/{id}"), child.unwrap())
            })
            .collect();
        let first = asking[0].1.wait().unwrap();
        assert!(first.success());
        server.kill();
        let ended = asking
            .iter_mut()
            .map(|(name, child)| (name.clone(), child.wait().unwrap().success()));
        let acknowledged: Vec<String> = ended
            .filter(|(_, is_ok)| *is_ok)
            .map(|(name, _)| name)
            .collect();
        let again = house.up(&[]);
        let found = house.ok(&["bookings", "-o", "name", "--where", "state=granted"]);
        for name in &acknowledged {
            assert!(
                found.lines().any(|line| line == name),
                "{name} is missing in {found}"
            );
        }
        assert_eq!(again.interrupt(), 0);
        house.ok(&["ledger", "check", "--redecide"]);
    }
}

#[test]
fn a_stale_link_is_replaced_and_a_live_one_is_left() {
    let house = House::new();
    house.up(&[]).kill();
    let first = house.up(&[]);
    house.ok(&["limits"]);
    let second = house.up(&["--data", "other"]);
    house.ok(&["booking", "reserve", "python", "--id", "in-first"]);
    let socket = format!("unix:{}", house.path("other/api.sock").display());
    assert_eq!(
        house
            .run(&["--server", &socket, "booking", "show", "in-first"])
            .code,
        1
    );
    drop((first, second));
}

#[test]
fn this_machine_is_in_the_inventory_so_limits_in_percent_have_a_basis() {
    let house = House::new();
    let _server = house.up(&[]);
    let text = house.ok(&[
        "limit", "set", "share", "--class", "python", "--cpu", "50%", "-o", "json",
    ]);
    assert!(text.contains("50%"), "{text}");
    let limit: serde_json::Value =
        serde_json::from_str(&house.ok(&["limit", "show", "share", "-o", "json"])).unwrap();
    assert!(
        limit["status"]["bounds"]["cpuMilli"].as_u64().unwrap() >= 500,
        "{limit}"
    );
}

#[test]
fn settings_come_from_a_file_and_a_typo_is_reported_with_its_line() {
    let house = House::new();
    std::fs::write(
        house.path("bursar.toml"),
        "[server]\nlisten = \"127.0.0.1:0\"\nstroe = \"x\"\n",
    )
    .unwrap();
    let typo = house.run(&["up", "--config", "bursar.toml"]);
    assert_eq!(typo.code, 2);
    assert!(
        typo.stderr.contains("bursar.toml:3: `stroe` is not a key"),
        "{}",
        typo.stderr
    );
    std::fs::write(
        house.path("bursar.toml"),
        "[executor]\nrequire-isolatoin = true\n",
    )
    .unwrap();
    let typo = house.run(&["up", "--config", "bursar.toml"]);
    assert!(
        typo.stderr.contains(
            "bursar.toml:2: `require-isolatoin` is not a key, did you mean `require-isolation`?"
        ),
        "{}",
        typo.stderr
    );
    std::fs::write(house.path("bursar.toml"), "[auth]\nanonymous = \"none\"\n").unwrap();
    let server = house.up(&["--config", "bursar.toml"]);
    assert_eq!(house.run(&["--server", &server.address, "limits"]).code, 1);
    house.ok(&["limits"]);
}

#[test]
fn the_demo_makes_bookings_in_its_own_directory() {
    let house = House::new();
    let demo = house.up(&["--demo"]);
    let data = house.data().join("demo");
    assert!(
        demo.announcement.contains(data.to_str().unwrap()),
        "{}",
        demo.announcement
    );
    assert_eq!(
        house.run(&["limits"]).code,
        3,
        "the demo is not the default server"
    );
    let limits = house.ok(&["--context", "demo", "limits", "-o", "name"]);
    assert!(limits.contains("limit/python"), "{limits}");
    // The first event of a booking shows that the demo works.
    let mut watch = house
        .command(&["--context", "demo", "ledger", "tail", "-w", "--from", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.contains(" granted"))
    );
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(demo.interrupt(), 0);
    assert_eq!(
        std::fs::read_dir(house.data()).unwrap().count(),
        1,
        "only the data of the demo exists"
    );
    // The next demo starts a new ledger although the former one left its checkpoint.
    assert!(data.join("ledger.checkpoint").exists());
    assert_eq!(house.up(&["--demo"]).interrupt(), 0);
}

const LAB: &str = "\
apiVersion: v1
kind: Node
metadata: {name: a01, labels: {topology.kubernetes.io/region: us-west, bursar.dev/cluster: west-1, bursar.dev/domain: rack-a, bursar.dev/flavor: h100}}
status: {allocatable: {cpu: '96', memory: 1000Gi, nvidia.com/gpu: '8'}}
---
{apiVersion: bursar.dev/v1alpha1, kind: Budget, metadata: {name: lab}, spec: {owner: lab, envelopes: [{name: h100, flavor: h100, concurrency: 8}]}}
---
{apiVersion: bursar.dev/v1alpha1, kind: Run, metadata: {name: short}, spec: {owner: lab, flavor: h100, totalGPUs: 4, expectedDuration: 50ms}}
---
{apiVersion: bursar.dev/v1alpha1, kind: Run, metadata: {name: long}, spec: {owner: lab, flavor: h100, totalGPUs: 4, expectedDuration: 1s}}
";

/// Follows the ledger until a record has this sentence.
fn await_sentence(house: &House, sentence: &str) {
    let mut command = house.command(&["ledger", "tail", "-w"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let found = lines
        .map(Result::unwrap)
        .any(|line| line.contains(sentence));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(found, "no record says {sentence}");
}

#[test]
fn runs_on_nodes_from_files_are_simulated_also_across_a_restart() {
    let house = House::new();
    std::fs::write(house.path("lab.yaml"), LAB).unwrap();
    let toml = "[resolver]\npatience = \"23h\"\n";
    std::fs::write(house.path("bursar.toml"), toml).unwrap();
    let server = house.up(&["--config", "bursar.toml"]);
    house.ok(&["apply", "-f", "lab.yaml"]);
    await_sentence(&house, "default/short ended ok");
    server.kill();
    let server = house.up(&["--config", "bursar.toml"]);
    await_sentence(&house, "default/long ended ok");
    let policies = |text: &str| text.matches("the policy was recorded").count();
    assert_eq!(policies(&house.ok(&["ledger", "tail"])), 1);
    assert_eq!(server.interrupt(), 0);
    // Without the file the recorded policy is the default again.
    let server = house.up(&[]);
    assert_eq!(policies(&house.ok(&["ledger", "tail"])), 2);
    assert_eq!(server.interrupt(), 0);
    house.ok(&["ledger", "check", "--redecide"]);
}

#[test]
fn a_mode_of_the_resolver_that_is_not_available_yet_refuses_the_start() {
    let house = House::new();
    let toml = "[resolver]\nmode = \"observe\"\n";
    std::fs::write(house.path("bursar.toml"), toml).unwrap();
    let ended = house.run(&["up", "--listen", "127.0.0.1:0", "--config", "bursar.toml"]);
    assert_eq!(ended.code, 2);
    let wrong = "bursar.toml:1: this value of `mode` in `[resolver]` is not available yet";
    assert!(ended.stderr.contains(wrong), "{}", ended.stderr);
    assert!(!house.data().join("ledger.db").exists());
}
