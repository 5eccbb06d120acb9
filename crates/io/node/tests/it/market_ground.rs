//! Real cgroups with CPU burners for tests of the market; removed when the test ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bursar_market::cgroup::Quota;
use bursar_market::node::Settings;
use bursar_market::params::Params;
use bursar_node::cgroup::{Version, layout};
use bursar_node::market::hierarchy::Hierarchies;
use bursar_node::market::{Agent, Declared, Mode, Options, Place, Unmanaged, View};
use tempfile::TempDir;
use tokio::runtime::Builder;

/// Time after which a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(40);
/// Interval of reading the sum of limits.
const SAMPLE: Duration = Duration::from_millis(20);
/// The largest weight of either version, so that builds of others do not slow the burners.
const SHARES_MAX: &str = "262144";
const WEIGHT_MAX: &str = "10000";

/// A directory of cgroups for one test.
pub(crate) struct Ground {
    name: PathBuf,
    /// The hierarchies with quotas and counters.
    roots: Vec<PathBuf>,
    pub(crate) hierarchies: Hierarchies,
    pub(crate) scratch: TempDir,
    burners: Vec<(PathBuf, Child)>,
}

impl Ground {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bursar-market-{}-{count}", std::process::id());
        let version = version();
        let ground = Self {
            name: name.into(),
            roots: roots(version),
            hierarchies: Hierarchies::find(Path::new("/proc/self")).unwrap(),
            scratch: tempfile::tempdir().unwrap(),
            burners: Vec::new(),
        };
        let needs = "these tests need root and cgroups that can be written";
        for root in &ground.roots {
            let directory = root.join(&ground.name);
            fs::create_dir(&directory).expect(needs);
            match version {
                Version::V1 if directory.join("cpu.shares").exists() => {
                    fs::write(directory.join("cpu.shares"), SHARES_MAX).expect(needs);
                }
                Version::V1 => {}
                Version::V2 => {
                    fs::write(root.join("cgroup.subtree_control"), "+cpu").expect(needs);
                    fs::write(directory.join("cgroup.subtree_control"), "+cpu").expect(needs);
                    fs::write(directory.join("cpu.weight"), WEIGHT_MAX).expect(needs);
                }
            }
        }
        ground
    }

    /// The path of a group from the root of its hierarchy.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.name.join(name)
    }

    /// Creates a group, with or without a quota in millicores.
    pub(crate) fn group(&self, name: &str, milli: Option<u64>) {
        for root in &self.roots {
            fs::create_dir(root.join(self.path(name))).unwrap();
        }
        if let Some(milli) = milli {
            self.set_quota(name, Quota::of_milli(milli, 100_000));
        }
    }

    pub(crate) fn quota(&self, name: &str) -> Quota {
        let files = self.hierarchies.limit(&self.path(name)).unwrap();
        files.quota().unwrap()
    }

    pub(crate) fn set_quota(&self, name: &str, quota: Quota) {
        let files = self.hierarchies.limit(&self.path(name)).unwrap();
        files.set_quota(quota).unwrap();
    }

    /// Starts a program that uses all available CPU.
    pub(crate) fn burn(&mut self, name: &str) {
        let child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let path = self.path(name);
        for root in &self.roots {
            let entrance = root.join(&path).join("cgroup.procs");
            fs::write(entrance, child.id().to_string()).unwrap();
        }
        self.burners.push((path, child));
    }

    /// Ends the programs of a group.
    pub(crate) fn rest(&mut self, name: &str) {
        let path = self.path(name);
        let here = self.burners.extract_if(.., |(group, _)| *group == path);
        for (_, mut child) in here {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Removes a group with its processes.
    pub(crate) fn remove(&mut self, name: &str) {
        self.rest(name);
        for root in &self.roots {
            let group = root.join(self.path(name));
            remove(&group);
            assert!(!group.exists(), "{}", group.display());
        }
    }

    /// The declaration of a group.
    pub(crate) fn declared(&self, name: &str, min_milli: u64, max_milli: u64) -> Declared {
        Declared {
            name: name.to_owned(),
            place: Place::Path(Path::new("/").join(self.path(name))),
            params: Params {
                min_milli,
                max_milli,
                weight: 100,
            },
        }
    }

    /// Options of an agent with short intervals and this capacity.
    pub(crate) fn options(&self, capacity_milli: u64, cgroups: Vec<Declared>) -> Options {
        let online_milli = bursar_node::market::machine::online_milli(Path::new("/proc/self"));
        Options {
            node: "here".to_owned(),
            directory: self.scratch.path().join("market"),
            mode: Mode::Act,
            settings: quick(),
            interval: Duration::from_millis(250),
            reserve_milli: Some(online_milli.unwrap() - capacity_milli),
            unmanaged: Unmanaged::Given(0),
            cgroups,
            executions: None,
            process: "/proc/self".into(),
        }
    }

    /// Watches the sum of the limits of these groups, from when it is first within capacity;
    /// `max_milli` is the limit of a group without a quota.
    pub(crate) fn watch(&self, capacity_milli: u64, names: &[(&str, u64)]) -> Watch {
        let paths = names
            .iter()
            .map(|(name, max_milli)| (self.path(name), *max_milli));
        let (paths, hierarchies): (Vec<_>, _) = (paths.collect(), self.hierarchies.clone());
        let (end, is_over) = sync_channel::<()>(0);
        let watcher = std::thread::spawn(move || {
            let mut most = 0;
            let mut looks = 0_u64;
            while is_over.recv_timeout(SAMPLE) == Err(RecvTimeoutError::Timeout) {
                let sum = sum_milli(&hierarchies, &paths);
                if most > 0 || sum <= capacity_milli {
                    most = most.max(sum);
                    looks += 1;
                }
            }
            (most, looks)
        });
        Watch { end, watcher }
    }
}

/// A thread that reads limits all the time and ends with the test.
pub(crate) struct Watch {
    end: SyncSender<()>,
    watcher: JoinHandle<(u64, u64)>,
}

impl Watch {
    /// The largest sum that it has read.
    pub(crate) fn most(self) -> u64 {
        drop(self.end);
        let (most, looks) = self.watcher.join().unwrap();
        assert!(looks > 1, "it has looked {looks} times");
        most
    }
}

/// The sum of the limits of these groups at one moment.
fn sum_milli(hierarchies: &Hierarchies, paths: &[(PathBuf, u64)]) -> u64 {
    // Two files cannot be read at once: two equal readings hold for the time in between.
    let read = || {
        let milli = |(path, max_milli): &(PathBuf, u64)| {
            let files = hierarchies.limit(path);
            let quota = files.and_then(|files| files.quota());
            // A missing group has no limit.
            quota.map_or(0, |quota| quota.milli_ceil().unwrap_or(*max_milli))
        };
        paths.iter().map(milli).collect::<Vec<u64>>()
    };
    loop {
        let (first, second) = (read(), read());
        if first == second {
            return first.iter().sum();
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for (_, child) in &mut self.burners {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
        for root in &self.roots {
            let directory = root.join(&self.name);
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if entry.path().is_dir() {
                    remove(&entry.path());
                }
            }
            remove(&directory);
        }
    }
}

/// A memory of a second and a half at short intervals, and a budget that does not matter.
pub(crate) fn quick() -> Settings {
    Settings {
        windows: 6,
        writes_per_hour: 100_000,
        conflict_us: 1_000_000,
        ..Settings::default()
    }
}

/// Waits for a view of an agent that meets a condition. Blocks, on a thread with its own runtime,
/// because the test may have one too.
pub(crate) fn wait_for(agent: &Agent, what: &str, is_so: impl Fn(&View) -> bool + Sync) {
    let mut views = agent.views();
    let wait = || {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let seen = views.wait_for(|view| is_so(view));
            tokio::time::timeout(PATIENCE, seen).await.is_ok()
        })
    };
    let is_seen = std::thread::scope(|scope| scope.spawn(wait).join().unwrap());
    let view = agent.view();
    assert!(
        is_seen,
        "it takes too long until {what}: {:?} {:#?} {:#?}",
        view.acts, view.clearing, view.standings
    );
}

