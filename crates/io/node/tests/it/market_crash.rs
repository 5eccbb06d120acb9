//! The originals are restored, whenever an agent is killed (M10).

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bursar_market::cgroup::Quota;
use bursar_node::market::{self, Agent, Deed, Error, Mode};

use crate::host::beside;
use crate::market_ground::{Ground, limit, wait_for};

/// A user without privileges.
const NOBODY: u32 = 65_534;

/// The agent that cargo has built beside this test, on some groups of 3m to 400m.
fn agent(ground: &Ground, directory: &Path, clear_ms: u64, names: &[&str]) -> Command {
    let mut command = Command::new(beside("market"));
    command
        .arg(directory)
        .args(["0", &clear_ms.to_string()])
        .args(names.iter().map(|name| {
            let path = Path::new("/").join(ground.path(name));
            format!("{name}={}:3:400", path.display())
        }))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// A process that is killed at the end of the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Kills an agent some time after its first writes. The times are different fractions of a clearing,
/// so that they hit every part of it.
fn kill_after(mut process: Process, writes: u64, pause: Duration) {
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    for line in lines {
        let line = line.unwrap();
        let written: u64 = line.split(' ').next().unwrap().parse().unwrap();
        if writes <= written {
            break;
        }
    }
    self::pause(pause);
    drop(process);
}

fn pause(pause: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the moment is what is tried")]
    std::thread::sleep(pause);
}

#[test]
fn an_agent_killed_at_any_moment_has_lost_no_original() {
    let mut ground = Ground::new();
    // One without a quota, one with an odd period, one that is busy. A limit of 3m also changes the
    // period, which takes two writes in version 1.
    let originals = [
        ("a", Quota::NONE),
        ("b", Quota::of_milli(350, 50_000)),
        ("c", Quota::of_milli(400, 100_000)),
    ];
    for (name, original) in originals {
        ground.group(name, None);
        ground.set_quota(name, original);
    }
    ground.burn("c");
    let directory = ground.scratch.path().join("market");
    let names = originals.map(|(name, _)| name);
    for round in 0..24_u32 {
        let command = agent(&ground, &directory, 2, &names).spawn();
        let pause = Duration::from_micros(u64::from(round) * 377);
        kill_after(Process(command.unwrap()), u64::from(round % 3), pause);
        // Every other time the next agent adopts the limits of this one.
        if round % 2 == 1 {
            continue;
        }
        let told = market::restore(&directory, Path::new("/proc/self"), Deed::Real).unwrap();
        assert_eq!(told.failed, []);
        for (name, original) in originals {
            assert_eq!(ground.quota(name), original, "{name} in round {round}");
        }
    }
    market::restore(&directory, Path::new("/proc/self"), Deed::Real).unwrap();
    for (name, original) in originals {
        assert_eq!(ground.quota(name), original, "{name}");
    }
}

/// Method: the restore is killed too, later each time, and the next one continues.
#[test]
fn a_restore_may_be_killed_at_any_moment() {
    let ground = Ground::new();
    let originals = [
        ("a", Quota::NONE),
        ("b", Quota::of_milli(350, 50_000)),
        ("c", Quota::of_milli(400, 100_000)),
    ];
    for (name, original) in originals {
        ground.group(name, None);
        ground.set_quota(name, original);
    }
    let directory = ground.scratch.path().join("market");
    let names = originals.map(|(name, _)| name);
    let mut cut_short = 0;
    for round in 0..16_u32 {
        let command = agent(&ground, &directory, 2, &names).spawn();
        kill_after(Process(command.unwrap()), 3, Duration::ZERO);
        let mut restore = Command::new(beside("market"));
        restore.arg("restore").arg(&directory);
        restore.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process(restore.spawn().unwrap());
        // It prints a line before it begins.
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "restoring");
        pause(Duration::from_micros(u64::from(round) * 97));
        drop(process);
        cut_short += u32::from(lines.next().is_none());
        let told = market::restore(&directory, Path::new("/proc/self"), Deed::Real).unwrap();
        assert_eq!(told.failed, []);
        for (name, original) in originals {
            assert_eq!(ground.quota(name), original, "{name} in round {round}");
        }
    }
    assert!(cut_short > 0, "nobody was killed in time");
}

#[test]
fn an_agent_adopts_the_limits_of_a_killed_one_and_restores_undeclared_ones() {
    let ground = Ground::new();
    ground.group("a", Some(300));
    ground.group("b", Some(200));
    let options = |names: &[&str]| {
        let declared = names.iter().map(|name| ground.declared(name, 3, 400));
        ground.options(600, declared.collect())
    };
    let directory = options(&[]).directory;
    let command = agent(&ground, &directory, 2, &["a", "b"]).spawn().unwrap();
    kill_after(Process(command), 8, Duration::ZERO);
    assert_ne!(ground.quota("a").milli_ceil(), Some(300));
    assert_ne!(ground.quota("b").milli_ceil(), Some(200));
    let next = Agent::start(options(&["a"])).unwrap();
    assert_eq!(ground.quota("b").milli_ceil(), Some(200), "opted out");
    let mut standings = next.view().standings.clone().into_iter();
    let adopted = standings.find(|standing| standing.id == "a").unwrap();
    assert_eq!(adopted.original.milli_ceil(), Some(300));
    assert!(limit(&next.view(), "a") < 300);
    // While it runs nobody else may restore.
    let asked = market::restore(&directory, Path::new("/proc/self"), Deed::Real);
    assert!(matches!(asked, Err(Error::InUse(_))), "{asked:?}");
    next.stop().unwrap();
    assert_eq!(ground.quota("a").milli_ceil(), Some(300));
}

