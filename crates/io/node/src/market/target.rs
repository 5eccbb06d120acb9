//! Whom the market manages: declared cgroups and our own executions, each found or named with the
//! reason why not (M10).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use bursar_market::params::{BASELINE_MILLI, FACTOR_PERMILLE, Params, weight};

use super::hierarchy::{Hierarchies, plain};
use super::{Declared, Execution, Executions, Place};

/// After how many clearings a unit that is not there is looked for again: that walks the tree.
const UNIT_EVERY: u64 = 12;

/// Why a cgroup is not managed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Why {
    /// There is none of that name.
    Missing,
    /// It is the root of the hierarchy.
    Root,
    /// It holds this very process.
    Own,
    /// It lies inside another that is managed.
    Nested,
    /// Its path leads elsewhere.
    NotAPath,
    /// Another pod has the same name.
    NameTaken,
    /// The kernel counts no use for it.
    Unreadable,
    /// It cannot have a CPU limit, or has none where one is wanted.
    NoQuota,
    /// Its limit may not be written by us.
    NoRights,
    /// Another group that had its name, or had been given another name, is not put back yet.
    Owed,
    /// Another agent manages it.
    Taken,
}

/// A cgroup to be managed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Target {
    pub(super) group: PathBuf,
    pub(super) params: Params,
    pub(super) kind: Kind,
}

/// Who asked for a cgroup to be managed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The settings.
    Declared,
    /// It is an execution of ours: one without a quota is not managed, and one that is gone has
    /// ended.
    Execution,
}

/// Who is to be managed, as far as that could be found out.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// All targets by their names.
    pub(super) found: BTreeMap<String, Target>,
    /// Those who cannot be one, and why.
    pub(super) without: Vec<(String, Why)>,
    /// One of those who were not looked for since too many files are open.
    pub(super) short: Option<(String, io::Error)>,
}

/// Looks for targets again and again.
#[derive(Debug, Default)]
pub(super) struct Finder {
    /// Where units were found, or when they were last looked for in vain.
    units: BTreeMap<String, Found>,
    looks: u64,
}

#[derive(Debug)]
enum Found {
    At(PathBuf),
    Not(u64),
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

    /// The word that metrics and the interface carry.
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

    /// What people read.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Missing => "there is no such cgroup",
            Self::Root => "it is the root of all cgroups",
            Self::Own => "it holds this very process",
            Self::Nested => "it is, or lies inside, another that is managed",
            Self::NotAPath => "its path leads elsewhere",
            Self::NameTaken => "another pod has the same name",
            Self::Unreadable => "its counters cannot be read",
            Self::NoQuota => "it has no CPU limit of its own",
            Self::NoRights => "its limit may not be written by this user",
            Self::Owed => "another cgroup that had this name still waits for its limit",
            Self::Taken => "another agent manages it",
        }
    }
}

impl Finder {
    /// Looks for everyone.
    pub(super) fn look(
        &mut self,
        hierarchies: &Hierarchies,
        declared: &[Declared],
        executions: Option<&Executions>,
    ) -> Targets {
        self.looks += 1;
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
            Some(Found::At(group)) if hierarchies.has(group) => return Ok(Some(group.clone())),
            Some(Found::Not(looks)) if self.looks < looks + UNIT_EVERY => return Ok(None),
            _ => {}
        }
        let found = hierarchies.unit(unit)?;
        let note = found.clone().map_or(Found::Not(self.looks), Found::At);
        self.units.insert(unit.to_owned(), note);
        Ok(found)
    }
}

/// An execution has its group once it runs; the engine's word comes before that.
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

/// Takes out those that lie inside another: its limit binds them already. Of two names of one group
/// the first has it.
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
