//! Formats, exit codes and streams, against a real server.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::house::{House, ended};

#[test]
fn every_command_that_prints_a_result_has_json_and_yaml() {
    let house = House::new();
    let _server = house.up(&[]);
    let limits = "apiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata: {name: python}\nspec: {class: python, slots: 3}\n";
    std::fs::write(house.path("limits.yaml"), limits).unwrap();
    for (words, field) in [
        (
            &["booking", "reserve", "python", "--id", "a", "--ttl", "1h"][..],
            "fence",
        ),
        (&["bookings"], "items"),
        (&["booking", "show", "a"], "state"),
        (&["booking", "renew", "a", "--fence", "1"], "expiresAt"),
        (&["apply", "-f", "limits.yaml"], "results"),
        (
            &["limit", "set", "python", "--slots", "4", "--dry-run"],
            "results",
        ),
        (&["limits"], "items"),
        (&["limit", "show", "python"], "spec"),
        (&["explain", "booking/a"], "headline"),
        (&["ledger", "check"], "checks"),
        (&["ledger", "key"], "key"),
        (&["tokens"], "items"),
        (&["contexts"], "items"),
        (&["booking", "release", "a", "--fence", "1"], "applied"),
        (&["delete", "limit/python", "--dry-run"], "results"),
    ] {
        let mut json = words.to_vec();
        json.extend(["-o", "json"]);
        let text = house.ok(&json);
        let value: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words:?}: {e}: {text}"));
        assert!(!value[field].is_null(), "{words:?}: {text}");
        let mut yaml = words.to_vec();
        yaml.extend(["-o", "yaml"]);
        assert!(!house.ok(&yaml).is_empty(), "{words:?}");
    }
    for words in [
        &["ledger", "tail", "-o", "json"][..],
        &["doctor", "-o", "json"],
    ] {
        let value: serde_json::Value = serde_json::from_str(&house.ok(words)).unwrap();
        assert!(
            value.as_array().is_some_and(|list| !list.is_empty()),
            "{words:?}"
        );
    }
}

#[test]
fn exit_codes_are_as_documented() {
    let house = House::new();
    assert_eq!(house.run(&["limits"]).code, 3, "no server");
    let server = house.up(&[]);
    for (words, code) in [
        (&["limits"][..], 0),
        (
            &["booking", "reserve", "python", "--id", "q", "--wait", "1m"],
            0,
        ),
        (&["booking", "show", "nobody"], 1),
        (&["booking", "reserve", "python", "--slots", "1000"], 1),
        (&["limits", "--wher", "x=y"], 2),
        (&["limitz"], 2),
        (&["bookings", "--where", "state=foo"], 2),
        (&["bookings", "--where", "state=wait-over"], 0),
        (&["token", "revoke", "ci"], 2),
        (&["audit", "verify", "nothing.proof"], 2),
        (&["--server", "http://127.0.0.1:1", "limits"], 3),
        (&["--server", "unix:/nowhere/api.sock", "limits"], 3),
        (&["--server", "https://lab:7171", "limits"], 2),
        (&["--context", "lab", "limits"], 2),
        (&["scenario", "nowhere.md"], 2),
    ] {
        let ended = house.run(words);
        assert_eq!(
            ended.code, code,
            "{words:?}: {}{}",
            ended.stdout, ended.stderr
        );
        assert_eq!(
            code == 0,
            !ended.stderr.starts_with("error: "),
            "{words:?}: {}",
            ended.stderr
        );
    }
    drop(server);
}

#[test]
fn an_error_for_programs_is_one_problem_object_on_stderr() {
    let house = House::new();
    let nobody = house.run(&["limits", "-o", "json"]);
    let problem: serde_json::Value = serde_json::from_str(&nobody.stderr).unwrap();
    assert_eq!(problem["code"], "unavailable");
    let _server = house.up(&[]);
    let refused = house.run(&["booking", "show", "x", "-o", "json"]);
    let problem: serde_json::Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(
        (problem["code"].as_str(), refused.stdout.as_str()),
        (Some("not-found"), "")
    );
}

#[test]
fn without_a_server_the_error_lists_the_settings_tried() {
    let house = House::new();
    let ended = house.run(&["bookings"]);
    let socket = house.path("run/bursar/api.sock");
    assert_eq!(
        ended.stderr,
        format!(
            "error: no server found\n  tried  --server, BURSAR_SERVER, context (none set), socket {}\n\n\
             hint: start one here with `bursar up`\n",
            socket.display()
        )
    );
    assert_eq!(ended.code, 3);
}

