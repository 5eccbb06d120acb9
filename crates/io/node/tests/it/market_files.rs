//! All kinds of hierarchies and of broken files, as plain files: an unreadable group is listed, held at
//! its last value, and does not affect others.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_market::cgroup::Quota;
use bursar_market::node::{Held, Settings};
use bursar_market::params::Params;
use bursar_node::market::hierarchy::Hierarchies;
use bursar_node::market::originals::Originals;
use bursar_node::market::record::{self, Event};
use bursar_node::market::{
    self, Acts, Agent, Declared, Deed, Error, Execution, Executions, Mode, Options, Place,
    Unmanaged, View,
};
use tempfile::TempDir;

use crate::market_ground::{limit, wait_for};

const STAT_V1: &str = "nr_periods 10\nnr_throttled 2\nthrottled_time 5000000\nnr_bursts 0\n";
const STAT_V2: &str = "usage_usec 7000\nuser_usec 7000\nsystem_usec 0\nnr_periods 10\n\
                       nr_throttled 2\nthrottled_usec 5000\n";

/// The hierarchies of a machine.
#[derive(Clone, Copy, Debug)]
enum Kind {
    V1,
    /// Quotas in version 1, use in version 2.
    Hybrid,
    V2,
}

/// A machine of plain files.
struct Fake {
    kind: Kind,
    scratch: TempDir,
}

impl Fake {
    /// A machine on which this process is in the group `own`.
    fn new(kind: Kind, own: &str) -> Self {
        let fake = Self {
            kind,
            scratch: tempfile::tempdir().unwrap(),
        };
        let mount = |number: u32, name: &str, kind: &str, options: &str| {
            let point = fake.root(name);
            fs::create_dir(&point).unwrap();
            let point = point.display();
            format!("{number} 31 0:{number} / {point} rw,relatime - {kind} {kind} rw{options}\n")
        };
        let (mounts, groups) = match kind {
            Kind::V1 => (
                mount(1, "cpu", "cgroup", ",cpu") + &mount(2, "cpuacct", "cgroup", ",cpuacct"),
                format!("2:cpu:{own}\n1:cpuacct:{own}\n"),
            ),
            Kind::Hybrid => (
                mount(1, "cpu", "cgroup", ",cpu") + &mount(2, "unified", "cgroup2", ""),
                format!("2:cpu:{own}\n0::{own}\n"),
            ),
            Kind::V2 => (mount(1, "unified", "cgroup2", ""), format!("0::{own}\n")),
        };
        let process = fake.process();
        fs::create_dir(&process).unwrap();
        fs::write(process.join("mountinfo"), mounts).unwrap();
        fs::write(process.join("cgroup"), groups).unwrap();
        fs::write(process.join("status"), "Cpus_allowed_list:\t0-1\n").unwrap();
        fake
    }

    fn process(&self) -> PathBuf {
        self.scratch.path().join("process")
    }

    fn root(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The hierarchy with quotas.
    fn quotas(&self) -> PathBuf {
        self.root(match self.kind {
            Kind::V1 | Kind::Hybrid => "cpu",
            Kind::V2 => "unified",
        })
    }

    /// Creates a group of 300m that has used CPU.
    fn group(&self, path: &str) {
        let write = |root: &str, name: &str, text: &str| {
            let directory = self.root(root).join(path);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(name), text).unwrap();
        };
        match self.kind {
            Kind::V1 | Kind::Hybrid => {
                write("cpu", "cpu.cfs_quota_us", "30000\n");
                write("cpu", "cpu.cfs_period_us", "100000\n");
                write("cpu", "cpu.stat", STAT_V1);
            }
            Kind::V2 => {
                write("unified", "cpu.max", "30000 100000\n");
                write("unified", "cpu.stat", STAT_V2);
            }
        }
        match self.kind {
            Kind::V1 => write("cpuacct", "cpuacct.usage", "7000000\n"),
            Kind::Hybrid => write("unified", "cpu.stat", "usage_usec 7000\n"),
            Kind::V2 => {}
        }
    }

    fn quota(&self, path: &str) -> Quota {
        let hierarchies = Hierarchies::find(&self.process()).unwrap();
        hierarchies.limit(Path::new(path)).unwrap().quota().unwrap()
    }

