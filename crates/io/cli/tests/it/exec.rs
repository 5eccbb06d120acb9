//! `bursar exec`: streams, signals and exit codes pass through, and the slot is always released.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use crate::exec_running::{Running, shell};
use crate::house::{Ended, House};

/// A Python program that prints `ready` and then every signal; it exits with 3 after USR1 and with
/// 4 after TERM.
const PRINTS_SIGNALS: &str = "
import os, signal, sys
def tell(number, _):
    os.write(1, b'got %s\\n' % signal.Signals(number).name.encode())
    if number == signal.SIGUSR1: sys.exit(3)
    if number == signal.SIGTERM: sys.exit(4)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, tell)
print('ready', flush=True)
while True: signal.pause()
";

fn exec(house: &House, words: &[&str]) -> Ended {
    let all: Vec<&str> = std::iter::once("exec")
        .chain(words.iter().copied())
        .collect();
    house.run(&all)
}

fn assert_all_is_free(house: &House) {
    assert_eq!(house.ok(&["bookings", "-o", "name"]), "");
}

/// End of the only booking.
fn only_end(house: &House) -> serde_json::Value {
    let text = house.ok(&["bookings", "--where", "state=ended", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{text}");
    list["items"][0].clone()
}

#[test]
fn the_exit_code_of_the_program_differs_from_those_of_bursar() {
    for (program, code, outcome) in [
        (&["true"][..], 0, "ok"),
        (&["sh", "-c", "exit 7"], 7, "failed"),
        (&["sh", "-c", "kill -TERM $$"], 143, "failed"),
        (&["sh", "-c", "kill -KILL $$"], 137, "failed"),
    ] {
        let house = House::new();
        let _server = house.up(&[]);
        let words: Vec<&str> = ["--"].into_iter().chain(program.iter().copied()).collect();
        let ended = exec(&house, &words);
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (code, ""),
            "{program:?}"
        );
        let booking = only_end(&house);
        assert_eq!(booking["outcome"], outcome);
        assert_eq!(booking["exitCode"], code);
        assert_eq!(booking["end"], "released");
    }
}

#[test]
fn a_program_that_cannot_be_run_takes_no_slot() {
    let house = House::new();
    let _server = house.up(&[]);
    std::fs::write(house.path("plain"), "text").unwrap();
    for (words, code, message) in [
        (
            &["--", "no-such-program"][..],
            127,
            "program `no-such-program` not found on PATH",
        ),
        (&["--", "./no-such"], 127, "program `./no-such` not found"),
        (
            &["--", "./plain"],
            126,
            "`./plain` cannot be run: it is not executable",
        ),
        (&["--", "/"], 126, "`/` cannot be run"),
        (&[], 125, "`bursar exec` needs"),
        (
            &["true"],
            125,
            "takes its program after `--`, as in `bursar exec -- true`",
        ),
        (
            &["--slots", "x", "--", "true"],
            125,
            "--slots must be a whole number, not `x`",
        ),
        (
            &["--slots", "0", "--", "true"],
            125,
            "slots must be at least 1",
        ),
    ] {
        let ended = exec(&house, words);
        assert_eq!(ended.code, code, "{words:?}: {}", ended.stderr);
        assert!(
            ended.stderr.contains(message),
            "{words:?}: {}",
            ended.stderr
        );
        assert_eq!(ended.stdout, "");
    }
    assert_eq!(
        house.ok(&["bookings", "--where", "state=ended", "-o", "name"]),
        ""
    );
}

#[test]
fn a_program_that_fails_to_start_releases_its_slot() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = house.path("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ended = exec(&house, &["--", "./script"]);
    assert_eq!(ended.code, 126, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("its interpreter is missing"),
        "{}",
        ended.stderr
    );
    let booking = only_end(&house);
    assert_eq!(
        (&booking["outcome"], &booking["exitCode"]),
        (&"failed".into(), &126.into())
    );
}

#[test]
fn streams_arguments_directory_and_environment_pass_through() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = "read typed; echo \"$typed $GIVEN $BURSAR_FENCE\"; pwd; echo message >&2; \
                  echo \"$BURSAR_BOOKING\"";
    let mut command = house.command(&["exec", "--id", "job-1", "--", "sh", "-c", script]);
    let mut running = Running::start(command.env("GIVEN", "given"));
    running.write("typed\n");
    let ended = running.end();
    let here = house.path("").canonicalize().unwrap();
    let expected = format!("typed given 1\n{}\njob-1\n", here.display());
    assert_eq!(
        (ended.stdout, ended.stderr.as_str()),
        (expected, "message\n")
    );
    let bytes: &[u8] = b"\xff raw \xfe";
    let output = house
        .command(&["exec", "--", "printf", "%s"])
        .arg(OsStr::from_bytes(bytes))
        .output()
        .unwrap();
    assert_eq!(
        output.stdout, bytes,
        "arguments that are not UTF-8 reach the program unchanged"
    );
}

