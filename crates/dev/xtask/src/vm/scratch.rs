//! Directories of one run in the cache, of hundreds of megabytes.
//!
//! Promises: each is gone when its run is; one whose run was killed goes with the next run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A directory that is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes an empty one.
    pub(super) fn new(cache: &Path, word: &str) -> anyhow::Result<Self> {
        sweep(cache, word, Path::new("/proc"));
        let path = cache.join(format!("{word}-{}", std::process::id()));
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the directory {}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays goes with the next run.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes those whose process is not there any more, ours included: its number is our own.
fn sweep(cache: &Path, word: &str, processes: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(word));
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
    fn only_what_a_killed_run_left_is_swept_away() {
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
    fn a_directory_goes_with_its_run_and_is_empty_when_it_begins() {
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