    fn options(&self, mode: Mode, cgroups: Vec<Declared>) -> Options {
        Options {
            node: "here".to_owned(),
            directory: self.root("market"),
            mode,
            settings: Settings {
                windows: 2,
                writes_per_hour: 1_000_000,
                conflict_us: 50_000,
                ..Settings::default()
            },
            interval: Duration::from_millis(4),
            reserve_milli: Some(0),
            unmanaged: Unmanaged::Given(0),
            cgroups,
            executions: None,
            process: self.process(),
        }
    }
}

fn declared(name: &str, place: Place) -> Declared {
    let params = Params {
        min_milli: 50,
        max_milli: 300,
        weight: 100,
    };
    Declared {
        name: name.to_owned(),
        place,
        params,
    }
}

fn at(name: &str) -> Declared {
    declared(name, Place::Path(format!("/{name}").into()))
}

fn held(view: &View, pod: &str) -> Option<Held> {
    let mut standings = view.standings.iter();
    standings.find(|one| one.id == pod).and_then(|one| one.held)
}

fn unmanaged(view: &View) -> Vec<String> {
    let named = view.unmanaged.iter();
    named
        .map(|(name, why)| format!("{name}: {}", why.word()))
        .collect()
}

/// Waits for `count` more clearings.
fn clearings(agent: &Agent, count: u64) {
    let before = agent.view().clearings;
    wait_for(agent, "it clears", |view| before + count <= view.clearings);
}

#[test]
fn every_kind_of_hierarchy_is_read_and_written() {
    for kind in [Kind::V1, Kind::Hybrid, Kind::V2] {
        let fake = Fake::new(kind, "/");
        fake.group("a");
        let agent = Agent::start(fake.options(Mode::Act, vec![at("a")])).unwrap();
        wait_for(&agent, "an idle pod comes down", |view| {
            limit(view, "a") < 70
        });
        assert!(fake.quota("a").milli_ceil() < Some(70), "{kind:?}");
        agent.stop().unwrap();
        assert_eq!(fake.quota("a"), Quota::of_milli(300, 100_000), "{kind:?}");
    }
}

#[test]
fn an_unreadable_group_is_held_and_does_not_affect_others() {
    let huge = "usage_usec 1\n".repeat(1_000);
    let bad: [&[u8]; 5] = [
        b"",
        b"no kernel writes this\n",
        b"usage_usec -5\nthrottled_usec 99999999999999999999999\n",
        b"\xff\xfe",
        huge.as_bytes(),
    ];
    let files = [
        (Kind::V1, "cpu", "cpu.stat"),
        (Kind::V1, "cpuacct", "cpuacct.usage"),
        (Kind::V1, "cpu", "cpu.cfs_quota_us"),
        (Kind::Hybrid, "unified", "cpu.stat"),
        (Kind::V2, "unified", "cpu.stat"),
        (Kind::V2, "unified", "cpu.max"),
    ];
    for (kind, root, name) in files {
        let fake = Fake::new(kind, "/");
        fake.group("a");
        fake.group("b");
        let agent = Agent::start(fake.options(Mode::Act, vec![at("a"), at("b")])).unwrap();
        let path = fake.root(root).join("a").join(name);
        for content in bad {
            wait_for(&agent, "both are well", |view| {
                held(view, "a").is_none() && limit(view, "a") < 70 && limit(view, "b") < 70
            });
            let good = fs::read(&path).unwrap();
            fs::write(&path, content).unwrap();
            wait_for(&agent, "one is held", |view| {
                held(view, "a") == Some(Held::Unreadable)
            });
            let last = agent.view();
            let limits = |view: &View| ["a", "b"].map(|pod| limit(view, pod));
            clearings(&agent, 5);
            let view = agent.view();
            assert_eq!(held(&view, "b"), None, "{kind:?} {name}");
            assert_eq!(limits(&view), limits(&last), "{kind:?} {name}");
            assert!(
                limits(&view).iter().all(|milli| *milli >= 50),
                "{limits:?}",
                limits = limits(&view)
            );
            assert_eq!(view.writes, last.writes, "{kind:?} {name}");
            assert_eq!(fs::read(&path).unwrap(), content, "{kind:?} {name}");
            fs::write(&path, good).unwrap();
        }
    }
}