#[test]
fn signals_are_forwarded_and_the_program_decides_the_exit_code() {
    let house = House::new();
    let _server = house.up(&[]);
    for (signals, code) in [
        (
            &[Signal::USR2, Signal::HUP, Signal::INT, Signal::USR1][..],
            3,
        ),
        (&[Signal::TERM], 4),
    ] {
        let mut running = Running::exec(&house, &["--", "python3", "-c", PRINTS_SIGNALS]);
        assert_eq!(running.line(), "ready\n");
        for signal in signals {
            running.signal(*signal);
            assert!(running.line().starts_with("got SIG"));
        }
        assert_eq!(running.end().code, code);
    }
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::QUIT, 131)] {
        let mut running = Running::exec(&house, &["--", "sh", "-c", "echo ready; read x"]);
        assert_eq!(running.line(), "ready\n");
        running.signal(signal);
        assert_eq!(running.end().code, code, "{signal:?}");
    }
    assert_all_is_free(&house);
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let house = House::new();
    let _server = house.up(&[]);
    let inner = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)";
    let line = format!("trap '' HUP; exec bursar exec -- python3 -c '{inner}'");
    let output = shell(&house, &line).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True\n");
}

/// A shell script that prints `told` on SIGTERM. A shell starts faster than Python.
const PRINTS_TERM: &str = "trap 'echo told; exit 0' TERM; echo ready; sleep 1000 & wait";

#[test]
fn a_program_over_its_maximum_time_gets_sigterm_and_its_slot_is_released() {
    let house = House::new();
    let _server = house.up(&[]);
    let ended = exec(&house, &["--max-time", "1s", "--", "sh", "-c", PRINTS_TERM]);
    assert_eq!((ended.code, ended.stdout.as_str()), (124, "ready\ntold\n"));
    assert_eq!(
        ended.stderr,
        "error: `sh` ran longer than `--max-time 1s` and is stopped\n"
    );
    assert_eq!(only_end(&house)["exitCode"], 124);
    assert_all_is_free(&house);
}

/// Method: the program and its child ignore SIGTERM; the output closes only when both are gone.
#[test]
fn a_program_that_ignores_sigterm_is_killed_with_its_children() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = "trap '' TERM; echo ready; sleep 1000; sleep 1000";
    let ended = exec(&house, &["--max-time", "1s", "--", "sh", "-c", script]);
    assert_eq!((ended.code, ended.stdout.as_str()), (124, "ready\n"));
    assert_all_is_free(&house);
}

#[test]
fn children_of_the_program_get_sigterm_too() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = "sh -c \"$0\" & wait";
    let words = ["--max-time", "1s", "--", "sh", "-c", script, PRINTS_TERM];
    let ended = exec(&house, &words);
    assert_eq!((ended.code, ended.stdout.as_str()), (124, "ready\ntold\n"));
}

/// A server with a maximum ttl for class python.
fn short_lived(house: &House, ttl: &str) -> crate::house::Server {
    let server = house.up(&[]);
    let words = [
        "limit",
        "set",
        "python",
        "--class",
        "python",
        "--slots",
        "4",
        "--max-ttl",
        ttl,
    ];
    house.ok(&words);
    server
}

#[test]
fn a_program_that_loses_its_slot_gets_sigterm() {
    let house = House::new();
    let _server = short_lived(&house, "6s");
    let words = [
        "--class",
        "python",
        "--id",
        "job-1",
        "--",
        "python3",
        "-c",
        PRINTS_SIGNALS,
    ];
    let mut running = Running::exec(&house, &words);
    assert_eq!(running.line(), "ready\n");
    house.ok(&[
        "booking",
        "release",
        "job-1",
        "--force",
        "--reason",
        "maintenance",
    ]);
    let ended = running.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (125, "got SIGTERM\n"));
    let message = without_since(&ended.stderr);
    assert_eq!(
        message,
        "error: the slot of `python3` is lost: forced, maintenance\n  \
           booking  job-1\n  \
           effect   others may hold it, so `python3` is stopped, within 10s\n\n\
         hint: check what `python3` has written, then run it again under a new id; \
         `bursar explain booking/job-1` shows what happened\n"
    );
    assert_eq!(only_end(&house)["end"], "forced");
}

