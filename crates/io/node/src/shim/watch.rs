//! The first stage: from an order to a status, at most once.

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

use super::output::{Buffer, Copy};
use super::{
    ENTER, Ending, Entry, Order, Report, Seen, Spawned, Status, WORD, inherited, receive, send,
};
use crate::cgroup::Group;
use crate::place::{Place, STDERR, STDOUT};

/// How long an orphan that has died may wait to be reaped, at most. It counts as a process until
/// then, so whoever makes many is looked after more often.
const REAP_PAUSE_MAX: Duration = Duration::from_millis(250);
/// And at least.
const REAP_PAUSE_MIN: Duration = Duration::from_millis(10);
/// How often a shim without a cgroup looks whether its program shall stop: nobody else can tell.
const STOP_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait between two attempts to end whatever is left, at most.
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

/// The program, while it runs.
struct Running {
    main: Pid,
    pidfd: OwnedFd,
    group: Group,
    stdout: Copy,
    stderr: Copy,
    started_ms: u64,
}

/// What was made for a program before it starts.
#[derive(Default)]
struct Made {
    group: Group,
    marker: Option<File>,
}

impl Made {
    /// Says how it came out.
    fn finish(&self, place: &Place, status: &Status) -> io::Result<()> {
        match &self.marker {
            Some(marker) => place.finish(marker, status),
            None => place.conclude(status),
        }
    }
}

fn run(order: &Order, server: UnixStream) -> io::Result<()> {
    // A terminal's interrupt is for the server: whatever runs goes on.
    let _ = setsid();
    let place = Place::new(order.directory.clone());
    let Some(_lock) = place.lock()? else {
        // Another shim lives.
        return Ok(());
    };
    let is_of_other_grant = place.grant()?.is_some_and(|fence| fence != order.fence);
    let is_over = place.is_spawned() || place.status()?.is_some() || place.has_output();
    if is_over || is_of_other_grant {
        return Ok(());
    }
    let mut made = Made::default();
    match begin(order, &place, &mut made) {
        Ok(running) => {
            // A server that is gone finds the marker.
            let _ = send(&server, &Report::Running);
            drop(server);
            let status = watch(running, &place);
            if is_server_gone() {
                // It has taken away what was empty then, and this was not.
                made.group.leave();
            }
            made.finish(&place, &status)
        }
        Err(reason) => refuse(&place, &made, reason, &server),
    }
}

/// Starts the program, or says in words of ours why not.
fn begin(order: &Order, place: &Place, made: &mut Made) -> Result<Running, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    if place.stop().is_some() {
        return Err(STOPPED.to_owned());
    }
    set_child_subreaper(Some(getpid()))
        .map_err(|error| failed("its shim cannot watch over it")(error.into()))?;
    made.group = Group::of(&order.plan);
    Group::make(&order.plan).map_err(failed("its cgroup cannot be made"))?;
    let spawned = Spawned {
        group: made.group.clone(),
        is_whole: order.plan.is_whole,
        note: order.note.clone(),
    };
    let marker = place.mark(&spawned);
    made.marker = Some(marker.map_err(failed("its start cannot be written down"))?);
    // Once more, now that whoever wants it to stop sees the marker.
    if place.stop().is_some() {
        return Err(STOPPED.to_owned());
    }
    spawn(order, place, &made.group)
}

const STOPPED: &str = "stopped before it started";

/// Leaves nothing of a program that did not start but the reason.
fn refuse(place: &Place, made: &Made, reason: String, server: &UnixStream) -> io::Result<()> {
    end(&made.group);
    // The server may be gone, and to make it again costs others little.
    made.group.leave();
    let status = Status {
        exit: Ending::NotStarted(reason.clone()),
        seen: None,
    };
    if made.finish(place, &status).is_err() {
        // Where not even this can be written the server is told, and a later one may try again.
        let _ = place.unmark();
    }
    send(server, &Report::NotStarted(reason))
}

fn spawn(order: &Order, place: &Place, group: &Group) -> Result<Running, String> {
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
    // The running image itself, even if the file was replaced by a newer version.
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
    // The socket closes without a word when the program has taken over.
    let mut word = Vec::new();
    (&ours).read_to_end(&mut word).map_err(failed)?;
    match serde_json::from_slice(&word) {
        Ok(Report::NotStarted(reason)) => Err(reason),
        _ => Ok(Running {
            main,
            pidfd,
            group: group.clone(),
            stdout: Copy::new(stdout, place.file(STDOUT)),
            stderr: Copy::new(stderr, place.file(STDERR)),
            started_ms,
        }),
    }
}

/// Stays until the program and all that it left are gone.
fn watch(mut running: Running, place: &Place) -> Status {
    let mut buffer = Buffer::new();
    let exit = attend(&mut running, place, &mut buffer);
    let memory = running.group.memory();
    end(&running.group);
    let stdout = running.stdout.finish(&mut buffer);
    let stderr = running.stderr.finish(&mut buffer);
    if memory.is_killed {
        running
            .stderr
            .note("bursar: the kernel killed a process of this execution for want of memory\n");
    }
    let seen = Seen {
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

/// Copies output and reaps until the program itself has ended.
fn attend(running: &mut Running, place: &Place, buffer: &mut Buffer) -> Ending {
    let mut pause = REAP_PAUSE_MIN;
    let mut stop = Stop::default();
    loop {
        wait_for_news(running, pause, buffer);
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
            stop.look(running.main, place);
            pause = pause.min(STOP_PAUSE);
        }
    }
}

/// Waits for output or for the end of the program, at most for so long.
fn wait_for_news(running: &mut Running, pause: Duration, buffer: &mut Buffer) {
    let mut fds = vec![PollFd::new(&running.pidfd, PollFlags::IN)];
    let streams = [&running.stdout, &running.stderr];
    fds.extend(
        streams
            .into_iter()
            .filter_map(Copy::pipe)
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

/// How a program without a cgroup is stopped: only its shim knows for sure which process it is.
#[derive(Default)]
struct Stop {
    is_asked: bool,
}

impl Stop {
    fn look(&mut self, main: Pid, place: &Place) {
        let Some(grace_left) = place.stop() else {
            return;
        };
        // The program leads a session and has not been reaped, so both numbers are its own.
        if !self.is_asked {
            let _ = kill_process_group(main, Signal::TERM);
            self.is_asked = true;
        }
        if grace_left.is_zero() {
            let _ = kill_process_group(main, Signal::KILL);
        }
    }
}

/// Ends whatever is left, and returns when nothing is. Whoever cannot be killed keeps us here:
/// to say that it is gone would give its slot away.
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

/// Reaps all who have died; whether others are alive.
fn has_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Kills our own children: whoever left the cgroup, or never had one, comes to us when its parent
/// dies. None of these numbers can change hands before we reap it.
fn kill_children() {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    for pid in text.split_whitespace() {
        if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Whether the server that started this shim is gone: our standard output is a pipe of which only
/// it has the other end.
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
