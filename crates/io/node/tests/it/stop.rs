//! Ending executions: before, while and after they run.

use std::fs;
use std::process::Command;
use std::time::Duration;

use bursar_booking::execution::{Exit, Isolation};
use bursar_node::executor::{Begun, Executor, Stream};

use crate::host::{Host, id, is_there, soon};

const LONG: Duration = Duration::from_secs(30);
/// Long enough for a program to handle SIGTERM, even on an emulated processor.
const SHORT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn what_is_stopped_before_it_starts_never_does() {
    let host = Host::new();
    let a = id("a");
    host.stop(&a, LONG).await;
    let reason = "stopped before it started".to_owned();
    let never = Exit::NotStarted(reason);
    let begun = host.start(&a, "echo ran").await;
    assert_eq!(begun, Begun::Gone(never.clone()));
    assert_eq!(host.exit(&a).await, never);
    assert_eq!(host.output(&a, Stream::Stdout), "");
}

#[tokio::test]
async fn a_stop_during_the_start_ends_it_in_either_order() {
    let host = Host::new();
    for number in 0..20 {
        let a = id(&format!("a-{number}"));
        let job = host.shell("sleep 1000");
        let start = host.local().start(&a, &job);
        let (begun, stopped) = soon(futures_util::future::join(start, async {
            // Later each time, by as many yields to the scheduler.
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
            host.local().stop(&a, LONG).await
        }))
        .await;
        stopped.unwrap();
        match (begun, host.exit(&a).await) {
            (Begun::Gone(_), Exit::NotStarted(_) | Exit::Signal(15))
            | (Begun::Running(_), Exit::Signal(15)) => {}
            other => assert_eq!(other, (Begun::Gone(Exit::Lost), Exit::Lost), "unexpected"),
        }
    }
}

#[tokio::test]
async fn stopping_an_ended_execution_changes_nothing() {
    let host = Host::new();
    assert_eq!(host.run("a", &host.shell("exit 3")).await, Exit::Code(3));
    host.stop(&id("a"), LONG).await;
    assert_eq!(host.exit(&id("a")).await, Exit::Code(3));
}