/// The text without its one line that contains a time.
fn without_since(text: &str) -> String {
    let (since, rest): (Vec<&str>, Vec<&str>) = text
        .split_inclusive('\n')
        .partition(|line| line.starts_with("  since    "));
    assert!(since.len() == 1 && since[0].ends_with(" ago)\n"), "{text}");
    rest.concat()
}

/// Method: the program ends long before the first renewal.
#[test]
fn a_slot_lost_before_the_first_renewal_is_an_error_at_the_end() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = "echo ready; read x; exit $x";
    for (id, code) in [("job-0", "0"), ("job-7", "7")] {
        let words = ["--id", id, "--", "sh", "-c", script];
        let mut running = Running::exec(&house, &words);
        assert_eq!(running.line(), "ready\n");
        house.ok(&["booking", "release", id, "--force", "--reason", "fire"]);
        running.write(&format!("{code}\n"));
        let ended = running.end();
        assert_eq!(ended.code, 125, "{}", ended.stderr);
        assert_eq!(
            without_since(&ended.stderr),
            format!(
                "error: the slot of `sh` is lost: forced, fire\n  \
                   booking  {id}\n  \
                   effect   `sh` ended with exit {code}, but others may have held the slot \
                 while it ran\n\n\
                 hint: check what `sh` has written, then run it again under a new id; \
                 `bursar explain booking/{id}` shows what happened\n"
            )
        );
    }
}

#[test]
fn a_slot_is_released_across_a_restart_of_the_server() {
    let house = House::new();
    let server = house.up(&[]);
    let script = "echo ready; read x; exit 5";
    let mut running = Running::exec(&house, &["--id", "job-1", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "ready\n");
    server.kill();
    running.write("go\n");
    let message = running.word_line();
    assert!(
        message.starts_with("giving back booking job-1: waiting up to 10s for "),
        "{message}"
    );
    let _again = house.up(&[]);
    let ended = running.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (5, ""));
    let booking = only_end(&house);
    assert_eq!(
        (&booking["end"], &booking["exitCode"]),
        (&"released".into(), &5.into())
    );
    assert_all_is_free(&house);
}

#[test]
fn a_manual_release_waits_for_a_server_that_restarts() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&["booking", "reserve", "python", "--id", "job-1"]);
    server.kill();
    let words = ["booking", "release", "job-1", "--fence", "1"];
    let mut running = Running::start(&mut house.command(&words));
    let message = running.word_line();
    assert_eq!(message, "no server found: waiting up to 10s\n");
    let _again = house.up(&[]);
    let ended = running.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    assert!(ended.stdout.starts_with("booking job-1 released (record "));
    assert_all_is_free(&house);
}

#[test]
fn a_manual_release_without_an_answer_times_out_and_states_the_consequence() {
    let house = House::new();
    let words = [
        "booking",
        "release",
        "job-1",
        "--fence",
        "1",
        "--timeout",
        "1s",
    ];
    let ended = house.run(&words);
    assert_eq!((ended.code, ended.stdout.as_str()), (3, ""));
    let effect = "booking job-1 is not known to be released; repeat this, or its ttl ends it";
    assert!(ended.stderr.contains(effect), "{}", ended.stderr);
}

#[test]
fn a_program_outlives_its_server_for_the_ttl_and_no_longer() {
    let house = House::new();
    let server = short_lived(&house, "6s");
    let words = ["--class", "python", "--", "python3", "-c", PRINTS_SIGNALS];
    let mut running = Running::exec(&house, &words);
    assert_eq!(running.line(), "ready\n");
    server.kill();
    let ended = running.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (125, "got SIGTERM\n"));
    let message = "the slot of `python3` is lost: it was not renewed in time: ";
    for part in [message, "  since    last renewed "] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn a_server_that_restarts_within_the_ttl_finds_the_slot_held() {
    let house = House::new();
    let server = short_lived(&house, "9s");
    let words = [
        "--class",
        "python",
        "--id",
        "job-1",
        "--",
        "python3",
        "-c",
        PRINTS_SIGNALS,
    ];
    let mut running = Running::exec(&house, &words);
    assert_eq!(running.line(), "ready\n");
    server.kill();
    let _again = house.up(&[]);
    // The ledger records a renewal at the first deadline after the restart (S7).
    let is_renewed = (0..10_000).any(|_| {
        let text = house.ok(&["booking", "show", "job-1", "-o", "json"]);
        let booking: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(booking["state"], "granted", "{text}");
        booking["renewals"].as_u64() > Some(0)
    });
    assert!(is_renewed);
    running.signal(Signal::USR1);
    let ended = running.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (3, ""));
    let booking = only_end(&house);
    assert_eq!(
        (&booking["end"], &booking["exitCode"]),
        (&"released".into(), &3.into())
    );
}

