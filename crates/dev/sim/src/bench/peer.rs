//! Other programs that are used for the same purpose, each in its own directory.
//!
//! A missing peer is installed from Debian's packages. It runs as a child process, listens only on a
//! socket in its directory, and is ended when its guard is dropped.

pub mod postgres;
pub mod redis;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Time limit for a peer to be ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// Pause between two checks.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// Time limit of a regular end.
const END_MAX: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// Result of a peer.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Rate of pairs of reserve and release.
    pub pairs_per_second: u64,
    /// Limiting resource.
    pub near: String,
}

/// A child process that is ended on drop.
#[derive(Debug)]
pub(super) struct Server {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a program with its output in a file, and waits until it is ready.
    fn start(
        name: &'static str,
        mut command: Command,
        log: PathBuf,
        is_ready: impl Fn() -> bool,
    ) -> anyhow::Result<Self> {
        let file =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let both = file.try_clone().context("cannot share the log file")?;
        command.stdin(Stdio::null()).stdout(file).stderr(both);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let mut server = Self { name, child, log };
        let started = Instant::now();
        while !is_ready() {
            let has_ended = server
                .child
                .try_wait()
                .context("cannot watch a child")?
                .is_some();
            if has_ended || started.elapsed() > READY_MAX {
                bail!("{name} is not ready; its output:\n{}", server.last_output());
            }
            pause();
        }
        Ok(server)
    }

    fn last_output(&self) -> String {
        last_lines(&std::fs::read_to_string(&self.log).unwrap_or_default())
    }

    /// Interrupts the process, and kills it after a time limit.
    fn end(&mut self) -> std::io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = Pid::from_child(&self.child);
        let watched = pidfd_open(pid, PidfdFlags::empty())?;
        kill_process(pid, Signal::INT)?;
        let mut wait = [PollFd::new(&watched, PollFlags::IN)];
        if poll(&mut wait, Some(&END_MAX))? == 0 {
            self.child.kill()?;
        }
        self.child.wait().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!(
                "could not end {} (process {}): {error}",
                self.name,
                self.child.id()
            );
        }
    }
}

/// Installs Debian's package, unless it is present.
fn install(package: &str, is_present: impl Fn() -> bool) -> anyhow::Result<()> {
    if is_present() {
        return Ok(());
    }
    let hint = format!("install {package} yourself, or leave it out with --only");
    if !rustix::process::geteuid().is_root() {
        bail!("{package} is not installed, and installing it needs root\n\nhint: {hint}");
    }
    eprintln!("installing Debian's package {package}");
    if !apt(&["install", "--yes", "--no-install-recommends", package]) {
        // The package lists may be missing or old.
        apt(&["update"]);
        apt(&["install", "--yes", "--no-install-recommends", package]);
    }
    if !is_present() {
        bail!("{package} could not be installed with apt-get\n\nhint: {hint}");
    }
    Ok(())
}

fn apt(arguments: &[&str]) -> bool {
    let status = Command::new("apt-get")
        .args(["--quiet", "--quiet"])
        .args(arguments)
        // No questions, and no system service beside the private server.
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Runs a program to its end and returns its output.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = command.get_program().display().to_string();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        let errors = last_lines(&String::from_utf8_lossy(&output.stderr));
        bail!(
            "{shown} ended with {}; its output:\n{errors}",
            output.status
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(10);
    lines
        .into_iter()
        .skip(skipped)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Path of an installed program.
fn find(program: &str) -> Option<PathBuf> {
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"]
        .iter()
        .map(|directory| Path::new(directory).join(program))
        .find(|path| path.is_file())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the peers do not report when they are ready, so they must be polled"
)]
fn pause() {
    std::thread::sleep(CHECK_EVERY);
}
