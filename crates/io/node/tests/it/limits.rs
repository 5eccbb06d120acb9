//! Limits in the kernel, and their effects.

use std::fs;
use std::time::Duration;

use bursar_booking::execution::{Exit, Isolation};
use bursar_node::cgroup::{self, Controller, Version};
use bursar_node::executor::{Begun, Executor, Job, Stream};

use crate::host::{Host, id, is_there, soon};

/// The content of a controller's file, by its name in either version.
fn read_back(host: &Host, name: &str, controller: Controller, files: [&str; 2]) -> String {
    let trees = cgroup::find(&host.options.process, &host.options.ledger);
    let tree = trees
        .iter()
        .find(|tree| tree.controllers.contains(&controller));
    let tree = tree.expect("a controller that can be written");
    let [v1, v2] = files;
    let file = if tree.version == Version::V1 { v1 } else { v2 };
    let text = fs::read_to_string(tree.base.join(format!("e-{name}")).join(file)).unwrap();
    text.trim().to_owned()
}

#[tokio::test]
async fn limits_are_in_the_kernel_before_the_program_begins() {
    let host = Host::new();
    let (ready, go) = (host.pipe("ready"), host.pipe("go"));
    let script = format!("echo > {}; read line < {}", ready.path(), go.path());
    let job = Job {
        cpu_milli: Some(250),
        memory_bytes: Some(64 << 20),
        pids: Some(9),
        ..host.shell(&script)
    };
    let begun = soon(host.local().start(&id("a"), &job)).await;
    assert_eq!(begun, Begun::Running(Isolation::Cgroup));
    ready.hear().await;
    let cpu = read_back(&host, "a", Controller::Cpu, ["cpu.cfs_quota_us", "cpu.max"]);
    assert!(cpu == "25000" || cpu == "25000 100000", "{cpu}");
    let memory = read_back(
        &host,
        "a",
        Controller::Memory,
        ["memory.limit_in_bytes", "memory.max"],
    );
    assert_eq!(memory, "67108864");
    assert_eq!(
        read_back(&host, "a", Controller::Pids, ["pids.max", "pids.max"]),
        "9"
    );
    go.tell("\n").await;
    assert_eq!(host.exit(&id("a")).await, Exit::Code(0));
    assert!(!host.groups(&id("a")).iter().any(|group| group.exists()));
}

#[tokio::test]
async fn a_process_over_its_memory_limit_is_killed_and_reported() {
    let host = Host::new();
    let job = Job {
        memory_bytes: Some(16 << 20),
        ..host.shell("exec tail /dev/zero")
    };
    let (code, signal) = (None, Some(9));
    let killed = Exit::OutOfMemory { code, signal };
    assert_eq!(host.run("a", &job).await, killed);
    let told = host.output(&id("a"), Stream::Stderr);
    assert!(told.contains("out of memory"), "{told}");
    assert_eq!(host.seen(&id("a"), "/isOutOfMemory"), true);
    // Its child is killed, and the program itself ends normally.
    let job = Job {
        memory_bytes: Some(16 << 20),
        ..host.shell("tail /dev/zero; exit 3")
    };
    let (code, signal) = (Some(3), None);
    let killed = Exit::OutOfMemory { code, signal };
    assert_eq!(host.run("b", &job).await, killed);
}

#[tokio::test]
async fn a_fork_bomb_stays_within_its_limit_and_is_killed_completely() {
    let host = Host::new();
    let ready = host.pipe("ready");
    let script = format!(
        "trap '' TERM; bomb() {{ bomb & bomb & wait; sleep 1000; }}; echo > {}; bomb; sleep 1000",
        ready.path()
    );
    let job = Job {
        pids: Some(20),
        ..host.shell(&script)
    };
    soon(host.local().start(&id("a"), &job)).await;
    ready.hear().await;
    let current = read_back(
        &host,
        "a",
        Controller::Pids,
        ["pids.current", "pids.current"],
    );
    assert!(current.parse::<u32>().unwrap() <= 20, "{current}");
    let groups = host.groups(&id("a"));
    host.stop(&id("a"), Duration::ZERO).await;
    // The shell may exit when it cannot fork.
    assert!(matches!(
        host.exit(&id("a")).await,
        Exit::Signal(9) | Exit::Code(2)
    ));
    assert!(!groups.iter().any(|group| group.exists()));
}

#[tokio::test]
async fn a_limit_of_one_process_is_enough_for_a_single_process() {
    let host = Host::new();
    let job = Job {
        pids: Some(1),
        ..host.shell("echo alone; exec true")
    };
    assert_eq!(host.run("a", &job).await, Exit::Code(0));
    let job = Job {
        pids: Some(1),
        ..host.shell("true | true")
    };
    assert_ne!(host.run("b", &job).await, Exit::Code(0));
}

#[tokio::test]
async fn daemons_and_subgroups_are_removed_when_the_program_ends() {
    let host = Host::new();
    let (a, ready, go) = (id("a"), host.pipe("ready"), host.pipe("go"));
    let group = host.groups(&a).remove(0);
    // A daemon that forks twice, leads a session and moves to its own subgroup.
    let script = format!(
        "mkdir {group}/inner; \
         (setsid sh -c 'echo 0 > {group}/inner/cgroup.procs; (sleep 1000 & echo $! > {ready}) &' &); \
         read line < {go}; exit 4",
        group = group.display(),
        ready = ready.path(),
        go = go.path()
    );
    host.start(&a, &script).await;
    let daemon = ready.hear().await;
    assert!(is_there(&daemon));
    let members = fs::read_to_string(group.join("inner/cgroup.procs")).unwrap();
    assert!(
        members.lines().any(|line| line == daemon.trim()),
        "{members}"
    );
    go.tell("\n").await;
    assert_eq!(host.exit(&a).await, Exit::Code(4));
    assert!(!is_there(&daemon) && !group.exists());
}

#[tokio::test]
async fn a_process_that_leaves_the_cgroup_is_killed() {
    let host = Host::new();
    let (a, ready) = (id("a"), host.pipe("ready"));
    let group = host.groups(&a).remove(0);
    let above = group.parent().and_then(std::path::Path::parent).unwrap();
    let script = format!(
        "setsid sh -c 'echo 0 > {}/cgroup.procs; echo $$ > {}; exec sleep 1000' & wait",
        above.display(),
        ready.path()
    );
    host.start(&a, &script).await;
    let escaped = ready.hear().await;
    host.stop(&a, Duration::from_secs(30)).await;
    assert_eq!(host.exit(&a).await, Exit::Signal(15));
    assert!(!is_there(&escaped));
}
