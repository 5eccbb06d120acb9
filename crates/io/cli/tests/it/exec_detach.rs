//! `bursar exec --detach`: programs that the server runs, and their output.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::exec_running::{Running, shell};
use crate::house::House;

fn id_of(printed: &str) -> String {
    let id = printed.strip_suffix('\n').unwrap();
    assert!(!id.contains(char::is_whitespace), "{printed:?}");
    id.to_owned()
}

#[test]
fn a_detached_program_is_run_by_the_server_and_its_output_is_kept() {
    let house = House::new();
    let server = house.up(&[]);
    let script = "echo out; echo err >&2; printf '\\377'; exit 3";
    let id = id_of(&house.ok(&[
        "exec", "--detach", "--class", "python", "--", "sh", "-c", script,
    ]));
    assert!(id.starts_with("exec-"), "{id}");
    let output = house
        .command(&["booking", "logs", &id, "-f"])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"out\n\xff", "bytes are printed unchanged");
    assert_eq!(output.stderr, b"err\n", "stdout and stderr stay separate");
    assert!(output.status.success());
    assert_eq!(
        house.ok(&["booking", "logs", &id, "--stream", "stderr"]),
        "err\n"
    );
    let shown = house.ok(&["booking", "show", &id]);
    assert!(
        shown.starts_with(&format!("booking {id} failed, exit 3\n")),
        "{shown}"
    );
    assert_eq!(house.ok(&["bookings", "-o", "name"]), "");
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn followed_logs_show_output_as_it_is_written() {
    let house = House::new();
    let server = house.up(&[]);
    assert!(shell(&house, "mkfifo go").status().unwrap().success());
    let script = "echo first; read x < go; echo second";
    house.ok(&[
        "exec", "--detach", "--id", "job-1", "--", "sh", "-c", script,
    ]);
    let mut follows = Running::start(&mut house.command(&["booking", "logs", "job-1", "-f"]));
    assert_eq!(follows.line(), "first\n");
    assert_eq!(
        house.ok(&["booking", "logs", "job-1"]),
        "first\n",
        "without `-f` what there is"
    );
    std::fs::write(house.path("go"), "").unwrap();
    let ended = follows.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "second\n"));
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn a_detached_program_has_the_directory_and_no_secrets_of_its_caller() {
    let house = House::new();
    let server = house.up(&[]);
    let line = "SECRET=s bursar exec --detach --id job-1 -- sh -c 'pwd; echo $HOME $TZ; env'";
    assert_eq!(shell(&house, line).output().unwrap().stdout, b"job-1\n");
    let text = house.ok(&["booking", "logs", "job-1", "-f"]);
    let here = house.path("").canonicalize().unwrap();
    let home = house.path("");
    let home = home.to_str().unwrap().trim_end_matches('/');
    assert!(
        text.starts_with(&format!("{}\n{home} UTC\n", here.display())),
        "{text}"
    );
    assert!(
        text.contains("BURSAR_BOOKING=job-1\n") && !text.contains("SECRET"),
        "{text}"
    );
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn repeating_is_safe_and_refusals_are_reported_as_by_exec() {
    let house = House::new();
    let server = house.up(&[]);
    let words = ["exec", "--detach", "--id", "job-1", "--", "echo", "ran"];
    assert_eq!(house.ok(&words), "job-1\n");
    house.ok(&["booking", "logs", "job-1", "-f"]);
    house.ok(&["limit", "set", "none", "--class", "none", "--slots", "0"]);
    for (words, code, message) in [
        (
            &words[..],
            125,
            "`job-1` has ended already: completed, exit 0",
        ),
        (
            &["exec", "--detach", "--id", "job-1", "--", "echo", "other"],
            125,
            "`job-1` has run already",
        ),
        (
            &["exec", "--detach", "--", "no-such"],
            127,
            "program `no-such` not found on PATH",
        ),
        (
            &[
                "exec", "--detach", "--class", "none", "--wait", "0", "--", "true",
            ],
            125,
            "hint: leave out `--wait 0` to queue\n",
        ),
        (&["booking", "logs", "job-2"], 1, "no booking `job-2`"),
    ] {
        let ended = house.run(words);
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{words:?}");
        assert!(
            ended.stderr.contains(message),
            "{words:?}: {}",
            ended.stderr
        );
    }
    assert_eq!(
        house.ok(&["booking", "logs", "job-1"]),
        "ran\n",
        "it ran once"
    );
    let mut command = house.command(&["exec", "--detach", "--", "echo"]);
    let output = command.arg(OsStr::from_bytes(b"\xff")).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    house.ok(&["booking", "reserve", "python", "--id", "plain"]);
    let plain = house.run(&["booking", "logs", "plain"]);
    assert_eq!(plain.code, 1);
    assert!(plain.stderr.contains("plain booking"), "{}", plain.stderr);
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn a_detached_program_waits_in_the_queue_without_its_caller() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&[
        "limit",
        "set",
        "python",
        "--class",
        "python",
        "--slots",
        "1",
        "--max-wait",
        "1h",
    ]);
    house.ok(&["booking", "reserve", "python", "--id", "holder"]);
    let words = [
        "exec", "--detach", "--class", "python", "-o", "json", "--", "echo", "ran",
    ];
    let execution: serde_json::Value = serde_json::from_str(&house.ok(&words)).unwrap();
    assert_eq!(execution["state"], "queued");
    let id = execution["id"].as_str().unwrap();
    house.ok(&["booking", "release", "holder", "--fence", "1"]);
    assert_eq!(house.ok(&["booking", "logs", id, "-f"]), "ran\n");
    assert_eq!(server.interrupt(), 0);
}
