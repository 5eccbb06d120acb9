//! The second stage: enters the cgroups and becomes the program.
//!
//! The program begins only after this stage is in every group, so no process of it is outside. The
//! socket closes on `exec`, which tells the shim that the program runs.

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
            // The shim may be gone.
            let _ = send(&shim, &Report::NotStarted(reason));
            ExitCode::FAILURE
        }
    }
}

/// Returns only if `exec` failed.
fn become_program(shim: &UnixStream) -> Result<ExitCode, String> {
    let entry: Entry =
        receive(shim).map_err(|error| format!("its order cannot be read: {error}"))?;
    let _ = setsid();
    for entrance in &entry.entrances {
        enter(entrance).map_err(|error| format!("its cgroup cannot be entered: {error}"))?;
    }
    let work = read(&entry.order.work)?;
    let mut command = prepare(&work, &entry)?;
    if let Some(bytes) = entry.order.address_bytes {
        restrict(bytes).map_err(|error| format!("its memory cannot be limited: {error}"))?;
    }
    // A change of user clears this signal; the cgroup ends such a program.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid().is_none_or(|parent| parent.as_raw_pid() != entry.parent) {
        return Err("its shim is gone".to_owned());
    }
    if !work.allow_privilege_escalation {
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
        io::ErrorKind::NotFound => "its work is no longer stored".to_owned(),
        _ => format!("its work cannot be read: {error}"),
    })?;
    serde_json::from_slice(&json).map_err(|_| "its work is not valid JSON".to_owned())
}

fn prepare(work: &Work, entry: &Entry) -> Result<Command, String> {
    let directory = work.directory.as_deref().unwrap_or(Path::new("/"));
    // Checked first: `exec` gives the same error for a missing directory and a missing program.
    if !directory.is_dir() {
        return Err("its working directory does not exist".to_owned());
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
            return Err("only a server of root can run it as another user".to_owned());
        }
        own_streams(user);
        command.gid(user.gid).uid(user.uid);
    }
    Ok(command)
}

/// Gives the pipes to the user, so that its program can open `/dev/stdout` by name.
fn own_streams(user: User) {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let _ = fchown(io::stdout(), Some(uid), Some(gid));
    let _ = fchown(io::stderr(), Some(uid), Some(gid));
}

/// Limits the address space of each process, the only limit without a cgroup. The sum, the CPU use
/// and the number of processes stay unlimited: the kernel counts processes per user over everything
/// that user runs, and does not count those of root.
fn restrict(bytes: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    Ok(setrlimit(Resource::As, limit)?)
}
