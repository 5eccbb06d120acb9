//! Rules about manifests: one list of dependencies, sorted, used, and one set of lints (style rule 48).
//!
//! Our manifests have one entry per line, so no TOML parser is needed.

use crate::Finding;
use crate::tree::File;

/// Manifest of the workspace.
const ROOT: &str = "Cargo.toml";

/// One `key = value` line of a manifest.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Entry<'a> {
    pub(super) section: &'a str,
    pub(super) key: &'a str,
    pub(super) value: &'a str,
    /// Line number from 0.
    pub(super) index: usize,
}

/// Every crate inherits the workspace's lints.
pub(super) fn workspace_lints(files: &[File]) -> Vec<Finding> {
    let without = members(files).filter(|file| {
        let inherits = |entry: Entry| {
            let section = (entry.section, entry.key) == ("lints", "workspace");
            let dotted = (entry.section, entry.key) == ("", "lints.workspace");
            (section || dotted) && entry.value == "true"
        };
        !entries(&file.text).any(inherits)
    });
    without
        .map(|file| Finding::of(&file.path, "add `[lints]` with `workspace = true`"))
        .collect()
}

/// A crate names a dependency; its version is declared once, in the workspace.
pub(super) fn declared_once(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in members(files) {
        for entry in entries(&file.text).filter(|entry| entry.section.ends_with("dependencies")) {
            let inherited =
                entry.key.ends_with(".workspace") || entry.value.contains("workspace = true");
            if !inherited {
                let message = format!(
                    "declare `{}` in the workspace and write `{0}.workspace = true`",
                    entry.key
                );
                findings.push(Finding::at(&file.path, entry.index, message));
            }
        }
    }
    findings
}

/// The workspace's dependencies are sorted within each block of lines.
pub(super) fn sorted(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path == ROOT) {
        let declared: Vec<Entry> = entries(&file.text).filter(is_declaration).collect();
        for (earlier, later) in declared.iter().zip(declared.iter().skip(1)) {
            let same_block = later.index == earlier.index + 1;
            if same_block && later.key < earlier.key {
                let message = format!("`{}` belongs before `{}`", later.key, earlier.key);
                findings.push(Finding::at(&file.path, later.index, message));
            }
        }
    }
    findings
}

/// Every declared dependency is used by some crate.
pub(super) fn unused(files: &[File]) -> Vec<Finding> {
    let used = |name: &str| {
        members(files).any(|file| {
            let names = entries(&file.text).filter(|entry| entry.section.ends_with("dependencies"));
            names
                .map(|entry| entry.key.split('.').next())
                .any(|key| key == Some(name))
        })
    };
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path == ROOT) {
        for entry in entries(&file.text)
            .filter(is_declaration)
            .filter(|entry| !used(entry.key))
        {
            findings.push(Finding::at(
                &file.path,
                entry.index,
                format!("no crate uses `{}`: remove it", entry.key),
            ));
        }
    }
    findings
}

/// External crates that the workspace declares.
pub(super) fn declared_from_outside(files: &[File]) -> impl Iterator<Item = Entry<'_>> {
    let root = files.iter().filter(|file| file.path == ROOT);
    root.flat_map(|file| entries(&file.text))
        .filter(is_declaration)
        .filter(|entry| !entry.value.contains("path ="))
}

fn is_declaration(entry: &Entry) -> bool {
    entry.section == "workspace.dependencies"
}

fn members(files: &[File]) -> impl Iterator<Item = &File> {
    files
        .iter()
        .filter(|file| file.name() == "Cargo.toml" && file.path.starts_with("crates/"))
}

/// The `key = value` lines of a manifest with their sections.
pub(super) fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut section = "";
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.split(" #").next().unwrap_or(line).trim();
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = name;
            return None;
        }
        let (key, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        Some(Entry {
            section,
            key: key.trim(),
            value: value.trim(),
            index,
        })
    })
}
