//! The quotas that users wrote, kept where a crash does not reach until they are put back (M10).
//!
//! A quota is stored, with what is about to be written, before anything is written. So at any
//! moment, and after `kill -9` at any moment, the file says of each cgroup that we touched what to
//! put back, and which values there are ours. A value that is neither is somebody else's: it is
//! left, and counts as the original from then on. A cgroup of the same name that is another one
//! (its number differs, or the machine was started anew) has nothing to be put back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bursar_market::cgroup::Quota;
use serde::{Deserialize, Serialize};

use super::Error;
use super::files::LimitFiles;
use super::hierarchy::Hierarchies;

/// The name of the file.
const FILE: &str = "originals.json";
/// What is written first, and takes its place when it is whole.
const NEW_FILE: &str = "originals.json.new";
/// Which start of the machine this is.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// All originals that are to be put back some day.
#[derive(Debug)]
pub struct Originals {
    directory: PathBuf,
    boot: String,
    kept: BTreeMap<String, Kept>,
}

/// The original of one cgroup.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// The cgroup, from the root of the hierarchy.
    pub group: PathBuf,
    /// Which one of that name.
    pub identity: u64,
    /// What to put back.
    pub original: Limit,
    /// What we wrote last, and what we set out to write.
    pub ours: Vec<Limit>,
}

/// A quota as it is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// Absent where nothing is limited.
    pub quota_us: Option<u64>,
    /// The period.
    pub period_us: u64,
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    boot: String,
    originals: BTreeMap<String, Kept>,
}

/// What came of putting quotas back.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Restored {
    /// Those that are what their users wrote again, or would be: from, to.
    pub restored: Vec<(String, Quota, Quota)>,
    /// Those that are not, and why.
    pub failed: Vec<(String, String)>,
}

/// Whether to do a thing or only say what would be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deed {
    /// Do it.
    Real,
    /// Change nothing.
    DryRun,
}

