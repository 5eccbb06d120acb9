//! The shim: the parent of one execution's process, which outlives the server.
//!
//! ```text
//! bursar ──► bursar shim run ID ──► bursar shim enter ID ──exec──► the program
//!            holds the lock         enters the cgroups
//! ```
//! It is the same binary, dispatched before anything else runs. There is one shim per running
//! execution, so its memory counts: one thread, small buffers, no runtime, no logging. It starts the
//! program at most once in the life of the execution's directory, copies its output, reaps orphans,
//! kills the remaining processes when the program ends, and writes the exit to `status.json` (X3).
//! It reads its order from a socket on standard input, so that process lists do not show it.
//!
//! A second stage enters the cgroups and becomes the program (`exec`). Rejected: the shim enters,
//! spawns and leaves again. That would save one start of this binary (about 0.9 ms on 2 cores in a
//! virtual machine, where fork and exec of `/bin/true` take 0.8 ms), but needs two moves of a
//! process, and each takes 0.06 to 0.2 ms per hierarchy, or a grace period of the kernel (8 ms) if
//! no process moved lately, and blocks every fork of the machine. Also the shim would die if its
//! cgroup is killed meanwhile, its memory would be charged to the program, and with a limit of one
//! process it could not have a child.

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
/// The second arguments: of the stage that stays, and of the one that becomes the program.
pub(crate) const RUN: &str = "run";
pub(crate) const ENTER: &str = "enter";

/// Reason of a program that was stopped before its start.
pub(crate) const STOPPED: &str = "stopped before it started";

/// Runs as a shim; `args` are the arguments after [`WORD`].
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    if args.next().is_some_and(|word| word == ENTER) {
        enter::main()
    } else {
        watch::main()
    }
}

/// The complete order of the server to a shim, which has nothing left to choose.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub booking: String,
    pub fence: u64,
    /// The data that a restored ledger needs to adopt it (X5); older servers send none.
    #[serde(default)]
    pub note: String,
    pub directory: PathBuf,
    /// The file with the work.
    pub work: PathBuf,
    pub plan: Plan,
    /// The address space of one process, where no cgroup limits memory.
    pub address_bytes: Option<u64>,
}

/// Report of a shim to its server, and of the second stage to its shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Report {
    Running,
    /// The program never runs, for this reason.
    NotStarted(String),
}

/// The order of a shim to the second stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The pid of the shim, whose death also ends the program.
    pub parent: i32,
    /// The files for entering the cgroups.
    pub entrances: Vec<PathBuf>,
    pub order: Order,
}

/// Content of the marker: where the processes are, and the data for adopting them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spawned {
    pub group: Group,
    /// Whether the cgroups enforce every limit.
    pub is_whole: bool,
    /// The data that a restored ledger needs to adopt it (X5); shims of earlier versions wrote none.
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

/// Content of `status.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    pub exit: Ending,
    /// Details of the run, where a shim watched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<RunDetails>,
}

/// Details of a run that a shim watched.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunDetails {
    /// Start, in milliseconds since 1970.
    pub started_ms: u64,
    /// End of its last process.
    pub ended_ms: u64,
    pub stdout: StreamCounts,
    pub stderr: StreamCounts,
    /// Whether the kernel killed a process of it because it was out of memory.
    pub is_out_of_memory: bool,
    /// Peak memory use, where the kernel counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<u64>,
}

/// Bytes written to a stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StreamCounts {
    pub bytes_kept: u64,
    pub bytes_dropped: u64,
}

/// How the process ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Ending {
    Code(i32),
    Signal(i32),
    /// Its exit is unknown.
    Lost,
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

/// Writes one value as a line.
pub(crate) fn send(mut socket: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    socket.write_all(&line)
}

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

/// The socket on standard input, duplicated to a descriptor that the program does not inherit.
fn inherited() -> io::Result<UnixStream> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}
