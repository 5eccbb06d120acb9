//! The programs of the workspace that parts of `cargo xtask test` start.
//!
//! The whole workspace is built, always: cargo builds a package that is named alone with other features
//! of its dependencies, which is a second build of them.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::invocation::Invocation;

/// The programs, built.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Where cargo puts what it builds.
    target: String,
}

/// The part of cargo's answer that says where it builds.
#[derive(Deserialize)]
struct Metadata {
    target_directory: String,
}

impl Programs {
    /// Builds them; after the part `unit`, which builds them for its tests, nothing is left to do.
    pub fn build(root: &Path) -> anyhow::Result<Self> {
        invocation().run(root)?;
        let arguments = ["metadata", "--format-version", "1", "--locked", "--no-deps"];
        let text = Invocation::cargo(&arguments).output(root)?;
        let metadata: Metadata =
            serde_json::from_str(&text).context("cannot read the answer of `cargo metadata`")?;
        Ok(Self::below(&metadata.target_directory))
    }

    /// Those of a target directory.
    pub fn below(target: &str) -> Self {
        Self {
            target: target.to_owned(),
        }
    }

    /// The file of a program; an example is `examples/NAME`.
    pub fn file(&self, name: &str) -> String {
        format!("{}/debug/{name}", self.target)
    }

    /// Starts a program, with `arguments`.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Invocation {
        Invocation::new(&self.file(name), arguments)
    }

    /// Starts something in Python that finds the server in `BURSAR_BIN`; what Python would only warn of
    /// fails.
    pub fn start_python(&self, arguments: &[&str]) -> Invocation {
        let python = Invocation::new("python3", &["-W", "error"]).with(arguments.iter().copied());
        python
            .with_variable("PYTHONPYCACHEPREFIX", &format!("{}/python", self.target))
            .with_variable("BURSAR_BIN", &self.file("bursar"))
    }
}

/// Builds what the parts start.
pub fn invocation() -> Invocation {
    Invocation::cargo(&["build", "--workspace", "--locked", "--bins", "--examples"])
}
