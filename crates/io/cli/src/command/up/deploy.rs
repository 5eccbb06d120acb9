//! Tests of the files in `deploy/`: every key and flag in them exists.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::path::Path;

use clap::Parser as _;

use super::settings::File;
use crate::config;
use crate::grammar::{Arguments, Command, UpArguments};

/// Sections and keys of the unit, with the value where executions depend on it.
const UNIT: &[(&str, &str, Option<&str>)] = &[
    ("Unit", "Description", None),
    ("Unit", "Documentation", None),
    ("Unit", "After", None),
    ("Service", "Type", Some("exec")),
    ("Service", "ExecStart", None),
    ("Service", "User", None),
    ("Service", "Group", None),
    ("Service", "StateDirectory", Some("bursar")),
    ("Service", "RuntimeDirectory", Some("bursar")),
    ("Service", "Environment", Some("XDG_RUNTIME_DIR=/run")),
    ("Service", "Restart", Some("on-failure")),
    ("Service", "RestartSec", None),
    ("Service", "TimeoutStopSec", None),
    ("Service", "KillMode", Some("process")),
    ("Service", "Delegate", Some("yes")),
    (
        "Service",
        "DelegateSubgroup",
        Some(bursar_node::cgroup::SERVER),
    ),
    ("Service", "OOMPolicy", Some("continue")),
    ("Service", "TasksMax", Some("infinity")),
    ("Service", "LimitNOFILE", None),
    ("Service", "NoNewPrivileges", None),
    ("Service", "ProtectSystem", Some("full")),
    ("Service", "ProtectKernelModules", None),
    ("Service", "ProtectKernelLogs", None),
    ("Install", "WantedBy", Some("multi-user.target")),
];

fn deployed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy");
    std::fs::read_to_string(path.join(name)).unwrap()
}

/// Section, key and value of each assignment.
fn assignments(unit: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in unit.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            found.push((section.clone(), key.to_owned(), value.to_owned()));
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "odd line: {line}");
        }
    }
    found
}

fn started() -> UpArguments {
    let unit = assignments(&deployed("bursar.service"));
    let command = unit.iter().find(|(_, key, _)| key == "ExecStart").unwrap();
    let words: Vec<&str> = command.2.split_whitespace().collect();
    match Arguments::try_parse_from(&words).unwrap().command {
        Command::Up(arguments) => arguments,
        other => panic!("the unit runs {other:?}"),
    }
}

#[test]
fn the_unit_has_exactly_the_known_keys_and_the_values_that_executions_need() {
    let found = assignments(&deployed("bursar.service"));
    let keys: Vec<(&str, &str)> = found
        .iter()
        .map(|(section, key, _)| (section.as_str(), key.as_str()))
        .collect();
    let known: Vec<(&str, &str)> = UNIT
        .iter()
        .map(|(section, key, _)| (*section, *key))
        .collect();
    assert_eq!(keys, known);
    for ((_, key, value), (_, _, wanted)) in found.iter().zip(UNIT) {
        assert!(wanted.is_none_or(|wanted| wanted == value), "{key}={value}");
    }
}

#[test]
fn the_unit_starts_a_server_with_the_settings_file() {
    let arguments = started();
    let config = arguments.config.unwrap();
    assert_eq!(config, Path::new("/etc/bursar/bursar.toml"));
    assert!(arguments.require_isolation && !arguments.demo);
}

#[test]
fn the_example_settings_are_valid_and_agree_with_the_unit() {
    let file = config::parse::<File>(&deployed("bursar.toml"), "bursar.toml").unwrap();
    assert_eq!(
        file.server.data.as_deref(),
        Some(Path::new("/var/lib/bursar"))
    );
    assert!(file.server.listen.unwrap().ip().is_loopback());
    assert!(file.executor.require_isolation);
}
