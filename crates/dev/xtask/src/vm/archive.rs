//! The archive that a kernel unpacks as its first file system: cpio in the format "newc".
//!
//! Promises: directories come before their entries, and the same content gives the same bytes.
//! Deliberately absent: owners, times and devices, which are not needed there.

use std::collections::BTreeSet;

use anyhow::Context as _;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// Name of the entry that ends an archive.
const END: &str = "TRAILER!!!";

/// Alignment of headers and contents, in bytes.
const ALIGNMENT: usize = 4;

/// An archive that is being built. Paths have no leading slash.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a directory and its parents, unless they exist.
    pub(super) fn directory(&mut self, path: &str) -> anyhow::Result<()> {
        let ends = path.match_indices('/').map(|(index, _)| index);
        let above: Vec<&str> = ends.filter_map(|end| path.get(..end)).collect();
        for directory in above.into_iter().chain([path]) {
            if self.directories.insert(directory.to_owned()) {
                self.entry(directory, DIRECTORY, &[])?;
            }
        }
        Ok(())
    }

    /// Adds a file that everybody may read and run.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) -> anyhow::Result<()> {
        self.parents(path)?;
        self.entry(path, PROGRAM, content)
    }

    pub(super) fn link(&mut self, path: &str, target: &str) -> anyhow::Result<()> {
        self.parents(path)?;
        self.entry(path, LINK, target.as_bytes())
    }

    pub(super) fn finish(mut self) -> anyhow::Result<Vec<u8>> {
        self.entry(END, 0, &[])?;
        Ok(self.bytes)
    }

    fn parents(&mut self, path: &str) -> anyhow::Result<()> {
        match path.rsplit_once('/') {
            Some((directory, _)) => self.directory(directory),
            None => Ok(()),
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        let too_large = || format!("`{path}` does not fit into an archive");
        let size = u32::try_from(content.len()).with_context(too_large)?;
        let name_size = u32::try_from(path.len() + 1).with_context(too_large)?;
        self.entries += 1;
        self.bytes.extend(b"070701");
        // Inode, mode, owner, group, links, time, size, two device numbers twice, name size, checksum.
        let number = self.entries;
        for field in [number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0] {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
        Ok(())
    }

    fn align(&mut self) {
        let size = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(size, 0);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::Archive;

    #[test]
    fn directories_come_once_and_before_their_entries() {
        let mut archive = Archive::default();
        archive.file("a/b/one", b"1").unwrap();
        archive.link("a/two", "b/one").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        let names: Vec<&str> = text
            .split("070701")
            .skip(1)
            .map(|entry| entry.get(104..).unwrap().split('\0').next().unwrap())
            .collect();
        assert_eq!(names, ["a", "a/b", "a/b/one", "a/two", "TRAILER!!!"]);
    }

    #[test]
    fn an_entry_is_written_as_the_kernel_reads_it() {
        let mut archive = Archive::default();
        archive.file("init", b"#!").unwrap();
        let fields = [
            "070701", "00000001", "000081ed", "00000000", "00000000", "00000001", "00000000",
            "00000002", "00000000", "00000000", "00000000", "00000000", "00000005", "00000000",
        ];
        let expected = format!("{}init\0\0#!\0\0", fields.concat());
        assert_eq!(String::from_utf8(archive.bytes).unwrap(), expected);
    }
}
