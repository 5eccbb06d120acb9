//! The files of the working tree, as git sees them.
//!
//! Promises: tracked files and new files that git does not ignore, in path order, so that a check
//! already fails before the commit. Files that are not UTF-8 are left out as data.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::invocation::Invocation;

/// One text file of the tree.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the root, with `/` between its parts.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl File {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The part of the name after its last dot, or an empty text.
    pub fn extension(&self) -> &str {
        self.name()
            .rsplit_once('.')
            .map_or("", |(_, extension)| extension)
    }
}

/// The root of the workspace that this program was built from.
pub fn root() -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest
        .ancestors()
        .nth(3)
        .context("crates/dev/xtask has no workspace above it")?;
    Ok(root.to_path_buf())
}

/// Every text file below `root`.
pub fn files(root: &Path) -> anyhow::Result<Vec<File>> {
    let listing = Invocation::new(
        "git",
        &[
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
    );
    let mut paths: Vec<String> = listing
        .output(root)?
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(String::from)
        .collect();
    paths.sort();
    paths.dedup();
    let mut files = Vec::new();
    for path in paths {
        let whole = root.join(&path);
        // Git lists a deleted file until the deletion is staged; a link would repeat its target.
        if !whole.is_file() || whole.is_symlink() {
            continue;
        }
        let bytes = std::fs::read(&whole).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path, text });
        }
    }
    Ok(files)
}
