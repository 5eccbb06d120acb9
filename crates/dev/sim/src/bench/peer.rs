//! Other programs that people use for the same, each in a directory of its own.
//!
//! A peer is installed from Debian's packages if it is absent, runs as a child of ours on a socket
//! in its directory, listens nowhere else, and is ended with its guard, whatever happened.

pub mod postgres;
pub mod redis;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// How long a peer may take to be ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// How often it is asked meanwhile.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long a peer may take to end in order.
const END_MAX: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// What a peer did.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Pairs of reserve and release.
    pub pairs_per_second: u64,
    /// What bound it.
    pub near: String,
}

/// A child that ends when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a program that writes its words into a file, and waits until it is ready.
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
                bail!("{name} is not ready; it says:\n{}", server.words());
            }
            pause();
        }
        Ok(server)
    }

    fn words(&self) -> String {
        last_lines(&std::fs::read_to_string(&self.log).unwrap_or_default())
    }

    /// Asks it to end, and waits for that no longer than is decent.
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

/// Installs Debian's package, unless `is_present` says that it need not.
fn install(package: &str, is_present: impl Fn() -> bool) -> anyhow::Result<()> {
    if is_present() {
        return Ok(());
    }
    let hint = format!("install {package} yourself, or leave it out with --only");
    if !rustix::process::geteuid().is_root() {
        bail!("{package} is not installed, and only root can install it\n\nhint: {hint}");
    }
    eprintln!("installing Debian's package {package}");
    if !apt(&["install", "--yes", "--no-install-recommends", package]) {
        // The lists may be missing or old; one look is enough.
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
        // No questions, and no service started beside the private one.
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Runs a program to its end and returns what it wrote.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = command.get_program().display().to_string();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        let words = last_lines(&String::from_utf8_lossy(&output.stderr));
        bail!("{shown} ended with {}; it says:\n{words}", output.status);
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

/// The path of a program that is looked for where programs are.
fn find(program: &str) -> Option<PathBuf> {
    let places = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"];
    places
        .iter()
        .map(|place| Path::new(place).join(program))
        .find(|path| path.is_file())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program of others says nothing when it is ready: it can only be asked again"
)]
fn pause() {
    std::thread::sleep(ASK_AGAIN);
}