#[test]
fn an_observing_agent_restores_all_limits_of_a_killed_one() {
    let ground = Ground::new();
    ground.group("a", Some(300));
    let mut options = ground.options(600, vec![ground.declared("a", 3, 400)]);
    options.mode = Mode::Observe;
    let command = agent(&ground, &options.directory, 2, &["a"]).spawn();
    kill_after(Process(command.unwrap()), 1, Duration::ZERO);
    assert_ne!(ground.quota("a").milli_ceil(), Some(300));
    let next = Agent::start(options).unwrap();
    assert_eq!(ground.quota("a").milli_ceil(), Some(300));
    wait_for(&next, "it takes that for its limit", |view| {
        let standing = view.standings.first();
        standing
            .is_some_and(|standing| standing.held.is_none() && standing.bidder.limit_milli == 300)
    });
}

#[test]
fn a_foreign_limit_written_after_a_crash_stays() {
    let ground = Ground::new();
    ground.group("a", Some(300));
    let directory = ground.scratch.path().join("market");
    let command = agent(&ground, &directory, 2, &["a"]).spawn().unwrap();
    kill_after(Process(command), 1, Duration::ZERO);
    let theirs = Quota::of_milli(123, 40_000);
    ground.set_quota("a", theirs);
    let told = market::restore(&directory, Path::new("/proc/self"), Deed::Real).unwrap();
    assert_eq!(told, market::Restored::default());
    assert_eq!(ground.quota("a"), theirs);
}

/// Method: the open-file limit of a running agent is lowered to the files it has, and raised again.
#[test]
fn too_many_open_files_are_reported_and_no_group_counts_as_missing() {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let ground = Ground::new();
    ground.group("a", Some(300));
    let directory = ground.scratch.path().join("market");
    let command = agent(&ground, &directory, 20, &["a", "late"]).spawn();
    let mut process = Process(command.unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let mut find = |is_it: &dyn Fn(&str) -> bool| {
        let mut lines = lines.by_ref().take(1_000).map(Result::unwrap);
        let mut last = String::new();
        let found = lines.find(|line| {
            last.clone_from(line);
            is_it(line)
        });
        found.ok_or(last).unwrap()
    };
    find(&|line| !line.starts_with("0 "));
    let pid = Pid::from_child(&process.0);
    let limit = |files: Option<u64>| {
        let usual = getrlimit(Resource::Nofile);
        let limit = Rlimit {
            current: files.or(usual.current),
            maximum: usual.maximum,
        };
        prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    };
    // It has more files open than that.
    limit(Some(4));
    ground.group("late", Some(300));
    find(&|line| line.contains("`late`"));
    for _ in 0..5 {
        let line = find(&|_| true);
        assert!(line.contains("Too many open files"), "{line}");
        assert!(line.contains("raise the limit of open files"), "{line}");
        assert!(!line.contains("Unreadable"), "{line}");
        assert!(!line.contains("Refused"), "{line}");
    }
    limit(None);
    let line = find(&|line| {
        let is_managed = ground.quota("late").milli_ceil() < Some(300);
        is_managed && line.ends_with("None")
    });
    assert!(line.contains("Yes [] []"), "{line}");
    drop(process);
    let told = market::restore(&directory, Path::new("/proc/self"), Deed::Real).unwrap();
    assert_eq!(told.failed, []);
}

#[test]
fn without_write_access_it_observes_and_reports_the_reason() {
    let ground = Ground::new();
    ground.group("a", Some(300));
    // It owns only its own directory.
    let directory: PathBuf = ground.scratch.path().join("market");
    std::fs::create_dir(&directory).unwrap();
    let open = |path: &Path| {
        let everyone = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(path, everyone).unwrap();
    };
    open(ground.scratch.path());
    open(&directory);
    // The build directory may not be readable for others.
    let command = agent(&ground, &directory, 2, &["a"]);
    let program = ground.scratch.path().join("agent");
    std::fs::copy(command.get_program(), &program).unwrap();
    open(&program);
    let mut plain = Command::new(&program);
    plain.args(command.get_args()).stdout(Stdio::piped());
    plain.uid(NOBODY).gid(NOBODY);
    let mut process = Process(spawned(&mut plain));
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).nth(20).unwrap();
    assert!(line.starts_with("0 Cannot("), "{line}");
    assert!(line.contains("`a`: Permission denied"), "{line}");
    assert_eq!(ground.quota("a").milli_ceil(), Some(300));
}

/// Starts a program that was just written. Another test that forks at that moment holds it open for
/// writing until its `exec`, so this is tried again.
fn spawned(command: &mut Command) -> Child {
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                std::thread::yield_now();
            }
            child => return child.unwrap(),
        }
    }
}
