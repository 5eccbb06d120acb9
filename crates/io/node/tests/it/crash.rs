//! Recovery after the end of the server, the shim, both, or the machine.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use bursar_booking::execution::{Exit, Isolation};
use bursar_node::executor::{Begun, Executor, Job, Left, Life, Stream, Work};
use bursar_node::local::{Local, Options};
use bursar_units::BookingId;
use rustix::fs::{FlockOperation, flock};

use crate::host::{Host, Meeting, beside, id, is_there, kill_shim, shell, shims, soon};

const RUNNING: Begun = Begun::Running(Isolation::Cgroup);

/// Starts a program with children that waits for `go`, and waits until it runs.
async fn waiting(host: &Host, name: &str) -> (String, Meeting) {
    let (ready, go) = (host.pipe("ready"), host.pipe("go"));
    let script = format!(
        "sleep 1000 & echo $! > {}; read line < {}; echo went on; exit 5",
        ready.path(),
        go.path()
    );
    assert_eq!(host.start(&id(name), &script).await, RUNNING);
    (ready.hear().await, go)
}

#[tokio::test]
async fn a_new_server_adopts_a_running_execution_and_learns_its_exit_code() {
    let mut host = Host::new();
    let (a, (child, go)) = (id("a"), waiting(&host, "a").await);
    host.restart();
    assert_eq!(host.start(&a, "echo twice").await, RUNNING);
    assert_eq!(host.local().list().unwrap(), std::slice::from_ref(&a));
    go.tell("\n").await;
    assert_eq!(host.exit(&a).await, Exit::Code(5));
    assert_eq!(host.output(&a, Stream::Stdout), "went on\n");
    assert!(!is_there(&child));
}

/// X5: the note for adoption is kept while the execution runs.
#[tokio::test]
async fn a_running_execution_returns_its_note_to_a_server_that_does_not_know_it() {
    let mut host = Host::new();
    let (a, go) = (id("a"), host.pipe("go"));
    let job = Job {
        note: "3 slots of acme".to_owned(),
        ..host.shell(&format!("read line < {}; exit 5", go.path()))
    };
    assert_eq!(soon(host.local().start(&a, &job)).await, RUNNING);
    host.restart();
    let running = Life::Running {
        note: job.note,
        isolation: Isolation::Cgroup,
        has_shim: true,
    };
    assert_eq!(host.local().life(&a).unwrap(), running);
    go.tell("\n").await;
    assert_eq!(host.exit(&a).await, Exit::Code(5));
    assert_eq!(host.local().life(&a).unwrap(), Life::Nothing);
    assert_eq!(host.local().life(&id("never")).unwrap(), Life::Nothing);
}

/// Method: a killed shim leaves its program; the marker of an earlier version has no note.
#[tokio::test]
async fn without_its_shim_an_execution_is_alive_and_one_of_an_earlier_version_has_no_note() {
    let host = Host::new();
    let (a, ready) = (id("life-shim"), host.pipe("ready"));
    let script = format!(
        "(trap '' HUP; echo > {}; exec sleep 1000)& wait",
        ready.path()
    );
    assert_eq!(host.start(&a, &script).await, RUNNING);
    ready.hear().await;
    let marker = host.directory(&a).join("spawned");
    let text = fs::read_to_string(&marker).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json.as_object_mut().unwrap().remove("note").is_some());
    fs::write(&marker, json.to_string()).unwrap();
    kill_shim(&a);
    let running = Life::Running {
        note: String::new(),
        isolation: Isolation::Cgroup,
        has_shim: false,
    };
    assert_eq!(host.local().life(&a).unwrap(), running);
    assert_eq!(host.exit(&a).await, Exit::Lost);
    assert_eq!(host.local().life(&a).unwrap(), Life::Nothing);
}

/// X5: a ledger restored into another directory sees the cgroup only.
#[tokio::test]
async fn an_execution_from_another_directory_of_the_ledger_is_not_killed_and_not_started_twice() {
    let host = Host::new();
    let (a, (_, go)) = (id("a"), waiting(&host, "a").await);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Local::open(Options {
        directory: elsewhere.path().join("executions"),
        ..host.options.clone()
    })
    .unwrap();
    assert_eq!(other.list().unwrap(), std::slice::from_ref(&a));
    let running = Life::Running {
        note: String::new(),
        isolation: Isolation::None,
        has_shim: false,
    };
    assert_eq!(other.life(&a).unwrap(), running);
    let job = Job {
        work: other.keep(&shell("echo twice")).unwrap(),
        ..host.shell("")
    };
    let reason = "a process of this id runs already, in a cgroup of this ledger".to_owned();
    let begun = soon(other.start(&a, &job)).await;
    assert_eq!(begun, Begun::Gone(Exit::NotStarted(reason)));
    go.tell("\n").await;
    assert_eq!(host.exit(&a).await, Exit::Code(5));
}

