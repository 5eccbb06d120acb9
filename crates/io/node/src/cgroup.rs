//! Cgroups, which count, limit and end the processes of an execution.
//!
//! [`layout`] parses which hierarchies the machine has. [`find`] chooses the hierarchy of each
//! controller, version 1 or 2 (a machine may have both), and a directory `bursar-<ledger>` in each
//! that can be written; [`plan`] computes the groups of an execution and their settings; [`Group`] is
//! the created groups. Our processes are exactly those below `bursar-<ledger>`: a process is
//! signalled only while the kernel lists it there (X3).
//! Deliberately absent: any decision about the size of a limit.

pub mod group;
pub mod layout;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bursar_booking::execution::Isolation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use group::Group;

/// The group that a server moves itself to, because version 2 allows processes in leaves only. A
/// systemd unit may name it as its own, so that a restart finds the same group.
pub const SERVER: &str = "bursar-server";

/// Version of the cgroup interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// A controller of a hierarchy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Controller {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Processes and threads.
    Pids,
    /// Freezing of a whole group, in version 1.
    Freezer,
}

impl Controller {
    /// The name that the kernel uses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Freezer => "freezer",
        }
    }
}

/// A hierarchy in which this ledger has a directory of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tree {
    /// Its interface.
    pub version: Version,
    /// The directory `bursar-<ledger>`.
    pub base: PathBuf,
    /// The usable controllers.
    pub controllers: Vec<Controller>,
}

/// Limits of an execution.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    /// Millicores.
    pub cpu_milli: Option<u64>,
    /// Bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

/// The complete set of groups and settings of an execution.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The directories; the first one shows whether any process is left.
    pub directories: Vec<Directory>,
    /// The settings, in the order of their writes.
    pub settings: Vec<Setting>,
    /// Whether the processes are tracked and every limit is enforced.
    pub is_whole: bool,
}

/// A directory of an execution.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Directory {
    /// Its interface.
    pub version: Version,
    /// The path; its parent is `bursar-<ledger>`.
    pub path: PathBuf,
    /// The controllers that its parent must enable.
    pub controllers: String,
}

/// A value for a file of the kernel.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The file.
    pub file: PathBuf,
    /// The value.
    pub value: String,
    /// The accepted errors.
    pub unless: Unless,
}

/// Accepted errors of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unless {
    /// None.
    Never,
    /// The file is missing: a kernel without swap accounting.
    Absent,
    /// A parent has a tighter limit (version 1 refuses a limit above that of the parent).
    Tighter,
}

impl Setting {
    /// Whether it limits memory.
    pub fn is_about_memory(&self) -> bool {
        let name = self.file.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("memory."))
    }
}

impl Plan {
    /// The isolation under this plan. With a limit that cannot be enforced it is the weaker one,
    /// although all available controllers are used.
    pub fn isolation(&self) -> Isolation {
        if self.is_whole {
            Isolation::Cgroup
        } else {
            Isolation::None
        }
    }
}

/// Finds the hierarchies in which a ledger can have groups. Each is tested by creating and removing
/// the ledger's directory; without any writable hierarchy nothing is delegated to us.
/// `process` is the directory of our own process in `/proc`.
pub fn find(process: &Path, ledger: &str) -> Vec<Tree> {
    let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
    let mounts = layout::mounts(&read("mountinfo"));
    let memberships = layout::memberships(&read("cgroup"));
    let (mut trees, mut places) = (Vec::new(), Vec::new());
    if let Some((mount, own)) = layout::unified(&mounts, &memberships) {
        let own = layout::directory(mount, own);
        let bases = [delegated(&own), mount.point.clone()].map(|root| base(&root, ledger));
        trees.extend(find_v2(&bases, &own));
        places.extend(bases);
    }
    let is_tracked = !trees.is_empty();
    let limits = [Controller::Cpu, Controller::Memory, Controller::Pids];
    // The freezer serves only killing, which version 2 does by itself.
    let freezer = (!is_tracked).then_some(Controller::Freezer);
    for controller in freezer.into_iter().chain(limits) {
        if let Some((mount, own)) = layout::legacy(&mounts, &memberships, controller.word()) {
            let roots = [layout::directory(mount, own), mount.point.clone()];
            let bases = roots.map(|root| base(&root, ledger));
            add_v1(&mut trees, controller, &bases);
            places.extend(bases);
        }
    }
    // Also those that are not chosen: an earlier server may have used them and been killed.
    leave(places.iter().map(PathBuf::as_path));
    trees
}

