//! Finds the cgroups to manage: declared ones and our own executions. Those that cannot be managed
//! are listed with the reason (M10).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use bursar_market::params::{BASELINE_MILLI, FACTOR_PERMILLE, Params, weight};

use super::hierarchy::{Hierarchies, plain};
use super::{Declared, Execution, Executions, Place};

/// Clearings between two searches for a missing unit, because each walks the tree.
const UNIT_EVERY: u64 = 12;

/// Reason why a cgroup is not managed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Why {
    /// It does not exist.
    Missing,
    /// It is the root of the hierarchy.
    Root,
    /// It contains this process.
    Own,
    /// It is inside another managed cgroup.
    Nested,
    /// Its path contains `..`.
    NotAPath,
    /// Another pod has the same name.
    NameTaken,
    /// Its counters cannot be read.
    Unreadable,
    /// It cannot have a CPU limit, or has none where one is wanted.
    NoQuota,
    /// This user may not write its limit.
    NoRights,
    /// The original of an earlier group of this name is not restored yet.
    Owed,
    /// Another agent manages it.
    Taken,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Target {
    pub(super) group: PathBuf,
    pub(super) params: Params,
    pub(super) kind: Kind,
}

/// Kind of a managed cgroup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Declared in the settings.
    Declared,
    /// Our own execution: without a quota it is not managed, and a missing one has ended.
    Execution,
}

#[derive(Debug, Default)]
pub(super) struct Targets {
    pub(super) found: BTreeMap<String, Target>,
    /// Cgroups that cannot be managed.
    pub(super) without: Vec<(String, Why)>,
    /// One of those that were not searched because too many files are open.
    pub(super) short: Option<(String, io::Error)>,
}

#[derive(Debug, Default)]
pub(super) struct Finder {
    units: BTreeMap<String, UnitSearch>,
    searches: u64,
}

#[derive(Debug)]
enum UnitSearch {
    Found(PathBuf),
    /// The search in which it was last looked for.
    Missing(u64),
}

impl Why {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Missing,
        Self::Root,
        Self::Own,
        Self::Nested,
        Self::NotAPath,
        Self::NameTaken,
        Self::Unreadable,
        Self::NoQuota,
        Self::NoRights,
        Self::Owed,
        Self::Taken,
    ];

    /// The name in metrics and in the API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Root => "root",
            Self::Own => "own",
            Self::Nested => "nested",
            Self::NotAPath => "not-a-path",
            Self::NameTaken => "name-taken",
            Self::Unreadable => "unreadable",
            Self::NoQuota => "no-quota",
            Self::NoRights => "no-rights",
            Self::Owed => "owed",
            Self::Taken => "taken",
        }
    }

    /// The explanation for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Missing => "there is no such cgroup",
            Self::Root => "it is the root of the cgroup hierarchy",
            Self::Own => "it contains the process of the agent itself",
            Self::Nested => "it is, or is inside, another managed cgroup",
            Self::NotAPath => "its path contains `..`",
            Self::NameTaken => "another pod has the same name",
            Self::Unreadable => "its counters cannot be read",
            Self::NoQuota => "it has no CPU limit of its own",
            Self::NoRights => "its limit may not be written by this user",
            Self::Owed => {
                "the original limit of an earlier cgroup of this name is not put back yet"
            }
            Self::Taken => "another agent manages it",
        }
    }
}

impl Finder {
    pub(super) fn search(
        &mut self,
        hierarchies: &Hierarchies,
        declared: &[Declared],
        executions: Option<&Executions>,
    ) -> Targets {
        self.searches += 1;
        let mut targets = Targets::default();
        let Targets {
            found,
            without,
            short,
        } = &mut targets;
        for declared in declared {
            let name = declared.name.clone();
            match self.declared(hierarchies, declared) {
                Err(error) => *short = Some((name, error)),
                Ok(Err(why)) => without.push((name, why)),
                Ok(Ok(target)) => {
                    found.insert(name, target);
                }
            }
        }
        let running = executions.map(|executions| (executions.list)());
        for execution in running.into_iter().flatten() {
            let ledger = executions.map_or("", |executions| executions.ledger.as_str());
            let name = format!("e-{}", execution.id);
            match self::execution(hierarchies, ledger, &name, &execution) {
                Ok(_) if found.contains_key(&name) => without.push((name, Why::NameTaken)),
                Ok(target) => {
                    found.insert(name, target);
                }
                Err(why) => without.push((name, why)),
            }
        }
        without.extend(nested(found));
        targets
    }

    fn declared(
        &mut self,
        hierarchies: &Hierarchies,
        declared: &Declared,
    ) -> io::Result<Result<Target, Why>> {
        let group = match &declared.place {
            Place::Path(path) => plain(path).ok_or(Why::NotAPath),
            Place::Unit(unit) => self.unit(hierarchies, unit)?.ok_or(Why::Missing),
        };
        Ok(match group {
            Err(why) => Err(why),
            Ok(group) if group.as_os_str().is_empty() => Err(Why::Root),
            Ok(group) if hierarchies.holds_us(&group) => Err(Why::Own),
            Ok(group) => Ok(Target {
                group,
                params: declared.params,
                kind: Kind::Declared,
            }),
        })
    }

    fn unit(&mut self, hierarchies: &Hierarchies, unit: &str) -> io::Result<Option<PathBuf>> {
        match self.units.get(unit) {
            Some(UnitSearch::Found(group)) if hierarchies.has(group) => {
                return Ok(Some(group.clone()));
            }
            Some(UnitSearch::Missing(searches)) if self.searches < searches + UNIT_EVERY => {
                return Ok(None);
            }
            _ => {}
        }
        let found = hierarchies.unit(unit)?;
        let note = found
            .clone()
            .map_or(UnitSearch::Missing(self.searches), UnitSearch::Found);
        self.units.insert(unit.to_owned(), note);
        Ok(found)
    }
}

/// The target of an execution. The ledger may list it before its group exists.
fn execution(
    hierarchies: &Hierarchies,
    ledger: &str,
    name: &str,
    execution: &Execution,
) -> Result<Target, Why> {
    let max_milli = execution.limit_milli.ok_or(Why::NoQuota)?;
    let places = hierarchies.of_executions(ledger).into_iter();
    let mut groups = places.map(|place| place.join(name));
    let group = groups.find(|group| hierarchies.has(group));
    let charged_milli = match execution.cpu_milli {
        0 => BASELINE_MILLI,
        milli => milli,
    };
    Ok(Target {
        group: group.ok_or(Why::NoQuota)?,
        params: Params {
            min_milli: charged_milli.min(max_milli),
            max_milli,
            weight: weight(execution.cpu_milli, FACTOR_PERMILLE),
        },
        kind: Kind::Execution,
    })
}

/// Removes targets inside another one, whose limit applies to them already. Of two names for one
/// group the first stays.
fn nested(targets: &mut BTreeMap<String, Target>) -> Vec<(String, Why)> {
    let groups: BTreeSet<&Path> = targets.values().map(|target| &*target.group).collect();
    let mut taken = BTreeSet::new();
    let is_nested = |group: &Path| {
        group
            .ancestors()
            .skip(1)
            .any(|above| groups.contains(above))
    };
    let without: Vec<(String, Why)> = targets
        .iter()
        .filter(|(_, target)| is_nested(&target.group) || !taken.insert(&target.group))
        .map(|(name, _)| (name.clone(), Why::Nested))
        .collect();
    for (name, _) in &without {
        targets.remove(name);
    }
    without
}
