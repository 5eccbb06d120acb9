//! The executor of this machine, and the cgroups that isolate executions (X3, X4).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bursar_engine::words;
use bursar_ledger::data::Data;
use bursar_node::cgroup::{self, Controller, Tree, Version};
use bursar_node::local::{Local, Options};
use bursar_node::sole::Sole;
use bursar_units::causes::chain;
use serde_json::{Value, json};

use super::settings::Settings;
use crate::failure::{Failure, Stop};

/// Directory of executions in the data directory.
pub(super) const DIRECTORY: &str = "executions";
/// The process whose cgroup is the parent of those of executions.
const PROCESS: &str = "/proc/self";
/// Ledger id in cgroup names while there is no ledger.
const NO_LEDGER: &str = "none";

/// The executor of this machine, and its properties.
pub(super) struct MachineExecutor {
    pub(super) local: Arc<Local>,
    /// The cgroup hierarchies that isolate executions.
    pub(super) trees: Vec<Tree>,
    /// Number of executions that the last server left running.
    pub(super) adopted: usize,
    /// Held until the server ends.
    _sole: Sole,
}

/// Refuses a second server of a ledger, for example on a copy: it would end programs of the first.
fn only_server(ledger: &str) -> Result<Sole, Stop> {
    let taken = Sole::take(ledger).map_err(|error| {
        Failure::unavailable(format!(
            "cannot check whether another server of ledger {ledger} runs here: {error}"
        ))
    })?;
    taken.map_err(|pid| {
        let message =
            format!("another server of ledger {ledger} runs on this machine: process {pid}");
        let hint = "two servers of one ledger would end each other's programs; stop that server \
                    first, or start the copy on another machine";
        Failure::unavailable(message).hint(hint).into()
    })
}

impl MachineExecutor {
    /// Opens the executor of a ledger; fails if a required isolation is not available.
    pub(super) fn open(settings: &Settings, data: &Data) -> Result<Self, Stop> {
        let (ledger, adopted) = {
            let state = data.ledger.view().read();
            (
                state.spine.ledger.clone(),
                state.bookings.executions().count(),
            )
        };
        let directory = settings.data.join(DIRECTORY);
        let sole = only_server(&ledger)?;
        let local = open(directory, &ledger, settings.require_isolation)?;
        let trees = find(&ledger);
        require_isolation(settings, &trees)?;
        Ok(Self {
            local: Arc::new(local),
            trees,
            adopted,
            _sole: sole,
        })
    }

    /// `cgroups hybrid: cpu, memory, pids; adopts 3 executions`.
    pub(super) fn words(&self) -> String {
        let isolation = match (self.trees.as_slice(), self.controllers().as_slice()) {
            ([], _) => format!("isolation: none ({NO_CGROUP})"),
            (_, []) => format!("cgroups {}: nothing can be limited", self.version()),
            (_, limits) => format!("cgroups {}: {}", self.version(), limits.join(", ")),
        };
        match u64::try_from(self.adopted) {
            Ok(0) | Err(_) => isolation,
            Ok(count) => format!("{isolation}; adopts {}", words::count(count, "execution")),
        }
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        if self.trees.is_empty() {
            return json!({"isolation": "none", "reason": NO_CGROUP, "adopted": self.adopted});
        }
        json!({
            "isolation": "cgroup",
            "cgroups": self.version(),
            "controllers": self.controllers(),
            "adopted": self.adopted,
        })
    }

    fn version(&self) -> &'static str {
        let has = |version| self.trees.iter().any(|tree| tree.version == version);
        match (has(Version::V1), has(Version::V2)) {
            (true, true) => "hybrid",
            (true, false) => "v1",
            (false, _) => "v2",
        }
    }

    /// Controllers of the limits that executions can have here.
    fn controllers(&self) -> Vec<&'static str> {
        let limits = [Controller::Cpu, Controller::Memory, Controller::Pids];
        let is_here = |limit: &Controller| {
            let mut trees = self.trees.iter();
            trees.any(|tree| tree.controllers.contains(limit))
        };
        let here = limits.into_iter().filter(is_here);
        here.map(Controller::word).collect()
    }
}

/// Checks the settings before a ledger is created.
pub(super) fn check(settings: &Settings) -> Result<(), Stop> {
    if settings.require_isolation {
        require_isolation(settings, &find(NO_LEDGER))?;
    }
    Ok(())
}

/// The cgroup hierarchies for executions of a ledger.
fn find(ledger: &str) -> Vec<Tree> {
    let trees = cgroup::find(Path::new(PROCESS), ledger);
    for tree in &trees {
        // `find` created the cgroup. The first execution creates it again, so a server without
        // executions leaves none behind. A cgroup with executions in it is not removed.
        let _in_use = std::fs::remove_dir(&tree.base);
    }
    trees
}

fn require_isolation(settings: &Settings, trees: &[Tree]) -> Result<(), Stop> {
    if !trees.is_empty() || !settings.require_isolation {
        return Ok(());
    }
    let message = format!("executions cannot be isolated: {NO_CGROUP}");
    let hint = "leave out `--require-isolation`, or give this service a cgroup of its own \
                (`Delegate=yes`)";
    Err(Failure::unavailable(message).hint(hint).into())
}

/// Opens the executor of a ledger on a directory of executions.
pub(super) fn open(
    directory: PathBuf,
    ledger: &str,
    require_isolation: bool,
) -> Result<Local, Stop> {
    let shim = std::env::current_exe().map_err(|error| {
        Failure::unavailable(format!("cannot find the path of this program: {error}"))
    })?;
    let opened = Local::open(Options {
        directory,
        ledger: ledger.to_owned(),
        shim,
        require_isolation,
        process: PROCESS.into(),
    });
    opened.map_err(|error| {
        let hint =
            "move that file or directory away; the ledger does not need the files of executions";
        Failure::unavailable(chain(&error)).hint(hint).into()
    })
}

/// Reason for missing isolation.
const NO_CGROUP: &str = "this user cannot create cgroups here";
