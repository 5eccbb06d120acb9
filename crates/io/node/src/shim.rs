//! The shim: the parent of one execution's process, and all that is left when the server dies.
//!
//! ```text
//! bursar ──► bursar shim run ID ──► bursar shim enter ID ──exec──► the program
//!            holds the lock         enters the cgroups
//! ```
//! The same binary, dispatched before anything else of it is touched, because there is one per
//! running execution and its memory counts: one thread, small buffers, no runtime, no logging.
//! It starts the program at most once in the life of the execution's directory, copies what it
//! writes, reaps every orphan, ends whatever is left when the program ends, and says in
//! `status.json` how it came out (X3). Its orders come over a socket on its standard input, so
//! that nothing of them is seen in a list of processes.
//!
//! The program is born through a second stage that enters the cgroups itself and becomes the
//! program (`exec`). The other way, where the shim enters, spawns and leaves again, would save
//! starting this binary once more (about 0.9 ms on 2 cores in a virtual machine, where fork and
//! exec of `/bin/true` take 0.8 ms). It was rejected: every move of a process takes 0.06 to
//! 0.2 ms in each hierarchy, or a grace period of the kernel (8 ms) if nobody moved lately, and
//! holds up every fork of the machine, and it would take two of them; the shim would die with the
//! cgroup if that is killed meanwhile, its memory would be charged to the program, and with a
//! limit of one process it could not have a child.

mod enter;
mod output;
mod watch;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use bursar_booking::execution::{Exit, Isolation};
use serde::{Deserialize, Serialize};

use crate::cgroup::{Group, Plan};

/// The first argument that makes this binary a shim.
pub const WORD: &str = "shim";
/// The second, for the stage that stays.
pub(crate) const RUN: &str = "run";
/// The second, for the stage that becomes the program.
pub(crate) const ENTER: &str = "enter";

/// Runs as a shim; `args` are what follows [`WORD`] on the command line.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    if args.next().is_some_and(|word| word == ENTER) {
        enter::main()
    } else {
        watch::main()
    }
}

/// What the server tells a shim: all that it needs, with nothing left to choose.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Whose it is.
    pub booking: String,
    /// Proof that its slot is its own.
    pub fence: u64,
    /// What the ledger must know of it should it forget it; a server that is older than its shim
    /// says nothing.
    #[serde(default)]
    pub note: String,
    /// The directory of the execution.
    pub directory: PathBuf,
    /// The file with what to run.
    pub work: PathBuf,
    /// The cgroups to make.
    pub plan: Plan,
    /// What one process may map where no cgroup limits memory.
    pub address_bytes: Option<u64>,
}

/// What a shim tells the server that started it, and the second stage its shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Report {
    /// The program runs.
    Running,
    /// It never will, and why.
    NotStarted(String),
}

/// What a shim tells the second stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The shim, whose death ends the program too.
    pub parent: i32,
    /// The files by which to enter the cgroups.
    pub entrances: Vec<PathBuf>,
    /// What the server said.
    pub order: Order,
}

/// What is in the marker that an execution was spawned: how to find its processes again, and
/// what they are charged for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spawned {
    /// Its cgroups.
    pub group: Group,
    /// Whether they keep every limit.
    pub is_whole: bool,
    /// What the ledger must know of it should it forget it; shims of earlier versions wrote none.
    #[serde(default)]
    pub note: String,
}

impl Spawned {
    pub(crate) fn isolation(&self) -> Isolation {
        if self.is_whole {
            Isolation::Cgroup
        } else {
            Isolation::None
        }
    }
}

/// What is in `status.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// How it came out.
    pub exit: Ending,
    /// The rest, where a shim has seen it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
}

/// What a shim saw of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Seen {
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When all of it was gone.
    pub ended_ms: u64,
    /// What it wrote to its standard output.
    pub stdout: Written,
    /// What it wrote to its standard error.
    pub stderr: Written,
    /// Whether the kernel killed a process of it for want of memory.
    pub is_out_of_memory: bool,
    /// The most memory it used at once, where that is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<u64>,
}

/// How much was written to a stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Written {
    /// Bytes that are kept.
    pub bytes_kept: u64,
    /// Bytes beyond what is kept.
    pub bytes_dropped: u64,
}

/// What [`Status`] says of the end of the process itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Ending {
    /// It ended by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// Nobody knows.
    Lost,
    /// It never ran.
    NotStarted(String),
}

impl From<Status> for Exit {
    fn from(status: Status) -> Self {
        let is_out_of_memory = status.seen.is_some_and(|seen| seen.is_out_of_memory);
        match status.exit {
            Ending::Code(code) if is_out_of_memory => Self::OutOfMemory {
                code: Some(code),
                signal: None,
            },
            Ending::Signal(signal) if is_out_of_memory => Self::OutOfMemory {
                code: None,
                signal: Some(signal),
            },
            Ending::Code(code) => Self::Code(code),
            Ending::Signal(signal) => Self::Signal(signal),
            Ending::Lost => Self::Lost,
            Ending::NotStarted(reason) => Self::NotStarted(reason),
        }
    }
}

/// Writes one value; the reader reads until the line ends.
pub(crate) fn send(mut socket: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    socket.write_all(&line)
}

/// Reads one value.
fn receive<T: for<'a> Deserialize<'a>>(mut socket: &UnixStream) -> io::Result<T> {
    let mut line = Vec::new();
    let mut part = [0; 1024];
    while !line.ends_with(b"\n") {
        let size = socket.read(&mut part)?;
        let part = part.get(..size).unwrap_or_default();
        if part.is_empty() {
            break;
        }
        line.extend_from_slice(part);
    }
    Ok(serde_json::from_slice(&line)?)
}

/// The socket that came as standard input, under a number that the program does not inherit.
fn inherited() -> io::Result<UnixStream> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}
