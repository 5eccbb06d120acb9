//! What `cargo metadata` says about the workspace and all it depends on.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::invocation::Invocation;

/// The part of cargo's answer that our checks read.
#[derive(Clone, Debug, Deserialize)]
pub struct Metadata {
    /// Our crates and every crate that any of them needs on any platform.
    pub packages: Vec<Package>,
    /// The ids of our crates.
    pub workspace_members: Vec<String>,
    /// Where the workspace is.
    pub workspace_root: String,
}

/// One crate.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Cargo's own name for this crate in this version from this source.
    pub id: String,
    /// The name in its manifest.
    pub name: String,
    /// The version in its manifest.
    pub version: String,
    /// An SPDX expression, if the manifest has one.
    pub license: Option<String>,
    /// Where it was fetched from; nothing for a crate in a directory.
    pub source: Option<String>,
    /// Where its manifest is.
    pub manifest_path: String,
    /// What its manifest asks for.
    pub dependencies: Vec<Dependency>,
}

/// One line of a manifest's dependencies.
#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    /// The crate's name, whatever it is renamed to.
    pub name: String,
    /// `dev` or `build`; nothing for a plain dependency.
    pub kind: Option<String>,
}

/// Asks cargo, without changing the lock file.
pub fn read(root: &Path) -> anyhow::Result<Metadata> {
    let text =
        Invocation::cargo(&["metadata", "--format-version", "1", "--locked"]).output(root)?;
    serde_json::from_str(&text).context("cannot read the answer of `cargo metadata`")
}