#[test]
fn counters_that_go_back_or_wrap_start_over_without_demand() {
    let fake = Fake::new(Kind::V1, "/");
    fake.group("a");
    fake.group("b");
    let agent = Agent::start(fake.options(Mode::Act, vec![at("a"), at("b")])).unwrap();
    wait_for(&agent, "both come down", |view| {
        limit(view, "a") < 70 && limit(view, "b") < 70
    });
    let usage = fake.root("cpuacct").join("a/cpuacct.usage");
    for count in ["3", "18446744073709551615", "0", "12"] {
        // Replaced atomically, so that nothing is read in between.
        let new = usage.with_extension("new");
        fs::write(&new, count).unwrap();
        let bytes = fs::read(&new).unwrap();
        fs::write(&usage, bytes).unwrap();
        clearings(&agent, 8);
        let history = agent.view().history.clone();
        for pod in history.iter().rev().take(8).flat_map(|point| &point.pods) {
            assert!((50..70).contains(&pod.limit_milli), "{count}: {pod:?}");
        }
    }
}

#[test]
fn a_deleted_group_is_listed_and_the_others_go_on() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    fake.group("b");
    let agent = Agent::start(fake.options(Mode::Act, vec![at("a"), at("b")])).unwrap();
    wait_for(&agent, "both come down", |view| {
        limit(view, "a") < 70 && limit(view, "b") < 70
    });
    fs::remove_dir_all(fake.quotas().join("a")).unwrap();
    wait_for(&agent, "it is named", |view| {
        unmanaged(view) == ["a: missing"]
    });
    clearings(&agent, 3);
    assert!(limit(&agent.view(), "b") >= 50);
    assert_eq!(agent.stop().unwrap().failed, []);
}

/// Replaces a file by one that can be opened and refuses writes, until the returned descriptor is
/// closed.
fn seal(path: &Path) -> std::os::fd::OwnedFd {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let sealed = memfd_create("sealed", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::io::write(&sealed, &fs::read(path).unwrap()).unwrap();
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    fcntl_add_seals(&sealed, seals).unwrap();
    fs::remove_file(path).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&sealed);
    std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), path).unwrap();
    sealed
}

#[test]
fn a_refused_limit_holds_its_pod_only() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    fake.group("b");
    let _sealed = seal(&fake.quotas().join("a/cpu.max"));
    let agent = Agent::start(fake.options(Mode::Act, vec![at("a"), at("b")])).unwrap();
    wait_for(&agent, "one is held", |view| {
        held(view, "a") == Some(Held::Refused)
    });
    wait_for(&agent, "the other goes on", |view| limit(view, "b") < 70);
    let view = agent.view();
    assert_eq!((limit(&view, "a"), view.acts.clone()), (300, Acts::Yes));
}

#[test]
fn half_a_write_allows_at_most_the_larger_limit_and_counts_as_ours() {
    let quota = |quota_us, period_us| Quota {
        quota_us,
        period_us,
    };
    let (original, small) = (quota(Some(30_000), 100_000), quota(Some(5_000), 1_000_000));
    // Old and new limit, and the file that refuses the write.
    let cases = [
        (original, small, "cpu.cfs_quota_us"),
        (small, original, "cpu.cfs_period_us"),
        (small, quota(None, 100_000), "cpu.cfs_quota_us"),
    ];
    for (from, to, torn_at) in cases {
        let fake = Fake::new(Kind::V1, "/");
        fake.group("a");
        let hierarchies = Hierarchies::find(&fake.process()).unwrap();
        let files = hierarchies.limit(Path::new("a")).unwrap();
        files.set_quota(from).unwrap();
        let path = fake.quotas().join("a").join(torn_at);
        let good = fs::read(&path).unwrap();
        let sealed = seal(&path);
        files.set_quota(to).unwrap_err();
        let torn = files.quota().unwrap();
        assert!(torn != from && torn != to, "{torn:?}");
        let most = to.milli_ceil().map(|to| to.max(from.milli_ceil().unwrap()));
        assert!(
            most.is_none_or(|most| torn.milli_ceil().is_some_and(|torn| torn <= most)),
            "{torn:?}"
        );
        drop(sealed);
        fs::remove_file(&path).unwrap();
        fs::write(&path, good).unwrap();
        // The state after a kill between the two writes.
        let directory = fake.root("market");
        fs::create_dir(&directory).unwrap();
        let mut originals = Originals::open(&directory).unwrap();
        let place = (Path::new("a"), files.identity());
        originals.intend("a", place, original, (from, to));
        originals.store().unwrap();
        assert_eq!(originals.original("a", place.0, place.1, torn), original);
        let told = market::restore(&directory, &fake.process(), Deed::Real).unwrap();
        assert_eq!(told.restored, [("a".to_owned(), torn, original)]);
        assert_eq!(files.quota().unwrap(), original);
    }
}