#[test]
fn a_failed_release_is_reported_and_does_not_change_the_exit_code() {
    let house = House::new();
    let server = house.up(&[]);
    let script = "echo ready; read x; exit 5";
    let start = |flags: &[&str], id| {
        let words = [flags, &["--id", id, "--", "sh", "-c", script]].concat();
        let mut running = Running::exec(&house, &words);
        assert_eq!(running.line(), "ready\n");
        running
    };
    let (mut loud, mut quiet) = (start(&[], "job-1"), start(&["-q"], "job-2"));
    server.kill();
    loud.write("go\n");
    quiet.write("go\n");
    for (running, waiting, id) in [
        (loud, "giving back booking job-1: ", "job-1"),
        (quiet, "", "job-2"),
    ] {
        let ended = running.end();
        assert_eq!(ended.code, 5);
        let warning = format!("warning: booking {id} was not given back: cannot reach ");
        let (before, after) = ended.stderr.split_once(&warning).unwrap();
        assert!(before.starts_with(waiting), "{before}");
        assert_eq!(before.lines().count(), usize::from(!waiting.is_empty()));
        assert!(
            after.contains("; its ttl ends it ")
                && after.ends_with(", or one ttl after the server starts again\n"),
            "{after}"
        );
    }
}

/// Method: the program ends while `bursar` still forwards its signal.
#[test]
fn a_signal_for_the_program_does_not_prevent_the_release() {
    let house = House::new();
    let _server = house.up(&[]);
    for _ in 0..8 {
        let ended = exec(
            &house,
            &["--", "sh", "-c", "trap '' INT; kill -INT $PPID; exit 3"],
        );
        assert_eq!((ended.code, ended.stderr.as_str()), (3, ""));
        assert_all_is_free(&house);
    }
}

#[test]
fn a_signal_ends_the_wait_for_the_release_and_reports_the_held_slot() {
    let house = House::new();
    let server = house.up(&[]);
    let script = "echo ready; read x; exit 5";
    let mut running = Running::exec(&house, &["--id", "job-1", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "ready\n");
    server.kill();
    running.write("go\n");
    let message = running.word_line();
    assert!(
        message.starts_with("giving back booking job-1: "),
        "{message}"
    );
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    let message =
        "warning: booking job-1 was not given back: interrupted by signal 2; its ttl ends it ";
    let ends = ended.stderr.strip_prefix(message).unwrap();
    assert!(ends.contains(" (in "), "{ends}");
    let after = "), or one ttl after the server starts again\n";
    assert!(ends.ends_with(after), "{ends}");
}

#[test]
fn without_a_server_the_program_does_not_run() {
    let house = House::new();
    let ended = exec(&house, &["--", "echo", "ran"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (125, ""));
    assert!(
        ended.stderr.starts_with("error: no server found\n"),
        "{}",
        ended.stderr
    );
    let ended = exec(&house, &["-o", "json", "--", "echo", "ran"]);
    let problem: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!((ended.code, &problem["code"]), (125, &"unavailable".into()));
}

#[test]
fn without_an_answer_the_program_does_not_run() {
    let house = House::new();
    let server = house.up(&[]);
    let pid = rustix::process::Pid::from_raw(server.pid().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let ended = exec(&house, &["--timeout", "200ms", "--", "echo", "ran"]);
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    assert_eq!((ended.code, ended.stdout.as_str()), (125, ""));
    assert!(
        ended.stderr.starts_with("error: no answer from "),
        "{}",
        ended.stderr
    );
    assert_all_is_free(&house);
}

#[test]
fn an_id_runs_only_once() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = "echo ran; read x; exit 7";
    let words = ["--id", "nightly", "--", "sh", "-c", script];
    let mut first = Running::exec(&house, &words);
    assert_eq!(first.line(), "ran\n");
    let during = exec(&house, &words);
    assert_eq!((during.code, during.stdout.as_str()), (125, ""));
    assert!(
        during.stderr.contains("`nightly` holds a slot already"),
        "{}",
        during.stderr
    );
    first.write("go\n");
    assert_eq!(first.end().code, 7);
    let after = exec(&house, &words);
    assert_eq!((after.code, after.stdout.as_str()), (125, ""));
    assert_eq!(
        after.stderr,
        "error: `nightly` has run already: released, failed, exit 7\n\n\
         hint: an id runs at most once; leave out `--id` or choose another\n"
    );
}
