//! Where executions run: one trait, whatever is behind it.
//!
//! Every call may be repeated. An executor starts an id at most once in its life, whoever asks
//! and however often; whatever it cannot know it calls lost (X2, X3).

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

/// A future that an executor gives.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that runs work.
pub trait Executor: Send + Sync {
    /// The salted hash of what is to be run: the same for the same work (L13).
    fn digest(&self, work: &Work) -> Hash;

    /// Keeps what is to be run, and gives its hash.
    fn keep(&self, work: &Work) -> Result<Hash, Error>;

    /// Starts an id, unless it was started before; resolves when its process runs, or never will.
    fn start<'a>(&'a self, id: &'a BookingId, job: &'a Job) -> Doing<'a, Begun>;

    /// Resolves when the process of an id that was started is gone, with all it left behind.
    fn exit<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Exit>;

    /// Asks a process to end, and makes it after the grace; whether it is gone.
    /// An id that was not started yet never will be.
    fn stop<'a>(&'a self, id: &'a BookingId, grace: Duration) -> Doing<'a, Result<(), Error>>;

    /// Every id of this ledger of which something is there: a process, a cgroup or a directory.
    /// An error rather than part of the truth (X5).
    fn list(&self) -> Doing<'_, Result<Vec<BookingId>, Error>>;

    /// What lives of an id that is listed.
    fn life<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Result<Life, Error>>;

    /// Ends whatever is left of an id and removes all that was made for it, but for what is to be
    /// left.
    fn clean<'a>(&'a self, id: &'a BookingId, left: Left) -> Doing<'a, Result<(), Error>>;

    /// Forgets kept work that is not needed any more.
    fn forget(&self, needed: BTreeSet<Hash>) -> Doing<'_, Result<(), Error>>;

    /// What an execution has written so far, from a byte on; `None` where nothing is kept of it.
    fn output(&self, id: &BookingId, stream: Stream, from: u64) -> Result<Option<Output>, Error>;
}

/// What is run. It may hold secrets, so it is kept outside the ledger and forgotten soon.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Work {
    /// The program: a path, or a name to look for in the `PATH` it is given.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment, to which only `BURSAR_BOOKING` and `BURSAR_FENCE` are added.
    pub env: BTreeMap<String, String>,
    /// Where it starts; the root directory unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// As whom it runs; as the server's own user unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Whether a program that it executes may give it more privileges than it has: one with the
    /// set-user-ID bit, or with file capabilities.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_privilege_escalation: bool,
}

/// A user of this machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// Its number.
    pub uid: u32,
    /// Its group's.
    pub gid: u32,
}

/// What the ledger says about an execution that is to start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Job {
    /// What to run.
    pub work: Hash,
    /// Proof that the slot is its own.
    pub fence: u64,
    /// What the ledger must know of it should it forget it. It is kept with the execution while
    /// its process runs, and [`Executor::life`] gives it back.
    pub note: String,
    /// The most CPU it may use, in millicores.
    pub cpu_milli: Option<u64>,
    /// The most memory it may use.
    pub memory_bytes: Option<u64>,
    /// The most processes and threads it may have.
    pub pids: Option<u32>,
}

/// What came of a start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Begun {
    /// Its process runs, kept apart like this.
    Running(Isolation),
    /// It is gone already, or never ran.
    Gone(Exit),
}

/// What lives of an execution.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Life {
    /// A process of it runs.
    Running {
        /// What was to be kept of it; empty where an earlier version started it, or where its
        /// directory is missing or unreadable.
        note: String,
        /// How it is kept apart.
        isolation: Isolation,
        /// Whether its shim lives, so that its exit will be known. Without one it ends as lost,
        /// and [`Executor::start`] and [`Executor::exit`] would kill it.
        has_shim: bool,
    },
    /// Nothing.
    Nothing,
}

/// What to leave behind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Left {
    /// What it has written, and how it came out.
    Output,
    /// Nothing.
    Nothing,
}

/// One of the two streams of a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// What an execution has written.
pub type Output = Box<dyn Read + Send>;

/// What an executor could not do.
#[derive(Debug, Error)]
pub enum Error {
    /// A file, directory or cgroup.
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
    /// A defect in the executor.
    #[error("a thread of the executor ended early")]
    Thread(#[from] tokio::task::JoinError),
    /// Processes that do not go away.
    #[error("{count} processes of {id} do not end")]
    Alive {
        /// Whose.
        id: BookingId,
        /// How many.
        count: usize,
    },
}
