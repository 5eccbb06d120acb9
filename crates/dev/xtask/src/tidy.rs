//! Rules about the text of the tree that no compiler checks.
//!
//! Promises: works on text alone and in path order, so the same tree gives the same findings on every
//! machine. Deliberately absent: checks that rustfmt and clippy already make.

mod layout;
mod manifests;
mod reasons;
mod source;
mod text;

use crate::Finding;
use crate::tree::File;

/// One rule: returns its violations in the whole tree.
type Rule = fn(&[File]) -> Vec<Finding>;

/// Every rule, in the order in which their findings are printed.
const RULES: &[Rule] = &[
    text::whitespace,
    text::promises_to_come_back,
    text::machine_paths,
    text::registry_addresses,
    layout::module_files,
    layout::vague_names,
    layout::one_test_binary,
    source::lint_exceptions,
    source::skipped_tests,
    source::floats_in_pure_crates,
    source::outside_world_in_pure_crates,
    manifests::workspace_lints,
    manifests::declared_once,
    manifests::sorted,
    manifests::unused,
    reasons::every_dependency_has_one,
];

/// Violations of all rules in `files`.
pub fn check(files: &[File]) -> Vec<Finding> {
    RULES.iter().flat_map(|rule| rule(files)).collect()
}
