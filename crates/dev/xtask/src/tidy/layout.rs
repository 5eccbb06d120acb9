//! Rules about paths and names of files (style rules 15, 16 and 39).

use crate::Finding;
use crate::tree::File;

/// Names that do not describe a module's content.
const VAGUE: &[&str] = &[
    "common", "helper", "helpers", "manager", "misc", "util", "utils",
];

/// A module is `foo.rs` with its children in `foo/`.
pub(super) fn module_files(files: &[File]) -> Vec<Finding> {
    let old_style = files.iter().filter(|file| file.name() == "mod.rs");
    old_style
        .map(|file| {
            Finding::of(
                &file.path,
                "a module `foo` is `foo.rs`, with its children in `foo/`",
            )
        })
        .collect()
}

/// A module or crate is a noun of the domain.
pub(super) fn vague_names(files: &[File]) -> Vec<Finding> {
    let sources = files.iter().filter(|file| file.extension() == "rs");
    let vague = sources.filter(|file| {
        let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
        stem.split('/').any(|part| VAGUE.contains(&part))
    });
    vague
        .map(|file| {
            Finding::of(
                &file.path,
                "name it after what it holds, with a noun of the domain",
            )
        })
        .collect()
}

/// Each file directly below `tests/` would be another binary to link.
pub(super) fn one_test_binary(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.extension() == "rs" && file.path.starts_with("crates/"))
    {
        let mut parts = file.path.split('/').skip(3);
        if parts.next() != Some("tests") {
            continue;
        }
        let (first, second) = (parts.next(), parts.next());
        let own_binary = second.is_none() || (second == Some("main.rs") && first != Some("it"));
        if own_binary {
            findings.push(Finding::of(
                &file.path,
                "make it a module of the crate's one test binary, tests/it/main.rs",
            ));
        }
    }
    findings
}
