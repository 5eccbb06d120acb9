//! Where executions run: this machine, and how well it keeps them apart (X3, X4).

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

/// Where executions of a ledger are kept, in its data directory.
pub(super) const DIRECTORY: &str = "executions";
/// The process whose cgroups are divided: our own.
const PROCESS: &str = "/proc/self";
/// What stands for the ledger's id while there is none.
const NO_LEDGER: &str = "none";

/// The executor of this machine, and what it was found to be.
pub(super) struct Found {
    /// What runs executions.
    pub(super) local: Arc<Local>,
    /// The hierarchies in which they are kept apart.
    pub(super) trees: Vec<Tree>,
    /// How many the last server left running.
    pub(super) adopted: usize,
    /// Held until the end.
    _sole: Sole,
}

/// Refuses to run a copy of a ledger beside its original, whose programs it would end.
fn only_server(ledger: &str) -> Result<Sole, Stop> {
    let taken = Sole::take(ledger).map_err(|error| {
        Failure::unavailable(format!(
            "cannot tell whether ledger {ledger} runs here already: {error}"
        ))
    })?;
    taken.map_err(|pid| {
        let message = format!("another server of ledger {ledger} runs on this machine: process {pid}");
        Failure::unavailable(message)
            .hint("a copy would take its programs for its own; stop that server first, or start the copy on another machine")
            .into()
    })
}

impl Found {
    /// Opens the executor of a ledger. Refuses where the settings want more than there is.
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
        let kept_apart = match (self.trees.as_slice(), self.controllers().as_slice()) {
            ([], _) => format!("isolation: none ({NOTHING})"),
            (_, []) => format!("cgroups {}: nothing can be limited", self.version()),
            (_, limits) => format!("cgroups {}: {}", self.version(), limits.join(", ")),
        };
        match u64::try_from(self.adopted) {
            Ok(0) | Err(_) => kept_apart,
            Ok(count) => format!("{kept_apart}; adopts {}", words::count(count, "execution")),
        }
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        if self.trees.is_empty() {
            return json!({"isolation": "none", "reason": NOTHING, "adopted": self.adopted});
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

    /// What can be limited here.
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

/// Refuses settings that want more than this machine has, before there is a ledger.
pub(super) fn check(settings: &Settings) -> Result<(), Stop> {
    if settings.require_isolation {
        require_isolation(settings, &find(NO_LEDGER))?;
    }
    Ok(())
}

/// The hierarchies in which executions of a ledger are kept apart.
fn find(ledger: &str) -> Vec<Tree> {
    let trees = cgroup::find(Path::new(PROCESS), ledger);
    for tree in &trees {
        // Looking made it. The first execution makes it again, so that a server which runs
        // none leaves none behind, however it ends; one with executions in it stays.
        let _in_use = std::fs::remove_dir(&tree.base);
    }
    trees
}

fn require_isolation(settings: &Settings, trees: &[Tree]) -> Result<(), Stop> {
    if !trees.is_empty() || !settings.require_isolation {
        return Ok(());
    }
    let message = format!("executions cannot be kept apart: {NOTHING}");
    let hint = "leave out `--require-isolation`, or give this service a cgroup of its own \
                (`Delegate=yes`)";
    Err(Failure::unavailable(message).hint(hint).into())
}

/// The executor of a ledger whose executions are kept in a directory.
pub(super) fn open(
    directory: PathBuf,
    ledger: &str,
    require_isolation: bool,
) -> Result<Local, Stop> {
    let shim = std::env::current_exe()
        .map_err(|error| Failure::unavailable(format!("cannot find this program: {error}")))?;
    let opened = Local::open(Options {
        directory,
        ledger: ledger.to_owned(),
        shim,
        require_isolation,
        process: PROCESS.into(),
    });
    opened.map_err(|error| {
        let hint = "move away what is in its place: what executions leave there is not needed for the ledger";
        Failure::unavailable(chain(&error)).hint(hint).into()
    })
}

/// Why nothing is kept apart.
const NOTHING: &str = "no cgroup here may be divided by this user";
