//! The program as a process: started, signalled, ended.
//!
//! With a controlling terminal it stays in our process group: the terminal's keys, its stops and
//! its window sizes reach it as they reach us, and job control takes both together. Without one it
//! gets a group of its own, so that all of it can be ended by one signal. Whatever it started that
//! does not end with it when it must is killed as it is; in the caller's group that is what descended
//! from it when it was told to end.

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

/// How long a program that must end has before it is killed (X7).
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// How long what was killed may take to go: the slot is given back then all the same.
const GOING: Duration = Duration::from_secs(2);
/// How often it is looked whether the last of what it started has gone.
const REST_LOOK: Duration = Duration::from_millis(20);
/// How many descendants are signalled at most.
const TREE_MAX: usize = 65_536;
/// How many of them are kept to be killed: each takes one of the files that may be open.
const KEPT_MAX: usize = 512;

/// A running program.
pub(super) struct Child {
    process: tokio::process::Child,
    pid: Pid,
    /// The controlling terminal, where there is one; then the group is the caller's.
    terminal: Option<File>,
    /// When it is killed, once it was told to end.
    killed_at: Option<Instant>,
    /// In a group that is the caller's, what descended from it when it was told to end, as far as it
    /// has not gone: once its parent has, nothing else leads to it.
    rest: Vec<OwnedFd>,
}

impl Child {
    /// Starts it, and tells it what it holds.
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
        let pid = pid.ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Self {
            process,
            pid,
            terminal,
            killed_at: None,
            rest: Vec::new(),
        })
    }

    /// Its exit code once it has ended; kills it when its time to end is over. May be dropped and
    /// called again: nothing is lost.
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

    /// Passes on a signal that this process got, unless the program got it from the terminal.
    pub(super) fn pass_on(&self, signal: Signal) {
        if self.is_told_by_terminal(signal) {
            return;
        }
        match signal {
            Signal::USR1 | Signal::USR2 | Signal::WINCH => {
                let _gone = kill_process(self.pid, signal);
            }
            _ => self.signal_all(signal),
        }
    }

    /// Tells it to end; it is killed when it has not after a while.
    pub(super) fn stop(&mut self) {
        self.killed_at = Some(Instant::now() + GRACE);
        if self.terminal.is_some() {
            let descendants = tree(self.pid).into_iter().skip(1).take(KEPT_MAX);
            let kept = descendants.filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            self.rest = kept.collect();
        }
        self.signal_all(Signal::TERM);
        // What was stopped hears nothing until it goes on.
        self.signal_all(Signal::CONT);
    }

    /// The terminal tells its foreground group of keys and window sizes, and everybody in it when
    /// it goes away. Only then is a signal not for this process alone.
    fn is_told_by_terminal(&self, signal: Signal) -> bool {
        let Some(terminal) = &self.terminal else {
            return false;
        };
        match (signal, tcgetpgrp(terminal)) {
            (Signal::INT | Signal::QUIT | Signal::WINCH, Ok(foreground)) => foreground == getpgrp(),
            (Signal::HUP, gone) => gone.is_err(),
            _ => false,
        }
    }

    /// Signals the program and what it started: its group, or in a group that is also the
    /// caller's all that descends from it. Those who have gone meanwhile need no signal.
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

    /// Waits for the rest of what was told to end, and kills it when its time is over.
    async fn end_rest(&mut self, killed_at: Instant) {
        while self.has_rest() {
            let now = Instant::now();
            if killed_at + GOING <= now {
                return;
            }
            if killed_at <= now {
                self.kill_rest();
            }
            sleep(REST_LOOK).await;
        }
    }

    /// Whether anything that it started is still there.
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

/// Whether a process has ended; whether its parent has heard of that does not matter.
fn has_ended(process: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn code(status: ExitStatus) -> u8 {
    let own = status.code().and_then(|code| u8::try_from(code).ok());
    own.unwrap_or_else(|| exit_code(status.signal().unwrap_or_default()))
}

/// A process and all that descends from it now, parents first.
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
