//! The programs of the workspace that parts of `cargo xtask test` start.
//!
//! The whole workspace is always built: for a single named package cargo would enable other features
//! of its dependencies and build them a second time.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::invocation::Invocation;

/// The built programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Target directory of cargo.
    target: String,
}

#[derive(Deserialize)]
struct Metadata {
    target_directory: String,
}

impl Programs {
    /// Builds the programs. After the part `unit`, which builds them for its tests, this is quick.
    pub fn build(root: &Path) -> anyhow::Result<Self> {
        invocation().run(root)?;
        let arguments = ["metadata", "--format-version", "1", "--locked", "--no-deps"];
        let text = Invocation::cargo(&arguments).output(root)?;
        let metadata: Metadata =
            serde_json::from_str(&text).context("cannot parse the output of `cargo metadata`")?;
        Ok(Self::below(&metadata.target_directory))
    }

    /// The programs in a target directory.
    pub fn below(target: &str) -> Self {
        Self {
            target: target.to_owned(),
        }
    }

    /// The file of a program; an example is `examples/NAME`.
    pub fn file(&self, name: &str) -> String {
        format!("{}/debug/{name}", self.target)
    }

    /// Invocation of a program.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Invocation {
        Invocation::new(&self.file(name), arguments)
    }

    /// Invocation of Python with the path of the server in `BURSAR_BIN`; warnings are errors.
    pub fn start_python(&self, arguments: &[&str]) -> Invocation {
        let python = Invocation::new("python3", &["-W", "error"]).with(arguments.iter().copied());
        python
            .with_variable("PYTHONPYCACHEPREFIX", &format!("{}/python", self.target))
            .with_variable("BURSAR_BIN", &self.file("bursar"))
    }
}

/// Builds all programs.
pub fn invocation() -> Invocation {
    Invocation::cargo(&["build", "--workspace", "--locked", "--bins", "--examples"])
}
