//! Development tasks, started as `cargo xtask`.
//!
//! Promises: a check runs or fails, it never skips. Most checks need only a Rust toolchain, a C
//! compiler and git. `alerts` also needs promtool, `unit`, `python` and `hostile` Python, `unit` strace,
//! and `vm` an emulator with a kernel; they install what is missing where they may.
//!
//! Deliberately absent: dependencies on other crates of the workspace, so that `cargo xtask` builds
//! in seconds. Simulation, fuzzing and benches are binaries of `bursar-sim`, started as programs.

pub mod alerts;
pub mod arrows;
pub mod cache;
pub mod debian;
pub mod drift;
pub mod hostile;
pub mod invocation;
pub mod metadata;
pub mod policy;
pub mod programs;
pub mod python;
pub mod scripts;
pub mod simulator;
pub mod suite;
pub mod tidy;
pub mod tree;
pub mod vm;

/// A mistake in the tree and its location.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Finding {
    /// The file or crate, relative to the root of the tree.
    pub location: String,
    /// Line number from 1, if the finding is about one line.
    pub line: Option<usize>,
    /// The mistake and its fix.
    pub message: String,
}

impl Finding {
    /// A finding about a whole file or crate.
    pub fn of(location: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            location: location.into(),
            line: None,
            message: message.into(),
        }
    }

    /// A finding about one line; `index` counts from 0, as `lines().enumerate()` does.
    pub fn at(location: impl Into<String>, index: usize, message: impl Into<String>) -> Self {
        Self {
            location: location.into(),
            line: Some(index + 1),
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}: {}", self.location, self.message),
            None => write!(out, "{}: {}", self.location, self.message),
        }
    }
}

/// Prints findings to stderr and fails if there are any.
pub fn report(findings: &[Finding]) -> anyhow::Result<()> {
    for finding in findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => anyhow::bail!("1 finding"),
        count => anyhow::bail!("{count} findings"),
    }
}
