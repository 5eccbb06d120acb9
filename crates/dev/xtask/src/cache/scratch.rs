//! Temporary directories in the cache, of hundreds of megabytes.
//!
//! Promises: each is removed at the end of its run; the next run removes those of killed runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A directory that is removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates an empty directory in `cache`; its name begins with `prefix`.
    pub fn new(cache: &Path, prefix: &str) -> anyhow::Result<Self> {
        sweep(cache, prefix, Path::new("/proc"));
        let path = cache.join(format!("{prefix}-{}", std::process::id()));
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot create the directory {}", path.display()))?;
        Ok(Self(path))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next run removes it if this fails.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes directories whose process has ended. One with our own pid is of an earlier process too.
fn sweep(cache: &Path, prefix: &str, processes: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        let number: Option<u32> = number
            .and_then(|number| number.strip_prefix('-'))
            .and_then(|number| number.parse().ok());
        let is_over = |number: u32| {
            number == std::process::id() || !processes.join(number.to_string()).exists()
        };
        if number.is_some_and(is_over) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use super::{Scratch, sweep};

    #[test]
    fn only_directories_of_killed_runs_are_removed() {
        let cache = tempfile::tempdir().unwrap();
        let processes = tempfile::tempdir().unwrap();
        fs::create_dir(processes.path().join("7")).unwrap();
        for name in ["run-7", "run-8", "run-x", "other-8", "run-08x"] {
            fs::create_dir(cache.path().join(name)).unwrap();
        }
        sweep(cache.path(), "run", processes.path());
        let names = fs::read_dir(cache.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["other-8", "run-08x", "run-7", "run-x"]);
    }

    #[test]
    fn a_directory_is_empty_at_first_and_removed_at_the_end() {
        let cache = tempfile::tempdir().unwrap();
        let left = cache.path().join(format!("run-{}", std::process::id()));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("file"), "left").unwrap();
        let scratch = Scratch::new(cache.path(), "run").unwrap();
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        drop(scratch);
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
    }
}