/// Method: every state in which `kill -9` can leave the file and the kernel: some writes done, the
/// next one half done if it has two steps; then some limits restored before the restore is killed too,
/// without an update of the file.
#[test]
fn the_originals_are_restored_after_a_kill_at_every_step() {
    let quota = |quota_us, period_us| Quota {
        quota_us,
        period_us,
    };
    let pods = [
        (
            "a",
            quota(Some(30_000), 100_000),
            quota(Some(4_000), 1_000_000),
        ),
        ("b", quota(None, 100_000), quota(Some(21_000), 100_000)),
        (
            "c",
            quota(Some(20_000), 50_000),
            quota(Some(35_000), 50_000),
        ),
    ];
    for kind in [Kind::V1, Kind::V2] {
        for (written, put_back) in
            (0..=3).flat_map(|written| (0..=written).map(move |back| (written, back)))
        {
            let fake = Fake::new(kind, "/");
            let hierarchies = Hierarchies::find(&fake.process()).unwrap();
            let directory = fake.root("market");
            fs::create_dir(&directory).unwrap();
            let mut originals = Originals::open(&directory).unwrap();
            let files = pods.map(|(name, original, next)| {
                fake.group(name);
                let files = hierarchies.limit(Path::new(name)).unwrap();
                files.set_quota(original).unwrap();
                let place = (Path::new(name), files.identity());
                originals.intend(name, place, original, (original, next));
                files
            });
            originals.store().unwrap();
            let is = |at: usize| (*pods.get(at).unwrap(), files.get(at).unwrap());
            for at in 0..written {
                let ((_, _, next), files) = is(at);
                files.set_quota(next).unwrap();
            }
            if let (Kind::V1, true) = (kind, written < 3) {
                // The first of two steps of the next write.
                let ((name, original, next), _) = is(written);
                let (file, value) = if original.period_us < next.period_us {
                    ("cpu.cfs_period_us", next.period_us.to_string())
                } else {
                    ("cpu.cfs_quota_us", next.cfs_quota())
                };
                fs::write(fake.quotas().join(name).join(file), value).unwrap();
            }
            for at in 0..put_back {
                let ((_, original, _), files) = is(at);
                files.set_quota(original).unwrap();
            }
            let told = market::restore(&directory, &fake.process(), Deed::Real).unwrap();
            assert_eq!(told.failed, [], "{kind:?} {written} {put_back}");
            for at in 0..3 {
                let ((name, original, _), files) = is(at);
                let what = format!("{name} on {kind:?} after {written} writes and {put_back} back");
                assert_eq!(files.quota().unwrap(), original, "{what}");
            }
            // A second restore has nothing to do.
            let told = market::restore(&directory, &fake.process(), Deed::Real).unwrap();
            assert_eq!(told, market::Restored::default());
        }
    }
}

#[test]
fn originals_do_not_apply_to_another_group_or_after_a_reboot() {
    let fake = Fake::new(Kind::V1, "/");
    fake.group("a");
    let hierarchies = Hierarchies::find(&fake.process()).unwrap();
    let files = hierarchies.limit(Path::new("a")).unwrap();
    let directory = fake.root("market");
    fs::create_dir(&directory).unwrap();
    let (ours, original) = (files.quota().unwrap(), Quota::NONE);
    let keep = |identity| {
        let mut originals = Originals::open(&directory).unwrap();
        let place = (Path::new("a"), identity);
        originals.intend("a", place, original, (original, ours));
        originals.store().unwrap();
    };
    let restore = || {
        let told = market::restore(&directory, &fake.process(), Deed::Real);
        told.unwrap().restored.len()
    };
    keep(files.identity() + 1);
    assert_eq!((restore(), files.quota().unwrap()), (0, ours));
    keep(files.identity());
    let stored = directory.join("originals.json");
    let text = fs::read_to_string(&stored).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    fs::write(&stored, text.replace(boot.trim(), "another")).unwrap();
    assert_eq!((restore(), files.quota().unwrap()), (0, ours));
    fs::write(&stored, text).unwrap();
    assert_eq!((restore(), files.quota().unwrap()), (1, original));
}

/// Leaves 300m as the original of a pod whose group has 77m, like a killed agent.
fn leave_behind(fake: &Fake, pod: &str, group: &str) {
    let hierarchies = Hierarchies::find(&fake.process()).unwrap();
    let files = hierarchies.limit(Path::new(group)).unwrap();
    let (original, ours) = (Quota::of_milli(300, 100_000), Quota::of_milli(77, 100_000));
    let directory = fake.root("market");
    fs::create_dir_all(&directory).unwrap();
    let mut originals = Originals::open_in(&directory, &hierarchies).unwrap();
    let place = (Path::new(group), files.identity());
    originals.intend(pod, place, original, (original, ours));
    originals.store().unwrap();
    files.set_quota(ours).unwrap();
}

