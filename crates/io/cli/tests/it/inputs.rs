//! Wrong input gets a clear error, no escape sequence of others reaches a terminal, and a refused
//! start leaves no files behind.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use serde_json::json;

use crate::house::{Ended, House, ended};

/// The first line on stderr.
fn first(ended: &Ended) -> &str {
    ended.stderr.lines().next().unwrap_or_default()
}

#[test]
fn wrong_values_of_flags_get_a_clear_error() {
    let house = House::new();
    for (words, expected) in [
        ("limit set python --slots -5", "--slots cannot be negative"),
        ("limit set python --slots=-5", "--slots cannot be negative"),
        (
            "limit set python --slots 1.5",
            "--slots must be a whole number from 0, or `none`",
        ),
        (
            "limit set python --weight -5",
            "--weight cannot be negative",
        ),
        (
            "booking reserve python --slots 1.5",
            "--slots must be a whole number, not `1.5`",
        ),
        (
            "booking reserve python --cpu -1",
            "--cpu cannot be negative",
        ),
        (
            "booking reserve python --ttl -5s",
            "--ttl cannot be negative",
        ),
        (
            "booking reserve python --ttl 5",
            "--ttl: `5` is not a duration; write a whole number and a unit, as in 500ms, 10s, 5m, 36h or 7d",
        ),
        (
            "booking renew job --fence 1e3",
            "--fence must be a whole number, not `1e3`",
        ),
        ("ledger tail --from -1", "--from cannot be negative"),
        (
            "up --listen hello",
            "--listen needs ADDRESS:PORT, such as 127.0.0.1:7171",
        ),
        ("--timeout 0 bookings", "--timeout must be more than 0"),
        ("bookings --timeout 0s", "--timeout must be more than 0"),
        (
            "bookings --where class",
            "--where takes KEY=VALUE, not `class`",
        ),
        (
            "bookings -w list",
            "put --watch after the subcommand that accepts it",
        ),
    ] {
        let ended = house.run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(ended.code, 2, "{words}: {}", ended.stderr);
        assert_eq!(first(&ended), format!("error: {expected}"), "{words}");
    }
    let flag = house.run(&["bookings", "-5"]);
    assert_eq!(first(&flag), "error: `bursar booking` has no flag `-5`");
}

