//! The fuzz inputs in the tree: one file each, in a directory with the name of the target.

use std::io;
use std::path::{Path, PathBuf};

/// The inputs of one target.
#[derive(Clone, Debug, Default)]
pub struct Corpus(Vec<Vec<u8>>);

impl Corpus {
    /// Reads the corpus of a target, sorted by file name; empty if there is no directory.
    pub fn read(root: &Path, target: &str) -> io::Result<Self> {
        let directory = root.join("corpus").join(target);
        if !directory.is_dir() {
            return Ok(Self::default());
        }
        let entries = std::fs::read_dir(directory)?;
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()?;
        paths.sort();
        let inputs = paths.iter().map(std::fs::read);
        Ok(Self(inputs.collect::<io::Result<_>>()?))
    }

    /// All inputs.
    pub fn inputs(&self) -> &[Vec<u8>] {
        &self.0
    }
}

/// The directory `fuzz` of this tree.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz"))
}
