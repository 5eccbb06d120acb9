//! What becomes of a market when its terminal goes away, and how many files it may have open.

use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use crate::exec_running::{Running, program, shell};
use crate::house::House;
use crate::market_node::{Group, WROTE_MILLI, get};

/// Both commands that act on limits, with all they need.
fn commands(settings: &Path) -> [String; 2] {
    let settings = settings.to_str().unwrap();
    let rest = format!("--market act --config {settings} --listen 127.0.0.1:0 -o json");
    [
        format!("bursar up -v {rest}"),
        format!("bursar agent -v {rest}"),
    ]
}

/// A command under a terminal of its own that goes away with what shows it.
struct Terminal {
    shown: Running,
    pid: Pid,
}

impl Terminal {
    /// Runs the line, which tells its process first.
    fn open(house: &House, line: &str) -> Self {
        let mut command = program(house, "python3");
        let words = ["-c", include_str!("terminal.py"), "sh", "-c", line];
        let mut shown = Running::start(command.args(words));
        let pid = shown.line().trim().parse().unwrap();
        Self {
            shown,
            pid: Pid::from_raw(pid).unwrap(),
        }
    }

    /// What the command says when it is ready.
    fn ready(&mut self) -> Value {
        loop {
            let line = self.shown.line();
            assert!(!line.is_empty(), "it never got ready");
            if line.starts_with('{') {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }

    /// Nobody looks any more; the kernel hangs up.
    fn close(self) {
        self.shown.signal(Signal::KILL);
        self.shown.end();
    }
}

fn until_lowered(group: &Group) {
    while group.milli() == WROTE_MILLI {
        std::thread::yield_now();
    }
}

#[test]
fn a_terminal_that_goes_away_leaves_no_limit_behind() {
    let (house, group) = (House::new(), Group::new());
    for command in commands(&group.settings(&house)) {
        let mut terminal = Terminal::open(&house, &format!("echo $$; exec {command}"));
        let process = pidfd_open(terminal.pid, PidfdFlags::empty()).unwrap();
        terminal.ready();
        until_lowered(&group);
        terminal.close();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
        assert_eq!(group.milli(), WROTE_MILLI, "{command}");
    }
}

#[test]
fn what_was_started_to_outlive_its_terminal_does_and_ends_in_order_later() {
    let (house, group) = (House::new(), Group::new());
    for command in commands(&group.settings(&house)) {
        let line = format!("trap '' HUP; echo $$; exec {command}");
        let mut terminal = Terminal::open(&house, &line);
        let pid = terminal.pid;
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let ready = terminal.ready();
        let address = ready["server"].as_str().unwrap();
        until_lowered(&group);
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
        let status = status.unwrap();
        let is_in = |mask: &str| {
            let mask = status.lines().find_map(|line| line.strip_prefix(mask));
            let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
            mask & 1 << (Signal::HUP.as_raw() - 1) != 0
        };
        assert!(is_in("SigIgn:") && !is_in("SigCgt:"), "{status}");
        terminal.close();
        // Each request is logged, to a terminal that is not there.
        for _ in 0..3 {
            assert_eq!(get(address, "/healthz").0, 200, "{command}");
        }
        assert!(group.milli() < WROTE_MILLI);
        kill_process(pid, Signal::TERM).unwrap();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
        assert_eq!(group.milli(), WROTE_MILLI, "{command}");
    }
}

#[test]
fn as_many_files_may_be_open_as_the_machine_allows() {
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
