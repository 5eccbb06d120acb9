//! The quotas that users wrote, kept where a crash does not reach until they are put back (M10).
//!
//! A quota is stored, with what is about to be written, before anything is written. So at any
//! moment, and after `kill -9` at any moment, the file says of each cgroup that we touched what to
//! put back, and which values there are ours. A value that is neither is somebody else's: it is
//! left, and counts as the original from then on. A cgroup of the same name that is another one
//! (its number differs, or the machine was started anew) has nothing to be put back. One that has
//! got another name is found by its number; where other cgroups are seen than those that were
//! touched, as in another container, nothing is looked for, and nothing is forgotten.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bursar_market::cgroup::Quota;
use serde::{Deserialize, Serialize};

use super::Error;
use super::files::LimitFiles;
use super::hierarchy::{Hierarchies, Root};
use super::target::Why;

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
    /// Where they were taken, if that was told.
    root: Option<Root>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<Root>,
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
        let (root, kept) = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, BTreeMap::new()),
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

    /// Those of a directory, to be put back in these hierarchies; refused where they were taken in
    /// others, in which their cgroups cannot be found and so would pass for gone.
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

    /// Whether something is still to be put back to another group that had the name of a pod.
    pub fn owes_another(&self, pod: &str, group: &Path, identity: u64) -> bool {
        let kept = self.kept.get(pod);
        kept.is_some_and(|kept| kept.group != group || kept.identity != identity)
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
            .map_err(failed("keep", &self.directory))
    }

    /// Puts back what is kept of every pod that `is_wanted` names, and forgets it. What cannot be
    /// put back is kept, and so is that of a group that another agent manages: one is `claimed` by
    /// whoever asks, or by nobody.
    pub fn give_back(
        &mut self,
        hierarchies: &Hierarchies,
        is_wanted: impl Fn(&str) -> bool,
        claimed: &BTreeSet<u64>,
        deed: Deed,
    ) -> Result<Restored, Error> {
        let mut told = Restored::default();
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

/// Finds groups again that may have got another name.
struct Search<'a> {
    hierarchies: &'a Hierarchies,
    /// The numbers of the groups that are ours already.
    claimed: &'a BTreeSet<u64>,
    /// The groups in those that were looked into, by their numbers.
    beside: BTreeMap<PathBuf, BTreeMap<u64, PathBuf>>,
}

impl Search<'_> {
    /// The files that limit a group, if it is still there.
    fn files(&mut self, kept: &Kept) -> io::Result<Option<LimitFiles>> {
        match self.hierarchies.limit(&kept.group) {
            Ok(files) if files.identity() == kept.identity => return Ok(Some(files)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // There is none of that name, or another.
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

/// Puts one quota back: from what to what, or nothing where that is not ours to change any more.
fn give_back(
    search: &mut Search<'_>,
    kept: &Kept,
    deed: Deed,
) -> io::Result<Option<(Quota, Quota)>> {
    // Whoever is gone needs nothing back.
    let Some(files) = search.files(kept)? else {
        return Ok(None);
    };
    // While another agent is there what it says is not to be judged.
    let is_claimed = search.claimed.contains(&kept.identity);
    let claim = if is_claimed { None } else { files.claim()? };
    if claim.is_none() && !is_claimed {
        return Err(io::Error::other(Why::Taken.sentence()));
    }
    let Some(present) = read(&files)? else {
        return Ok(None);
    };
    let original = kept.original.into();
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
