//! The parts of `cargo xtask test`: commands, order, and summary of results.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::invocation::Invocation;
use crate::programs::Programs;
use crate::{
    alerts, debian, drift, hostile, policy, python, report, scripts, simulator, tidy, tree, vm,
};

/// One part. Parts run in this order: parts that fail fast come first.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Part {
    /// Code is formatted as rustfmt writes it
    Format,
    /// Text, layout and manifests follow the house rules
    Tidy,
    /// Dependencies between crates, licences, sources, bans
    Policy,
    /// Clippy reports nothing
    Lint,
    /// All unit, integration and documentation tests
    Unit,
    /// API documentation builds, and every command in the guides runs
    Docs,
    /// Generated files in the tree equal the output of their generator
    Drift,
    /// Prometheus accepts the alert rules, and they fire when they should
    Alerts,
    /// The Python client against the real server
    Python,
    /// Attacks on the real server: kills, forgeries, foreign tenants, lost files
    Hostile,
    /// A million steps of the whole system on virtual time, with faults
    Simulate,
    /// The corpus of every parser, and ten seconds of mutations
    Fuzz,
    /// Executions, market and program on cgroup v2, in a virtual machine
    Vm,
}

impl Part {
    /// All parts, in their order.
    pub const ALL: [Self; 13] = [
        Self::Format,
        Self::Tidy,
        Self::Policy,
        Self::Lint,
        Self::Unit,
        Self::Docs,
        Self::Drift,
        Self::Alerts,
        Self::Python,
        Self::Hostile,
        Self::Simulate,
        Self::Fuzz,
        Self::Vm,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Tidy => "tidy",
            Self::Policy => "policy",
            Self::Lint => "lint",
            Self::Unit => "unit",
            Self::Docs => "docs",
            Self::Drift => "drift",
            Self::Alerts => "alerts",
            Self::Python => "python",
            Self::Hostile => "hostile",
            Self::Simulate => "simulate",
            Self::Fuzz => "fuzz",
            Self::Vm => "vm",
        }
    }

    /// Whether the part starts `python3`. In `unit`, tests of the program run it as a user's command;
    /// all other programs that tests start are part of every Debian.
    fn needs_python(self) -> bool {
        matches!(self, Self::Unit | Self::Python | Self::Hostile)
    }

    /// Cargo command of the part, if it is one command.
    pub fn invocation(self) -> Option<Invocation> {
        let deny_warnings = ["--", "--deny", "warnings"];
        match self {
            Self::Format => Some(Invocation::cargo(&["fmt", "--all", "--check"])),
            Self::Lint => {
                let clippy =
                    Invocation::cargo(&["clippy", "--workspace", "--all-targets", "--locked"]);
                Some(clippy.with(deny_warnings))
            }
            Self::Unit => Some(Invocation::cargo(&["test", "--workspace", "--locked"])),
            Self::Docs => {
                let doc = Invocation::cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
                Some(doc.with_variable("RUSTDOCFLAGS", "--deny warnings"))
            }
            Self::Tidy
            | Self::Policy
            | Self::Drift
            | Self::Alerts
            | Self::Python
            | Self::Hostile
            | Self::Simulate
            | Self::Fuzz
            | Self::Vm => None,
        }
    }

    fn run(self, root: &Path) -> anyhow::Result<()> {
        if self.needs_python() {
            python::find(root)?;
        }
        if self == Self::Unit {
            find_strace(root)?;
        }
        if let Some(invocation) = self.invocation() {
            invocation.run(root)?;
        }
        match self {
            Self::Tidy => report(&tidy::check(&tree::files(root)?)),
            Self::Policy => policy::run(root),
            Self::Docs => scripts::check(root),
            Self::Drift => drift::check(root),
            Self::Alerts => alerts::check(root),
            Self::Python => python::check(root),
            Self::Hostile => hostile::check(root),
            Self::Simulate => simulator::test_simulation(&Programs::build(root)?).run(root),
            Self::Fuzz => simulator::test_fuzz(&Programs::build(root)?).run(root),
            Self::Vm => vm::check(root),
            Self::Format | Self::Lint | Self::Unit => Ok(()),
        }
    }
}

/// Makes sure that `strace` is available: a test of the store records system calls with it.
fn find_strace(root: &Path) -> anyhow::Result<()> {
    let is_there = || Invocation::new("strace", &["-V"]).succeeds(root);
    if debian::ensure(root, "strace", is_there)? {
        return Ok(());
    }
    anyhow::bail!("no strace is on the search path\nhint: install the package `strace`")
}

/// Result of one part.
#[derive(Clone, Debug)]
pub struct PartResult {
    /// The part.
    pub part: Part,
    /// Run time.
    pub elapsed: Duration,
    /// Error, if the part failed.
    pub failure: Option<String>,
}

/// Runs `chosen` parts, or all if none is chosen, in their order. A failure does not stop the next part.
pub fn run(root: &Path, chosen: &[Part]) -> Vec<PartResult> {
    let is_wanted = |part: &Part| chosen.is_empty() || chosen.contains(part);
    let parts: Vec<Part> = Part::ALL.into_iter().filter(is_wanted).collect();
    let mut results = Vec::new();
    for (index, part) in parts.iter().copied().enumerate() {
        eprintln!("\n== {} ({} of {})", part.name(), index + 1, parts.len());
        let start = Instant::now();
        let failure = part.run(root).err().map(|error| format!("{error:#}"));
        let elapsed = start.elapsed();
        match &failure {
            None => eprintln!("== {} passed in {}", part.name(), seconds(elapsed)),
            Some(failure) => eprintln!(
                "== {} failed in {}: {failure}",
                part.name(),
                seconds(elapsed)
            ),
        }
        results.push(PartResult {
            part,
            elapsed,
            failure,
        });
    }
    results
}

/// Table of results, with a last line of counts.
pub fn summary(results: &[PartResult]) -> String {
    let mut out = String::new();
    for result in results {
        let verdict = if result.failure.is_some() {
            "failed"
        } else {
            "passed"
        };
        let failure = result
            .failure
            .as_deref()
            .and_then(|failure| failure.lines().next());
        let line = format!(
            "{:<8}  {verdict}  {:>9}  {}",
            result.part.name(),
            seconds(result.elapsed),
            failure.unwrap_or_default()
        );
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", line.trim_end());
    }
    let failed = failed(results).len();
    let _ = writeln!(out, "{} passed, {failed} failed", results.len() - failed);
    out
}

/// Names of the failed parts.
pub fn failed(results: &[PartResult]) -> Vec<&'static str> {
    let failed = results.iter().filter(|result| result.failure.is_some());
    failed.map(|result| result.part.name()).collect()
}

/// A duration with tenths of a second, rounded down.
fn seconds(elapsed: Duration) -> String {
    format!("{}.{} s", elapsed.as_secs(), elapsed.subsec_millis() / 100)
}
