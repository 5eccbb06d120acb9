//! Files that can be downloaded again, and temporary directories beside them.

mod scratch;

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

pub use scratch::Scratch;

/// Directory of one part of the test; it is created if it is missing.
pub fn directory(part: &str) -> anyhow::Result<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a part of the test has no arguments, and this only chooses a directory"
    )]
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = named
        .filter(|path| path.is_absolute())
        .or_else(|| Some(std::env::home_dir()?.join(".cache")))
        .context("no cache directory: neither XDG_CACHE_HOME nor a home directory is set\nhint: set XDG_CACHE_HOME")?;
    let cache = base.join("bursar-testbed").join(part);
    fs::create_dir_all(&cache)
        .with_context(|| format!("cannot create the directory {}", cache.display()))?;
    Ok(cache)
}
