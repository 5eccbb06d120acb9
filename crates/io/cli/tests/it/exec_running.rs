//! A running command whose streams the test controls.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::house::{DEFAULT_SIGNALS, ENV, Ended, House};

pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// A program with the environment of the house and `bursar` on its path.
pub(crate) fn program(house: &House, name: &str) -> Command {
    let like = house.command(&[]);
    let bin = Path::new(env!("CARGO_BIN_EXE_bursar")).parent().unwrap();
    let mut command = Command::new(ENV);
    command
        .args([DEFAULT_SIGNALS, name])
        .current_dir(like.get_current_dir().unwrap())
        .env_clear()
        .envs(
            like.get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        )
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .stdin(Stdio::null());
    command
}

/// A line of shell code in the house.
pub(crate) fn shell(house: &House, line: &str) -> Command {
    let mut command = program(house, "sh");
    command.args(["-c", line]);
    command
}

impl Running {
    /// Starts `bursar exec` with these arguments.
    pub(crate) fn exec(house: &House, words: &[&str]) -> Self {
        let all: Vec<&str> = std::iter::once("exec")
            .chain(words.iter().copied())
            .collect();
        Self::start(&mut house.command(&all))
    }

    /// Starts a command in a new process group, so that it is never in the foreground of the
    /// terminal of the tests.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// The next line of stdout.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Reads stdout until it has the text; returns everything read.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(text.as_bytes()) {
            let count = self.stdout.read(&mut byte).unwrap();
            assert!(
                count > 0,
                "no {text:?} in {:?}",
                String::from_utf8_lossy(&seen)
            );
            seen.extend(byte);
        }
        String::from_utf8_lossy(&seen).into_owned()
    }

    pub(crate) fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The next line of stderr, before `end`.
    pub(crate) fn word_line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        let stderr = self.child.stderr.as_mut().unwrap();
        while !line.ends_with(b"\n") && stderr.read(&mut byte).unwrap() > 0 {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    /// Waits until every process that holds its stdout has ended. Its stdin stays open meanwhile.
    pub(crate) fn end(mut self) -> Ended {
        let mut ended = Ended {
            code: 0,
            stdout: String::new(),
            stderr: String::new(),
        };
        self.stdout.read_to_string(&mut ended.stdout).unwrap();
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut ended.stderr).unwrap();
        ended.code = self.child.wait().unwrap().code().unwrap_or(-1);
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failed test leaves no program behind: `bursar exec` forwards SIGTERM.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::TERM);
            let _ended = self.child.wait();
        }
    }
}
