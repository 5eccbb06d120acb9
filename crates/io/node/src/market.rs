//! The node market on a real kernel: reads counters, writes limits, and restores the originals
//! (M8–M12).
//!
//! ```text
//! hierarchy (where) ─► files (counters, quotas) ─► bursar_market::node (decides) ─► files
//!                            originals (before the first write) ─┘        └─► record, view
//! ```
//! [`Agent`] is one thread that drives [`bursar_market::node::Node`], which makes every decision;
//! nothing here chooses a number. It manages the declared cgroups and our own executions only: never
//! the root, never a group that contains this process. [`restore`] restores everything without an
//! agent.
//! Deliberately absent: Kubernetes, whose layouts are only recognised ([`kubepods`]).

mod agent;
mod claim;
pub mod files;
pub mod hierarchy;
pub mod kubepods;
pub mod machine;
pub mod originals;
pub mod record;
mod rules;
mod target;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bursar_market::node::Settings;
use bursar_market::params::Params;
use thiserror::Error;

pub use agent::{Agent, RESIZES_MAX};
pub use originals::{Deed, Restored};
pub use record::Position;
pub use rules::{Rules, Run, WINDOWS_MAX};
pub use target::{Kind, Why};
pub use view::{
    Acts, HISTORY_MS, Observed, Point, PointPod, Resize, SILENT_CLEARINGS, SILENT_MS_MIN, View,
    silent_ms,
};

use hierarchy::Hierarchies;
use originals::Originals;

/// The directory of the market in a data directory.
pub const DIRECTORY: &str = "market";
/// The file whose lock excludes a second agent.
const LOCK: &str = "lock";

/// Settings of an agent.
#[derive(Clone)]
pub struct Options {
    /// The node's name.
    pub node: String,
    /// The directory of originals and record: [`DIRECTORY`] in the data directory.
    pub directory: PathBuf,
    /// Whether limits are written.
    pub mode: Mode,
    /// Settings of the node's market.
    pub settings: Settings,
    /// Interval of reading counters and clearing.
    pub interval: Duration,
    /// CPU that is not shared; absent for the default part.
    pub reserve_milli: Option<u64>,
    /// Source of the unmanaged CPU use.
    pub unmanaged: Unmanaged,
    /// The cgroups that the configuration declares.
    pub cgroups: Vec<Declared>,
    /// Our own executions.
    pub executions: Option<Executions>,
    /// The directory of our own process in `/proc`, used to find the cgroups.
    pub process: PathBuf,
}

/// Whether limits are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// No: counters are only read.
    Observe,
    /// Yes.
    Act,
}

/// Source of the CPU use of everything that is not managed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unmanaged {
    /// The counters of the whole machine.
    Measured,
    /// A fixed value, in millicores.
    Given(u64),
}

/// A cgroup that the configuration declares.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Declared {
    /// The displayed name.
    pub name: String,
    /// Its location.
    pub place: Place,
    /// Its floor, ceiling and weight.
    pub params: Params,
}

/// Location of a cgroup.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// The path from the root of the hierarchy.
    Path(PathBuf),
    /// The systemd unit that it belongs to.
    Unit(String),
}

/// Our own executions.
#[derive(Clone)]
pub struct Executions {
    /// Their ledger.
    pub ledger: String,
    /// Lists the running ones; called every few clearings.
    pub list: Arc<dyn Fn() -> Vec<Execution> + Send + Sync>,
}

/// A running execution.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Execution {
    /// Its id.
    pub id: String,
    /// The CPU that it is charged for, in millicores; 0 for none.
    pub cpu_milli: u64,
    /// Its CPU limit; without one it has no quota and is not managed.
    pub limit_milli: Option<u64>,
}

/// Error of an agent.
#[derive(Debug, Error)]
pub enum Error {
    /// An operation on a file or directory failed.
    #[error("cannot {doing} {}", path.display())]
    Path {
        /// The operation.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file of originals is damaged.
    #[error(
            "{} is not valid JSON; restore the limits by hand and remove the file",
        path.display()
    )]
    Originals {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The stored originals belong to another cgroup hierarchy.
    #[error(
        "{} belongs to cgroups that are not visible here, as in another container: \
         do this where the agent ran, or remove the file if those cgroups are gone",
        .0.display()
    )]
    Elsewhere(PathBuf),
    /// The CPU use of the whole machine cannot be read.
    #[error(
        "the CPU use of the whole machine cannot be read in {}: \
         unmanaged use is not subtracted from the shared capacity",
        path.display()
    )]
    Machine {
        /// The mount point of the hierarchy.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Too many files are open.
    #[error(
        "cannot open the files of `{name}`: \
         raise the limit of open files (`ulimit -n`, or `LimitNOFILE=` of its unit)"
    )]
    Shortage {
        /// The cgroup.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A line of the record was changed or cannot be replayed.
    #[error("line {line} of {} is not valid: {why}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: u64,
        /// The reason.
        why: &'static str,
    },
    /// Two declared cgroups have the same name.
    #[error("cgroup `{0}` is declared twice")]
    Twice(String),
    /// No hierarchy has the cpu controller.
    #[error("no cgroup hierarchy with the cpu controller is mounted")]
    NoHierarchy,
    /// The number of processors is unknown.
    #[error("the number of usable processors cannot be read from /proc and /sys")]
    NoProcessors,
    /// Another agent uses the same directory.
    #[error("another agent works in {}; stop it first", .0.display())]
    InUse(PathBuf),
    /// The thread of the agent has ended.
    #[error("the agent has stopped")]
    Stopped,
}

/// Restores the limits that a dead agent left. Fails while an agent is running: use
/// [`Agent::restore`].
pub fn restore(directory: &Path, process: &Path, deed: Deed) -> Result<Restored, Error> {
    if !directory.exists() {
        return Ok(Restored::default());
    }
    let _lock = lock(directory)?;
    let hierarchies = Hierarchies::find(process).ok_or(Error::NoHierarchy)?;
    let mut originals = Originals::open_in(directory, &hierarchies)?;
    originals.give_back(&hierarchies, |_| true, &BTreeSet::new(), deed)
}

/// The stored originals of a directory, in millicores; `None` for no limit.
pub fn kept(directory: &Path) -> Result<BTreeMap<String, Option<u64>>, Error> {
    Ok(Originals::open(directory)?.milli())
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Path {
        doing,
        path,
        source,
    }
}

/// Creates the directory and locks it for as long as the file is open.
fn lock(directory: &Path) -> Result<File, Error> {
    fs::create_dir_all(directory).map_err(failed("create", directory))?;
    let path = directory.join(LOCK);
    let file = File::create(&path).map_err(failed("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed("lock", &path)(source)),
    }
}

/// Refuses two cgroups with the same name.
pub fn check_declared(cgroups: &[Declared]) -> Result<(), Error> {
    let mut names: Vec<&str> = cgroups.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    match names.array_windows().find(|[one, next]| one == next) {
        Some([name, _]) => Err(Error::Twice((*name).to_owned())),
        None => Ok(()),
    }
}
