//! The process of the program: start, signals and end.
//!
//! With a controlling terminal the program stays in our process group: keys, stops and window sizes
//! of the terminal reach both, and job control treats them as one job. Without a terminal it gets
//! its own process group, so that one signal reaches all its processes. If the program must end,
//! processes that it started and that outlive it are killed too; in the caller's group these are
//! the descendants at the time of the stop request.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use bursar_units::BookingId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgrp, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal, test_kill_process_group,
};
use rustix::termios::tcgetpgrp;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout_at};

use super::signals::exit_code;

/// Time between SIGTERM and SIGKILL.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// Longest wait for killed processes; after it the slot is given back anyway.
const KILL_WAIT: Duration = Duration::from_secs(2);
/// Interval of the checks for processes that outlive the program.
const REST_POLL: Duration = Duration::from_millis(20);
/// Most descendants that are signalled.
const TREE_MAX: usize = 65_536;
/// Most descendants that are kept for the kill: each takes an open file.
const KEPT_MAX: usize = 512;

pub(super) struct Child {
    process: tokio::process::Child,
    pid: Pid,
    /// The controlling terminal; if present, the process group is the caller's.
    terminal: Option<File>,
    /// Time of the kill, set by [`Child::stop`].
    killed_at: Option<Instant>,
    /// In the caller's group, the descendants at the time of the stop that have not ended: once a
    /// parent is gone, nothing else leads to its children.
    rest: Vec<OwnedFd>,
}

impl Child {
    /// Starts the program with its booking and fence in the environment.
    pub(super) fn spawn(words: &[OsString], booking: &BookingId, fence: u64) -> io::Result<Self> {
        let program = words.first().map(OsString::as_os_str).unwrap_or_default();
        let terminal = File::open("/dev/tty").ok();
        let mut command = Command::new(program);
        command
            .args(words.iter().skip(1).map(OsStr::new))
            .env("BURSAR_BOOKING", booking.as_str())
            .env("BURSAR_FENCE", fence.to_string());
        if terminal.is_none() {
            command.process_group(0);
        }
        let process = command.spawn()?;
        let pid = process
            .id()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
        Ok(Self {
            process,
            pid,
            terminal,
            killed_at: None,
            rest: Vec::new(),
        })
    }

    /// Waits for the end and returns the exit code; kills the program [`GRACE`] after a stop.
    /// Cancellation-safe.
    pub(super) async fn ended(&mut self) -> io::Result<u8> {
        let Some(killed_at) = self.killed_at else {
            return Ok(code(self.process.wait().await?));
        };
        let ended = timeout_at(killed_at, self.process.wait()).await;
        let status = if let Ok(status) = ended {
            status?
        } else {
            self.signal_all(Signal::KILL);
            self.process.wait().await?
        };
        self.end_rest(killed_at).await;
        Ok(code(status))
    }

    /// Passes on a signal, unless the terminal has sent it to the program too.
    pub(super) fn pass_on(&self, signal: Signal) {
        if self.is_from_terminal(signal) {
            return;
        }
        match signal {
            Signal::USR1 | Signal::USR2 | Signal::WINCH => {
                let _gone = kill_process(self.pid, signal);
            }
            _ => self.signal_all(signal),
        }
    }

    /// Asks the program to end; [`Child::ended`] kills it after [`GRACE`].
    pub(super) fn stop(&mut self) {
        self.killed_at = Some(Instant::now() + GRACE);
        if self.terminal.is_some() {
            let descendants = tree(self.pid).into_iter().skip(1).take(KEPT_MAX);
            let kept = descendants.filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            self.rest = kept.collect();
        }
        self.signal_all(Signal::TERM);
        // A stopped process handles SIGTERM only after it continues.
        self.signal_all(Signal::CONT);
    }

    /// True if the terminal has sent the signal to the whole group: keys and window sizes go to its
    /// foreground group, and SIGHUP to everybody when it goes away.
    fn is_from_terminal(&self, signal: Signal) -> bool {
        let Some(terminal) = &self.terminal else {
            return false;
        };
        match (signal, tcgetpgrp(terminal)) {
            (Signal::INT | Signal::QUIT | Signal::WINCH, Ok(foreground)) => foreground == getpgrp(),
            (Signal::HUP, gone) => gone.is_err(),
            _ => false,
        }
    }

    /// Signals the program and its descendants: its own group, or, in the caller's group, each
    /// descendant. Processes that have ended meanwhile need no signal.
    fn signal_all(&self, signal: Signal) {
        if self.process.id().is_none() {
            return;
        }
        if self.terminal.is_none() {
            let _gone = kill_process_group(self.pid, signal);
            return;
        }
        for pid in tree(self.pid) {
            let _gone = kill_process(pid, signal);
        }
    }

    /// Waits for processes that outlive the program, and kills them when their time is over.
    async fn end_rest(&mut self, killed_at: Instant) {
        while self.has_rest() {
            let now = Instant::now();
            if killed_at + KILL_WAIT <= now {
                return;
            }
            if killed_at <= now {
                self.kill_rest();
            }
            sleep(REST_POLL).await;
        }
    }

    fn has_rest(&mut self) -> bool {
        if self.terminal.is_none() {
            return test_kill_process_group(self.pid).is_ok();
        }
        self.rest.retain(|process| !has_ended(process));
        !self.rest.is_empty()
    }

    fn kill_rest(&self) {
        if self.terminal.is_none() {
            let _gone = kill_process_group(self.pid, Signal::KILL);
        }
        for process in &self.rest {
            let _gone = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

/// True for an ended process, also for a zombie.
fn has_ended(process: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn code(status: ExitStatus) -> u8 {
    let own = status.code().and_then(|code| u8::try_from(code).ok());
    own.unwrap_or_else(|| exit_code(status.signal().unwrap_or_default()))
}

/// A process and its current descendants, parents first.
fn tree(root: Pid) -> Vec<Pid> {
    let mut all = vec![root];
    let mut next = 0;
    while let Some(parent) = all.get(next).copied() {
        next += 1;
        let tasks = std::fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            let children = children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok());
            all.extend(children.filter_map(Pid::from_raw));
        }
        all.truncate(TREE_MAX);
    }
    all
}