/// Plans the groups of an execution. A hierarchy is used only if a limit needs it, because moving a
/// process takes time in each; the first one is enough for tracking.
pub fn plan(trees: &[Tree], name: &str, limits: Limits) -> Plan {
    let Some(first) = trees.first() else {
        return Plan::default();
    };
    let mut plan = Plan {
        directories: vec![first.directory(name)],
        settings: Vec::new(),
        is_whole: true,
    };
    let wanted = [
        limits.memory_bytes.map(|bytes| (Controller::Memory, bytes)),
        limits
            .pids
            .map(|pids| (Controller::Pids, u64::from(pids.max(1)))),
        limits.cpu_milli.map(|milli| (Controller::Cpu, milli)),
    ];
    for (controller, amount) in wanted.into_iter().flatten() {
        let carries = |tree: &&Tree| tree.controllers.contains(&controller);
        let Some(tree) = trees.iter().find(carries) else {
            plan.is_whole = false;
            continue;
        };
        let directory = tree.directory(name);
        let settings = settings(tree.version, controller, amount, &directory.path);
        plan.settings.extend(settings);
        if !plan.directories.contains(&directory) {
            plan.directories.push(directory);
        }
    }
    plan
}

/// Removes the empty directories of a ledger; they are created again when needed.
pub fn leave<'a>(bases: impl IntoIterator<Item = &'a Path>) {
    for base in bases {
        let _ = fs::remove_dir(base);
    }
}

/// Enables controllers for the children of a directory.
fn pass_on(directory: &Path, controllers: &str) -> io::Result<()> {
    let file = directory.join("cgroup.subtree_control");
    let passed = fs::read_to_string(&file).unwrap_or_default();
    let is_passed = |word: &str| {
        let mut passed = passed.split_whitespace();
        passed.any(|passed| Some(passed) == word.strip_prefix('+'))
    };
    // Writing an unchanged value would wait for every group that is being removed.
    if controllers.split_whitespace().all(is_passed) {
        return Ok(());
    }
    fs::write(file, controllers)
}

impl Tree {
    fn directory(&self, name: &str) -> Directory {
        let controllers = match self.version {
            Version::V1 => String::new(),
            Version::V2 => enabling(&self.controllers),
        };
        Directory {
            version: self.version,
            path: self.base.join(name),
            controllers,
        }
    }
}

/// The kernel's default period, and its smallest quota.
const CPU_PERIOD_US: u64 = 100_000;
const CPU_QUOTA_US_MIN: u64 = 1_000;

fn settings(version: Version, controller: Controller, amount: u64, group: &Path) -> Vec<Setting> {
    let set = |name: &str, value: String, unless: Unless| Setting {
        file: group.join(name),
        value,
        unless,
    };
    let quota_us = amount
        .saturating_mul(CPU_PERIOD_US / 1_000)
        .max(CPU_QUOTA_US_MIN);
    match (version, controller) {
        (_, Controller::Freezer) => Vec::new(),
        (_, Controller::Pids) => vec![set("pids.max", amount.to_string(), Unless::Never)],
        (Version::V2, Controller::Memory) => vec![
            set("memory.max", amount.to_string(), Unless::Never),
            set("memory.swap.max", "0".to_owned(), Unless::Absent),
        ],
        (Version::V2, Controller::Cpu) => vec![set(
            "cpu.max",
            format!("{quota_us} {CPU_PERIOD_US}"),
            Unless::Never,
        )],
        // Memory with swap may not be less than memory, so memory comes first.
        (Version::V1, Controller::Memory) => vec![
            set("memory.limit_in_bytes", amount.to_string(), Unless::Never),
            set(
                "memory.memsw.limit_in_bytes",
                amount.to_string(),
                Unless::Absent,
            ),
        ],
        (Version::V1, Controller::Cpu) => vec![
            set(
                "cpu.cfs_period_us",
                CPU_PERIOD_US.to_string(),
                Unless::Tighter,
            ),
            set("cpu.cfs_quota_us", quota_us.to_string(), Unless::Tighter),
        ],
    }
}

