//! Cost of one agent: the `bursar` binary, acting on a hundred real cgroups.
//!
//! The cgroups are in a separate directory. In each a shell counts for about a millisecond, sleeps
//! for a second, and repeats; in turn a quarter of them count longer each time, up to thirty times as
//! long, so that needs change and limits are written. The kernel counts the agent's CPU time from
//! when it is ready; its metrics show that it did its work.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bursar_node::cgroup::{Version, layout};
use rustix::process::{Pid, Signal, kill_process};

use super::super::usage::{Charged, Memory};

/// Number of cgroups.
pub(super) const GROUPS: u64 = 100;
/// Minimum and maximum of each.
const MIN: &str = "10m";
const MAX: &str = "1";
/// Number of writes in a minute above which limits have changed: the first write of each
/// cgroup, and one more.
const WRITES_MIN: u64 = 2 * GROUPS;
/// Default interval of clearings, in seconds.
const CLEAR_S: u64 = 1;
/// Count of a shell, about a millisecond, and its increase per round while it is busy.
const COUNT: u64 = 1_000;
const COUNT_MORE: u64 = 2_000;
/// Number of rounds for which a quarter of the shells is busy.
const ROUNDS: u64 = 15;
/// Interval of checks for an interrupt.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// Time limit for processes to end.
const END_WITHIN: Duration = Duration::from_secs(10);

pub(super) struct Measurement {
    /// Thousandths of a millicore.
    pub(super) microcores: u64,
    pub(super) memory: Memory,
    pub(super) clearings: u64,
    pub(super) writes: u64,
}

/// Runs an agent for a time.
pub(super) fn measure(
    program: &Path,
    time: Duration,
    interrupted: &AtomicBool,
) -> anyhow::Result<Measurement> {
    let directory = tempfile::tempdir().context("cannot create a directory")?;
    let cgroups = Cgroups::create()?;
    let settings = directory.path().join("bursar.toml");
    fs::write(&settings, cgroups.settings()).context("cannot write the settings")?;
    let agent = Agent::start(program, &settings, directory.path())?;
    let began = Instant::now();
    let before = Charged::of(agent.child.id()).context("the agent ended at once")?;
    while began.elapsed() < time {
        if interrupted.load(Ordering::Relaxed) {
            bail!("interrupted while the agent was measured");
        }
        super::pause(CHECK_EVERY);
    }
    let took = began.elapsed();
    let after = Charged::of(agent.child.id()).context("the agent ended meanwhile")?;
    let memory = Memory::of(agent.child.id()).context("the agent ended meanwhile")?;
    let metrics = agent.metrics()?;
    agent.end()?;
    let took_ms = u64::try_from(took.as_millis())?.max(1);
    let measured = Measurement {
        microcores: after.ms.saturating_sub(before.ms) * 1_000_000 / took_ms,
        memory,
        clearings: metrics.sum("market_clearings_total"),
        writes: metrics.sum("market_writes_total"),
    };
    let (pods, skipped) = (
        metrics.count("apex_allocation_milli{"),
        metrics.sum("market_skipped_total"),
    );
    if pods != GROUPS || metrics.sum("market_acts{") != 1 {
        bail!("the agent manages only {pods} of {GROUPS} cgroups");
    }
    if measured.writes <= WRITES_MIN * time.as_secs() / 60 {
        bail!(
            "the agent had too little to change: {} writes\n\nhint: where other programs leave it no CPU to \
             divide, limits stay as they are; let nothing else run",
            measured.writes
        );
    }
    // One clearing may be under way.
    if skipped > 0 || measured.clearings + 1 < time.as_secs() / CLEAR_S {
        bail!(
            "the agent came too late: {} clearings, {skipped} skipped",
            measured.clearings
        );
    }
    Ok(measured)
}

/// A hundred cgroups with a shell in each; removed on drop.
struct Cgroups {
    name: String,
    /// Mount points of the hierarchies that count and limit CPU.
    roots: Vec<PathBuf>,
    shells: Vec<Child>,
}

impl Cgroups {
    fn create() -> anyhow::Result<Self> {
        let mut cgroups = Self {
            name: format!("bursar-bench-{}", std::process::id()),
            roots: roots()?,
            shells: Vec::new(),
        };
        let failed = "cannot create cgroups\n\nhint: this needs root and writable cgroups; \
                      `--only clear` needs neither";
        for root in &cgroups.roots {
            let directory = root.join(&cgroups.name);
            fs::create_dir(&directory).context(failed)?;
            if directory.join("cgroup.subtree_control").exists() {
                for group in [root, &directory] {
                    fs::write(group.join("cgroup.subtree_control"), "+cpu").context(failed)?;
                }
            }
        }
        for number in 0..GROUPS {
            let mut members = Vec::new();
            for root in &cgroups.roots {
                let directory = root.join(&cgroups.name).join(pod(number));
                fs::create_dir(&directory).context(failed)?;
                members.push(directory.join("cgroup.procs"));
            }
            let shell = shell(number).context("cannot start a shell")?;
            let id = shell.id().to_string();
            cgroups.shells.push(shell);
            for path in members {
                fs::write(path, &id).context("cannot move a shell into its cgroup")?;
            }
        }
        Ok(cgroups)
    }