#[test]
fn a_name_waits_until_the_earlier_group_is_restored() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("old");
    fake.group("new");
    leave_behind(&fake, "a", "old");
    let path = fake.quotas().join("old/cpu.max");
    let sealed = seal(&path);
    let options = fake.options(Mode::Act, vec![declared("a", Place::Path("/new".into()))]);
    let agent = Agent::start(options).unwrap();
    clearings(&agent, 5);
    assert_eq!(unmanaged(&agent.view()), ["a: owed"]);
    assert_eq!(fake.quota("new").milli_ceil(), Some(300));
    drop(sealed);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "7700 100000\n").unwrap();
    wait_for(&agent, "it is managed", |view| {
        (1..70).contains(&limit(view, "a"))
    });
    assert_eq!(fake.quota("old").milli_ceil(), Some(300));
    agent.stop().unwrap();
    assert_eq!(fake.quota("new").milli_ceil(), Some(300));
}

#[test]
fn a_group_left_under_another_name_is_restored_before_its_adoption() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    leave_behind(&fake, "before", "a");
    let agent = Agent::start(fake.options(Mode::Act, vec![at("a")])).unwrap();
    wait_for(&agent, "it comes down", |view| {
        assert_eq!(held(view, "a"), None);
        limit(view, "a") < 70
    });
    let original = agent.view().standings.first().unwrap().original;
    assert_eq!(original.milli_ceil(), Some(300));
    agent.stop().unwrap();
    assert_eq!(fake.quota("a").milli_ceil(), Some(300));
}

#[test]
fn a_renamed_group_is_restored() {
    let fake = Fake::new(Kind::V1, "/");
    fake.group("in/a");
    let a = declared("a", Place::Path("/in/a".into()));
    let agent = Agent::start(fake.options(Mode::Act, vec![a])).unwrap();
    wait_for(&agent, "it comes down", |view| limit(view, "a") < 70);
    let place = fake.quotas().join("in");
    fs::rename(place.join("a"), place.join("b")).unwrap();
    // Another group of the old name is a different one.
    fake.group("in/a");
    // A plain file is empty for a moment during a write.
    let hierarchies = Hierarchies::find(&fake.process()).unwrap();
    let files = hierarchies.limit(Path::new("in/b")).unwrap();
    wait_for(&agent, "it is put back", |_| {
        let quota = files.quota();
        quota.is_ok_and(|quota| quota.milli_ceil() == Some(300))
    });
    assert_eq!(agent.stop().unwrap().failed, []);
    assert_eq!(fake.quota("in/a").milli_ceil(), Some(300));
}

#[test]
fn in_another_hierarchy_nothing_is_restored_and_nothing_forgotten() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    leave_behind(&fake, "a", "a");
    let stored = fake.root("market").join("originals.json");
    let text = fs::read_to_string(&stored).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let root = json.get_mut("root").unwrap();
    let number = root.get_mut("number").unwrap();
    *number = serde_json::json!(number.as_u64().unwrap() + 1);
    let elsewhere = serde_json::to_string(&json).unwrap();
    fs::write(&stored, &elsewhere).unwrap();
    // It looks like a group that is gone.
    fs::rename(fake.quotas().join("a"), fake.quotas().join("b")).unwrap();
    let restore = || market::restore(&fake.root("market"), &fake.process(), Deed::Real);
    let error = restore().unwrap_err();
    assert!(matches!(error, Error::Elsewhere(_)), "{error}");
    assert!(error.to_string().contains("where the agent ran"), "{error}");
    let started = Agent::start(fake.options(Mode::Act, vec![at("a")]));
    assert!(matches!(started, Err(Error::Elsewhere(_))));
    assert_eq!(fs::read_to_string(&stored).unwrap(), elsewhere);
    // Without a stored root nothing is compared.
    fs::rename(fake.quotas().join("b"), fake.quotas().join("a")).unwrap();
    json.as_object_mut().unwrap().remove("root").unwrap();
    fs::write(&stored, json.to_string()).unwrap();
    assert_eq!(restore().unwrap().restored.len(), 1);
    assert_eq!(fake.quota("a").milli_ceil(), Some(300));
}

