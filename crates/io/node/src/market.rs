//! The node market on a real kernel: reads counters, writes limits, and puts back what it found
//! (design 10, M8–M12).
//!
//! ```text
//! hierarchy (where) ─► files (counters, quotas) ─► bursar_market::node (decides) ─► files
//!                            originals (before the first write) ─┘        └─► record, view
//! ```
//! [`Agent`] is one thread that drives [`bursar_market::node::Node`], which decides everything;
//! nothing here chooses a number. It manages the cgroups that the configuration declares and our
//! own executions, and nothing else: never the root, never a group that holds ourselves.
//! [`restore`] puts everything back without an agent.
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
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bursar_market::node::Settings;
use bursar_market::params::Params;
use thiserror::Error;

pub use agent::{Agent, RESIZES_MAX};
pub use originals::{Deed, Restored};
pub use record::Position;
pub use rules::{Rules, Run};
pub use target::{Kind, Why};
pub use view::{
    Acts, HISTORY_MS, Observed, Point, PointPod, Resize, SILENT_CLEARINGS, SILENT_MS_MIN, View,
    silent_ms,
};

use hierarchy::Hierarchies;
use originals::Originals;

/// The directory of the market in a data directory.
pub const DIRECTORY: &str = "market";
/// The file whose lock keeps two agents apart.
const LOCK: &str = "lock";

/// How an agent is run.
#[derive(Clone)]
pub struct Options {
    /// The node's name.
    pub node: String,
    /// Where originals and record are kept: [`DIRECTORY`] in the data directory.
    pub directory: PathBuf,
    /// Whether limits are written.
    pub mode: Mode,
    /// How the node is run.
    pub settings: Settings,
    /// How often counters are read.
    pub sense: Duration,
    /// How often the node is cleared.
    pub clear: Duration,
    /// What is kept back of the processors; the usual part where absent.
    pub reserve_milli: Option<u64>,
    /// What those take who are not managed.
    pub unmanaged: Unmanaged,
    /// The cgroups that the configuration declares.
    pub cgroups: Vec<Declared>,
    /// Our own executions.
    pub executions: Option<Executions>,
    /// The directory of our own process in `/proc`, which says where the cgroups are.
    pub process: PathBuf,
}

/// Whether limits are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// It only looks.
    Observe,
    /// They are.
    Act,
}

/// Where the use of those who are not managed is known from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unmanaged {
    /// From the counters of the whole machine.
    Measured,
    /// It is given, in millicores.
    Given(u64),
}

/// A cgroup that the configuration declares.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Declared {
    /// The name people see.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// Its floor, ceiling and weight.
    pub params: Params,
}

/// How a cgroup is named.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// By its path from the root of the hierarchy.
    Path(PathBuf),
    /// By the systemd unit that it belongs to.
    Unit(String),
}

/// Our own executions.
#[derive(Clone)]
pub struct Executions {
    /// The ledger whose they are.
    pub ledger: String,
    /// Those that run now; asked at each clearing.
    pub list: Arc<dyn Fn() -> Vec<Execution> + Send + Sync>,
}

/// An execution that runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Execution {
    /// Its id.
    pub id: String,
    /// The CPU that it is charged for, in millicores; 0 for none.
    pub cpu_milli: u64,
    /// The most it may use; without one it has no quota and is not managed.
    pub limit_milli: Option<u64>,
}

/// What an agent could not do.
#[derive(Debug, Error)]
pub enum Error {
    /// A file or directory.
    #[error("cannot {doing} {}", path.display())]
    Path {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The stored originals make no sense.
    #[error(
        "{} makes no sense; put the limits back by hand and remove it",
        path.display()
    )]
    Originals {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The stored originals are of cgroups that cannot be seen from here.
    #[error(
        "{} is of cgroups that are not seen from here, as in another container: \
         do this where the agent ran, or, if they are gone, remove it",
        .0.display()
    )]
    Elsewhere(PathBuf),
    /// Nobody can tell what those use who are not managed.
    #[error(
        "the use of the whole machine is not counted in {}: \
         what those use who are not managed is not taken off what is shared",
        path.display()
    )]
    Machine {
        /// Where the hierarchy is mounted.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Too many files are open.
    #[error(
        "cannot open the files of `{name}`: \
         raise the limit of open files (`ulimit -n`, or `LimitNOFILE=` of its unit)"
    )]
    Shortage {
        /// Whose files.
        name: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The record was changed, or does not replay.
    #[error("line {line} of {} is wrong: {why}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// Why.
        why: &'static str,
    },
    /// Two cgroups are declared by one name.
    #[error("cgroup `{0}` is declared twice")]
    Twice(String),
    /// There is nothing to look at.
    #[error("no cgroup hierarchy with the cpu controller is mounted")]
    NoHierarchy,
    /// It is not known how many processors there are.
    #[error("cannot tell how many processors may be used here")]
    NoProcessors,
    /// Another agent is at work on the same directory.
    #[error("another agent works in {}", .0.display())]
    InUse(PathBuf),
    /// The thread of an agent is gone.
    #[error("the agent has stopped")]
    Stopped,
}

/// Puts back what an agent that is no longer there has left in a directory. While one is there it
/// must be asked itself.
pub fn restore(directory: &Path, process: &Path, deed: Deed) -> Result<Restored, Error> {
    if !directory.exists() {
        return Ok(Restored::default());
    }
    let _lock = lock(directory)?;
    let hierarchies = Hierarchies::find(process).ok_or(Error::NoHierarchy)?;
    let mut originals = Originals::open_in(directory, &hierarchies)?;
    originals.give_back(&hierarchies, |_| true, &BTreeSet::new(), deed)
}

/// What is kept in a directory to be put back some day, in millicores; `None` for no limit.
pub fn kept(directory: &Path) -> Result<BTreeMap<String, Option<u64>>, Error> {
    Ok(Originals::open(directory)?.milli())
}

/// Makes the directory and keeps others out of it for as long as the file is open.
fn lock(directory: &Path) -> Result<File, Error> {
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| Error::Path {
            doing,
            path,
            source,
        }
    };
    fs::create_dir_all(directory).map_err(failed("make", directory))?;
    let path = directory.join(LOCK);
    let file = File::create(&path).map_err(failed("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed("lock", &path)(source)),
    }
}

/// Refuses cgroups of which two have one name.
pub fn check_declared(cgroups: &[Declared]) -> Result<(), Error> {
    let mut names: Vec<&str> = cgroups.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    match names.array_windows().find(|[one, next]| one == next) {
        Some([name, _]) => Err(Error::Twice((*name).to_owned())),
        None => Ok(()),
    }
}
