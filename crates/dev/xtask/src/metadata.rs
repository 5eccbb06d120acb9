//! Output of `cargo metadata` about the workspace and its dependencies.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::invocation::Invocation;

/// The fields that our checks read.
#[derive(Clone, Debug, Deserialize)]
pub struct Metadata {
    /// Our crates and every crate that any of them needs on any platform.
    pub packages: Vec<Package>,
    /// The ids of our crates.
    pub workspace_members: Vec<String>,
    /// Directory of the workspace.
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
    /// Registry or repository; none for a crate in a directory.
    pub source: Option<String>,
    /// Path of its manifest.
    pub manifest_path: String,
    /// Dependencies in its manifest.
    pub dependencies: Vec<Dependency>,
}

/// One dependency in a manifest.
#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    /// Name of the crate, before any renaming.
    pub name: String,
    /// `dev` or `build`; none for a normal dependency.
    pub kind: Option<String>,
}

/// Runs `cargo metadata`, without changing the lock file.
pub fn read(root: &Path) -> anyhow::Result<Metadata> {
    let text =
        Invocation::cargo(&["metadata", "--format-version", "1", "--locked"]).output(root)?;
    serde_json::from_str(&text).context("cannot parse the output of `cargo metadata`")
}