/// The limit of a pod in a view.
pub(crate) fn limit(view: &View, pod: &str) -> u64 {
    let mut standings = view.standings.iter();
    let standing = standings.find(|standing| standing.id == pod);
    standing.map_or(0, |standing| standing.bidder.limit_milli)
}

/// Need and share of a pod in the last clearing.
pub(crate) fn share(view: &View, pod: &str) -> Option<(u64, u64)> {
    let clearing = view.clearing.as_ref()?;
    let mut shares = clearing.cleared.shares.iter();
    let share = shares.find(|share| *share.id == *pod)?;
    Some((share.need_milli, share.allocated_milli))
}

/// Removes a group whose processes are dead; the kernel may need a moment for them.
fn remove(group: &Path) {
    let began = Instant::now();
    while fs::remove_dir(group).is_err() && group.exists() && began.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
}

/// The cgroup version that limits CPU here.
fn version() -> Version {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap();
    let (mounts, memberships) = (layout::mounts(&mounts), layout::memberships(&memberships));
    match layout::legacy(&mounts, &memberships, "cpu") {
        Some(_) => Version::V1,
        None => Version::V2,
    }
}

fn roots(version: Version) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = layout::mounts(&mounts);
    let is_needed = |mount: &&layout::Mount| match version {
        Version::V1 => mount
            .controllers
            .iter()
            .any(|word| word == "cpu" || word == "cpuacct"),
        Version::V2 => mount.version == Version::V2,
    };
    let needed = mounts.iter().filter(is_needed);
    needed.map(|mount| mount.point.clone()).collect()
}
