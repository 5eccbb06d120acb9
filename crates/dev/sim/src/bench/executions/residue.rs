//! What the kernel still has of a ledger's executions, found without asking the executor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// Where the kernel shows cgroups, of whichever version.
const CGROUPS: &str = "/sys/fs/cgroup";
/// How deep a server's own cgroup may be below a mount.
const DEPTH_MAX: usize = 12;

/// What is left.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Residue {
    pub(super) cgroups: usize,
    pub(super) processes: usize,
    pub(super) zombies: usize,
}

/// A process, as `/proc` shows it.
pub(super) struct Process {
    pub(super) pid: i32,
    parent: i32,
    is_zombie: bool,
}

impl Residue {
    /// What is left of a ledger whose shims are children of `parent`, or orphans.
    pub(super) fn of(ledger: &str, parent: u32) -> anyhow::Result<Self> {
        let mut bases = Vec::new();
        find(
            Path::new(CGROUPS),
            &format!("bursar-{ledger}"),
            DEPTH_MAX,
            &mut bases,
        );
        let mut groups = Vec::new();
        for base in &bases {
            groups.extend(directories(base));
        }
        let members = bases
            .iter()
            .chain(&groups)
            .map(|group| std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default());
        let members: BTreeSet<i32> = members
            .flat_map(|text| {
                let pids = text.lines().filter_map(|line| line.parse().ok());
                pids.collect::<Vec<i32>>()
            })
            .collect();
        let parent = i32::try_from(parent).context("no process has that number")?;
        let is_left = |process: &&Process| process.is_zombie && process.parent == parent;
        Ok(Self {
            cgroups: groups.len(),
            processes: members.len(),
            zombies: processes().iter().filter(is_left).count(),
        })
    }

    /// Fails if there is anything.
    pub(super) fn check(self) -> anyhow::Result<()> {
        if self != Self::default() {
            bail!("something is left behind: {self:?}");
        }
        Ok(())
    }
}

/// The shims of a data directory's ledger, by the ids that they were started with.
pub(super) fn shims(ids: &BTreeSet<String>) -> Vec<Process> {
    let is_ours = |process: &Process| {
        let path = format!("/proc/{}/cmdline", process.pid);
        let text = std::fs::read(path).unwrap_or_default();
        let mut words = text.split(|byte| *byte == 0).skip(1);
        let (first, second, third) = (words.next(), words.next(), words.next());
        let id = third.map(String::from_utf8_lossy);
        (first, second) == (Some(&b"shim"[..]), Some(&b"run"[..]))
            && id.is_some_and(|id| ids.contains(id.as_ref()))
    };
    processes().into_iter().filter(is_ours).collect()
}

/// All processes of this machine.
fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(process).collect()
}

fn process(pid: i32) -> Option<Process> {
    // One that ends meanwhile is none.
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program comes second and may hold anything, in parentheses.
    let (_, after_name) = text.rsplit_once(')')?;
    let mut words = after_name.split_whitespace();
    Some(Process {
        pid,
        is_zombie: words.next()? == "Z",
        parent: words.next()?.parse().ok()?,
    })
}

/// Directories of that name below `place`.
fn find(place: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for directory in directories(place) {
        if directory.file_name().is_some_and(|own| own == name) {
            found.push(directory);
        } else if 0 < depth {
            find(&directory, name, depth - 1, found);
        }
    }
}

fn directories(place: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let is_directory = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_dir());
    entries
        .filter(is_directory)
        .map(|entry| entry.path())
        .collect()
}