fn base(root: &Path, ledger: &str) -> PathBuf {
    root.join(format!("bursar-{ledger}"))
}

fn find_v2(bases: &[PathBuf], own: &Path) -> Option<Tree> {
    let mut best: Option<Tree> = None;
    for base in bases {
        let tree = delegate_v2(base, own);
        let is_better = |tree: &Tree| match &best {
            None => true,
            Some(best) => best.controllers.len() < tree.controllers.len(),
        };
        best = tree.filter(is_better).or(best);
        if best.as_ref().is_some_and(is_complete) {
            break;
        }
    }
    best
}

/// Whether no other base can have more controllers.
fn is_complete(tree: &Tree) -> bool {
    let available = available(tree.base.parent().unwrap_or(&tree.base));
    tree.controllers.len() == available.len()
}

fn delegate_v2(base: &Path, own: &Path) -> Option<Tree> {
    make_directory(base).ok()?;
    let root = base.parent()?;
    let mut controllers = available(root);
    let enabled = enable(root, own, &enabling(&controllers))
        .and_then(|()| pass_on(base, &enabling(&controllers)));
    if enabled.is_err() {
        controllers.clear();
    }
    Some(Tree {
        version: Version::V2,
        base: base.to_owned(),
        controllers,
    })
}

/// Enables controllers for the children of `root`. Version 2 refuses that while processes are in
/// `root` itself; if it is our own group, we move to a child.
fn enable(root: &Path, own: &Path, controllers: &str) -> io::Result<()> {
    if controllers.is_empty() {
        return Ok(());
    }
    let control = root.join("cgroup.subtree_control");
    match fs::write(&control, controllers) {
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) && own == root => {
            let leaf = root.join(SERVER);
            make_directory(&leaf)?;
            fs::write(leaf.join("cgroup.procs"), "0")?;
            fs::write(&control, controllers)
        }
        result => result,
    }
}

fn available(root: &Path) -> Vec<Controller> {
    let text = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    [Controller::Cpu, Controller::Memory, Controller::Pids]
        .into_iter()
        .filter(|controller| {
            text.split_whitespace()
                .any(|word| word == controller.word())
        })
        .collect()
}

fn enabling(controllers: &[Controller]) -> String {
    let words: Vec<_> = controllers
        .iter()
        .map(|controller| format!("+{}", controller.word()))
        .collect();
    words.join(" ")
}

/// The directory delegated to us: our own, or its parent if ours is the leaf [`SERVER`].
fn delegated(own: &Path) -> PathBuf {
    match own.parent() {
        Some(above) if own.file_name().is_some_and(|name| name == SERVER) => above.to_owned(),
        _ => own.to_owned(),
    }
}

fn add_v1(trees: &mut Vec<Tree>, controller: Controller, bases: &[PathBuf]) {
    for base in bases {
        if let Some(tree) = trees.iter_mut().find(|tree| tree.base == *base) {
            // Controllers that are mounted together share their groups.
            tree.controllers.push(controller);
            return;
        }
        if make_directory(base).is_ok() {
            trees.push(Tree {
                version: Version::V1,
                base: base.clone(),
                controllers: vec![controller],
            });
            return;
        }
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}
