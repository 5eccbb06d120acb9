//! Processes and cgroups of a ledger's executions that are left in the kernel, found without the executor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// Mount point of cgroups, of both versions.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Maximum depth of a server's cgroup below a mount.
const DEPTH_MAX: usize = 12;

/// Counts of leftovers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Residue {
    pub(super) cgroups: usize,
    pub(super) processes: usize,
    pub(super) zombies: usize,
}

/// A process in `/proc`.
pub(super) struct Process {
    pub(super) pid: i32,
    parent: i32,
    is_zombie: bool,
}

impl Residue {
    /// Counts the leftovers of a ledger whose shims are children of `parent`, or orphans.
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
        let parent = i32::try_from(parent).context("the process id is too large")?;
        let is_left = |process: &&Process| process.is_zombie && process.parent == parent;
        Ok(Self {
            cgroups: groups.len(),
            processes: members.len(),
            zombies: processes().iter().filter(is_left).count(),
        })
    }

    /// Fails if anything is left.
    pub(super) fn check(self) -> anyhow::Result<()> {
        if self != Self::default() {
            bail!("processes or cgroups are left: {self:?}");
        }
        Ok(())
    }
}

/// Running shims of these executions.
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

fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(process).collect()
}

fn process(pid: i32) -> Option<Process> {
    // The process may end meanwhile.
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program name in parentheses, which may contain any character.
    let (_, after_name) = text.rsplit_once(')')?;
    let mut words = after_name.split_whitespace();
    Some(Process {
        pid,
        is_zombie: words.next()? == "Z",
        parent: words.next()?.parse().ok()?,
    })
}

/// Directories of that name below `parent`.
fn find(parent: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for directory in directories(parent) {
        if directory.file_name().is_some_and(|own| own == name) {
            found.push(directory);
        } else if 0 < depth {
            find(&directory, name, depth - 1, found);
        }
    }
}

fn directories(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let is_directory = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_dir());
    entries
        .filter(is_directory)
        .map(|entry| entry.path())
        .collect()
}
