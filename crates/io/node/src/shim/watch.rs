//! The first stage: runs one order and writes its status, at most once.

use std::fs::File;
use std::io::{self, Read, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    pidfd_open, set_child_subreaper, setsid, wait,
};

use super::output::{BUFFER_SIZE, StreamCopy};
use super::{
    ENTER, Ending, Entry, Order, Report, RunDetails, STOPPED, Spawned, Status, WORD, inherited,
    receive, send,
};
use crate::cgroup::Group;
use crate::place::{ExecutionDirectory, STDERR, STDOUT};

/// Maximum time until a dead orphan is reaped. It counts as a process until then, so the pause is
/// shorter while orphans keep dying.
const REAP_PAUSE_MAX: Duration = Duration::from_millis(250);
const REAP_PAUSE_MIN: Duration = Duration::from_millis(10);
/// Interval at which a shim without a cgroup checks for a stop request: only the shim can signal.
const STOP_PAUSE: Duration = Duration::from_millis(100);
/// Maximum pause between two attempts to kill the remaining processes.
const KILL_PAUSE_MAX: Duration = Duration::from_millis(100);

pub(super) fn main() -> ExitCode {
    let Ok(server) = inherited() else {
        return ExitCode::FAILURE;
    };
    let Ok(order) = receive::<Order>(&server) else {
        return ExitCode::FAILURE;
    };
    match run(&order, server) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

struct Running {
    main: Pid,
    pidfd: OwnedFd,
    group: Group,
    stdout: StreamCopy,
    stderr: StreamCopy,
    started_ms: u64,
}

/// Cgroups and marker of a program, created before it starts.
#[derive(Default)]
struct Prepared {
    group: Group,
    marker: Option<File>,
}

impl Prepared {
    fn finish(&self, directory: &ExecutionDirectory, status: &Status) -> io::Result<()> {
        match &self.marker {
            Some(marker) => directory.finish(marker, status),
            None => directory.conclude(status),
        }
    }
}

fn run(order: &Order, server: UnixStream) -> io::Result<()> {
    // Ctrl-C in a terminal is for the server only.
    let _ = setsid();
    let directory = ExecutionDirectory::new(order.directory.clone());
    let Some(_lock) = directory.lock()? else {
        // Another shim lives.
        return Ok(());
    };
    let is_of_other_grant = directory.grant()?.is_some_and(|fence| fence != order.fence);
    let is_over = directory.is_spawned() || directory.status()?.is_some() || directory.has_output();
    if is_over || is_of_other_grant {
        return Ok(());
    }
    let mut prepared = Prepared::default();
    match begin(order, &directory, &mut prepared) {
        Ok(running) => {
            // If this server is gone, the next one finds the marker.
            let _ = send(&server, &Report::Running);
            drop(server);
            let status = watch(running, &directory);
            if is_server_gone() {
                // The server could not remove the directories above while this group existed.
                prepared.group.leave();
            }
            prepared.finish(&directory, &status)
        }
        Err(reason) => refuse(&directory, &prepared, reason, &server),
    }
}

/// Starts the program, or returns the reason why not.
fn begin(
    order: &Order,
    directory: &ExecutionDirectory,
    prepared: &mut Prepared,
) -> Result<Running, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    if directory.stop().is_some() {
        return Err(STOPPED.to_owned());
    }
    set_child_subreaper(Some(getpid()))
        .map_err(|error| failed("its shim cannot become a subreaper")(error.into()))?;
    prepared.group = Group::of(&order.plan);
    Group::make(&order.plan).map_err(failed("its cgroup cannot be prepared"))?;
    let spawned = Spawned {
        group: prepared.group.clone(),
        is_whole: order.plan.is_whole,
        note: order.note.clone(),
    };
    let marker = directory.mark(&spawned);
    prepared.marker = Some(marker.map_err(failed("its marker cannot be written"))?);
    // Checked again, now that a stop request sees the marker.
    if directory.stop().is_some() {
        return Err(STOPPED.to_owned());
    }
    spawn(order, directory, &prepared.group)
}

/// Removes everything of a program that did not start, and reports the reason.
fn refuse(
    directory: &ExecutionDirectory,
    prepared: &Prepared,
    reason: String,
    server: &UnixStream,
) -> io::Result<()> {
    end(&prepared.group);
    // The server may be gone. Other executions create the directory again at little cost.
    prepared.group.leave();
    let status = Status {
        exit: Ending::NotStarted(reason.clone()),
        seen: None,
    };
    if prepared.finish(directory, &status).is_err() {
        // Without a status on disk a later server may try again.
        let _ = directory.unmark();
    }
    send(server, &Report::NotStarted(reason))
}