#[test]
fn unreadable_machine_counters_are_reported_until_they_are_readable() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    let mut options = fake.options(Mode::Act, vec![at("a")]);
    options.unmanaged = Unmanaged::Measured;
    let agent = Agent::start(options).unwrap();
    let says_so = |view: &View| {
        let error = view.error.as_deref();
        error.is_some_and(|error| error.contains("the CPU use of the whole machine"))
    };
    wait_for(&agent, "it says so", says_so);
    let path = fake.quotas().join("cpu.stat");
    fs::write(&path, STAT_V2).unwrap();
    wait_for(&agent, "it is read", |view| view.error.is_none());
    fs::write(&path, "garbage").unwrap();
    wait_for(&agent, "it says so again", says_so);
}

/// Method: the agent is blocked in its list of executions.
#[test]
fn a_second_stop_returns_after_everything_is_restored() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    let (has_begun, begun) = sync_channel(1_000);
    let (may_go_on, gate) = sync_channel::<()>(0);
    let (gate, waits) = (Mutex::new(gate), Arc::new(AtomicBool::new(false)));
    let mut options = fake.options(Mode::Act, vec![at("a")]);
    let is_to_wait = Arc::clone(&waits);
    options.executions = Some(Executions {
        ledger: "l".to_owned(),
        list: Arc::new(move || {
            if is_to_wait.load(Ordering::Relaxed) {
                has_begun.send(()).unwrap();
                let _may_go_on = gate.lock().unwrap().recv();
            }
            Vec::new()
        }),
    });
    let agent = Agent::start(options).unwrap();
    wait_for(&agent, "it comes down", |view| limit(view, "a") < 70);
    waits.store(true, Ordering::Relaxed);
    begun.recv().unwrap();
    let (has_ended, ended) = sync_channel(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                agent.stop().unwrap();
                has_ended.send(fake.quota("a").milli_ceil()).unwrap();
            });
        }
        let early = ended.recv_timeout(Duration::from_millis(100));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        drop(may_go_on);
        assert_eq!(ended.recv().unwrap(), Some(300));
        assert_eq!(ended.recv().unwrap(), Some(300));
    });
}

#[test]
fn an_agent_that_panicked_is_restored_when_it_is_stopped() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    let is_broken = Arc::new(AtomicBool::new(false));
    let (breaks_down, broke_down) = sync_channel(1);
    let mut options = fake.options(Mode::Act, vec![at("a")]);
    let breaks = Arc::clone(&is_broken);
    options.executions = Some(Executions {
        ledger: "l".to_owned(),
        list: Arc::new(move || {
            if breaks.load(Ordering::Relaxed) {
                breaks_down.send(()).unwrap();
                // A panic without output.
                std::panic::resume_unwind(Box::new("as told"));
            }
            Vec::new()
        }),
    });
    let agent = Agent::start(options).unwrap();
    wait_for(&agent, "it comes down", |view| limit(view, "a") < 70);
    is_broken.store(true, Ordering::Relaxed);
    broke_down.recv().unwrap();
    let told = agent.restore(Deed::Real).unwrap();
    assert_eq!(told.restored.len(), 1, "{told:?}");
    assert_eq!(fake.quota("a").milli_ceil(), Some(300));
    assert_eq!(agent.stop().unwrap(), market::Restored::default());
}

#[test]
fn a_missing_quota_file_is_not_created() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    fake.group("b");
    let agent = Agent::start(fake.options(Mode::Act, vec![at("a"), at("b")])).unwrap();
    wait_for(&agent, "it is written to", |view| limit(view, "a") < 300);
    let path = fake.quotas().join("a/cpu.max");
    fs::remove_file(&path).unwrap();
    // Unreadable, or refused if it vanished between read and write.
    wait_for(&agent, "one is held", |view| held(view, "a").is_some());
    wait_for(&agent, "the other goes on", |view| limit(view, "b") < 70);
    let told = agent.stop().unwrap();
    assert!(!path.exists());
    // The failed restore is reported with its name.
    let failed: Vec<&str> = told.failed.iter().map(|(pod, _)| pod.as_str()).collect();
    assert_eq!(failed, ["a"]);
}

