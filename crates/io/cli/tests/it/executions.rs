//! Executions on the real machine: run, watched, adopted and stopped, without leftovers.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::{ExecutionRequest, LogStream};
use bursar_client::client::{Address, Follow, Mode, Options, Transport};
use bursar_units::{BookingId, Label};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use crate::house::House;
use crate::market_node::until;

/// Time limit of a wait for an execution.
const PATIENCE: Duration = Duration::from_secs(50);

/// The user `nobody`.
const NOBODY: u32 = 65_534;

/// Submits a shell script under an id to the server of a data directory.
fn submit(data: &Path, id: &str, script: &str, fill_in: impl FnOnce(&mut ExecutionRequest)) {
    let class = Label::new("python").unwrap();
    let mut request = ExecutionRequest::new(class, "/bin/sh".to_owned());
    request.args = vec!["-c".to_owned(), script.to_owned()];
    request
        .env
        .insert("PATH".to_owned(), "/usr/bin:/bin".to_owned());
    fill_in(&mut request);
    let id = BookingId::new(id).unwrap();
    on(data, async |client| {
        client.submit(&id, &request, Mode::Do).await.unwrap();
    });
}

/// Output of an execution up to its end.
fn output(data: &Path, id: &str, stream: LogStream) -> String {
    let id = BookingId::new(id).unwrap();
    on(data, async |client| {
        let mut logs = client.logs(&id, stream, Follow::UntilEnded).await.unwrap();
        let mut text = Vec::new();
        while let Some(bytes) = logs.chunk().await.unwrap() {
            text.extend_from_slice(&bytes);
        }
        String::from_utf8(text).unwrap()
    })
}

fn on<T>(data: &Path, ask: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let address = Address::Unix(data.join("api.sock"));
    let client = Client::new(Transport::to(address), Options::usual());
    runtime.block_on(ask(client))
}

/// Waits for the end of a booking and returns it.
fn ended(house: &House, data: &Path, id: &str) -> Value {
    let server = format!("unix:{}", data.join("api.sock").display());
    // The exit code tells whether it ended well, so it is not checked here.
    house.run(&["--server", &server, "booking", "show", id, "-w"]);
    shown(house, data, id)
}

fn shown(house: &House, data: &Path, id: &str) -> Value {
    let server = format!("unix:{}", data.join("api.sock").display());
    let text = house.ok(&["--server", &server, "booking", "show", id, "-o", "json"]);
    serde_json::from_str(&text).unwrap()
}

/// A named pipe at which a script waits for the test.
fn gate(house: &House, name: &str) -> PathBuf {
    let path = house.path(name);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    path
}

/// A script that waits at a gate, then exits with a code.
fn waits_at(gate: &Path, code: i32) -> String {
    format!(
        "echo begun; read go < {}; echo $go; exit {code}",
        gate.display()
    )
}

fn open(gate: &Path) {
    // Opening blocks until the script has reached the gate.
    let mut file = std::fs::OpenOptions::new().write(true).open(gate).unwrap();
    file.write_all(b"gone on\n").unwrap();
}

fn ledger(data: &Path) -> String {
    let key = std::fs::read_to_string(data.join("ledger.key")).unwrap();
    key.split('/').nth(1).unwrap().to_owned()
}

/// The processes whose `/proc` file of that name contains one of the texts.
fn processes(file: &str, texts: &[String]) -> Vec<PathBuf> {
    let has_one = |path: &PathBuf| {
        let content = std::fs::read(path.join(file)).unwrap_or_default();
        let content = String::from_utf8_lossy(&content);
        texts.iter().any(|text| content.contains(text))
    };
    let entries = std::fs::read_dir("/proc").unwrap();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(has_one).collect()
}

/// The cgroups of a ledger in all hierarchies.
fn cgroups(ledger: &str) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut open: Vec<PathBuf> = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields[2].starts_with("cgroup"))
        .map(|fields| PathBuf::from(fields[1]))
        .collect();
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.ends_with(format!("bursar-{ledger}")) {
                found.push(path);
            } else if path.is_dir() && !path.is_symlink() {
                open.push(path);
            }
        }
    }
    found
}

