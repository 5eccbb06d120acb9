//! The groups of one execution: creates, enters, empties and removes them.
//!
//! Every call may be repeated; a missing group counts as empty.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::{Directory, Plan, Setting, Tree, Unless, Version, leave, make_directory, pass_on};

/// The groups of one execution, one per hierarchy; none where nothing is delegated.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Group {
    directories: Vec<(Version, PathBuf)>,
}

/// Memory use as counted by the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Memory {
    /// Whether the kernel killed a process because it was out of memory.
    pub is_killed: bool,
    /// Peak use, where the kernel counts it.
    pub peak_bytes: Option<u64>,
}

impl Group {
    /// The groups of a plan, whether created or not.
    pub fn of(plan: &Plan) -> Self {
        let directories = plan.directories.iter();
        Self {
            directories: directories
                .map(|directory| (directory.version, directory.path.clone()))
                .collect(),
        }
    }

    /// All groups that an execution of this name may have in these trees.
    pub fn everywhere(trees: &[Tree], name: &str) -> Self {
        Self {
            directories: trees
                .iter()
                .map(|tree| (tree.version, tree.base.join(name)))
                .collect(),
        }
    }

    /// Keeps only groups below the directory of a ledger that have the name of an execution.
    #[must_use]
    pub fn only(mut self, ledger: &str, name: &str) -> Self {
        let above = format!("bursar-{ledger}");
        self.directories.retain(|(_, path)| {
            let is = |path: Option<&Path>, name: &str| {
                path.and_then(Path::file_name).is_some_and(|is| is == name)
            };
            is(Some(path), name) && is(path.parent(), &above)
        });
        self
    }

    /// Creates the groups of a plan and sets all limits.
    pub fn make(plan: &Plan) -> io::Result<Self> {
        for directory in &plan.directories {
            make(directory)?;
        }
        for setting in &plan.settings {
            set(setting)?;
        }
        Ok(Self::of(plan))
    }

    /// Removes the parent directories if no other execution is in them.
    pub fn leave(&self) {
        let directories = self.directories.iter();
        leave(directories.filter_map(|(_, path)| path.parent()));
    }

    /// Whether there is no group.
    pub fn is_none(&self) -> bool {
        self.directories.is_empty()
    }

    /// The files for entering the groups.
    pub fn entrances(&self) -> Vec<PathBuf> {
        let directories = self.directories.iter();
        directories
            .map(|(_, path)| path.join("cgroup.procs"))
            .collect()
    }

    /// The pids in the groups.
    pub fn members(&self) -> io::Result<BTreeSet<i32>> {
        let mut members = BTreeSet::new();
        for (_, path) in &self.directories {
            each(path, &mut |path| add_members(path, &mut members))?;
        }
        Ok(members)
    }

    /// Sends a signal to every member except those that `is_spared` selects; returns the receivers.
    pub fn signal(
        &self,
        signal: Signal,
        is_spared: impl Fn(i32) -> bool,
    ) -> io::Result<BTreeSet<i32>> {
        // A pid may be reused between the list and the signal. A pidfd is safe: if the pid is in
        // the group after it was opened, the pidfd is of a member or of a dead process.
        let mut opened = BTreeMap::new();
        for number in self.members()?.into_iter().filter(|pid| !is_spared(*pid)) {
            let pid = Pid::from_raw(number);
            if let Some(Ok(pidfd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                opened.insert(number, pidfd);
            }
        }
        if opened.is_empty() {
            return Ok(BTreeSet::new());
        }
        let still = self.members()?;
        opened.retain(|number, _| still.contains(number));
        opened.retain(|_, pidfd| pidfd_send_signal(pidfd, signal).is_ok());
        Ok(opened.into_keys().collect())
    }

    /// Kills all members once. A process that is just being forked may escape, so callers repeat
    /// this until the group is empty.
    pub fn kill(&self) -> io::Result<()> {
        let mut is_done = true;
        for (version, path) in &self.directories {
            // The shim may have removed the group by now.
            is_done &= *version == Version::V2
                && (write(&path.join("cgroup.kill"), "1")? || !path.exists());
        }
        if is_done {
            return Ok(());
        }
        // Version 1 and older kernels have no `cgroup.kill`: freeze, so that nobody forks while
        // the list is read.
        self.freeze("FROZEN", "1")?;
        let killed = self.signal(Signal::KILL, |_| false);
        self.freeze("THAWED", "0")?;
        killed.map(|_| ())
    }

    /// Kills all members and removes the groups with their subgroups; `false` while a member is
    /// left.
    pub fn end(&self) -> io::Result<bool> {
        // Mostly the group is empty, and the first attempt removes it.
        if self.remove()? {
            return Ok(true);
        }
        self.kill()?;
        self.remove()
    }

    fn remove(&self) -> io::Result<bool> {
        let mut is_removed = true;
        for (_, path) in &self.directories {
            is_removed &= remove(path)? || {
                each(path, &mut |path| remove(path).map(|_| ()))?;
                !path.exists()
            };
        }
        Ok(is_removed)
    }

    /// The memory use of the groups.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        for (version, path) in &self.directories {
            let (events, peak) = match version {
                Version::V1 => ("memory.oom_control", "memory.max_usage_in_bytes"),
                Version::V2 => ("memory.events", "memory.peak"),
            };
            let Ok(text) = fs::read_to_string(path.join(events)) else {
                continue;
            };
            memory.is_killed |= has_killed(&text);
            let peak = fs::read_to_string(path.join(peak)).ok();
            memory.peak_bytes = peak.and_then(|text| text.trim().parse().ok());
        }
        memory
    }

    fn freeze(&self, state_v1: &str, state_v2: &str) -> io::Result<()> {
        for (version, path) in &self.directories {
            match version {
                Version::V1 => write(&path.join("freezer.state"), state_v1)?,
                Version::V2 => write(&path.join("cgroup.freeze"), state_v2)?,
            };
        }
        Ok(())
    }
}