#[test]
fn a_closed_pipe_is_success() {
    let house = House::new();
    let mut child = house
        .command(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}

#[test]
fn colour_and_character_set_follow_the_environment() {
    let house = House::new();
    let _server = house.up(&[]);
    house.ok(&[
        "limit", "set", "python", "--class", "python", "--slots", "2",
    ]);
    let plain = house.ok(&["limits"]);
    assert!(plain.contains("░░░░░░░░░░  0/2") && !plain.contains('\u{1b}'));
    let run = |name: &str, value: &str| {
        ended(
            house
                .command(&["booking", "show", "a"])
                .env(name, value)
                .output()
                .unwrap(),
        )
        .stdout
    };
    house.ok(&["booking", "reserve", "python", "--id", "a"]);
    assert!(run("CLICOLOR_FORCE", "1").contains('\u{1b}'));
    assert!(!run("NO_COLOR", "1").contains('\u{1b}'));
    let ascii = ended(
        house
            .command(&["limits"])
            .env("LC_ALL", "C")
            .output()
            .unwrap(),
    )
    .stdout;
    assert!(ascii.contains("#####.....  1/2"), "{ascii}");
}

#[test]
fn a_token_from_a_private_file_works_over_tcp() {
    let house = House::new();
    let server = house.up(&[]);
    let secret = house.ok(&["token", "create", "ci", "--role", "use", "--tenant", "acme"]);
    std::fs::write(house.path("ci.token"), secret).unwrap();
    let reserve = [
        "--server",
        &server.address,
        "--token-file",
        "ci.token",
        "booking",
        "reserve",
        "python",
        "--id",
        "a",
    ];
    std::fs::set_permissions(
        house.path("ci.token"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let open = house.run(&reserve);
    assert!(
        open.code == 2 && open.stderr.contains("can be read by others"),
        "{}",
        open.stderr
    );
    std::fs::set_permissions(
        house.path("ci.token"),
        std::fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    assert!(house.ok(&reserve).starts_with("booking a granted"));
    let without = house.run(&[
        "--server",
        &server.address,
        "booking",
        "reserve",
        "python",
        "--id",
        "b",
    ]);
    assert_eq!(without.code, 1, "{}", without.stderr);
    house.ok(&["token", "revoke", "ci", "--yes"]);
    assert_eq!(house.run(&reserve).code, 1);
}

#[test]
fn context_use_makes_a_context_current() {
    let house = House::new();
    let server = house.up(&[]);
    std::fs::create_dir_all(house.path(".config/bursar")).unwrap();
    let config = format!("# mine\n[context.lab]\nserver = \"{}\"\n", server.address);
    std::fs::write(house.path(".config/bursar/config.toml"), config).unwrap();
    house.ok(&["context", "use", "lab"]);
    let message = house.run(&["-v", "limits", "-o", "name"]);
    assert!(
        message
            .stderr
            .contains("context lab, ~/.config/bursar/config.toml"),
        "{}",
        message.stderr
    );
    assert!(house.ok(&["contexts"]).contains("yes"));
    let wrong = house.run(&["context", "use", "lob"]);
    assert!(
        wrong.code == 2 && wrong.stderr.contains("did you mean `lab`?"),
        "{}",
        wrong.stderr
    );
    std::fs::write(house.path(".config/bursar/config.toml"), "curent = 1\n").unwrap();
    let typo = house.run(&["limits"]);
    assert!(
        typo.code == 2
            && typo
                .stderr
                .contains("config.toml:1: `curent` is not a key, did you mean `current`?"),
        "{}",
        typo.stderr
    );
}

#[test]
fn a_changed_key_is_an_error_and_a_rotated_one_is_not() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&["limits"]);
    house.ok(&["ledger", "rotate-key", "--yes"]);
    house.ok(&["limits"]);
    house.ok(&["--server", &server.address, "limits"]);
    let pins = house.path(".local/state/bursar/known-ledgers");
    let known = std::fs::read_to_string(&pins).unwrap();
    // Another ledger at the same address, as with a man in the middle.
    let ledger = known.split_inclusive(' ').next().unwrap();
    std::fs::write(
        &pins,
        known.replace(ledger, "01a00000-0000-7000-8000-000000000000 "),
    )
    .unwrap();
    let changed = house.run(&["--server", &server.address, "limits"]);
    assert_eq!(changed.code, 4, "{}", changed.stderr);
    assert!(changed.stderr.contains("has changed"), "{}", changed.stderr);
}

#[test]
fn a_proof_from_before_a_new_key_still_verifies() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&["booking", "reserve", "python", "--id", "a"]);
    house.ok(&["audit", "proof", "booking/a"]);
    let other = House::new();
    other.ok(&["--server", &server.address, "limits"]);
    house.ok(&["ledger", "rotate-key", "--yes"]);
    house.ok(&["limits"]);
    other.ok(&["--server", &server.address, "limits"]);
    house.ok(&["audit", "verify", "a.proof"]);
    std::fs::copy(house.path("a.proof"), other.path("a.proof")).unwrap();
    other.ok(&["audit", "verify", "a.proof"]);
    let first = House::new();
    first.ok(&["--server", &server.address, "limits"]);
    std::fs::copy(house.path("a.proof"), first.path("a.proof")).unwrap();
    first.ok(&["audit", "verify", "a.proof"]);
}

