//! The normal life of an execution, and the environment of its program.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use bursar_booking::execution::{Exit, Isolation};
use bursar_journal::hash::Hash;
use bursar_node::executor::{Begun, Executor, Job, Left, Stream, User, Work};

use crate::host::{Host, id, is_there, new_privileges, shell, shims, soon};

fn command(words: &[&str]) -> Work {
    let (command, args) = words.split_first().unwrap();
    Work {
        command: (*command).to_owned(),
        args: args.iter().map(|&word| word.to_owned()).collect(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        directory: None,
        user: None,
        allow_privilege_escalation: false,
    }
}

fn not_started(reason: &str) -> Exit {
    let reason = reason.to_owned();
    Exit::NotStarted(reason)
}

#[tokio::test]
async fn an_exit_code_or_a_signal_is_reported() {
    let host = Host::new();
    for (name, script, exit) in [
        ("zero", "exit 0", Exit::Code(0)),
        ("seven", "exit 7", Exit::Code(7)),
        ("killed", "kill -9 $$", Exit::Signal(9)),
        ("hung-up", "kill -1 $$", Exit::Signal(1)),
    ] {
        assert_eq!(host.run(name, &host.shell(script)).await, exit, "{name}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_ends_as_in_a_shell() {
    let host = Host::new();
    for (name, word, code) in [
        ("absent", "no-such-program", 127),
        ("absent-path", "/no/such/program", 127),
        ("data", "/etc/passwd", 126),
        ("directory", "/usr", 126),
    ] {
        let exit = host.run(name, &host.job(&command(&[word]))).await;
        assert_eq!(exit, Exit::Code(code), "{name}");
        let told = host.output(&id(name), Stream::Stderr);
        assert!(told.starts_with(&format!("bursar: {word}: ")), "{told}");
    }
}

#[tokio::test]
async fn without_its_directory_or_its_work_an_execution_is_not_started() {
    let host = Host::new();
    let work = Work {
        directory: Some(PathBuf::from("/no/such/place")),
        ..shell("exit 0")
    };
    let exit = host.run("placeless", &host.job(&work)).await;
    assert_eq!(exit, not_started("its working directory does not exist"));
    let job = Job {
        work: Hash([3; 32]),
        ..host.shell("exit 0")
    };
    let exit = host.run("unknown", &job).await;
    assert_eq!(exit, not_started("its work is no longer stored"));
    // A second call gives the same result.
    assert_eq!(host.exit(&id("unknown")).await, exit);
}

#[tokio::test]
async fn without_a_shim_that_works_nothing_is_started() {
    for (shim, words) in [
        (
            "/no/such/shim",
            "cannot start /no/such/shim: No such file or directory (os error 2)",
        ),
        ("/bin/false", "its shim does not start it"),
    ] {
        let host = Host::with(|options, _| options.shim = PathBuf::from(shim));
        assert_eq!(
            host.run("a", &host.shell("exit 0")).await,
            not_started(words)
        );
    }
}

#[tokio::test]
async fn orphans_are_reaped_while_the_program_runs() {
    let host = Host::new();
    // The children of the shim are the program and adopted orphans.
    let script = "(true &); (true &); \
        while test $(wc -w < /proc/$PPID/task/$PPID/children) -gt 1; do sleep 0.01; done";
    assert_eq!(host.run("a", &host.shell(script)).await, Exit::Code(0));
}

#[tokio::test]
async fn a_program_gets_the_environment_it_was_given_and_nothing_else() {
    let host = Host::new();
    let mut work = command(&["env"]);
    work.env.insert("SECRET".to_owned(), "a b".to_owned());
    assert_eq!(host.run("env", &host.job(&work)).await, Exit::Code(0));
    let output = host.output(&id("env"), Stream::Stdout);
    let mut lines: Vec<_> = output.lines().collect();
    lines.sort_unstable();
    let path = "PATH=/usr/bin:/bin";
    assert_eq!(
        lines,
        ["BURSAR_BOOKING=env", "BURSAR_FENCE=7", path, "SECRET=a b"]
    );
}

#[tokio::test]
async fn a_program_inherits_no_more_than_from_a_plain_spawn_and_leads_a_session() {
    let host = Host::new();
    let script = "ls /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let mut plain = std::process::Command::new("sh");
    plain
        .args(["-c", script])
        .stdin(std::process::Stdio::null());
    let plain = String::from_utf8(plain.output().unwrap().stdout).unwrap();
    assert_eq!(host.run("a", &host.shell(script)).await, Exit::Code(0));
    assert_eq!(host.output(&id("a"), Stream::Stdout), plain);
    let session = "test $(cut -d ' ' -f 6 /proc/$$/stat) = $$";
    assert_eq!(host.run("b", &host.shell(session)).await, Exit::Code(0));
}

#[tokio::test]
async fn a_program_gains_no_privileges_unless_allowed() {
    let host = Host::new();
    assert_eq!(
        new_privileges(&host).await,
        ["NoNewPrivs:\t1\n", "NoNewPrivs:\t0\n"]
    );
}

/// Method: a set-user-ID copy of `id` that belongs to root, run by another user.
#[tokio::test]
async fn a_set_user_id_program_changes_its_user_only_if_allowed() {
    let host = Host::new();
    let copy = tempfile::tempdir().unwrap();
    std::fs::set_permissions(copy.path(), Permissions::from_mode(0o755)).unwrap();
    let id_of = copy.path().join("id");
    std::fs::copy("/usr/bin/id", &id_of).unwrap();
    std::fs::set_permissions(&id_of, Permissions::from_mode(0o4755)).unwrap();
    for (name, allow_privilege_escalation, effective) in [("a", false, "65534"), ("b", true, "0")] {
        let work = Work {
            user: Some(User {
                uid: 65_534,
                gid: 65_533,
            }),
            allow_privilege_escalation,
            ..command(&[id_of.to_str().unwrap(), "-u"])
        };
        assert_eq!(host.run(name, &host.job(&work)).await, Exit::Code(0));
        assert_eq!(
            host.output(&id(name), Stream::Stdout).trim(),
            effective,
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_program_runs_in_its_directory_and_as_its_user() {
    let host = Host::new();
    let work = Work {
        directory: Some(PathBuf::from("/usr/bin")),
        user: Some(User {
            uid: 65_534,
            gid: 65_533,
        }),
        ..shell("pwd; id -u; id -G; echo again > /dev/stderr")
    };
    assert_eq!(host.run("a", &host.job(&work)).await, Exit::Code(0));
    assert_eq!(
        host.output(&id("a"), Stream::Stdout),
        "/usr/bin\n65534\n65533\n"
    );
    assert_eq!(host.output(&id("a"), Stream::Stderr), "again\n");
    assert_eq!(host.run("b", &host.shell("pwd")).await, Exit::Code(0));
    assert_eq!(host.output(&id("b"), Stream::Stdout), "/\n");
}

#[tokio::test]
async fn output_is_read_from_any_byte_while_it_grows_and_after() {
    let host = Host::new();
    let (ready, go) = (host.pipe("ready"), host.pipe("go"));
    let a = id("a");
    let script = format!(
        "echo first; echo > {}; read line < {}; echo second",
        ready.path(),
        go.path()
    );
    let begun = host.start(&a, &script).await;
    assert_eq!(begun, Begun::Running(Isolation::Cgroup));
    ready.hear().await;
    assert!(
        host.local()
            .output(&a, Stream::Stdout, 0)
            .unwrap()
            .is_some()
    );
    go.tell("\n").await;
    assert_eq!(host.exit(&a).await, Exit::Code(0));
    assert_eq!(host.output(&a, Stream::Stdout), "first\nsecond\n");
    let output = host.local().output(&a, Stream::Stdout, 6).unwrap().unwrap();
    assert_eq!(std::io::read_to_string(output).unwrap(), "second\n");
    let beyond = host
        .local()
        .output(&a, Stream::Stdout, u64::MAX)
        .unwrap()
        .unwrap();
    assert_eq!(std::io::read_to_string(beyond).unwrap(), "");
    // Empty output differs from no output.
    let silent = host.local().output(&a, Stream::Stderr, 0).unwrap();
    assert_eq!(std::io::read_to_string(silent.unwrap()).unwrap(), "");
    let unknown = host.local().output(&id("b"), Stream::Stdout, 0).unwrap();
    assert!(unknown.is_none());
}

#[tokio::test]
async fn cleaning_leaves_the_output_and_then_nothing() {
    let host = Host::new();
    let a = id("a");
    assert_eq!(host.run("a", &host.shell("echo kept")).await, Exit::Code(0));
    assert_eq!(host.run("b", &host.shell("exit 0")).await, Exit::Code(0));
    assert_eq!(host.local().list().unwrap(), [a.clone(), id("b")]);
    host.local().clean(&a, Left::Output).unwrap();
    host.local().clean(&id("b"), Left::Output).unwrap();
    assert_eq!(host.output(&a, Stream::Stdout), "kept\n");
    // Empty output is kept too.
    assert_eq!(host.output(&id("b"), Stream::Stdout), "");
    // A late start does not run it again.
    let job = host.shell("echo again");
    assert_eq!(host.run("a", &job).await, Exit::Code(0));
    assert_eq!(host.run("b", &job).await, Exit::Code(0));
    assert_eq!(host.output(&id("b"), Stream::Stdout), "");
    host.local().clean(&a, Left::Nothing).unwrap();
    host.local().clean(&id("b"), Left::Nothing).unwrap();
    assert_eq!(host.local().list().unwrap(), []);
}

#[tokio::test]
async fn cleaning_ends_a_running_execution() {
    let host = Host::new();
    let (a, ready) = (id("a"), host.pipe("ready"));
    let script = format!(
        "trap '' TERM; echo $$ > {}; while :; do sleep 1000; done",
        ready.path()
    );
    host.start(&a, &script).await;
    let program = ready.hear().await;
    host.local().clean(&a, Left::Nothing).unwrap();
    assert!(!is_there(&program));
    assert_eq!(host.local().list().unwrap(), []);
}

#[tokio::test]
async fn an_id_that_looks_like_a_path_stays_in_the_directory() {
    let host = Host::new();
    for name in [".", "..", "cgroup.procs", "-", "a:b", &"x".repeat(128)] {
        assert_eq!(
            host.run(name, &host.shell("echo $BURSAR_BOOKING")).await,
            Exit::Code(0)
        );
        assert_eq!(host.output(&id(name), Stream::Stdout), format!("{name}\n"));
    }
    assert_eq!(host.local().list().unwrap().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_at_once_leave_no_process_no_zombie_no_cgroup_and_no_directory() {
    let host = Host::new();
    let jobs = [host.shell("exit 0"), host.shell("sleep 1000 & exit 1")];
    let runs = (0..100).map(|number| {
        let (host, jobs) = (&host, &jobs);
        async move {
            let name = format!("hundred-{number}");
            let code = number % 2;
            let job = jobs.get(code).unwrap();
            let exit = host.run(&name, job).await;
            assert_eq!(exit, Exit::Code(i32::try_from(code).unwrap()));
            host.local().clean(&id(&name), Left::Nothing).unwrap();
        }
    });
    soon(futures_util::future::join_all(runs)).await;
    assert_eq!(shims("hundred-").len(), 0);
    assert_eq!(host.local().list().unwrap(), []);
}
