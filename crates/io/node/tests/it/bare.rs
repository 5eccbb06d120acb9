//! Machines without delegated cgroups, or with version 1 only.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bursar_booking::execution::{Exit, Isolation};
use bursar_node::executor::{Begun, Executor, Job, Stream};
use bursar_node::local::Options;

use crate::host::{Host, id, is_there, kill_shim, new_privileges, soon};

/// A machine on which no cgroup can be written.
fn nothing(options: &mut Options, scratch: &Path) {
    let process = scratch.join("process");
    fs::create_dir(&process).unwrap();
    let mount = "31 23 0:28 / /no/such/place rw - cgroup2 cgroup2 rw\n";
    fs::write(process.join("mountinfo"), mount).unwrap();
    fs::write(process.join("cgroup"), "0::/\n").unwrap();
    options.process = process;
}

/// This machine without version 2.
fn only_v1(options: &mut Options, scratch: &Path) {
    let process = scratch.join("process");
    fs::create_dir(&process).unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| !line.contains(" cgroup2 "));
    let mounts = mounts.map(|line| format!("{line}\n"));
    fs::write(process.join("mountinfo"), mounts.collect::<String>()).unwrap();
    fs::copy("/proc/self/cgroup", process.join("cgroup")).unwrap();
    options.process = process;
}

#[tokio::test]
async fn without_cgroups_it_runs_and_reports_no_isolation() {
    let host = Host::with(nothing);
    assert!(!host.keeps_apart());
    let begun = host.start(&id("a"), "echo ran; exit 5").await;
    assert_eq!(begun, Begun::Running(Isolation::None));
    assert_eq!(host.exit(&id("a")).await, Exit::Code(5));
    assert_eq!(host.output(&id("a"), Stream::Stdout), "ran\n");
}

#[tokio::test]
async fn without_cgroups_a_program_gains_no_privileges_unless_allowed() {
    let host = Host::with(nothing);
    assert_eq!(
        new_privileges(&host).await,
        ["NoNewPrivs:\t1\n", "NoNewPrivs:\t0\n"]
    );
}

#[tokio::test]
async fn without_cgroups_required_isolation_refuses_the_start() {
    let host = Host::with(|options, scratch| {
        nothing(options, scratch);
        options.require_isolation = true;
    });
    let exit = host.run("a", &host.shell("echo ran")).await;
    let reason = "this machine cannot isolate it: no writable cgroups".to_owned();
    assert_eq!(exit, Exit::NotStarted(reason));
}

#[tokio::test]
async fn without_cgroups_a_stop_terminates_and_then_kills_the_tree() {
    let host = Host::with(nothing);
    let (a, ready) = (id("a"), host.pipe("ready"));
    let script = format!(
        "trap 'echo asked' TERM; setsid sh -c 'echo $$ > {}; exec sleep 1000' & \
         while :; do sleep 0.01; done",
        ready.path()
    );
    host.start(&a, &script).await;
    let child = ready.hear().await;
    host.stop(&a, Duration::from_secs(1)).await;
    assert_eq!(host.exit(&a).await, Exit::Signal(9));
    assert_eq!(host.output(&a, Stream::Stdout), "asked\n");
    assert!(!is_there(&child));
}

#[tokio::test]
async fn without_cgroups_a_new_server_can_stop_an_execution_of_the_old_one() {
    let mut host = Host::with(nothing);
    host.start(&id("a"), "sleep 1000").await;
    host.restart();
    host.stop(&id("a"), Duration::from_secs(30)).await;
    assert_eq!(host.exit(&id("a")).await, Exit::Signal(15));
}

#[tokio::test]
async fn without_cgroups_daemons_are_killed_when_the_program_ends() {
    let host = Host::with(nothing);
    let (a, ready, go) = (id("a"), host.pipe("ready"), host.pipe("go"));
    let script = format!(
        "(setsid sh -c '(sleep 1000 & echo $! > {}) &' &); read line < {}; exit 4",
        ready.path(),
        go.path()
    );
    host.start(&a, &script).await;
    let daemon = ready.hear().await;
    go.tell("\n").await;
    assert_eq!(host.exit(&a).await, Exit::Code(4));
    assert!(!is_there(&daemon));
}

#[tokio::test]
async fn without_cgroups_a_program_dies_with_its_shim() {
    let host = Host::with(nothing);
    let (a, ready, over) = (id("bare-shim"), host.pipe("ready"), host.pipe("over"));
    // The program holds the pipe open until it ends.
    let script = format!(
        "exec 3> {}; echo > {}; while :; do read line; done",
        over.path(),
        ready.path()
    );
    let begun = host.start(&a, &script);
    let over = over.clone();
    let over = tokio::spawn(async move { over.hear().await });
    begun.await;
    ready.hear().await;
    kill_shim(&a);
    assert_eq!(host.exit(&a).await, Exit::Lost);
    assert_eq!(soon(over).await.unwrap(), "");
}

#[tokio::test]
async fn without_cgroups_memory_is_bounded_for_each_process() {
    let host = Host::with(nothing);
    let job = Job {
        memory_bytes: Some(512 << 20),
        ..host.shell("ulimit -v")
    };
    let begun = soon(host.local().start(&id("a"), &job)).await;
    assert_eq!(begun, Begun::Running(Isolation::None));
    assert_eq!(host.exit(&id("a")).await, Exit::Code(0));
    assert_eq!(host.output(&id("a"), Stream::Stdout), "524288\n");
}

#[tokio::test]
async fn version_1_alone_kills_a_tree_that_grows() {
    let host = Host::with(only_v1);
    if !host.keeps_apart() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        // A machine with version 2 only cannot test this.
        assert!(
            !mounts.contains(" - cgroup cgroup "),
            "version 1 cannot be written"
        );
        return;
    }
    let (a, ready) = (id("a"), host.pipe("ready"));
    let script = format!(
        "trap '' TERM; grow() {{ (grow) & sleep 0.05; }}; \
         setsid sh -c 'echo $$ > {}; exec sleep 1000' & grow; wait",
        ready.path()
    );
    let job = Job {
        pids: Some(30),
        memory_bytes: Some(256 << 20),
        ..host.shell(&script)
    };
    let begun = soon(host.local().start(&a, &job)).await;
    assert_eq!(begun, Begun::Running(Isolation::Cgroup));
    let child = ready.hear().await;
    let groups = host.groups(&a);
    assert!(
        groups
            .iter()
            .any(|group| group.join("freezer.state").exists())
    );
    host.stop(&a, Duration::ZERO).await;
    assert!(matches!(
        host.exit(&a).await,
        Exit::Signal(9) | Exit::Code(_)
    ));
    assert!(!is_there(&child) && !groups.iter().any(|group| group.exists()));
}