#[test]
fn a_copy_restored_elsewhere_leaves_the_live_ledger_trusted() {
    let house = House::new();
    let _server = house.up(&[]);
    house.ok(&["ledger", "backup", "--out", "b.bak"]);
    let restored = house.run(&["ledger", "restore", "b.bak", "--store", "other", "--yes"]);
    assert_eq!(restored.code, 0, "{}", restored.stderr);
    assert!(
        restored.stderr.contains("log-key = \"bursar/"),
        "{}",
        restored.stderr
    );
    house.ok(&["limits"]);
}

#[test]
fn a_range_of_the_ledger_is_widened_until_it_verifies() {
    let house = House::new();
    let _server = house.up(&[]);
    for number in 0..6 {
        house.ok(&[
            "booking",
            "reserve",
            "python",
            "--id",
            &format!("a{number}"),
        ]);
        house.ok(&["audit", "proof", &format!("booking/a{number}")]);
    }
    house.ok(&["audit", "verify", "a5.proof"]);
    let cut = ["ledger", "export", "--from", "2", "--to", "3", "--out"];
    let written = house.run(&[&cut[..], &["cut.jsonl"]].concat());
    assert_eq!(written.code, 0, "{}", written.stderr);
    assert!(
        written.stderr.contains("note: widened to records 0.."),
        "{}",
        written.stderr
    );
    let verified = house.run(&["audit", "verify", "cut.jsonl"]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    assert!(
        verified.stderr.contains("not checked: later records"),
        "{}",
        verified.stderr
    );
    let wrong = house.run(&[
        "ledger", "export", "--from", "3", "--to", "2", "--out", "no.jsonl",
    ]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(!house.path("no.jsonl").exists());
}

#[test]
fn a_state_directory_that_cannot_be_written_is_a_warning() {
    let house = House::new();
    let _server = house.up(&[]);
    std::fs::create_dir_all(house.path(".local")).unwrap();
    std::fs::write(house.path(".local/state"), "in the way").unwrap();
    let read = house.run(&["limits", "-o", "name"]);
    assert_eq!(read.code, 0, "{}", read.stderr);
    assert!(
        read.stderr.starts_with("warning: cannot write "),
        "{}",
        read.stderr
    );
}

#[test]
fn an_unknown_state_names_the_states() {
    let house = House::new();
    let _server = house.up(&[]);
    let wrong = house.run(&["bookings", "--where", "state=foo"]);
    assert!(
        wrong
            .stderr
            .contains("queued, granted, ended, released, cancelled, expired, wait-over, forced"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn exit_codes_of_doctor_are_as_documented() {
    let house = House::new();
    assert_eq!(house.run(&["doctor"]).code, 3);
    std::fs::create_dir_all(house.path(".config/bursar")).unwrap();
    std::fs::write(house.path(".config/bursar/config.toml"), "curent = 1\n").unwrap();
    assert_eq!(house.run(&["doctor"]).code, 2);
    let help = house.ok(&["doctor", "--help"]);
    assert!(help.contains("3 if no server answers"), "{help}");
}

#[test]
fn an_unreachable_context_is_named_with_its_file() {
    let house = House::new();
    std::fs::create_dir_all(house.path(".config/bursar")).unwrap();
    let config = "current = \"lab\"\n[context.lab]\nserver = \"http://127.0.0.1:1\"\n";
    std::fs::write(house.path(".config/bursar/config.toml"), config).unwrap();
    let nobody = house.run(&["limits"]);
    assert_eq!(nobody.code, 3);
    assert!(
        nobody
            .stderr
            .contains("(context lab, ~/.config/bursar/config.toml)"),
        "{}",
        nobody.stderr
    );
    assert!(!house.ok(&["contexts"]).contains("demo"));
    house.ok(&["context", "use", "demo"]);
    assert!(
        house
            .ok(&["contexts", "-o", "name"])
            .contains("context/demo")
    );
    let stopped = house.run(&["limits"]);
    assert!(
        stopped
            .stderr
            .contains("(context demo, ~/.config/bursar/config.toml)"),
        "{}",
        stopped.stderr
    );
}

#[test]
fn a_ledger_restored_in_place_is_trusted_with_its_new_key() {
    let house = House::new();
    let server = house.up(&["--data", "mine"]);
    house.ok(&["ledger", "backup", "--out", "b.bak"]);
    assert_eq!(server.interrupt(), 0);
    house.ok(&["ledger", "restore", "b.bak", "--store", "mine", "--yes"]);
    let _server = house.up(&["--data", "mine"]);
    house.ok(&["limits"]);
}

#[test]
fn a_running_demo_is_a_context() {
    let house = House::new();
    let _demo = house.up(&["--demo"]);
    assert_eq!(house.ok(&["contexts", "-o", "name"]), "context/demo\n");
}
