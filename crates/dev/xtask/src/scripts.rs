//! Documentation pages with `console` blocks: every command in them runs.

use std::path::Path;

use anyhow::bail;

use crate::programs::Programs;
use crate::tree::{self, File};

/// First line of a block that `bursar scenario` runs.
const FENCE: &str = "```console";

/// Pages that must have scripts, so that a broken search for scripts fails.
const REQUIRED: &[&str] = &["README.md", "docs/bookings.md"];

/// The paths of the scripts among `files`: the README and the pages below `docs/` with a `console` block.
pub fn among(files: &[File]) -> Vec<&str> {
    let pages = files.iter().filter(|file| {
        let documentation = file.path == "README.md" || file.path.starts_with("docs/");
        documentation && file.extension() == "md"
    });
    let scripts = pages.filter(|file| file.text.lines().any(|line| line.trim() == FENCE));
    scripts.map(|file| file.path.as_str()).collect()
}

/// Runs every script against the real engine and compares its output.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let files = tree::files(root)?;
    let scripts = among(&files);
    for required in REQUIRED {
        if !scripts.contains(required) {
            bail!("{required} has no `console` block, so its commands are not tested");
        }
    }
    Programs::build(root)?
        .start("bursar", &["scenario", "--check"])
        .with(scripts)
        .run(root)
}
