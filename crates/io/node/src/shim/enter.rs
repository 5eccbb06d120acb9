//! The second stage: enters the cgroups and becomes the program.
//!
//! Until it is in every group the program has not begun, so nothing of it can be outside. The
//! socket to the shim closes when the program takes over: that is how the shim learns that it runs.

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use bursar_booking::execution::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND};
use rustix::fs::{Gid, Uid, fchown};
use rustix::process::{
    Resource, Rlimit, Signal, geteuid, getppid, set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::thread::set_no_new_privs;

use super::{Entry, Report, inherited, receive, send};
use crate::executor::{User, Work};

pub(super) fn main() -> ExitCode {
    let Ok(shim) = inherited() else {
        return ExitCode::FAILURE;
    };
    match become_program(&shim) {
        Ok(failed) => failed,
        Err(reason) => {
            // A shim that is gone has nobody left to tell.
            let _ = send(&shim, &Report::NotStarted(reason));
            ExitCode::FAILURE
        }
    }
}

/// Returns only if the program could not take over.
fn become_program(shim: &UnixStream) -> Result<ExitCode, String> {
    let entry: Entry = receive(shim).map_err(|error| format!("its shim gave no order: {error}"))?;
    let _ = setsid();
    for entrance in &entry.entrances {
        enter(entrance).map_err(|error| format!("its cgroup cannot be entered: {error}"))?;
    }
    let work = read(&entry.order.work)?;
    let mut command = prepare(&work, &entry)?;
    if let Some(bytes) = entry.order.address_bytes {
        restrict(bytes).map_err(|error| format!("its memory cannot be limited: {error}"))?;
    }
    // Whoever runs as another user loses this signal in the change; its cgroup ends it then.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid().is_none_or(|parent| parent.as_raw_pid() != entry.parent) {
        return Err("its shim is gone".to_owned());
    }
    if !work.allow_privilege_escalation {
        // Nothing after this gains privileges by executing a file, and no child can undo it.
        set_no_new_privs(true)
            .map_err(|error| format!("its privileges cannot be limited: {error}"))?;
    }
    let error = command.exec();
    let _ = writeln!(io::stderr(), "bursar: {}: {error}", work.command);
    let code = match error.kind() {
        io::ErrorKind::NotFound => EXIT_NOT_FOUND,
        _ => EXIT_NOT_EXECUTABLE,
    };
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn enter(entrance: &Path) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(entrance)?
        .write_all(b"0")
}

fn read(file: &Path) -> Result<Work, String> {
    let json = fs::read(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "what it runs is no longer kept".to_owned(),
        _ => format!("what it runs cannot be read: {error}"),
    })?;
    serde_json::from_slice(&json).map_err(|_| "what it runs cannot be understood".to_owned())
}

fn prepare(work: &Work, entry: &Entry) -> Result<Command, String> {
    let directory = work.directory.as_deref().unwrap_or(Path::new("/"));
    // Looked at first: `exec` says the same of a missing directory and of a missing program.
    if !directory.is_dir() {
        return Err("its directory is not there".to_owned());
    }
    let mut command = Command::new(&work.command);
    command
        .args(&work.args)
        .env_clear()
        .envs(&work.env)
        .env("BURSAR_BOOKING", &entry.order.booking)
        .env("BURSAR_FENCE", entry.order.fence.to_string())
        .current_dir(directory)
        .stdin(Stdio::null());
    if let Some(user) = work.user {
        if !geteuid().is_root() && geteuid().as_raw() != user.uid {
            return Err("the server may not run it as another user".to_owned());
        }
        own_streams(user);
        command.gid(user.gid).uid(user.uid);
    }
    Ok(command)
}

/// Gives the pipes to the user, who may want to open `/dev/stdout` again by its name.
fn own_streams(user: User) {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let _ = fchown(io::stdout(), Some(uid), Some(gid));
    let _ = fchown(io::stderr(), Some(uid), Some(gid));
}

/// Without a cgroup only the address space of each single process can be bounded. Nothing bounds
/// their sum or their use of processors, and their number neither: the kernel counts processes
/// per user, over everything that user runs, and does not count those of root at all.
fn restrict(bytes: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    Ok(setrlimit(Resource::As, limit)?)
}
