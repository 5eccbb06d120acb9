//! The cgroup hierarchies that count and limit CPU, and their groups.
//!
//! Controllers are found per mount: quotas are in version 1 if it is mounted with the cpu controller,
//! else in version 2. Use is counted by `cpuacct` of version 1, which may be a separate mount, or by a
//! version 2 without controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::{CPU_STAT, CPUACCT_USAGE, Files, LimitFiles, Usage, is_shortage};
use crate::cgroup::Version;
use crate::cgroup::layout;

/// Maximum depth of a unit: a session of a user in slices of slices.
const UNIT_DEPTH_MAX: usize = 6;
/// Maximum number of groups visited in search of a unit.
const UNIT_GROUPS_MAX: usize = 10_000;

/// Mount points of the hierarchies that count and limit CPU.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hierarchies {
    version: Version,
    /// The hierarchy with quotas and throttling counters.
    quota: PathBuf,
    /// The hierarchy of version 1 that counts use.
    cpuacct: Option<PathBuf>,
    /// Version 2, with or without controllers.
    unified: Option<PathBuf>,
    /// Our own group in `quota`, from its root.
    own: PathBuf,
}

/// Identity of the visible root of a hierarchy, which differs between cgroup namespaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Root {
    device: u64,
    /// Its inode.
    number: u64,
}

impl Hierarchies {
    /// Finds those of this machine. `process` is the directory of our own process in `/proc`.
    pub fn find(process: &Path) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
        let mounts = layout::mounts(&read("mountinfo"));
        let memberships = layout::memberships(&read("cgroup"));
        let legacy = |controller| layout::legacy(&mounts, &memberships, controller);
        let unified = layout::unified(&mounts, &memberships);
        let (mount, member) = legacy("cpu").or(unified)?;
        let directory = layout::directory(mount, member);
        let own = directory.strip_prefix(&mount.point).unwrap_or(&directory);
        Some(Self {
            version: mount.version,
            quota: mount.point.clone(),
            cpuacct: legacy("cpuacct").map(|(mount, _)| mount.point.clone()),
            unified: unified.map(|(mount, _)| mount.point.clone()),
            own: own.to_owned(),
        })
    }

    /// Our own group, from the root of the hierarchy.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// Whether a limit on a group would limit this process.
    pub fn holds_us(&self, group: &Path) -> bool {
        self.own.starts_with(group)
    }

    /// Whether a group exists.
    pub fn has(&self, group: &Path) -> bool {
        self.quota.join(group).is_dir()
    }

    /// Opens the files of a group, given by its path from the root of the hierarchy.
    pub fn open(&self, group: &Path) -> io::Result<Files> {
        let usage = match self.version {
            Version::V1 => Some(self.usage(group)?),
            Version::V2 => None,
        };
        let pressure = self.unified.as_ref();
        let pressure = pressure.map(|unified| unified.join(group).join("cpu.pressure"));
        Files::open(self.version, self.quota.join(group), usage, pressure)
    }

    /// The limit files of a group, whether or not its use is counted.
    pub fn limit(&self, group: &Path) -> io::Result<LimitFiles> {
        LimitFiles::open(self.version, self.quota.join(group))
    }

    /// The identity of the root of the hierarchy with quotas.
    pub fn root(&self) -> io::Result<Root> {
        let root = fs::metadata(&self.quota)?;
        Ok(Root {
            device: root.dev(),
            number: root.ino(),
        })
    }

    pub(super) fn mount(&self) -> &Path {
        &self.quota
    }

    /// The direct children of a group by inode, for finding renamed groups. Only version 1 can
    /// rename groups, and only within their parent.
    pub(super) fn numbered(&self, above: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
        let mut found = BTreeMap::new();
        if self.version == Version::V2 {
            return Ok(found);
        }
        let entries = match fs::read_dir(self.quota.join(above)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                found.insert(entry.ino(), above.join(entry.file_name()));
            }
        }
        Ok(found)
    }

    /// Opens the files of the root: the whole machine, or its part that is visible to us.
    pub fn machine(&self) -> io::Result<Files> {
        self.open(Path::new(""))
    }

    /// The groups at most two levels deep, from the root of the hierarchy.
    pub fn shallow(&self) -> io::Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        let roots = [Some(&self.quota), self.cpuacct.as_ref()];
        for root in roots.into_iter().flatten() {
            for name in directories(root)? {
                let below = directories(&root.join(&name))?;
                found.extend(below.into_iter().map(|inner| name.join(inner)));
                found.insert(name);
            }
        }
        Ok(found)
    }

    /// The group of a systemd unit: the directory of that name in any slice. Units of a user's own
    /// manager may have any name and are skipped.
    pub fn unit(&self, unit: &str) -> io::Result<Option<PathBuf>> {
        let mut level = vec![PathBuf::new()];
        let mut seen = 0;
        for _ in 0..UNIT_DEPTH_MAX {
            let mut next = Vec::new();
            for group in &level {
                let inner = directories(&self.quota.join(group))?;
                next.extend(inner.into_iter().map(|name| group.join(name)));
            }
            next.sort();
            let is_it = |group: &&PathBuf| group.file_name().is_some_and(|name| name == unit);
            if let Some(found) = next.iter().find(is_it) {
                return Ok(Some(found.clone()));
            }
            seen += next.len();
            if seen > UNIT_GROUPS_MAX {
                return Ok(None);
            }
            next.retain(|group| !is_user_manager(group));
            level = next;
        }
        Ok(None)
    }

    /// The possible parents of a ledger's execution groups: in or beside our own group, or at the
    /// root.
    pub fn of_executions(&self, ledger: &str) -> Vec<PathBuf> {
        let name = format!("bursar-{ledger}");
        let above = self.own.parent().unwrap_or(&self.own);
        let mut places = Vec::new();
        for place in [self.own(), above, Path::new("")] {
            let place = place.join(&name);
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    fn usage(&self, group: &Path) -> io::Result<Usage> {
        let open = |root: &Option<PathBuf>, name: &str| {
            let root = root.as_ref().ok_or(io::ErrorKind::NotFound)?;
            File::open(root.join(group).join(name))
        };
        match open(&self.cpuacct, CPUACCT_USAGE) {
            Ok(file) => Ok(Usage::Cpuacct(file)),
            Err(error) if is_shortage(&error) => Err(error),
            Err(_) => open(&self.unified, CPU_STAT).map(Usage::Unified),
        }
    }
}

/// Normalizes a path from the root of a hierarchy to one without leading slash; `None` if it
/// contains `..`.
pub fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => plain.push(name),
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

/// Whether a group belongs to a user's own manager, such as `user@1000.service`.
fn is_user_manager(group: &Path) -> bool {
    let name = group.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("user@") && name.ends_with(".service"))
}

/// The subdirectories; none if the directory is gone or not readable. Too many open files is an
/// error, because the directory may exist.
fn directories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Err(error) if is_shortage(&error) => return Err(error),
        entries => entries.into_iter().flatten().flatten(),
    };
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    Ok(entries
        .filter(is_directory)
        .map(|entry| entry.file_name().into())
        .collect())
}