#[test]
fn a_file_with_a_hundred_thousand_objects_is_refused_by_its_count_before_it_is_sent() {
    let house = House::new();
    let mut text = String::new();
    for number in 0..100_000 {
        text.push_str("---\napiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata: {name: l");
        text.push_str(&number.to_string());
        text.push_str("}\nspec: {slots: 1}\n");
    }
    std::fs::write(house.path("many.yaml"), text).unwrap();
    // There is no server: nothing is sent.
    let ended = house.run(&["apply", "-f", "many.yaml"]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(
        ended.stderr.starts_with(
            "error: many.yaml: too much for one change, nothing was applied\n  objects  100,000, at \
             most 10,000\n"
        ),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_file_from_stdin_is_applied_and_named_in_its_mistakes() {
    let house = House::new();
    let _server = house.up(&[]);
    let apply = |spec: &str| {
        let mut command = house.command(&["apply", "-f", "-"]);
        let piped = std::process::Stdio::piped;
        let command = command.stdin(piped()).stdout(piped()).stderr(piped());
        let mut child = command.spawn().unwrap();
        let text = format!(
            "apiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata: {{name: a}}\nspec: {{{spec}}}\n"
        );
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        ended(child.wait_with_output().unwrap())
    };
    let wrong = apply("solts: 1");
    assert_eq!(wrong.code, 2);
    assert_eq!(first(&wrong), "error: stdin:4:8: spec.solts is not a field");
    let right = apply("slots: 7");
    assert_eq!((right.code, right.stderr.as_str()), (0, ""));
    assert!(
        right.stdout.starts_with("limit/a  created"),
        "{}",
        right.stdout
    );
}

#[test]
fn wrong_settings_get_an_error_that_names_the_key() {
    let house = House::new();
    for (text, expected) in [
        (
            "[server]\nlisten = \"hello\"\n",
            ":2: `listen` needs ADDRESS:PORT, such as \"127.0.0.1:7171\"",
        ),
        (
            "[server]\nlisten = 7171\n",
            ":2: `listen` must be a string in quotes",
        ),
        (
            "[executor]\nshare-user = 1\n",
            ":2: `share-user` must be true or false",
        ),
        (
            "[auth]\n\nanonymous = \"write\"\n",
            ":3: `anonymous` must be one of read, none",
        ),
        (
            "[market]\ninterval = \"5\"\n",
            ":2: `interval`: `5` is not a duration",
        ),
    ] {
        std::fs::write(house.path("bursar.toml"), text).unwrap();
        let ended = house.run(&["up", "--config", "bursar.toml"]);
        assert_eq!(ended.code, 2, "{text}");
        let message = first(&ended);
        assert!(
            message.starts_with(&format!("error: bursar.toml{expected}")),
            "{text}: {message}"
        );
    }
}

/// The files of a directory.
fn files(path: &std::path::Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(path) else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect()
}

#[test]
fn a_refused_start_leaves_no_files_behind() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let twice = "[[cgroup]]\nname = \"a\"\npath = \"/a\"\nmax = 1\n".repeat(2);
    for (settings, flags, code, expected) in [
        ("", vec!["--listen", &taken], 3, "could not listen on"),
        (
            "",
            vec!["--listen", "0.0.0.0:0"],
            3,
            "needs a token, and none exists",
        ),
        ("[server]\nport = 1\n", vec![], 2, "is not a key"),
        (&twice, vec![], 2, "cgroup `a` is declared twice"),
    ] {
        let house = House::new();
        std::fs::write(house.path("bursar.toml"), settings).unwrap();
        let mut words = vec!["up", "--config", "bursar.toml", "--data", "data"];
        words.extend(flags);
        let ended = house.run(&words);
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert_eq!(
            files(&house.path("data")),
            Vec::<String>::new(),
            "{expected}"
        );
    }
}

#[test]
fn a_second_server_on_the_same_data_and_port_names_the_first() {
    let house = House::new();
    let server = house.up(&[]);
    let address = server.address.strip_prefix("http://").unwrap().to_owned();
    let second = house.run(&["up", "--listen", &address]);
    let expected = format!("in use by process {}", server.pid());
    assert!(second.stderr.contains(&expected), "{}", second.stderr);
}

#[test]
fn a_log_without_a_terminal_has_no_colours() {
    let house = House::new();
    let server = house.up(&["-v"]);
    house.ok(&["booking", "reserve", "python"]);
    let ended = server.interrupted();
    assert!(ended.stderr.contains("DEBUG"), "{}", ended.stderr);
    assert!(!ended.stderr.contains('\u{1b}'), "{:?}", ended.stderr);
}

#[test]
fn a_refusal_lists_every_mistake_on_a_line_of_its_own() {
    let house = House::new();
    let _server = house.up(&[]);
    let hidden = "ac\u{202e}me";
    let words = [
        "booking", "reserve", hidden, "--tenant", hidden, "--ttl", "1ms",
    ];
    let ended = house.run(&words);
    let expected = "\
error: 3 mistakes, nothing was done
  class has the invisible character U+202E; leave it out
  tenant has the invisible character U+202E; leave it out
  ttlMs must be between 1000 and 86400000
";
    assert_eq!((ended.code, ended.stderr.as_str()), (2, expected));
    let json = house.run(&[&words[..], &["-o", "json"]].concat());
    let problem: serde_json::Value = serde_json::from_str(&json.stderr).unwrap();
    assert_eq!(problem["errors"].as_array().map(Vec::len), Some(3));
}

#[test]
fn arguments_are_escaped_in_errors() {
    let house = House::new();
    for words in [
        vec!["book\u{1b}[2Jings"],
        vec!["bookings", "--where", "a\u{202e}b=c"],
        vec!["context", "use", "x\u{9b}31m\nerror: y"],
        vec!["--server", "http://\u{202e}x", "bookings"],
        vec!["ledger", "check", "--store", "a\u{1b}]0;b"],
        vec!["apply", "-f", "no\u{1b}[2J"],
    ] {
        for format in ["table", "json"] {
            let ended = house.run(&[&words[..], &["-o", format]].concat());
            assert_ne!(ended.code, 0, "{words:?}");
            let message = format!("{}{}", ended.stdout, ended.stderr);
            let obeyed = |c: char| c != '\n' && bursar_units::hidden::is_hidden(c);
            assert!(!message.contains(obeyed), "{words:?}: {message:?}");
            assert!(!message.contains("\nerror: y"), "{message:?}");
        }
    }
    // An invalid file, whose error quotes its text.
    std::fs::write(
        house.path("evil.yaml"),
        "kind: \"a\u{202e}b\" # \u{9b}31m\n",
    )
    .unwrap();
    let ended = house.run(&["apply", "-f", "evil.yaml"]);
    assert!(ended.stderr.contains(r"\u{202e}"), "{}", ended.stderr);
    assert!(
        !ended.stderr.contains(['\u{202e}', '\u{9b}']),
        "{:?}",
        ended.stderr
    );
}

/// A server whose every text contains escape sequences.
struct Hostile {
    address: String,
}

/// Clears the screen, reverses the direction, breaks the line, and imitates our colour marks.
const EVIL: &str = "x\u{1b}[2J\u{9b}31m\u{202e}\u{200b}\u{fdd0}\nerror: y";

impl Hostile {
    fn new(key: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                reader.read_line(&mut line).unwrap();
                // Reads the rest of the request, so that closing the connection loses no answer.
                let mut header = String::new();
                while reader.read_line(&mut header).unwrap() > 2 {
                    header.clear();
                }
                let path = line.split(' ').nth(1).unwrap_or_default();
                let (status, body) = Self::answer(path, key.trim());
                let head = format!(
                    "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n\
                     content-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all((head + &body).as_bytes()).unwrap();
            }
        });
        Self { address }
    }

    fn answer(path: &str, key: &str) -> (u16, String) {
        let path = path.split('?').next().unwrap_or_default();
        // Labels of earlier versions could have hidden characters, but no line breaks.
        let label = EVIL.replace(['\n', ' ', '\u{1b}', '\u{9b}'], "");
        let booking = json!({
            "id": "job", "state": "ended", "class": label, "tenant": label, "slots": 1,
            "end": "forced", "reason": EVIL, "queuedAt": "2026-11-16T10:00:00.000Z",
        });
        let run = json!({
            "apiVersion": "bursar.dev/v1alpha1", "kind": "Run", "metadata": {"name": "job"},
            "spec": {"owner": label, "flavor": label, "totalGPUs": 8},
            "status": {
                "uid": EVIL, "state": "ended", "since": "2026-11-16T10:00:00.000Z", "gpus": 0,
                "gpusAsked": 8, "incarnation": 0, "submittedAt": "2026-11-16T10:00:00.000Z",
                "detail": EVIL, "nodes": ["a01"], "domains": [EVIL],
                "claims": [{"envelope": EVIL, "class": "Owned", "gpus": 8}],
            },
        });
        let body = match path {
            "/v1/runs" => json!({"items": [run], "record": 1}),
            "/v1/runs/default/job" => run,
            "/v1/usage" => json!({
                "until": "2026-11-16T10:00:00.000Z", "by": "envelope", "record": 1,
                "items": [{
                    "envelope": EVIL, "leasedGpuMs": 1, "ownedGpuMs": 1, "sharedGpuMs": 0,
                    "borrowedGpuMs": 0, "unfundedGpuMs": 0, "lentGpuMs": 0,
                }],
                "total": {
                    "leasedGpuMs": 1, "ownedGpuMs": 1, "sharedGpuMs": 0, "borrowedGpuMs": 0,
                    "unfundedGpuMs": 0, "lentGpuMs": 0,
                },
            }),
            "/v1/explain/run/default/job" => json!({
                "object": {"kind": "Run", "namespace": "default", "name": "job"},
                "headline": EVIL, "state": "waiting", "waitsFor": "room", "changes": [EVIL],
                "why": {"holders": [{"object": EVIL, "owner": label, "gpus": 1}]}, "note": EVIL,
                "who": [{"envelope": EVIL, "gpus": 1, "class": "Owned"}], "record": 1,
            }),
            "/v1/bookings" => json!({"items": [booking], "record": 1}),
            "/v1/bookings/job" => booking,
            "/v1/explain/booking/job" => json!({
                "object": {"kind": "Booking", "name": "job"}, "headline": EVIL, "state": "queued",
                "reason": EVIL, "changes": [EVIL], "record": 1,
                "who": [{"tenant": label, "slots": 1, "limits": []}],
            }),
            "/v1/ledger" => json!({
                "ledger": "0198f3c2-0000-7000-8000-000000000000", "generation": 0, "records": 2, "prunedBelow": 0, "key": key,
                "store": EVIL,
            }),
            "/v1/records" => json!({
                "items": [{"seq": 1, "at": "2026-11-16T10:00:00.000Z", "by": label,
                           "summary": [EVIL]}],
                "record": 1,
            }),
            _ => {
                let problem = json!({
                    "type": "/problems/not-found", "title": EVIL, "status": 404,
                    "code": "not-found", "detail": EVIL, "suggestion": EVIL, "changes": [EVIL],
                });
                return (404, problem.to_string());
            }
        };
        (200, body.to_string())
    }
}