#[tokio::test]
async fn a_program_that_handles_sigterm_ends_by_itself_within_the_grace() {
    let host = Host::new();
    let (a, ready) = (id("a"), host.pipe("ready"));
    let script = format!(
        "trap 'echo asked; exit 5' TERM; echo > {}; while :; do sleep 0.01; done",
        ready.path()
    );
    host.start(&a, &script).await;
    ready.hear().await;
    host.stop(&a, LONG).await;
    assert_eq!(host.exit(&a).await, Exit::Code(5));
    // SIGTERM is sent once, not at every inspection.
    assert_eq!(host.output(&a, Stream::Stdout), "asked\n");
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed_after_the_grace() {
    let host = Host::new();
    let (a, ready) = (id("a"), host.pipe("ready"));
    let script = format!(
        "trap 'echo asked' TERM; echo > {}; while :; do sleep 0.01; done",
        ready.path()
    );
    host.start(&a, &script).await;
    ready.hear().await;
    host.stop(&a, SHORT).await;
    assert_eq!(host.exit(&a).await, Exit::Signal(9));
    assert_eq!(host.output(&a, Stream::Stdout), "asked\n");
}

#[tokio::test]
async fn a_stop_ends_the_whole_tree_and_a_foreign_process_in_the_cgroup() {
    let host = Host::new();
    let (a, ready) = (id("a"), host.pipe("ready"));
    let script = format!(
        "trap '' TERM; setsid sh -c 'sleep 1000 & echo $! > {}; wait' & wait",
        ready.path()
    );
    host.start(&a, &script).await;
    let grandchild = ready.hear().await;
    let mut stranger = Command::new("sleep").arg("1000").spawn().unwrap();
    let groups = host.groups(&a);
    let entrance = groups.first().unwrap().join("cgroup.procs");
    std::fs::write(entrance, stranger.id().to_string()).unwrap();
    host.stop(&a, Duration::ZERO).await;
    assert_eq!(host.exit(&a).await, Exit::Signal(9));
    assert!(!is_there(&grandchild));
    assert!(!groups.iter().any(|group| group.exists()));
    assert!(!stranger.wait().unwrap().success());
}

#[tokio::test]
async fn two_ledgers_on_one_host_never_touch_each_other() {
    let (one, two) = (Host::new(), Host::new());
    let (a, ready, go) = (id("a"), two.pipe("ready"), two.pipe("go"));
    one.start(&a, "sleep 1000").await;
    let script = format!("echo > {}; read line < {}", ready.path(), go.path());
    let begun = two.start(&a, &script).await;
    assert_eq!(begun, Begun::Running(Isolation::Cgroup));
    ready.hear().await;
    one.stop(&a, Duration::ZERO).await;
    assert_ne!(one.exit(&a).await, Exit::Lost);
    drop(one);
    go.tell("\n").await;
    assert_eq!(two.exit(&a).await, Exit::Code(0));
}

#[tokio::test]
async fn the_grace_begins_with_the_first_request() {
    let host = Host::new();
    let (a, ready) = (id("a"), host.pipe("ready"));
    let script = format!(
        "trap 'echo asked' TERM; echo > {}; while :; do sleep 0.01; done",
        ready.path()
    );
    host.start(&a, &script).await;
    ready.hear().await;
    // An earlier server wrote the request and was killed.
    fs::write(host.directory(&a).join("stop"), "0").unwrap();
    host.stop(&a, Duration::from_hours(1)).await;
    assert_eq!(host.exit(&a).await, Exit::Signal(9));
    assert_eq!(host.output(&a, Stream::Stdout), "");
}

#[tokio::test]
async fn a_process_that_gets_no_sigterm_is_killed() {
    let host = Host::new();
    let a = id("a");
    host.start(&a, "sleep 1000").await;
    // One more group whose members cannot be read.
    let directory = host.options.directory.join("other");
    let group = directory.join(format!("bursar-{}/e-a", host.options.ledger));
    fs::create_dir_all(group.join("cgroup.procs")).unwrap();
    fs::write(group.join("cgroup.kill"), "").unwrap();
    let spawned = host.directory(&a).join("spawned");
    let marker = fs::read_to_string(&spawned).unwrap();
    let first = format!(r#""directories":[["v2","{}"],"#, group.display());
    fs::write(&spawned, marker.replacen(r#""directories":["#, &first, 1)).unwrap();
    host.stop(&a, SHORT).await;
    assert_eq!(host.exit(&a).await, Exit::Signal(9));
}

#[tokio::test]
async fn a_program_with_a_threaded_subgroup_is_terminated_like_others() {
    let host = Host::new();
    let (a, ready) = (id("a"), host.pipe("ready"));
    let group = host.groups(&a).remove(0);
    let script = format!(
        "trap 'exit 5' TERM; mkdir {group}/inner; echo threaded > {group}/inner/cgroup.type; \
         sh -c 'trap \"\" TERM; echo 0 > {group}/inner/cgroup.procs; echo $$ > {ready}; \
         while :; do sleep 1000; done' & while :; do sleep 0.01; done",
        group = group.display(),
        ready = ready.path()
    );
    host.start(&a, &script).await;
    let child = ready.hear().await;
    host.stop(&a, LONG).await;
    assert_eq!(host.exit(&a).await, Exit::Code(5));
    assert!(!is_there(&child) && !group.exists());
}

#[tokio::test]
async fn a_program_in_a_threaded_group_is_killed_like_others() {
    let host = Host::new();
    let (a, ready) = (id("a"), host.pipe("ready"));
    let group = host.groups(&a).remove(0);
    // A group must be empty to become threaded, so the program leaves and returns.
    let script = format!(
        "trap '' TERM; echo 0 > {group}/../cgroup.procs; echo threaded > {group}/cgroup.type; \
         echo 0 > {group}/cgroup.procs; cat {group}/cgroup.type > {ready}; \
         while :; do sleep 0.01; done",
        group = group.display(),
        ready = ready.path()
    );
    host.start(&a, &script).await;
    let kind = ready.hear().await;
    // The ledger's group has enabled controllers, so it accepts no processes and no threaded children.
    assert!(
        ["threaded\n", "domain\n"].contains(&kind.as_str()),
        "{kind}"
    );
    host.stop(&a, Duration::ZERO).await;
    assert_eq!(host.exit(&a).await, Exit::Signal(9));
    assert!(!group.exists());
}