impl Originals {
    /// Those of a directory. Whatever was stored before the machine was started anew is void: so
    /// are its cgroups.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let boot = fs::read_to_string(BOOT).unwrap_or_default();
        let boot = boot.trim().to_owned();
        let path = directory.join(FILE);
        let kept = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => {
                return Err(Error::Path {
                    doing: "read",
                    path,
                    source,
                });
            }
            Ok(bytes) => {
                let stored: Stored = serde_json::from_slice(&bytes)
                    .map_err(|source| Error::Originals { path, source })?;
                if stored.boot == boot {
                    stored.originals
                } else {
                    BTreeMap::new()
                }
            }
        };
        Ok(Self {
            directory: directory.to_owned(),
            boot,
            kept,
        })
    }

    /// What is kept, by the names of the pods.
    pub fn kept(&self) -> &BTreeMap<String, Kept> {
        &self.kept
    }

    /// What to put back to each, in millicores; `None` for no limit.
    pub fn milli(&self) -> BTreeMap<String, Option<u64>> {
        let milli =
            |(pod, kept): (&String, &Kept)| (pod.clone(), Quota::from(kept.original).milli_ceil());
        self.kept.iter().map(milli).collect()
    }

    /// What to put back to a group that is adopted, given what the kernel says now: what was
    /// stored, if the value there is ours, else that value.
    pub fn original(&self, pod: &str, group: &Path, identity: u64, present: Quota) -> Quota {
        let kept = self.kept.get(pod);
        let is_it = |kept: &&Kept| kept.group == group && kept.identity == identity;
        match kept.filter(is_it) {
            Some(kept) if kept.is_ours(present) => kept.original.into(),
            _ => present,
        }
    }

    /// Notes what is about to be written to a pod. Nothing is written before [`Self::store`].
    pub fn intend(
        &mut self,
        pod: &str,
        (group, identity): (&Path, u64),
        original: Quota,
        (present, next): (Quota, Quota),
    ) {
        let kept = Kept {
            group: group.to_owned(),
            identity,
            original: original.into(),
            ours: vec![present.into(), next.into()],
        };
        self.kept.insert(pod.to_owned(), kept);
    }

    /// Somebody else's value is the original from now on, if anything of this pod is kept.
    pub fn replace(&mut self, pod: &str, original: Quota) {
        if let Some(kept) = self.kept.get_mut(pod) {
            kept.original = original.into();
            kept.ours.clear();
        }
    }

    /// Makes the file say what is kept, durably and whole.
    pub fn store(&self) -> Result<(), Error> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| Error::Path {
                doing,
                path,
                source,
            }
        };
        let stored = Stored {
            boot: self.boot.clone(),
            originals: self.kept.clone(),
        };
        let (new, path) = (self.directory.join(NEW_FILE), self.directory.join(FILE));
        let bytes = serde_json::to_vec_pretty(&stored)
            .map_err(io::Error::from)
            .map_err(failed("write", &new))?;
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()
        };
        write().map_err(failed("write", &new))?;
        fs::rename(&new, &path).map_err(failed("replace", &path))?;
        File::open(&self.directory)
            .and_then(|directory| directory.sync_all())
            .map_err(failed("keep", &self.directory))
    }

    /// Puts back what is kept of every pod that `is_wanted` names, and forgets it. What cannot be
    /// put back is kept.
    pub fn give_back(
        &mut self,
        hierarchies: &Hierarchies,
        is_wanted: impl Fn(&str) -> bool,
        deed: Deed,
    ) -> Result<Restored, Error> {
        let mut told = Restored::default();
        let mut is_changed = false;
        let wanted: Vec<String> = self.kept.keys().cloned().collect();
        for pod in wanted.into_iter().filter(|pod| is_wanted(pod)) {
            let Some(kept) = self.kept.get(&pod) else {
                continue;
            };
            match give_back(hierarchies, kept, deed) {
                Ok(changed) => {
                    let row = |(from, to)| (pod.clone(), from, to);
                    told.restored.extend(changed.map(row));
                    if deed == Deed::Real {
                        is_changed |= self.kept.remove(&pod).is_some();
                    }
                }
                Err(error) => told.failed.push((pod, error.to_string())),
            }
        }
        if is_changed {
            self.store()?;
        }
        Ok(told)
    }
}

/// Puts one quota back: from what to what, or nothing where that is not ours to change any more.
fn give_back(
    hierarchies: &Hierarchies,
    kept: &Kept,
    deed: Deed,
) -> io::Result<Option<(Quota, Quota)>> {
    let files = match hierarchies.limit(&kept.group) {
        // Whoever is gone needs nothing back.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        files => files?,
    };
    let (present, original) = match read(&files)? {
        Some(present) if files.identity() == kept.identity => (present, kept.original.into()),
        _ => return Ok(None),
    };
    if present == original || !kept.is_ours(present) {
        return Ok(None);
    }
    if deed == Deed::Real {
        files.set_quota(original)?;
        if files.quota()? != original {
            return Err(io::Error::other("the kernel does not take it"));
        }
    }
    Ok(Some((present, original)))
}

fn read(files: &LimitFiles) -> io::Result<Option<Quota>> {
    match files.quota() {
        Err(_) if !files.is_there() => Ok(None),
        quota => quota.map(Some),
    }
}

impl Kept {
    /// Whether a value is one that we wrote, or were about to. Version 1 takes quota and period
    /// one after the other, so each of the two may be of another value of ours.
    fn is_ours(&self, present: Quota) -> bool {
        let known = || self.ours.iter().chain([&self.original]);
        known().any(|known| known.quota_us == present.quota_us)
            && known().any(|known| known.period_us == present.period_us)
    }
}

impl From<Quota> for Limit {
    fn from(quota: Quota) -> Self {
        Self {
            quota_us: quota.quota_us,
            period_us: quota.period_us,
        }
    }
}

impl From<Limit> for Quota {
    fn from(limit: Limit) -> Self {
        Self {
            quota_us: limit.quota_us,
            period_us: limit.period_us,
        }
    }
}
