//! A program in a slot: what passes through, how it ends, and that the slot always comes back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use crate::exec_running::{Running, shell};
use crate::house::{Ended, House};

/// A program that says that it is ready and then waits for signals: it tells of each, and ends
/// with 3 when it is USR1 and with 4 when it is TERM.
const TELLS: &str = "
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

/// Nothing is held, and nothing waits.
fn assert_all_is_free(house: &House) {
    assert_eq!(house.ok(&["bookings", "-o", "name"]), "");
}

/// How the only booking ended.
fn only_end(house: &House) -> serde_json::Value {
    let text = house.ok(&["bookings", "--where", "state=ended", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{text}");
    list["items"][0].clone()
}

#[test]
fn the_exit_code_is_the_programs_and_bursars_own_are_apart() {
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
fn what_cannot_be_run_takes_no_slot() {
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
fn what_fails_to_start_gives_its_slot_back() {
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
fn streams_words_directory_and_environment_pass_through() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = "read typed; echo \"$typed $GIVEN $BURSAR_FENCE\"; pwd; echo said >&2; \
                  echo \"$BURSAR_BOOKING\"";
    let mut command = house.command(&["exec", "--id", "job-1", "--", "sh", "-c", script]);
    let mut running = Running::start(command.env("GIVEN", "given"));
    running.write("typed\n");
    let ended = running.end();
    let here = house.path("").canonicalize().unwrap();
    let expected = format!("typed given 1\n{}\njob-1\n", here.display());
    assert_eq!((ended.stdout, ended.stderr.as_str()), (expected, "said\n"));
    let bytes: &[u8] = b"\xff raw \xfe";
    let output = house
        .command(&["exec", "--", "printf", "%s"])
        .arg(OsStr::from_bytes(bytes))
        .output()
        .unwrap();
    assert_eq!(
        output.stdout, bytes,
        "words that are no text reach the program as they are"
    );
}

#[test]
fn signals_pass_on_and_how_the_program_takes_them_counts() {
    let house = House::new();
    let _server = house.up(&[]);
    for (signals, code) in [
        (
            &[Signal::USR2, Signal::HUP, Signal::INT, Signal::USR1][..],
            3,
        ),
        (&[Signal::TERM], 4),
    ] {
        let mut running = Running::exec(&house, &["--", "python3", "-c", TELLS]);
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
fn what_was_to_be_ignored_stays_ignored() {
    let house = House::new();
    let _server = house.up(&[]);
    let inner = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)";
    let line = format!("trap '' HUP; exec bursar exec -- python3 -c '{inner}'");
    let output = shell(&house, &line).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True\n");
}

/// A shell that starts in no time, and tells when it is told to end.
const TELLS_TERM: &str = "trap 'echo told; exit 0' TERM; echo ready; sleep 1000 & wait";

#[test]
fn a_program_that_runs_too_long_is_told_to_end_and_its_slot_is_free() {
    let house = House::new();
    let _server = house.up(&[]);
    let ended = exec(&house, &["--max-time", "1s", "--", "sh", "-c", TELLS_TERM]);
    assert_eq!((ended.code, ended.stdout.as_str()), (124, "ready\ntold\n"));
    assert_eq!(
        ended.stderr,
        "error: `sh` ran longer than `--max-time 1s` and is stopped\n"
    );
    assert_eq!(only_end(&house)["exitCode"], 124);
    assert_all_is_free(&house);
}

/// Both the program and what it started ignore that they are told to end; the output closes only
/// when the last of them has gone.
#[test]
fn what_does_not_end_when_told_is_killed_with_all_that_it_started() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = "trap '' TERM; echo ready; sleep 1000; sleep 1000";
    let ended = exec(&house, &["--max-time", "1s", "--", "sh", "-c", script]);
    assert_eq!((ended.code, ended.stdout.as_str()), (124, "ready\n"));
    assert_all_is_free(&house);
}

#[test]
fn what_the_program_started_is_told_to_end_too() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = "sh -c \"$0\" & wait";
    let words = ["--max-time", "1s", "--", "sh", "-c", script, TELLS_TERM];
    let ended = exec(&house, &words);
    assert_eq!((ended.code, ended.stdout.as_str()), (124, "ready\ntold\n"));
}

/// A server whose holders must show life that often.
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
fn a_program_whose_slot_is_taken_back_is_told_to_end() {
    let house = House::new();
    let _server = short_lived(&house, "6s");
    let words = [
        "--class", "python", "--id", "job-1", "--", "python3", "-c", TELLS,
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
    let said = without_since(&ended.stderr);
    assert_eq!(
        said,
        "error: the slot of `python3` is lost: forced, maintenance\n  \
           booking  job-1\n  \
           effect   others may hold it, so `python3` is stopped, within 10s\n\n\
         hint: check what `python3` has written, then run it again under a new id; \
         `bursar explain booking/job-1` shows what happened\n"
    );
    assert_eq!(only_end(&house)["end"], "forced");
}

/// What was said but for the line that has a time, which must be there.
fn without_since(text: &str) -> String {
    let (since, rest): (Vec<&str>, Vec<&str>) = text
        .split_inclusive('\n')
        .partition(|line| line.starts_with("  since    "));
    assert!(since.len() == 1 && since[0].ends_with(" ago)\n"), "{text}");
    rest.concat()
}

/// Method: the program ends long before the first renewal could tell.
#[test]
fn a_program_whose_slot_was_taken_back_unnoticed_does_not_end_well() {
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
fn a_slot_is_given_back_across_a_restart_of_the_server() {
    let house = House::new();
    let server = house.up(&[]);
    let script = "echo ready; read x; exit 5";
    let mut running = Running::exec(&house, &["--id", "job-1", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "ready\n");
    server.kill();
    running.write("go\n");
    let said = running.word_line();
    assert!(
        said.starts_with("giving back booking job-1: waiting up to 10s for "),
        "{said}"
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
fn a_release_by_hand_waits_for_a_server_that_starts_again() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&["booking", "reserve", "python", "--id", "job-1"]);
    server.kill();
    let words = ["booking", "release", "job-1", "--fence", "1"];
    let mut running = Running::start(&mut house.command(&words));
    let said = running.word_line();
    assert_eq!(said, "no server found: waiting up to 10s\n");
    let _again = house.up(&[]);
    let ended = running.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    assert!(ended.stdout.starts_with("booking job-1 released (record "));
    assert_all_is_free(&house);
}

#[test]
fn a_release_by_hand_that_nobody_answers_has_an_end_and_says_what_follows() {
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
fn a_program_outlives_the_server_for_its_ttl_and_no_longer() {
    let house = House::new();
    let server = short_lived(&house, "6s");
    let words = ["--class", "python", "--", "python3", "-c", TELLS];
    let mut running = Running::exec(&house, &words);
    assert_eq!(running.line(), "ready\n");
    server.kill();
    let ended = running.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (125, "got SIGTERM\n"));
    let said = "the slot of `python3` is lost: it was not renewed in time: ";
    let (said, since) = (ended.stderr.contains(said), "  since    last renewed ");
    assert!(said && ended.stderr.contains(since), "{}", ended.stderr);
}

#[test]
fn a_server_that_comes_back_in_time_finds_the_slot_held() {
    let house = House::new();
    let server = short_lived(&house, "9s");
    let words = [
        "--class", "python", "--id", "job-1", "--", "python3", "-c", TELLS,
    ];
    let mut running = Running::exec(&house, &words);
    assert_eq!(running.line(), "ready\n");
    server.kill();
    let _again = house.up(&[]);
    // The ledger notes a renewal when the first deadline after the restart has come.
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
fn a_slot_that_cannot_be_given_back_is_told_and_changes_no_exit_code() {
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

/// The program ends while its signal is still on its way through us.
#[test]
fn a_signal_for_the_program_does_not_keep_its_slot_from_being_given_back() {
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

/// A signal while the release is waited for ends the wait, and that is said too.
#[test]
fn who_interrupts_the_release_is_told_what_was_not_given_back() {
    let house = House::new();
    let server = house.up(&[]);
    let script = "echo ready; read x; exit 5";
    let mut running = Running::exec(&house, &["--id", "job-1", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "ready\n");
    server.kill();
    running.write("go\n");
    let said = running.word_line();
    assert!(said.starts_with("giving back booking job-1: "), "{said}");
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    let said =
        "warning: booking job-1 was not given back: interrupted by signal 2; its ttl ends it ";
    let ends = ended.stderr.strip_prefix(said).unwrap();
    assert!(ends.contains(" (in "), "{ends}");
    let after = "), or one ttl after the server starts again\n";
    assert!(ends.ends_with(after), "{ends}");
}

#[test]
fn without_a_server_nothing_runs() {
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
fn while_nobody_answers_nothing_runs() {
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
fn nothing_runs_twice_under_one_name() {
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
