//! Stores the quotas that users wrote, durably, until they are restored (M10).
//!
//! An original is stored, with the value to be written, before anything is written. So at any moment,
//! also after `kill -9`, the file holds for each cgroup that we changed the original and the values
//! that are ours. Any other value was written by somebody else: it stays, and is the new original.
//! Another cgroup of the same name (its inode differs, or the machine was rebooted) has no original.
//! A renamed cgroup is found by its inode. In another cgroup namespace, as in another container,
//! nothing is searched and nothing is forgotten.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bursar_market::cgroup::Quota;
use serde::{Deserialize, Serialize};

use super::files::LimitFiles;
use super::hierarchy::{Hierarchies, Root};
use super::target::Why;
use super::{Error, failed};

const FILE: &str = "originals.json";
const NEW_FILE: &str = "originals.json.new";
/// Identifies the boot of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The originals that are not restored yet.
#[derive(Debug)]
pub struct Originals {
    directory: PathBuf,
    boot: String,
    /// The hierarchy that they belong to, if it was stored.
    root: Option<Root>,
    kept: BTreeMap<String, Kept>,
}

/// The original of one cgroup.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// The cgroup, from the root of the hierarchy.
    pub group: PathBuf,
    /// Its inode.
    pub identity: u64,
    /// The original quota.
    pub original: Quota,
    /// The value that we wrote last, and the one that we intended to write.
    pub ours: Vec<Quota>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    boot: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<Root>,
    originals: BTreeMap<String, Kept>,
}

/// Result of a restore.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Restored {
    /// Pods whose original was restored, or would be in a dry run: name, from, to.
    pub restored: Vec<(String, Quota, Quota)>,
    /// Pods whose original could not be restored, with the reason.
    pub failed: Vec<(String, String)>,
}

/// Whether an operation is a dry run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deed {
    /// Apply the changes.
    Real,
    /// Change nothing.
    DryRun,
}

impl Originals {
    /// Opens those of a directory. Originals from before a reboot are dropped, like their cgroups.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let boot = fs::read_to_string(BOOT).unwrap_or_default();
        let boot = boot.trim().to_owned();
        let path = directory.join(FILE);
        let (root, kept) = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, BTreeMap::new()),
            Err(source) => return Err(failed("read", &path)(source)),
            Ok(bytes) => {
                let stored: Stored = serde_json::from_slice(&bytes)
                    .map_err(|source| Error::Originals { path, source })?;
                if stored.boot == boot {
                    (stored.root, stored.originals)
                } else {
                    (None, BTreeMap::new())
                }
            }
        };
        Ok(Self {
            directory: directory.to_owned(),
            boot,
            root,
            kept,
        })
    }

    /// Opens those of a directory. Refuses originals of other hierarchies: their cgroups cannot be
    /// found in these, and would count as gone.
    pub fn open_in(directory: &Path, hierarchies: &Hierarchies) -> Result<Self, Error> {
        let mut originals = Self::open(directory)?;
        let here = hierarchies.root().ok();
        let is_elsewhere = originals
            .root
            .zip(here)
            .is_some_and(|(root, here)| root != here);
        if is_elsewhere && !originals.kept.is_empty() {
            return Err(Error::Elsewhere(directory.join(FILE)));
        }
        originals.root = here.or(originals.root);
        Ok(originals)
    }

    /// The stored originals by pod name.
    pub fn kept(&self) -> &BTreeMap<String, Kept> {
        &self.kept
    }

    /// The originals in millicores; `None` for no limit.
    pub fn milli(&self) -> BTreeMap<String, Option<u64>> {
        let milli = |(pod, kept): (&String, &Kept)| (pod.clone(), kept.original.milli_ceil());
        self.kept.iter().map(milli).collect()
    }

    /// The original of an adopted group: the stored one if the present value is ours, else the
    /// present value.
    pub fn original(&self, pod: &str, group: &Path, identity: u64, present: Quota) -> Quota {
        let kept = self.kept.get(pod);
        let is_it = |kept: &&Kept| kept.group == group && kept.identity == identity;
        match kept.filter(is_it) {
            Some(kept) if kept.is_ours(present) => kept.original,
            _ => present,
        }
    }

    /// Whether the original of another group with this pod name is not restored yet.
    pub fn owes_another(&self, pod: &str, group: &Path, identity: u64) -> bool {
        let kept = self.kept.get(pod);
        kept.is_some_and(|kept| kept.group != group || kept.identity != identity)
    }

    /// Adds the value that is about to be written; [`Self::store`] makes it durable.
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
            original,
            ours: vec![present, next],
        };
        self.kept.insert(pod.to_owned(), kept);
    }

    /// Makes the value of another writer the original, if the pod has one.
    pub fn replace(&mut self, pod: &str, original: Quota) {
        if let Some(kept) = self.kept.get_mut(pod) {
            kept.original = original;
            kept.ours.clear();
        }
    }

    /// Writes the file, atomically and durably.
    pub fn store(&self) -> Result<(), Error> {
        let stored = Stored {
            boot: self.boot.clone(),
            root: self.root,
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
            .map_err(failed("sync", &self.directory))
    }

    /// Restores and removes the original of every pod that `is_wanted` selects. It is kept if it
    /// cannot be restored, or if another agent manages the group; `claimed` are the groups that
    /// the caller has claimed.
    pub fn give_back(
        &mut self,
        hierarchies: &Hierarchies,
        is_wanted: impl Fn(&str) -> bool,
        claimed: &BTreeSet<u64>,
        deed: Deed,
    ) -> Result<Restored, Error> {
        let mut result = Restored::default();
        let mut is_changed = false;
        let mut search = Search {
            hierarchies,
            claimed,
            beside: BTreeMap::new(),
        };
        let wanted: Vec<String> = self.kept.keys().cloned().collect();
        for pod in wanted.into_iter().filter(|pod| is_wanted(pod)) {
            let Some(kept) = self.kept.get(&pod) else {
                continue;
            };
            match give_back(&mut search, kept, deed) {
                Ok(changed) => {
                    let row = |(from, to)| (pod.clone(), from, to);
                    result.restored.extend(changed.map(row));
                    if deed == Deed::Real {
                        is_changed |= self.kept.remove(&pod).is_some();
                    }
                }
                Err(error) => result.failed.push((pod, error.to_string())),
            }
        }
        if is_changed {
            self.store()?;
        }
        Ok(result)
    }
}