#[test]
fn units_are_found_in_any_slice() {
    let fake = Fake::new(Kind::V2, "/system.slice/bursar.service");
    fake.group("system.slice/web.service");
    fake.group("user.slice/user-1000.slice/session-2.scope");
    // Units of a user's own manager are not those of the system.
    fake.group("user.slice/user-1000.slice/user@1000.service/app.slice/absent.service");
    let cgroups = ["web.service", "session-2.scope", "absent.service"]
        .map(|unit| declared(unit, Place::Unit(unit.to_owned())));
    let agent = Agent::start(fake.options(Mode::Act, cgroups.into())).unwrap();
    wait_for(&agent, "both come down", |view| {
        limit(view, "web.service") < 70 && limit(view, "session-2.scope") < 70
    });
    assert_eq!(unmanaged(&agent.view()), ["absent.service: missing"]);
}

#[test]
fn the_root_our_own_group_and_nested_groups_are_not_managed() {
    let fake = Fake::new(Kind::V2, "/system.slice/bursar.service");
    fake.group("system.slice/bursar.service");
    fake.group("outer/inner");
    fake.group("outer");
    fake.group("same");
    let path = |name: &str, path: &str| declared(name, Place::Path(path.into()));
    let cgroups = vec![
        path("root", "/"),
        path("dot", "/."),
        path("above", "/system.slice"),
        path("ourselves", "system.slice/bursar.service/"),
        path("up", "/same/../system.slice"),
        path("outer", "/outer"),
        path("inner", "/outer/inner"),
        path("same", "/same"),
        path("twin", "/same"),
    ];
    let agent = Agent::start(fake.options(Mode::Act, cgroups)).unwrap();
    assert_eq!(
        unmanaged(&agent.view()),
        [
            "root: root",
            "dot: root",
            "above: own",
            "ourselves: own",
            "up: not-a-path",
            "inner: nested",
            "twin: nested"
        ]
    );
    wait_for(&agent, "the others come down", |view| {
        limit(view, "outer") < 70 && limit(view, "same") < 70
    });
    assert_eq!(fake.quota("outer/inner").milli_ceil(), Some(300));
    assert_eq!(
        fake.quota("system.slice/bursar.service").milli_ceil(),
        Some(300)
    );
}

#[test]
fn offline_processors_are_not_shared_and_an_invalid_list_changes_nothing() {
    let fake = Fake::new(Kind::V2, "/us");
    let status = fake.process().join("status");
    let mut options = fake.options(Mode::Observe, Vec::new());
    options.reserve_milli = Some(100);
    let agent = Agent::start(options).unwrap();
    let shared = |milli| {
        let is_so = |view: &View| {
            let clearing = view.clearing.as_ref();
            clearing.is_some_and(|clearing| clearing.allocatable_milli == milli)
        };
        wait_for(&agent, "so much is shared", is_so);
    };
    fs::write(&status, "Cpus_allowed_list:\t0\n").unwrap();
    shared(900);
    fs::write(&status, "garbage").unwrap();
    clearings(&agent, 2);
    shared(900);
}

#[test]
fn one_name_for_two_cgroups_is_refused() {
    let fake = Fake::new(Kind::V2, "/");
    let started = Agent::start(fake.options(Mode::Act, vec![at("a"), at("b"), at("a")]));
    assert!(matches!(started, Err(Error::Twice(name)) if name == "a"));
}

#[test]
fn executions_are_managed_between_their_charge_and_their_limit() {
    let fake = Fake::new(Kind::V1, "/box");
    // Beside our own group, where the executor creates them.
    fake.group("box/bursar-l/e-x1");
    fake.group("box/bursar-l/e-plain");
    let quota = fake.quotas().join("box/bursar-l/e-plain/cpu.cfs_quota_us");
    fs::write(quota, "-1\n").unwrap();
    let execution = |id: &str, cpu_milli, limit_milli| Execution {
        id: id.to_owned(),
        cpu_milli,
        limit_milli,
    };
    let running = vec![
        execution("x1", 80, Some(300)),
        execution("plain", 0, Some(200)),
        execution("free", 0, None),
        execution("starting", 100, Some(200)),
    ];
    let running = Arc::new(Mutex::new(running));
    let list = Arc::clone(&running);
    let mut options = fake.options(Mode::Act, Vec::new());
    options.executions = Some(Executions {
        ledger: "l".to_owned(),
        list: Arc::new(move || list.lock().unwrap().clone()),
    });
    let agent = Agent::start(options).unwrap();
    wait_for(&agent, "it comes down to its charge", |view| {
        limit(view, "e-x1") < 100
    });
    let view = agent.view();
    let names: Vec<&str> = view.standings.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(names, ["e-x1"]);
    let params = view.standings.first().unwrap().bidder.params;
    assert_eq!((params.min_milli, params.max_milli), (80, 300));
    assert_eq!(
        unmanaged(&view),
        [
            "e-free: no-quota",
            "e-starting: no-quota",
            "e-plain: no-quota"
        ]
    );
    running.lock().unwrap().clear();
    wait_for(&agent, "those that ended are forgotten", |view| {
        view.standings.is_empty() && view.unmanaged.is_empty()
    });
    assert_eq!(fake.quota("box/bursar-l/e-x1").milli_ceil(), Some(300));
}

