//! Every external crate has a reason in ARCHITECTURE.md (style rule 48).

use crate::Finding;
use crate::tidy::manifests::declared_from_outside;
use crate::tree::File;

/// File with the reasons: rows of the form ``| `name` | why |`` under a heading with [`HEADING`].
const DOCUMENT: &str = "ARCHITECTURE.md";

/// Part of the heading above the table of reasons.
const HEADING: &str = "ependenc";

/// Each declared crate has a row with a reason, and each row a declared crate.
pub(super) fn every_dependency_has_one(files: &[File]) -> Vec<Finding> {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else {
        return vec![Finding::of(
            DOCUMENT,
            "missing; it contains the reason for each dependency",
        )];
    };
    let rows = rows(&document.text);
    let declared: Vec<_> = declared_from_outside(files).collect();
    let mut findings = Vec::new();
    for entry in &declared {
        let reason = rows.iter().find(|row| row.name == entry.key);
        if reason.is_none_or(|row| row.reason.is_empty()) {
            let message = format!(
                "no reason for `{}`: add a row \"| `{0}` | why |\"",
                entry.key
            );
            findings.push(Finding::of(DOCUMENT, message));
        }
    }
    for row in &rows {
        if !declared.iter().any(|entry| entry.key == row.name) {
            let message = format!(
                "a reason for `{}`, which the workspace does not declare",
                row.name
            );
            findings.push(Finding::at(DOCUMENT, row.index, message));
        }
    }
    findings
}

struct Row<'a> {
    name: &'a str,
    reason: &'a str,
    index: usize,
}

/// The rows of all tables under a heading about dependencies.
fn rows(text: &str) -> Vec<Row<'_>> {
    let mut here = false;
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            here = line.contains(HEADING);
        }
        let cells = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split_once("` |"));
        if let Some((name, rest)) = cells.filter(|_| here) {
            rows.push(Row {
                name,
                reason: rest.split('|').next().unwrap_or("").trim(),
                index,
            });
        }
    }
    rows
}