/// Attempts to create the parent while another process removes it: a server that stops does so
/// once.
const ATTEMPTS: u32 = 10;

fn make(directory: &Directory) -> io::Result<()> {
    let base = directory.path.parent().unwrap_or(&directory.path);
    // An existing one was left by a process that died between this step and the next.
    let mut made = make_directory(&directory.path);
    for _ in 0..ATTEMPTS {
        match &made {
            Err(error) if is_absent(error) => make_directory(base)?,
            _ => break,
        }
        made = make_directory(&directory.path);
    }
    made?;
    // The process that created the parent may not have enabled the controllers yet. The parent can
    // no longer be removed, and enabling affects existing and new children.
    pass_on(base, &directory.controllers)
}

fn set(setting: &Setting) -> io::Result<()> {
    match (overwrite(&setting.file, &setting.value), setting.unless) {
        (Err(error), Unless::Absent) if is_absent(&error) => Ok(()),
        (Err(error), Unless::Tighter) if is(&error, Errno::INVAL) => Ok(()),
        (result, _) => result,
    }
}

/// Writes to a file of the kernel; `false` if it is missing, or unsupported for a threaded group.
fn write(file: &Path, value: &str) -> io::Result<bool> {
    match overwrite(file, value) {
        Err(error) if is_absent(&error) || is(&error, Errno::OPNOTSUPP) => Ok(false),
        result => result.map(|()| true),
    }
}

/// Must not create a missing file: the files are the kernel's.
fn overwrite(file: &Path, value: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(file)?;
    io::Write::write_all(&mut file, value.as_bytes())
}

/// Removes one group; `false` while a process or another group is in it.
fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_dir(path) {
        Err(error) if is(&error, Errno::BUSY) => Ok(false),
        Err(error) if !is_absent(&error) => Err(error),
        _ => Ok(true),
    }
}

/// Visits a group and its subgroups, the innermost first.
fn each(path: &Path, visit: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        match fs::read_dir(&path) {
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error),
            Ok(entries) => {
                for entry in entries {
                    let entry = entry?;
                    if entry.file_type()?.is_dir() {
                        found.push(entry.path());
                    }
                }
            }
        }
    }
    found.iter().rev().try_for_each(|path| visit(path))
}

fn add_members(path: &Path, members: &mut BTreeSet<i32>) -> io::Result<()> {
    let mut read = fs::read_to_string(path.join("cgroup.procs"));
    // A program may create a threaded subgroup: the kernel lists its processes in the parent, and
    // only threads here.
    if read
        .as_ref()
        .is_err_and(|error| is(error, Errno::OPNOTSUPP))
    {
        read = fs::read_to_string(path.join("cgroup.threads"));
    }
    match read {
        Err(error) if is_absent(&error) => Ok(()),
        Err(error) => Err(error),
        Ok(text) => {
            members.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
            Ok(())
        }
    }
}

/// Both versions have a line `oom_kill N`.
fn has_killed(events: &str) -> bool {
    events.lines().any(|line| {
        line.split_once(' ')
            .is_some_and(|(word, count)| word == "oom_kill" && count != "0")
    })
}

/// A group may vanish between two steps: reading a file opened before then gives `ENODEV`.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || is(error, Errno::NODEV)
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