#[test]
fn observing_shows_what_has_used_cpu_and_changes_nothing() {
    let fake = Fake::new(Kind::V1, "/");
    fake.group("a");
    fake.group("deep/er");
    fake.group("deep/er/than/two");
    fake.group("idle");
    let usage = fake.root("cpuacct").join("idle/cpuacct.usage");
    fs::write(usage, "0\n").unwrap();
    // A group without a quota.
    fs::create_dir(fake.root("cpuacct").join("counts")).unwrap();
    let usage = fake.root("cpuacct").join("counts/cpuacct.usage");
    fs::write(usage, "5000000\n").unwrap();
    let agent = Agent::start(fake.options(Mode::Observe, vec![at("a")])).unwrap();
    wait_for(&agent, "need is known", |view| {
        let clearing = view.clearing.as_ref();
        let mut shares = clearing.into_iter().flat_map(|all| &all.cleared.shares);
        shares.any(|share| share.need_milli < 100)
    });
    let view = agent.view();
    assert_eq!(view.acts, Acts::Told);
    let seen = view.observed.iter();
    let seen: Vec<_> = seen
        .map(|one| (one.group.to_str().unwrap(), one.quota))
        .collect();
    let quota = Some(Quota::of_milli(300, 100_000));
    assert_eq!(seen, [("counts", None), ("deep/er", quota)]);
    assert_eq!((view.writes, limit(&view, "a")), (0, 300));
    assert_eq!(fake.quota("a").milli_ceil(), Some(300));
    assert!(!fake.root("market").join("originals.json").exists());
}

#[test]
fn invalid_originals_are_refused() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    fs::create_dir(fake.root("market")).unwrap();
    fs::write(fake.root("market").join("originals.json"), "{").unwrap();
    let started = Agent::start(fake.options(Mode::Act, vec![at("a")]));
    let error = started.unwrap_err().to_string();
    assert!(error.contains("restore the limits by hand"), "{error}");
}

/// Method: an old segment cannot be removed, so no segment can be begun, until it can.
#[test]
fn events_of_an_unwritable_record_are_in_its_next_line() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    let directory = fake.root("market");
    let old = directory.join("record-0000000000000001.jsonl");
    fs::create_dir_all(&old).unwrap();
    let opened = fs::File::open(&old).unwrap();
    opened.set_modified(std::time::UNIX_EPOCH).unwrap();
    // Not the last one, which is read on opening.
    fs::write(directory.join("record-0000000000000002.jsonl"), "").unwrap();
    let agent = Agent::start(fake.options(Mode::Act, vec![at("a")])).unwrap();
    wait_for(&agent, "it says so, and goes on", |view| {
        let error = view.error.as_deref();
        error.is_some_and(|error| error.contains("record-0000000000000001"))
            && limit(view, "a") < 70
    });
    assert_eq!(agent.view().position, None);
    fs::remove_dir(&old).unwrap();
    agent.stop().unwrap();
    let (mut taken, mut wrote) = (0, 0);
    let mut count = |event: &Event| match event {
        Event::Taken { .. } => taken += 1,
        Event::Wrote { .. } => wrote += 1,
        _ => {}
    };
    let mut see = |past: record::Past| past.replayed.unwrap().events.iter().for_each(&mut count);
    record::read(&directory, &mut see).unwrap();
    assert_eq!((taken, wrote), (1, agent.view().writes));
}

#[test]
fn nothing_is_written_unless_its_original_is_stored() {
    let fake = Fake::new(Kind::V2, "/");
    fake.group("a");
    // The name of the temporary file is taken.
    fs::create_dir_all(fake.root("market").join("originals.json.new")).unwrap();
    let agent = Agent::start(fake.options(Mode::Act, vec![at("a")])).unwrap();
    wait_for(&agent, "it says so", |view| {
        let error = view.error.as_deref();
        error.is_some_and(|error| error.contains("originals.json.new"))
    });
    clearings(&agent, 5);
    assert_eq!(fake.quota("a").milli_ceil(), Some(300));
    assert_eq!(agent.view().writes, 0);
}
