//! The trait of executors, which run the work of executions.
//!
//! Every call may be repeated. An executor starts an id at most once, for any number of calls and
//! callers. If the result of an execution cannot be known, it is lost (X2, X3).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use bursar_booking::execution::{Exit, Isolation};
use bursar_journal::hash::Hash;
use bursar_units::BookingId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Future of an executor's operation.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs the work of executions.
pub trait Executor: Send + Sync {
    /// The salted hash of a work: the same for the same work (L13).
    fn digest(&self, work: &Work) -> Hash;

    /// Stores a work, and returns its hash.
    fn keep(&self, work: &Work) -> Result<Hash, Error>;

    /// Starts an id, unless it was started before. Resolves when its process runs or cannot run.
    fn start<'a>(&'a self, id: &'a BookingId, job: &'a Job) -> Doing<'a, Begun>;

    /// Resolves when the process of an id that was started is gone, with all its descendants.
    fn exit<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Exit>;

    /// Signals a process to end, and kills it after the grace period; an error means that it is
    /// still alive. An id that was not started cannot be started afterwards.
    fn stop<'a>(&'a self, id: &'a BookingId, grace: Duration) -> Doing<'a, Result<(), Error>>;

    /// All ids of this ledger that have a process, a cgroup or a directory. The list is complete,
    /// or there is an error (X5).
    fn list(&self) -> Doing<'_, Result<Vec<BookingId>, Error>>;

    /// State of the processes of an id that is listed.
    fn life<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Result<Life, Error>>;

    /// Kills the processes of an id and removes everything that was made for it, except `left`.
    fn clean<'a>(&'a self, id: &'a BookingId, left: Left) -> Doing<'a, Result<(), Error>>;

    /// Removes stored works that are not `needed`.
    fn forget(&self, needed: BTreeSet<Hash>) -> Doing<'_, Result<(), Error>>;

    /// Output of an execution so far, from byte `from` on; `None` if none is stored.
    fn output(&self, id: &BookingId, stream: Stream, from: u64) -> Result<Option<Output>, Error>;
}

/// A program with its arguments. It may hold secrets, so it is stored outside the ledger, and only
/// until it is started.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Work {
    /// The program: a path, or a name that is looked up in the `PATH` of `env`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment, to which only `BURSAR_BOOKING` and `BURSAR_FENCE` are added.
    pub env: BTreeMap<String, String>,
    /// Its working directory; by default the root directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Its user; by default the user of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Whether it may gain privileges by executing a program with the set-user-ID bit or with file
    /// capabilities.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_privilege_escalation: bool,
}

/// A user of this machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// Number of the user.
    pub uid: u32,
    /// Number of the group.
    pub gid: u32,
}

/// Parameters of a start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Job {
    /// Hash of the work.
    pub work: Hash,
    /// Fence of the booking, which proves that it holds the slot.
    pub fence: u64,
    /// Note from which a ledger that has lost the execution can adopt it. It is stored with the
    /// execution while its process runs, and [`Executor::life`] returns it.
    pub note: String,
    /// The most CPU it may use, in millicores.
    pub cpu_milli: Option<u64>,
    /// The most memory it may use.
    pub memory_bytes: Option<u64>,
    /// The most processes and threads it may have.
    pub pids: Option<u32>,
}

/// Result of a start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Begun {
    /// Its process runs, with this isolation.
    Running(Isolation),
    /// Its process is gone, or never ran.
    Gone(Exit),
}

/// State of the processes of an execution.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Life {
    /// A process runs.
    Running {
        /// [`Job::note`]; empty if an earlier version started it, or if its directory is missing
        /// or unreadable.
        note: String,
        /// Its isolation.
        isolation: Isolation,
        /// Whether its shim is alive, so that its exit will be known. Without a shim it ends as
        /// lost, and [`Executor::start`] and [`Executor::exit`] would kill it.
        has_shim: bool,
    },
    /// No process runs.
    Nothing,
}

/// The files of an execution that stay after it is cleaned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Left {
    /// Its output and its exit.
    Output,
    /// Nothing.
    Nothing,
}

/// Output stream of a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// Reader of the output of an execution.
pub type Output = Box<dyn Read + Send>;

/// Error of an executor.
#[derive(Debug, Error)]
pub enum Error {
    /// An operation on a file, directory or cgroup failed.
    #[error("cannot {doing} {}", path.display())]
    Path {
        /// Name of the operation.
        doing: &'static str,
        /// Path of the file, directory or cgroup.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// A defect in the executor.
    #[error("a thread of the executor ended early")]
    Thread(#[from] tokio::task::JoinError),
    /// Processes are alive after they were killed.
    #[error("{count} processes of {id} do not end")]
    Alive {
        /// Id of the execution.
        id: BookingId,
        /// Number of processes.
        count: usize,
    },
}
