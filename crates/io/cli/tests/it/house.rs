//! The environment of one test: its own directories and server.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A shell that runs the tests in the background makes them ignore signals; commands must not
/// inherit that.
pub(crate) const ENV: &str = "/usr/bin/env";
pub(crate) const DEFAULT_SIGNALS: &str = "--default-signal";

/// Brings up the loopback device of a new network namespace and executes the command.
const LOOPBACK_UP: &str = "
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
    fcntl.ioctl(device, 0x8914, struct.pack('16sH22x', b'lo', 1))
os.execvp(sys.argv[1], sys.argv[1:])
";

/// Empty directories for one test.
pub(crate) struct House {
    directory: tempfile::TempDir,
}

/// A server that is killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// Its first line on stdout.
    pub(crate) announcement: String,
    /// `http://127.0.0.1:…`.
    pub(crate) address: String,
}

/// Exit code and output of a command.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl House {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The default data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.path(".local/share/bursar")
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(ENV);
        command
            .args([DEFAULT_SIGNALS, env!("CARGO_BIN_EXE_bursar")])
            .args(words)
            .current_dir(self.directory.path())
            .env_clear()
            .env("HOME", self.directory.path())
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ended {
        ended(self.command(words).output().unwrap())
    }

    /// Runs a command that must succeed; returns its stdout.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let ended = self.run(words);
        assert_eq!(ended.code, 0, "{words:?}: {}{}", ended.stdout, ended.stderr);
        ended.stdout
    }

    /// Starts a server and waits until it is ready.
    pub(crate) fn up(&self, words: &[&str]) -> Server {
        let mut all = vec!["up", "--listen", "127.0.0.1:0", "-o", "json"];
        all.extend(words);
        Self::started(self.command(&all))
    }

    /// Starts a server in a new network namespace, as on another machine: one machine runs only one
    /// server of a ledger.
    pub(crate) fn up_elsewhere(&self, words: &[&str]) -> Server {
        let mut all = vec!["up", "--listen", "127.0.0.1:0", "-o", "json"];
        all.extend(words);
        let here = self.command(&all);
        let mut there = Command::new("unshare");
        there
            .args(["--net", "python3", "-c", LOOPBACK_UP])
            .arg(here.get_program())
            .args(here.get_args())
            .current_dir(self.directory.path())
            .envs(
                here.get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .stdin(Stdio::null());
        Self::started(there)
    }

    /// Starts the server of a command and waits until it is ready.
    pub(crate) fn started(mut command: Command) -> Server {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut announcement = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut announcement)
            .unwrap();
        if announcement.is_empty() {
            let output = child.wait_with_output().unwrap();
            panic!("no server: {}", String::from_utf8_lossy(&output.stderr));
        }
        let ready: serde_json::Value = serde_json::from_str(&announcement).unwrap();
        let address = ready["server"].as_str().unwrap().to_owned();
        Server {
            child,
            announcement,
            address,
        }
    }
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it by SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as Ctrl-C does; returns its exit code.
    pub(crate) fn interrupt(self) -> i32 {
        self.interrupted().code
    }

    /// Ends it as Ctrl-C does; returns its exit code and all its stderr.
    pub(crate) fn interrupted(mut self) -> Ended {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().unwrap();
        pipe.read_to_string(&mut stderr).unwrap();
        Ended {
            code: self.child.wait().unwrap().code().unwrap_or(-1),
            stdout: String::new(),
            stderr,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

pub(crate) fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The root of the repository.
pub(crate) fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../..")
        .canonicalize()
        .unwrap()
}