fn spawn(order: &Order, directory: &ExecutionDirectory, group: &Group) -> Result<Running, String> {
    let failed = |error: io::Error| format!("its process cannot be started: {error}");
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let (stdout, stdout_writer) = pipe().map_err(failed)?;
    let (stderr, stderr_writer) = pipe().map_err(failed)?;
    let entry = Entry {
        parent: getpid().as_raw_pid(),
        entrances: group.entrances(),
        order: order.clone(),
    };
    send(&ours, &entry).map_err(failed)?;
    let started_ms = now_ms();
    // The running image, even if a newer version has replaced the file.
    let child = Command::new("/proc/self/exe")
        .args([WORD, ENTER, &order.booking])
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(stdout_writer)
        .stderr(stderr_writer)
        .spawn()
        .map_err(failed)?;
    let main = Pid::from_child(&child);
    let pidfd = pidfd_open(main, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
    // The socket closes without a report when `exec` succeeds.
    let mut report = Vec::new();
    (&ours).read_to_end(&mut report).map_err(failed)?;
    match serde_json::from_slice(&report) {
        Ok(Report::NotStarted(reason)) => Err(reason),
        _ => Ok(Running {
            main,
            pidfd,
            group: group.clone(),
            stdout: StreamCopy::new(stdout, directory.file(STDOUT)),
            stderr: StreamCopy::new(stderr, directory.file(STDERR)),
            started_ms,
        }),
    }
}

/// Returns when the program and all its processes are gone.
fn watch(mut running: Running, directory: &ExecutionDirectory) -> Status {
    let mut buffer = vec![0; BUFFER_SIZE];
    let exit = attend(&mut running, directory, &mut buffer);
    let memory = running.group.memory();
    end(&running.group);
    let stdout = running.stdout.finish(&mut buffer);
    let stderr = running.stderr.finish(&mut buffer);
    if memory.is_killed {
        running
            .stderr
            .note("bursar: the kernel killed a process of this execution: out of memory\n");
    }
    let seen = RunDetails {
        started_ms: running.started_ms,
        ended_ms: now_ms(),
        stdout,
        stderr,
        is_out_of_memory: memory.is_killed,
        memory_bytes_max: memory.peak_bytes,
    };
    Status {
        exit,
        seen: Some(seen),
    }
}

/// Copies output and reaps children until the main process has ended.
fn attend(running: &mut Running, directory: &ExecutionDirectory, buffer: &mut [u8]) -> Ending {
    let mut pause = REAP_PAUSE_MIN;
    let mut stop = Stop::default();
    loop {
        wait_for_activity(running, pause, buffer);
        let mut count = 0;
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == running.main {
                return ending(status);
            }
            count += 1;
        }
        pause = if 0 < count {
            REAP_PAUSE_MIN
        } else {
            REAP_PAUSE_MAX.min(pause * 2)
        };
        if running.group.is_none() {
            stop.look(running.main, directory);
            pause = pause.min(STOP_PAUSE);
        }
    }
}

/// Waits for output or for the end of the program, at most for `pause`.
fn wait_for_activity(running: &mut Running, pause: Duration, buffer: &mut [u8]) {
    let mut fds = vec![PollFd::new(&running.pidfd, PollFlags::IN)];
    let streams = [&running.stdout, &running.stderr];
    fds.extend(
        streams
            .into_iter()
            .filter_map(StreamCopy::pipe)
            .map(|pipe| PollFd::new(pipe, PollFlags::IN)),
    );
    if poll(&mut fds, Some(&timespec(pause))).is_err() {
        return;
    }
    let mut ready = fds.iter().skip(1).map(|fd| !fd.revents().is_empty());
    let has_stdout = running.stdout.pipe().is_some() && ready.next().unwrap_or(false);
    let has_stderr = running.stderr.pipe().is_some() && ready.next().unwrap_or(false);
    drop(ready);
    drop(fds);
    if has_stdout {
        running.stdout.step(buffer);
    }
    if has_stderr {
        running.stderr.step(buffer);
    }
}

/// Stops a program without a cgroup: only its shim knows for certain which process it is.
#[derive(Default)]
struct Stop {
    is_terminated: bool,
}

impl Stop {
    fn look(&mut self, main: Pid, directory: &ExecutionDirectory) {
        let Some(grace_left) = directory.stop() else {
            return;
        };
        // The program leads its session and is not reaped, so pid and group id are its own.
        if !self.is_terminated {
            let _ = kill_process_group(main, Signal::TERM);
            self.is_terminated = true;
        }
        if grace_left.is_zero() {
            let _ = kill_process_group(main, Signal::KILL);
        }
    }
}

/// Kills the remaining processes and returns when none is left, however long that takes: reporting
/// the end frees the slot.
fn end(group: &Group) {
    let mut pause = Duration::from_millis(1);
    loop {
        let is_empty = group.end().unwrap_or(false);
        if !has_children() && is_empty {
            return;
        }
        if is_empty {
            kill_children();
        }
        let _ = poll(&mut [], Some(&timespec(pause)));
        pause = KILL_PAUSE_MAX.min(pause * 2);
    }
}

/// Reaps all dead children; returns whether others are alive.
fn has_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Kills our children. A process outside the cgroup becomes our child when its parent dies. No pid
/// can be reused before we reap it.
fn kill_children() {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    for pid in text.split_whitespace() {
        if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Whether the server that started this shim is gone: our standard output is a pipe whose other end
/// only the server holds.
fn is_server_gone() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let looked = poll(&mut fds, Some(&Timespec::default()));
    let is_closed = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::HUP);
    looked.is_ok() && fds.iter().any(is_closed)
}

fn ending(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Code(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::Lost,
    }
}

fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| {
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    })
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