    fn settings(&self) -> String {
        let cgroup = |number| {
            format!(
                "[[cgroup]]\nname = \"{0}\"\npath = \"/{1}/{0}\"\nmin = \"{MIN}\"\nmax = \"{MAX}\"\n",
                pod(number),
                self.name
            )
        };
        (0..GROUPS).map(cgroup).collect()
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for shell in &mut self.shells {
            // The shell may have ended already.
            let _ended = shell.kill();
            let _ended = shell.wait();
        }
        for root in &self.roots {
            let directory = root.join(&self.name);
            for number in 0..GROUPS {
                remove(&directory.join(pod(number)));
            }
            remove(&directory);
        }
    }
}

/// An agent process, which is killed on drop.
struct Agent {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Agent {
    fn start(program: &Path, settings: &Path, directory: &Path) -> anyhow::Result<Self> {
        let log = directory.join("log");
        let mut command = Command::new(program);
        command
            .args(["agent", "--market", "act", "--listen", "127.0.0.1:0"])
            .args(["-o", "json", "--config"])
            .arg(settings)
            .arg("--data")
            .arg(directory.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).context("cannot create a file")?);
        let shown = program.display();
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start {shown}"))?;
        let mut agent = Self {
            child,
            address: String::new(),
            log,
        };
        let stdout = agent
            .child
            .stdout
            .take()
            .context("the agent has no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let server = ready.get("server").and_then(serde_json::Value::as_str);
        let address = server.and_then(|server| server.strip_prefix("http://"));
        let Some(address) = address else {
            let log = fs::read_to_string(&agent.log).unwrap_or_default();
            bail!("the agent does not start; its output:\n{line}{log}");
        };
        address.clone_into(&mut agent.address);
        Ok(agent)
    }

    fn metrics(&self) -> anyhow::Result<Metrics> {
        let mut stream = TcpStream::connect(&self.address).context("cannot reach the agent")?;
        stream.set_read_timeout(Some(END_WITHIN))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(Metrics(text))
    }

    fn end(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("cannot end the agent")?;
        let status = self.child.wait().context("cannot wait for the agent")?;
        if !status.success() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("the agent ended with {status}; its output:\n{log}");
        }
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Metrics as text.
struct Metrics(String);

impl Metrics {
    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.lines().filter(move |line| line.starts_with(name))
    }

    fn count(&self, name: &str) -> u64 {
        u64::try_from(self.lines(name).count()).unwrap_or(u64::MAX)
    }

    fn sum(&self, name: &str) -> u64 {
        let values = self.lines(name).filter_map(|line| line.rsplit(' ').next());
        values.filter_map(|value| value.parse::<u64>().ok()).sum()
    }
}

fn pod(number: u64) -> String {
    format!("pod-{number:03}")
}

fn shell(number: u64) -> std::io::Result<Child> {
    let turn = number % 4;
    let script = format!(
        "r=0; while :; do \
           n={COUNT}; \
           [ $((r / {ROUNDS} % 4)) -eq {turn} ] && n=$((n + {COUNT_MORE} * (r % {ROUNDS} + 1))); \
           i=0; while [ $i -lt $n ]; do i=$((i + 1)); done; \
           r=$((r + 1)); sleep 1; \
         done"
    );
    Command::new("/bin/sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Mount points of the hierarchies that count and limit CPU.
fn roots() -> anyhow::Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
    let mounts = layout::mounts(&text);
    let counts = |mount: &&layout::Mount| {
        let mut controllers = mount.controllers.iter();
        controllers.any(|word| word == "cpu" || word == "cpuacct")
    };
    let is_unified = |mount: &&layout::Mount| mount.version == Version::V2;
    let mut found: Vec<&layout::Mount> = mounts.iter().filter(counts).collect();
    if found.is_empty() {
        found = mounts.iter().filter(is_unified).collect();
    }
    if found.is_empty() {
        bail!("no cgroup hierarchy with the cpu controller is mounted");
    }
    Ok(found.iter().map(|mount| mount.point.clone()).collect())
}

/// Kills all processes of a cgroup and removes it.
fn remove(group: &Path) {
    let until = Instant::now() + END_WITHIN;
    while group.exists() && Instant::now() < until {
        let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        for id in members.lines().filter_map(|line| line.parse().ok()) {
            let Some(id) = Pid::from_raw(id) else {
                continue;
            };
            // The process may have ended meanwhile.
            let _ended = kill_process(id, Signal::KILL);
        }
        if fs::remove_dir(group).is_err() {
            super::pause(Duration::from_millis(10));
        }
    }
    if group.exists() {
        eprintln!("could not remove {}", group.display());
    }
}