/// Asserts that the machine has no processes or cgroups of a ledger.
fn assert_nothing_left(ledger: &str) {
    let names = [format!("bursar-{ledger}")];
    let began = std::time::Instant::now();
    // Processes without a shim are reaped by process 1, maybe later.
    while !processes("cgroup", &names).is_empty() && began.elapsed().as_secs() < 10 {
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    assert_eq!(processes("cgroup", &names), Vec::<PathBuf>::new());
    assert_eq!(cgroups(ledger), Vec::<PathBuf>::new());
}

#[test]
fn an_execution_runs_reports_each_step_and_leaves_nothing_behind() {
    let house = House::new();
    let server = house.up(&[]);
    let announcement: Value = serde_json::from_str(&server.announcement).unwrap();
    assert_eq!(announcement["executor"]["adopted"], 0, "{announcement}");
    let script = "echo hello; echo oops >&2; (setsid sleep 1000 &); exit 7";
    submit(&house.data(), "a", script, |request| {
        request.cpu_limit_milli = Some(500);
        request.memory_bytes = Some(64 << 20);
        request.pids = Some(16);
    });
    let watched = house.run(&["booking", "show", "a", "-w"]);
    assert_eq!(watched.code, 1, "it failed: {}", watched.stdout);
    assert_eq!(output(&house.data(), "a", LogStream::Stdout), "hello\n");
    assert_eq!(output(&house.data(), "a", LogStream::Stderr), "oops\n");
    let text = house.ok(&["booking", "show", "a"]);
    for part in [
        "booking a failed, exit 7\n  validate ✓ 0ms > allocate ✓ 0ms > queue ✓ 0ms > create ✓ ",
        " > finish -\n  undo: delete-process ✓ 0ms > release ✓ 0ms\n",
        "limits     cpu 500m, memory 64Mi, 16 processes\n",
        "times      1m to start, 1h to run, 10s to stop\n",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let mut ascii = house.command(&["booking", "show", "a"]);
    let ascii = crate::house::ended(ascii.env("LC_ALL", "C").output().unwrap());
    assert!(
        ascii.stdout.is_ascii() && ascii.stdout.contains("validate ok 0ms > "),
        "{}",
        ascii.stdout
    );
    let booking = shown(&house, &house.data(), "a");
    assert_eq!(booking["execution"]["outcome"], "failed");
    assert_eq!(booking["pids"], 16);
    let explained = house.ok(&["explain", "booking/a"]);
    assert!(
        explained.contains("\n  undo: delete-process ✓"),
        "{explained}"
    );
    let listed = house.ok(&["bookings", "--where", "state=ended"]);
    assert!(listed.contains("failed, exit 7"), "{listed}");
    let id = ledger(&house.data());
    assert_eq!(server.interrupt(), 0);
    assert_nothing_left(&id);
}

#[test]
fn an_execution_survives_kill_9_of_its_server_and_the_next_server_knows_its_exit_code() {
    let house = House::new();
    let gate = gate(&house, "gate");
    let server = house.up(&[]);
    submit(&house.data(), "a", &waits_at(&gate, 5), |_| ());
    submit(&house.data(), "b", "exit 6", |_| ());
    ended(&house, &house.data(), "b");
    server.kill();
    let again = house.up(&[]);
    let announcement: Value = serde_json::from_str(&again.announcement).unwrap();
    assert_eq!(announcement["executor"]["adopted"], 1, "{announcement}");
    let running = house.ok(&["bookings", "-o", "name", "--where", "state=granted"]);
    assert_eq!(running, "booking/a\n");
    open(&gate);
    let booking = ended(&house, &house.data(), "a");
    assert_eq!(booking["exitCode"], 5, "{booking}");
    assert_eq!(
        output(&house.data(), "a", LogStream::Stdout),
        "begun\ngone on\n"
    );
    let id = ledger(&house.data());
    assert_eq!(again.interrupt(), 0);
    assert_nothing_left(&id);
}

/// X5: the records about `a` are lost with the store, but its program runs.
///
/// Method: restores a backup from before the submission; the directory of executions stays.
#[test]
fn an_execution_that_runs_across_a_restore_is_adopted_listed_charged_and_not_run_twice() {
    let house = House::new();
    let (gate, begun) = (gate(&house, "gate"), house.path("begun"));
    let script = format!("echo x >> {}; {}", begun.display(), waits_at(&gate, 5));
    let fill_in = |request: &mut ExecutionRequest| request.slots = 3;
    let server = house.up(&[]);
    let allow = |slots| {
        house.ok(&[
            "limit", "set", "python", "--class", "python", "--slots", slots,
        ])
    };
    allow("1");
    house.ok(&["ledger", "backup", "--out", "early.backup"]);
    allow("3");
    submit(&house.data(), "a", &script, fill_in);
    wait_until_running(&house, 1);
    let before = shown(&house, &house.data(), "a");
    server.kill();
    house.ok(&["ledger", "restore", "early.backup", "--yes"]);

    let again = house.up(&[]);
    wait_until_running(&house, 1);
    let adopted = shown(&house, &house.data(), "a");
    assert_eq!(adopted["execution"]["adopted"], true, "{adopted}");
    for field in ["class", "tenant", "slots", "fence"] {
        assert_eq!(adopted[field], before[field], "{adopted}");
    }
    let doctor = house.ok(&["doctor"]);
    assert!(
        doctor.contains("warn  adopted   1 execution found running after the restore: a\n"),
        "{doctor}"
    );
    let usage = house.ok(&["limit", "show", "python", "-o", "json"]);
    let usage: Value = serde_json::from_str(&usage).unwrap();
    assert_eq!(
        usage["status"]["inUse"]["slots"], 3,
        "above the limit: {usage}"
    );
    // The same submission again finds the running program.
    submit(&house.data(), "a", &script, fill_in);
    open(&gate);
    let booking = ended(&house, &house.data(), "a");
    assert_eq!(booking["exitCode"], 5, "{booking}");
    assert_eq!(std::fs::read_to_string(&begun).unwrap(), "x\n");
    assert_eq!(
        output(&house.data(), "a", LogStream::Stdout),
        "begun\ngone on\n"
    );
    let doctor = house.ok(&["doctor"]);
    assert!(
        doctor.contains("no adopted execution is running"),
        "{doctor}"
    );
    let checked = house.ok(&["ledger", "check"]);
    assert!(!checked.contains("FAIL"), "{checked}");
    let id = ledger(&house.data());
    assert_eq!(again.interrupt(), 0);
    assert_nothing_left(&id);
}

/// Kills the shim of an execution whose server is dead; its program stays.
fn kill_shim(id: &str) {
    let shims = processes("cmdline", &[format!("\0shim\0run\0{id}\0")]);
    assert_eq!(shims.len(), 1, "{shims:?}");
    let number = shims[0].file_name().unwrap().to_str().unwrap();
    let pid = Pid::from_raw(number.parse().unwrap()).unwrap();
    let shim = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    // It holds the lock until it is dead.
    poll(&mut [PollFd::new(&shim, PollFlags::IN)], None).unwrap();
}

/// X5: the programs have no shim, and of `bare` only its cgroup is left.
///
/// Method: kills the shim. The program dies with it, but not the children of the program.
#[test]
fn an_execution_without_a_shim_is_listed_and_charged_after_a_restore_until_it_ends() {
    let house = House::new();
    let (begun, ready) = (house.path("begun"), gate(&house, "ready"));
    let gates = [gate(&house, "orphan"), gate(&house, "bare")];
    let script = |gate: &Path| {
        format!(
            "(trap '' HUP; echo x >> {}; echo > {}; read go < {})& wait",
            begun.display(),
            ready.display(),
            gate.display()
        )
    };
    let server = house.up(&[]);
    house.ok(&["ledger", "backup", "--out", "early.backup"]);
    let ids = ["orphan", "bare"];
    for (id, gate) in ids.iter().zip(&gates) {
        submit(&house.data(), id, &script(gate), |_| ());
        assert_eq!(std::fs::read_to_string(&ready).unwrap(), "\n");
    }
    wait_until_running(&house, 2);
    server.kill();
    for id in ids {
        kill_shim(id);
    }
    std::fs::remove_dir_all(house.data().join("executions/e-bare")).unwrap();
    house.ok(&["ledger", "restore", "early.backup", "--yes"]);

    let again = house.up(&[]);
    // It finds the running program, before or after the first scan of the machine.
    submit(&house.data(), "orphan", &script(&gates[0]), |_| ());
    wait_until_running(&house, 2);
    let both = "2 executions found running after the restore: bare, orphan\n";
    until(|| house.ok(&["doctor"]), |doctor| doctor.contains(both));
    let bare = shown(&house, &house.data(), "bare");
    assert_eq!(
        (&bare["tenant"], &bare["slots"]),
        (&"unknown".into(), &1.into())
    );
    let refused = house.run(&["exec", "--detach", "--id", "bare", "--", "true"]);
    assert_eq!(refused.code, 125, "{}", refused.stderr);
    for (id, gate) in ids.iter().zip(&gates) {
        open(gate);
        let booking = ended(&house, &house.data(), id);
        assert_eq!(booking["execution"]["outcome"], "lost", "{booking}");
    }
    assert_eq!(std::fs::read_to_string(&begun).unwrap(), "x\nx\n");
    let checked = house.ok(&["ledger", "check"]);
    assert!(!checked.contains("FAIL"), "{checked}");
    let id = ledger(&house.data());
    assert_eq!(again.interrupt(), 0);
    assert_nothing_left(&id);
}

#[test]
fn out_of_memory_not_executable_and_not_found_are_shown_and_explained() {
    let house = House::new();
    let server = house.up(&[]);
    let script = house.path("script");
    std::fs::write(&script, "exit 0").unwrap();
    let script = script.to_str().unwrap().to_owned();
    let words = [
        (
            "hungry",
            "exec tail /dev/zero",
            "failed, signal 9, out of memory: the kernel killed it at its memory limit",
        ),
        (
            "locked",
            &format!("exec {script}"),
            "failed, exit 126, the program could not be executed: it is not executable, or \
             permission is missing",
        ),
        (
            "absent",
            "exec /no/such/program",
            "failed, exit 127, the program was not found",
        ),
    ];
    for (id, script, words) in words {
        submit(&house.data(), id, script, |request| {
            request.memory_limit_bytes = Some(16 << 20);
        });
        ended(&house, &house.data(), id);
        let shown = house.ok(&["booking", "show", id]);
        assert!(
            shown.starts_with(&format!("booking {id} {words}\n")),
            "{shown}"
        );
        let explained = house.ok(&["explain", &format!("booking/{id}")]);
        let meaning = words.split_once(", ").unwrap().1;
        assert!(explained.contains(meaning), "{explained}");
    }
    let id = ledger(&house.data());
    assert_eq!(server.interrupt(), 0);
    assert_nothing_left(&id);
}

#[test]
fn a_detached_program_gains_privileges_only_if_its_caller_allows_it() {
    let house = House::new();
    let server = house.up(&[]);
    for (flag, expected) in [
        (None, "NoNewPrivs:\t1\n"),
        (Some("--allow-privilege-escalation"), "NoNewPrivs:\t0\n"),
    ] {
        let mut words = vec!["exec", "--detach"];
        words.extend(flag);
        words.extend(["--", "grep", "NoNewPrivs", "/proc/self/status"]);
        let id = house.ok(&words);
        let output = house.ok(&["booking", "logs", id.trim(), "-f"]);
        assert_eq!(output, expected);
    }
    let here = house.run(&["exec", "--allow-privilege-escalation", "--", "true"]);
    assert_eq!(here.code, 125, "{}", here.stderr);
    assert!(here.stderr.contains("add `--detach`"), "{}", here.stderr);
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn executions_that_run_after_ctrl_c_are_reported_and_the_next_server_can_cancel_them() {
    let house = House::new();
    let server = house.up(&[]);
    let stubborn = "trap '' TERM; echo here; while :; do sleep 1000; done";
    for id in ["a", "b"] {
        submit(&house.data(), id, stubborn, |request| {
            request.grace_ms = Some(100);
        });
    }
    wait_until_running(&house, 2);
    let last = server.interrupted();
    assert_eq!(last.code, 0);
    assert!(
        last.stderr.contains(
            "note: 2 executions keep running; the next `bursar up` on this data adopts them\n"
        ),
        "{}",
        last.stderr
    );
    let again = house.up(&[]);
    for id in ["a", "b"] {
        let cancelled = house.ok(&["booking", "cancel", id]);
        assert!(
            cancelled.starts_with(&format!("booking {id} is being stopped (record ")),
            "{cancelled}"
        );
        let booking = ended(&house, &house.data(), id);
        assert_eq!(booking["execution"]["outcome"], "cancelled", "{booking}");
        assert_eq!(booking["execution"]["signal"], 9, "{booking}");
    }
    let last = again.interrupted();
    assert!(!last.stderr.contains("note: "), "{}", last.stderr);
    assert_nothing_left(&ledger(&house.data()));
}

/// Watches the list until `count` executions run; fails after [`PATIENCE`].
fn wait_until_running(house: &House, count: usize) {
    let mut watch = house
        .command(&["bookings", "-w", "-o", "json", "--where", "state=running"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let (sender, receiver) = sync_channel(1);
    let reader = std::thread::spawn(move || {
        let mut running = BTreeSet::new();
        for line in lines {
            let row: Value = serde_json::from_str(&line.unwrap()).unwrap();
            running.insert(row["id"].to_string());
            if running.len() == count {
                return sender.send(()).unwrap();
            }
        }
    });
    let are_running = receiver.recv_timeout(PATIENCE);
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(
        are_running.is_ok(),
        "{count} do not run within {PATIENCE:?}"
    );
    reader.join().unwrap();
}

#[test]
fn two_servers_on_one_machine_never_touch_each_others_work() {
    let house = House::new();
    let (first, second) = (house.up(&[]), house.up(&["--data", "other"]));
    let (here, there) = (house.data(), house.path("other"));
    let gate = gate(&house, "gate");
    submit(&here, "same", "sleep 1000", |_| ());
    submit(&there, "same", &waits_at(&gate, 3), |_| ());
    house.ok(&["booking", "cancel", "same"]);
    assert_eq!(
        ended(&house, &here, "same")["execution"]["outcome"],
        "cancelled"
    );
    // The first server restarts, scans the machine, and finds only its own executions.
    let id = ledger(&here);
    assert_eq!(first.interrupt(), 0);
    assert_nothing_left(&id);
    let first = house.up(&[]);
    open(&gate);
    let other = ended(&house, &there, "same");
    assert_eq!(other["exitCode"], 3, "{other}");
    let id = ledger(&there);
    assert_eq!((first.interrupt(), second.interrupt()), (0, 0));
    assert_nothing_left(&id);
}

/// A server that cannot create cgroups: it runs as nobody if we are root.
fn unprivileged(house: &House, words: &[&str]) -> std::process::Command {
    let mut command = house.command(words);
    if rustix::process::getuid().is_root() {
        chown(house.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[test]
fn missing_isolation_is_reported_and_can_be_refused() {
    let house = House::new();
    std::fs::write(
        house.path("bursar.toml"),
        "[executor]\nrequire-isolation = true\n",
    )
    .unwrap();
    std::fs::set_permissions(
        house.path("bursar.toml"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    for words in [
        &["up", "--listen", "127.0.0.1:0", "--require-isolation"][..],
        &["up", "--listen", "127.0.0.1:0", "--config", "bursar.toml"],
    ] {
        let refused = crate::house::ended(unprivileged(&house, words).output().unwrap());
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert!(
            refused
                .stderr
                .starts_with("error: executions cannot be isolated: this user cannot create "),
            "{}",
            refused.stderr
        );
    }
    let command = unprivileged(&house, &["up", "--listen", "127.0.0.1:0", "-o", "json"]);
    let server = House::started(command);
    let announcement: Value = serde_json::from_str(&server.announcement).unwrap();
    assert_eq!(
        announcement["executor"]["isolation"], "none",
        "{announcement}"
    );
    submit(&house.data(), "a", "exit 4", |_| ());
    let booking = ended(&house, &house.data(), "a");
    assert_eq!(booking["exitCode"], 4, "{booking}");
    assert_eq!(booking["execution"]["isolation"], "none", "{booking}");
    assert_eq!(server.interrupt(), 0);
}

/// Number of ended executions after which the demo is stopped.
const DEMO_ENDED: usize = 30;

#[test]
fn the_demo_runs_real_programs_and_its_count_of_leftovers_is_right() {
    let house = House::new();
    let demo = house.up(&["--demo"]);
    let mut tail = house
        .command(&["--context", "demo", "ledger", "tail", "-w", "--from", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = BTreeSet::new();
    let mut ended = 0;
    let lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    // A limit, in case executions do not end.
    for line in lines.take(DEMO_ENDED * 100).map_while(Result::ok) {
        let is_id = |word: &&str| {
            ["acme-", "rush-", "zeta-"]
                .iter()
                .any(|t| word.starts_with(t))
        };
        let ids = line.split_whitespace().filter(is_id);
        seen.extend(ids.map(|id| format!("BURSAR_BOOKING={id}\0")));
        ended += usize::from(line.contains("slot released"));
        if DEMO_ENDED <= ended {
            break;
        }
    }
    tail.kill().unwrap();
    tail.wait().unwrap();
    let id = ledger(&house.data().join("demo"));
    let last = demo.interrupted();
    assert_eq!(last.code, 0);
    let tally = last.stderr.lines().rfind(|line| line.starts_with("demo: "));
    let tally = tally.unwrap_or_else(|| panic!("no tally in {}", last.stderr));
    assert!(
        tally.ends_with("; 0 running; left behind: 0 processes, 0 cgroups, 0 slots")
            && tally.contains(" cancelled, 0 lost"),
        "{tally}"
    );
    let count = tally.split(' ').nth(1).unwrap().replace(',', "");
    assert!(DEMO_ENDED <= count.parse().unwrap(), "{tally}");
    // The test counts independently of the demo.
    let seen: Vec<String> = seen.into_iter().collect();
    assert!(DEMO_ENDED <= seen.len());
    assert_eq!(processes("environ", &seen), Vec::<PathBuf>::new());
    assert_nothing_left(&id);
}

#[test]
fn a_new_demo_ends_the_executions_of_a_killed_one() {
    let house = House::new();
    let demo = house.up(&["--demo"]);
    let mut tail = house
        .command(&["--context", "demo", "ledger", "tail", "-w", "--from", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(" runs")));
    tail.kill().unwrap();
    tail.wait().unwrap();
    demo.kill();
    let killed = ledger(&house.data().join("demo"));
    assert_ne!(cgroups(&killed), Vec::<PathBuf>::new());
    let again = house.up(&["--demo"]);
    let fresh = ledger(&house.data().join("demo"));
    assert_ne!(killed, fresh);
    assert_nothing_left(&killed);
    assert_eq!(again.interrupt(), 0);
    assert_nothing_left(&fresh);
}

#[test]
fn the_shim_is_not_a_command() {
    let house = House::new();
    assert!(!house.ok(&["--help"]).contains("shim"));
    assert_ne!(house.run(&["shim"]).code, 0);
}