#[tokio::test]
async fn kill_9_of_the_server_leaves_an_execution_that_ends_as_it_would_have() {
    let host = Host::new();
    let (a, go) = (id("a"), host.pipe("go"));
    let script = format!("read line < {}; sleep 1000 & exit 5", go.path());
    let mut server = Command::new(beside("server"));
    server
        .arg(&host.options.directory)
        .arg(&host.options.ledger);
    server.arg(&host.options.shim).args(["a", &script]);
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "Running(Cgroup)\n");
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(host.start(&a, "echo twice").await, RUNNING);
    let base = host.groups(&a).remove(0);
    let base = base.parent().unwrap();
    assert!(base.exists());
    go.tell("\n").await;
    assert_eq!(host.exit(&a).await, Exit::Code(5));
    // Nobody else would have removed the ledger's cgroup.
    assert!(!base.exists());
}

#[tokio::test]
async fn the_cgroup_of_a_ledger_is_removed_after_its_server_and_its_last_execution() {
    let host = Host::new();
    let (a, go) = (id("a"), host.pipe("go"));
    let other = Local::open(host.options.clone()).unwrap();
    let job = host.shell(&format!("read line < {}", go.path()));
    assert_eq!(soon(other.start(&a, &job)).await, RUNNING);
    let base = host.groups(&a).remove(0);
    let base = base.parent().unwrap();
    // A server that stops does not wait for executions, and its process may go on.
    drop(other);
    assert!(base.exists());
    go.tell("\n").await;
    assert_eq!(host.exit(&a).await, Exit::Code(0));
    assert!(!base.exists());
}

#[tokio::test]
async fn a_failed_start_leaves_no_cgroup_of_the_ledger() {
    let host = Host::new();
    let work = Work {
        directory: Some("/no/such/place".into()),
        ..shell("exit 0")
    };
    let exit = host.run("a", &host.job(&work)).await;
    assert!(matches!(exit, Exit::NotStarted(_)), "{exit:?}");
    // Checked without a server, which would remove it.
    let mut find = Command::new("find");
    find.args(["/sys/fs/cgroup", "-name"]);
    find.arg(format!("bursar-{}", host.options.ledger));
    let found = String::from_utf8(find.output().unwrap().stdout).unwrap();
    assert_eq!(found, "");
}

#[tokio::test]
async fn a_new_server_learns_the_exit_of_an_execution_that_ended_meanwhile() {
    let mut host = Host::new();
    let (a, (_, go)) = (id("a"), waiting(&host, "a").await);
    let old = Local::open(host.options.clone()).unwrap();
    host.restart();
    go.tell("\n").await;
    assert_eq!(soon(old.exit(&a)).await, Exit::Code(5));
    host.restart();
    assert_eq!(host.exit(&a).await, Exit::Code(5));
    let begun = host.start(&a, "echo twice").await;
    assert_eq!(begun, Begun::Gone(Exit::Code(5)));
}

#[tokio::test]
async fn a_new_server_can_stop_an_execution_of_the_old_one() {
    let mut host = Host::new();
    let (a, (child, _)) = (id("a"), waiting(&host, "a").await);
    host.restart();
    host.stop(&a, std::time::Duration::ZERO).await;
    assert_eq!(host.exit(&a).await, Exit::Signal(9));
    assert!(!is_there(&child));
}

#[tokio::test]
async fn without_its_shim_an_execution_is_lost_and_nothing_of_it_is_left() {
    let host = Host::new();
    let (a, _) = (id("crash-shim"), waiting(&host, "crash-shim").await);
    let groups = host.groups(&a);
    assert!(groups.iter().any(|group| group.exists()));
    kill_shim(&a);
    assert_eq!(host.exit(&a).await, Exit::Lost);
    assert!(!groups.iter().any(|group| group.exists()));
    assert_eq!(host.start(&a, "echo twice").await, Begun::Gone(Exit::Lost));
}

#[tokio::test]
async fn without_server_and_shim_an_execution_is_lost_for_start_and_exit() {
    for (name, first) in [
        ("both-exit", "exit"),
        ("both-start", "start"),
        ("both-stop", "stop"),
    ] {
        let mut host = Host::new();
        let (a, _) = (id(name), waiting(&host, name).await);
        kill_shim(&a);
        host.restart();
        match first {
            "exit" => assert_eq!(host.exit(&a).await, Exit::Lost),
            "start" => assert_eq!(host.start(&a, "echo twice").await, Begun::Gone(Exit::Lost)),
            _ => host.stop(&a, std::time::Duration::ZERO).await,
        }
        assert!(
            !host.groups(&a).iter().any(|group| group.exists()),
            "{name}"
        );
        assert_eq!(host.exit(&a).await, Exit::Lost, "{name}");
        assert_eq!(shims(name).len(), 0);
    }
}

