//! The project's own chores, started as `cargo xtask`.
//!
//! Promises: a check either runs or fails, it never skips; everything it runs is plain `cargo` and
//! `git`, so a machine with a Rust toolchain, a C compiler and git is enough. Some parts
//! need more and install it where they may: `unit`, `python` and `hostile` a Python, and `vm` an
//! emulator with a kernel.
//!
//! Deliberately absent: any crate of ours. Simulation, fuzzing and benches are binaries of
//! `bursar-sim`, which this crate starts through cargo, so that `cargo xtask` itself builds in seconds.

pub mod arrows;
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

/// One thing that is wrong in the tree, and where.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Finding {
    /// The file or crate, relative to the root of the tree.
    pub place: String,
    /// The line, counted from 1, where one line is to blame.
    pub line: Option<usize>,
    /// What is wrong and what to do instead.
    pub message: String,
}

impl Finding {
    /// A finding about a whole file or crate.
    pub fn of(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            line: None,
            message: message.into(),
        }
    }

    /// A finding about one line; `index` counts from 0, as `lines().enumerate()` does.
    pub fn at(place: impl Into<String>, index: usize, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            line: Some(index + 1),
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}: {}", self.place, self.message),
            None => write!(out, "{}: {}", self.place, self.message),
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