/// Finds groups that may have been renamed.
struct Search<'a> {
    hierarchies: &'a Hierarchies,
    /// Inodes of the groups that the caller has claimed.
    claimed: &'a BTreeSet<u64>,
    /// Children of the groups read so far, by inode.
    beside: BTreeMap<PathBuf, BTreeMap<u64, PathBuf>>,
}

impl Search<'_> {
    /// The limit files of a group, if it still exists.
    fn files(&mut self, kept: &Kept) -> io::Result<Option<LimitFiles>> {
        match self.hierarchies.limit(&kept.group) {
            Ok(files) if files.identity() == kept.identity => return Ok(Some(files)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // Missing, or replaced by another group of the same name.
            _ => {}
        }
        let above = kept.group.parent().unwrap_or(Path::new(""));
        let beside = match self.beside.entry(above.to_owned()) {
            Entry::Occupied(beside) => beside.into_mut(),
            Entry::Vacant(place) => place.insert(self.hierarchies.numbered(above)?),
        };
        let group = beside.get(&kept.identity);
        group.map(|group| self.hierarchies.limit(group)).transpose()
    }
}

/// Restores one quota; returns the old and the new value, or `None` if nothing was to be done.
fn give_back(
    search: &mut Search<'_>,
    kept: &Kept,
    deed: Deed,
) -> io::Result<Option<(Quota, Quota)>> {
    let Some(files) = search.files(kept)? else {
        return Ok(None);
    };
    // While another agent manages the group, its value is not ours to judge.
    let is_claimed = search.claimed.contains(&kept.identity);
    let claim = if is_claimed { None } else { files.claim()? };
    if claim.is_none() && !is_claimed {
        return Err(io::Error::other(Why::Taken.sentence()));
    }
    let Some(present) = read(&files)? else {
        return Ok(None);
    };
    let original = kept.original;
    if present == original || !kept.is_ours(present) {
        return Ok(None);
    }
    if deed == Deed::Real {
        files.set_quota(original)?;
        if files.quota()? != original {
            return Err(io::Error::other("the kernel did not take the value"));
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
    /// Whether we wrote a value or were about to. Version 1 writes quota and period one after the
    /// other, so they may come from two different values of ours.
    fn is_ours(&self, present: Quota) -> bool {
        let known = || self.ours.iter().chain([&self.original]);
        known().any(|known| known.quota_us == present.quota_us)
            && known().any(|known| known.period_us == present.period_us)
    }
}
