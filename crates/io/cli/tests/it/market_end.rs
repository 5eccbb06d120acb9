//! The market when its terminal closes, and the limit of open files.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use crate::exec_running::{Running, program, shell};
use crate::house::{House, ended};
use crate::market_node::{Group, WROTE_MILLI, get, until_lowered_by};

/// Shell code that makes a command outlive its terminal, as `nohup` does.
const IGNORES: &str = "trap '' HUP;";

/// The two commands that write limits, with their arguments.
fn commands(settings: &Path) -> [String; 2] {
    let settings = settings.to_str().unwrap();
    let rest = format!("--market act --config {settings} --listen 127.0.0.1:0 -o json");
    [
        format!("bursar up -v {rest}"),
        format!("bursar agent -v {rest}"),
    ]
}

/// A command in a new terminal, which closes with its emulator. The command is killed when the test
/// ends.
struct Terminal {
    shown: Option<Running>,
    pid: Pid,
    process: OwnedFd,
}

impl Terminal {
    /// Runs a command after the shell code `first`.
    fn open(house: &House, first: &str, command: &str) -> Self {
        let line = format!("{first} echo $$; exec {command}");
        let words = ["-c", include_str!("terminal.py"), "sh", "-c", &line];
        let mut shown = Running::start(program(house, "python3").args(words));
        let pid = Pid::from_raw(shown.line().trim().parse().unwrap()).unwrap();
        Self {
            shown: Some(shown),
            pid,
            process: pidfd_open(pid, PidfdFlags::empty()).unwrap(),
        }
    }

    /// The command's message that it is ready.
    fn ready(&mut self) -> Value {
        loop {
            let line = self.shown.as_mut().unwrap().line();
            assert!(!line.is_empty(), "the command ended before it was ready");
            if line.starts_with('{') {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }

    /// Closes the terminal; the kernel sends SIGHUP.
    fn close(&mut self) {
        let shown = self.shown.take().unwrap();
        shown.signal(Signal::KILL);
        shown.end();
    }

    fn terminate(&self) {
        pidfd_send_signal(&self.process, Signal::TERM).unwrap();
    }

    fn end(&self) {
        assert!(has_ended(&self.process), "the command does not end");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _gone = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

/// Waits for the end of a process; false after a time limit.
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    let patience = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let ended = PollFd::new(process, PollFlags::IN);
    poll(&mut [ended], Some(&patience)).unwrap() == 1
}

#[test]
fn closing_the_terminal_restores_the_limits() {
    let (house, group) = (House::new(), Group::new());
    for command in commands(&group.settings(&house)) {
        let mut terminal = Terminal::open(&house, "", &command);
        let ready = terminal.ready();
        until_lowered_by(ready["server"].as_str().unwrap(), &group);
        terminal.close();
        terminal.end();
        assert_eq!(group.milli(), WROTE_MILLI, "{command}");
    }
}

#[test]
fn a_command_that_ignores_sighup_outlives_its_terminal_and_restores_limits_later() {
    let (house, group) = (House::new(), Group::new());
    for command in commands(&group.settings(&house)) {
        let mut terminal = Terminal::open(&house, IGNORES, &command);
        let ready = terminal.ready();
        until_lowered_by(ready["server"].as_str().unwrap(), &group);
        let pid = terminal.pid.as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let is_in = |mask: &str| {
            let mask = status.lines().find_map(|line| line.strip_prefix(mask));
            let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
            mask & 1 << (Signal::HUP.as_raw() - 1) != 0
        };
        assert!(is_in("SigIgn:") && !is_in("SigCgt:"), "{status}");
        terminal.close();
        let address = ready["server"].as_str().unwrap();
        assert_eq!(get(address, "/healthz").0, 200, "{command}");
        assert!(group.milli() < WROTE_MILLI);
        terminal.terminate();
        terminal.end();
        assert_eq!(group.milli(), WROTE_MILLI, "{command}");
    }
}

#[test]
fn logging_to_a_closed_terminal_does_not_end_the_server() {
    let (house, group) = (House::new(), Group::new());
    let [up, _] = commands(&group.settings(&house));
    let mut terminal = Terminal::open(&house, IGNORES, &up);
    let ready = terminal.ready();
    until_lowered_by(ready["server"].as_str().unwrap(), &group);
    terminal.close();
    // This is logged to the closed terminal.
    let done = house.ok(&["node", "restore", "--all"]);
    assert!(done.contains("1 CPU limit put back\n"), "{done}");
    terminal.terminate();
    terminal.end();
}

#[test]
fn a_command_that_cannot_write_to_stdout_ends_and_restores_the_limits() {
    let (house, group) = (House::new(), Group::new());
    for command in commands(&group.settings(&house)) {
        let mut full = shell(&house, &format!("exec {command} > /dev/full"));
        let mut child = full.stderr(Stdio::piped()).spawn().unwrap();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        let is_over = has_ended(&process);
        child.kill().unwrap();
        let ended = ended(child.wait_with_output().unwrap());
        assert!(is_over, "{command}: {}", ended.stderr);
        assert_eq!(ended.code, 3, "{command}: {}", ended.stderr);
        assert!(ended.stderr.contains("cannot write to stdout"));
        assert_eq!(group.milli(), WROTE_MILLI, "{command}");
    }
}

#[test]
fn the_limit_of_open_files_is_raised_to_its_maximum() {
    let (house, group) = (House::new(), Group::new());
    for command in commands(&group.settings(&house)) {
        let line = format!("ulimit -Sn 256; ulimit -Hn 2048; exec {command}");
        let server = House::started(shell(&house, &line));
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
        let files = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"));
        let files: Vec<&str> = files.unwrap().split_whitespace().collect();
        assert_eq!(files, ["2048", "2048", "files"], "{command}");
        assert_eq!(server.interrupt(), 0);
    }
}