#[tokio::test]
async fn after_a_reboot_running_executions_are_lost_and_others_are_started() {
    let mut host = Host::new();
    // A power failure leaves a marker, complete or torn, without lock and cgroup.
    for (name, marker) in [
        (
            "whole",
            r#"{"group":{"directories":[["v2","/gone"]]},"is_whole":true}"#,
        ),
        ("torn", ""),
    ] {
        let directory = host.directory(&id(name));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("spawned"), marker).unwrap();
        host.restart();
        assert_eq!(host.exit(&id(name)).await, Exit::Lost, "{name}");
        let begun = host.start(&id(name), "echo twice").await;
        assert_eq!(begun, Begun::Gone(Exit::Lost), "{name}");
    }
    fs::create_dir(host.directory(&id("made"))).unwrap();
    assert_eq!(host.run("made", &host.shell("exit 4")).await, Exit::Code(4));
}

#[tokio::test]
async fn a_status_that_was_not_renamed_counts() {
    let host = Host::new();
    let directory = host.directory(&id("a"));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("spawned"), r#"{"exit":{"code":6}}   "#).unwrap();
    assert_eq!(host.exit(&id("a")).await, Exit::Code(6));
}

#[tokio::test]
async fn a_marker_that_names_a_foreign_group_kills_nobody() {
    let (host, other) = (Host::new(), Host::new());
    let (b, (child, go)) = (id("b"), waiting(&other, "b").await);
    let groups = other.groups(&b);
    let theirs = groups.first().unwrap().display();
    let directory = host.directory(&id("a"));
    fs::create_dir(&directory).unwrap();
    let marker = format!(r#"{{"group":{{"directories":[["v2","{theirs}"]]}},"is_whole":true}}"#);
    fs::write(directory.join("spawned"), marker).unwrap();
    assert_eq!(host.exit(&id("a")).await, Exit::Lost);
    assert!(is_there(&child));
    go.tell("\n").await;
    assert_eq!(other.exit(&b).await, Exit::Code(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_starts_run_it_once() {
    let host = Host::new();
    let others = [(); 2].map(|()| Local::open(host.options.clone()).unwrap());
    for number in 0..5 {
        let a = id(&format!("once-{number}"));
        let job = host.shell("echo ran");
        let locals = others.iter().chain([host.local()]);
        let starts = locals.flat_map(|local| [local.start(&a, &job), local.start(&a, &job)]);
        for begun in soon(futures_util::future::join_all(starts)).await {
            assert!(
                matches!(begun, RUNNING | Begun::Gone(Exit::Code(0))),
                "{begun:?}"
            );
        }
        assert_eq!(host.exit(&a).await, Exit::Code(0));
        assert_eq!(host.output(&a, Stream::Stdout), "ran\n");
    }
}

#[tokio::test]
async fn an_exit_without_a_start_is_lost() {
    let host = Host::new();
    assert_eq!(host.exit(&id("a")).await, Exit::Lost);
}

/// Runs a late shim whose program would write `again`.
fn late_shim(host: &Host, id: &BookingId) {
    let work = host.options.directory.join("late");
    fs::write(&work, serde_json::to_vec(&shell("echo again")).unwrap()).unwrap();
    let order = serde_json::json!({
        "booking": id.as_str(), "fence": 7, "directory": host.directory(id), "work": work,
        "plan": { "directories": [], "settings": [], "is_whole": false },
    });
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    writeln!(ours, "{order}").unwrap();
    let mut shim = Command::new(&host.options.shim);
    shim.args(["shim", "run", id.as_str()]);
    let status = shim.stdin(OwnedFd::from(theirs)).status().unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_late_shim_starts_nothing() {
    let host = Host::new();
    let (never, a, b, c) = (id("never"), id("a"), id("b"), id("c"));
    fs::create_dir(host.directory(&never)).unwrap();
    late_shim(&host, &never);
    assert_eq!(host.output(&never, Stream::Stdout), "again\n");
    // Without output, and cleaned.
    assert_eq!(host.run("a", &host.shell("exit 3")).await, Exit::Code(3));
    host.local().clean(&a, Left::Output).unwrap();
    // Cleaned before it was started.
    fs::create_dir(host.directory(&b)).unwrap();
    host.local().clean(&b, Left::Output).unwrap();
    for id in [&a, &b] {
        late_shim(&host, id);
        assert_eq!(host.output(id, Stream::Stdout), "", "{id}");
    }
    assert_eq!(host.exit(&a).await, Exit::Code(3));
    // Only its output is left.
    fs::create_dir(host.directory(&c)).unwrap();
    fs::write(host.directory(&c).join("stderr"), "kept\n").unwrap();
    late_shim(&host, &c);
    assert_eq!(host.output(&c, Stream::Stdout), "");
}

#[tokio::test]
async fn nothing_is_removed_while_a_shim_is_at_work() {
    let host = Host::new();
    let a = id("a");
    assert_eq!(host.run("a", &host.shell("exit 3")).await, Exit::Code(3));
    let directory = fs::File::open(host.directory(&a)).unwrap();
    flock(&directory, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(host.local().clean(&a, Left::Nothing).is_err());
    assert_eq!(host.exit(&a).await, Exit::Code(3));
    drop(directory);
    host.local().clean(&a, Left::Nothing).unwrap();
    assert_eq!(host.local().list().unwrap(), []);
}
