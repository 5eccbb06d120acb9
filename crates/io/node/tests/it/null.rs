//! The executor without processes, under virtual time.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use bursar_booking::execution::{Exit, Isolation};
use bursar_journal::hash::Hash;
use bursar_node::executor::{Begun, Executor, Job, Left, Stream, Work};
use bursar_node::null::Null;
use tokio::time::Instant;

use crate::host::id;

fn job(null: &Null, command: &str, args: &[&str]) -> Job {
    let work = Work {
        command: command.to_owned(),
        args: args.iter().map(|&word| word.to_owned()).collect(),
        env: BTreeMap::new(),
        directory: None,
        user: None,
        allow_privilege_escalation: false,
    };
    Job {
        work: null.keep(&work).unwrap(),
        fence: 1,
        note: String::new(),
        cpu_milli: None,
        memory_bytes: None,
        pids: None,
    }
}

#[tokio::test(start_paused = true)]
async fn it_plays_what_it_was_given_in_the_time_that_takes() {
    let null = Null::default();
    for (name, command, args, takes_ms, code) in [
        ("true", "/bin/true", &[][..], 0, 0),
        ("false", "/bin/false", &[], 0, 1),
        ("sleep", "sleep", &["90"], 90_000, 0),
        ("part", "/usr/bin/sleep", &["0.25"], 250, 0),
        ("words", "sleep", &["long"], 0, 0),
        ("other", "make", &["all"], 0, 0),
    ] {
        let since = Instant::now();
        let begun = null.start(&id(name), &job(&null, command, args)).await;
        assert_eq!(begun, Begun::Running(Isolation::Cgroup));
        assert_eq!(null.exit(&id(name)).await, Exit::Code(code), "{name}");
        assert_eq!(since.elapsed(), Duration::from_millis(takes_ms), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_start_does_not_begin_again() {
    let null = Null::default();
    let sleep = job(&null, "sleep", &["10"]);
    null.start(&id("a"), &sleep).await;
    tokio::time::advance(Duration::from_secs(8)).await;
    null.start(&id("a"), &sleep).await;
    let begin = Instant::now();
    assert_eq!(null.exit(&id("a")).await, Exit::Code(0));
    assert_eq!(begin.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_at_once_whoever_waits() {
    let null = Null::default();
    let (a, begin) = (id("a"), Instant::now());
    null.start(&a, &job(&null, "sleep", &["10"])).await;
    let (exit, stopped) = tokio::join!(null.exit(&a), null.stop(&a, Duration::from_secs(9)));
    stopped.unwrap();
    assert_eq!(exit, Exit::Signal(15));
    assert_eq!(begin.elapsed(), Duration::ZERO);
    // What has ended before stays as it was.
    null.start(&id("b"), &job(&null, "false", &[])).await;
    null.stop(&id("b"), Duration::ZERO).await.unwrap();
    assert_eq!(null.exit(&id("b")).await, Exit::Code(1));
}

#[tokio::test(start_paused = true)]
async fn what_is_stopped_before_it_starts_never_does() {
    let null = Null::default();
    null.stop(&id("a"), Duration::ZERO).await.unwrap();
    let begun = null.start(&id("a"), &job(&null, "true", &[])).await;
    let exit = null.exit(&id("a")).await;
    assert!(matches!(&exit, Exit::NotStarted(_)));
    assert_eq!(begun, Begun::Gone(exit));
}

#[tokio::test(start_paused = true)]
async fn what_it_does_not_know_is_lost_or_not_started() {
    let null = Null::default();
    assert_eq!(null.exit(&id("a")).await, Exit::Lost);
    let unknown = Job {
        work: Hash([9; 32]),
        ..job(&null, "true", &[])
    };
    let begun = null.start(&id("a"), &unknown).await;
    assert!(matches!(begun, Begun::Gone(Exit::NotStarted(_))));
}

#[tokio::test(start_paused = true)]
async fn cleaning_and_forgetting_leave_nothing() {
    let null = Null::default();
    let job = job(&null, "sleep", &["10"]);
    null.start(&id("a"), &job).await;
    assert_eq!(null.list().await.unwrap(), [id("a")]);
    assert!(null.output(&id("a"), Stream::Stdout, 0).unwrap().is_none());
    null.clean(&id("a"), Left::Nothing).await.unwrap();
    assert_eq!(null.list().await.unwrap(), []);
    // Whoever has just kept something may be about to need it.
    null.forget(BTreeSet::new()).await.unwrap();
    let is_running = |begun| matches!(begun, Begun::Running(_));
    assert!(is_running(null.start(&id("b"), &job).await));
    tokio::time::advance(Duration::from_mins(11)).await;
    null.forget(BTreeSet::from([job.work])).await.unwrap();
    assert!(is_running(null.start(&id("c"), &job).await));
    null.forget(BTreeSet::new()).await.unwrap();
    assert!(!is_running(null.start(&id("d"), &job).await));
}