#[test]
fn escape_sequences_of_a_server_do_not_reach_a_terminal() {
    let house = House::new();
    let key = {
        let _server = house.up(&[]);
        house.ok(&["ledger", "key"])
    };
    let server = Hostile::new(key);
    for words in [
        vec!["bookings", "--where", "state=ended"],
        vec!["bookings", "--where", "state=ended", "-o", "wide"],
        vec!["booking", "show", "job"],
        vec!["explain", "booking/job"],
        vec!["ledger", "tail", "--from", "0"],
        vec!["runs"],
        vec!["runs", "-o", "wide"],
        vec!["budget", "usage", "--by", "envelope"],
        vec!["budget", "usage", "--by", "envelope", "-o", "csv"],
        vec!["runs", "-o", "json"],
        vec!["run", "show", "job"],
        vec!["explain", "job"],
        vec!["explain", "job", "-o", "yaml"],
        vec!["run", "cancel", "none"],
        vec![
            "run", "submit", "--name", "none", "--gpus", "1", "--flavor", "f",
        ],
        vec!["bookings", "--where", "state=ended", "-o", "json"],
        vec!["bookings", "--where", "state=ended", "-o", "yaml"],
        vec!["booking", "show", "job", "-o", "json"],
        vec!["booking", "show", "job", "-o", "yaml"],
        vec!["explain", "booking/job", "-o", "json"],
        vec!["ledger", "tail", "--from", "0", "-o", "json"],
        vec!["ledger", "tail", "--from", "0", "-o", "yaml"],
        vec!["limit", "show", "none"],
        vec!["limit", "show", "none", "-o", "json"],
    ] {
        for color in ["NO_COLOR", "CLICOLOR_FORCE"] {
            let mut command = house.command(&words);
            command
                .env(color, "1")
                .env("BURSAR_SERVER", &server.address);
            let ended = ended(command.output().unwrap());
            let message = format!("{}{}", ended.stdout, ended.stderr);
            let is_refused = words.contains(&"none");
            assert_eq!(ended.code, i32::from(is_refused), "{words:?}: {message}");
            assert!(message.contains("202e"), "{words:?}: {message:?}");
            // Only one of the two outputs has our own colours.
            let mut plain = message.clone();
            for code in ["0", "1", "2", "31", "32", "33"] {
                plain = plain.replace(&format!("\u{1b}[{code}m"), "");
            }
            assert!(
                color == "CLICOLOR_FORCE" || plain == message,
                "{words:?}: {message:?}"
            );
            let obeyed = |c: char| c != '\n' && bursar_units::hidden::is_hidden(c);
            assert!(!plain.contains(obeyed), "{words:?}: {plain:?}");
            assert!(!plain.contains("\nerror: y"), "{words:?}: {plain:?}");
            if words.contains(&"json") {
                let text = if is_refused {
                    &ended.stderr
                } else {
                    &ended.stdout
                };
                let value: serde_json::Value = serde_json::from_str(text).unwrap();
                assert!(
                    value.to_string().contains('\u{202e}'),
                    "JSON means the same"
                );
            }
        }
    }
}
