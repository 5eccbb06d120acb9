//! Permitted dependencies between crates: they point inward (style rules 1, 7 and 26).
//!
//! ```text
//! dev/sim ──┐
//! io/cli ───┴─▶ io/server ──▶ io/ledger ─┐
//!                   ├───────▶ io/client ─┼──▶ pure/engine ──▶ pure/…
//!                   └───────▶ io/node ───┘       (pure never points out)
//! ```
//! `dev/sim` and `io/cli` may also depend on every crate to the right of the server. No crate depends
//! on the command line (`dev/sim` starts it as a program) or on dev.

use anyhow::Context as _;

use crate::Finding;
use crate::metadata::Metadata;

/// External crates that a pure crate may link: they compute and have no side effects.
pub const PURE_MAY_LINK: &[&str] = &[
    "base64",
    "ed25519-dalek",
    "hashbrown",
    "itoa",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
];

/// The io crates that each io crate may depend on.
const IO_MAY_USE: &[(&str, &[&str])] = &[
    (
        "bursar",
        &[
            "bursar-client",
            "bursar-ledger",
            "bursar-node",
            "bursar-server",
        ],
    ),
    ("bursar-client", &[]),
    ("bursar-ledger", &[]),
    ("bursar-node", &[]),
    (
        "bursar-server",
        &["bursar-client", "bursar-ledger", "bursar-node"],
    ),
];

/// External crates that only some of our crates may use, with the reason. Dev crates may use all but
/// the database, because they simulate and test the other crates.
const CONFINED: &[(&str, &[&str], &str)] = &[
    ("axum", &["bursar-server"], "only the server has routes"),
    (
        "clap",
        &["bursar"],
        "only the command line parses arguments",
    ),
    (
        "hyper",
        &["bursar", "bursar-client", "bursar-server"],
        "only the edges speak HTTP",
    ),
    (
        "hyper-util",
        &["bursar", "bursar-client", "bursar-server"],
        "only the edges speak HTTP",
    ),
    ("rusqlite", &["bursar-ledger"], "only the ledger knows SQL"),
    (
        "utoipa",
        &["bursar-client", "bursar-server"],
        "only the API is described by OpenAPI",
    ),
    (
        "utoipa-axum",
        &["bursar-server"],
        "only the server has routes",
    ),
];

/// The confined crate that dev crates may not use either.
const CONFINED_FOR_ALL: &str = "rusqlite";

/// The crate that builds before everything else and so depends on none of ours.
const XTASK: &str = "xtask";

/// The binary, which is started and never linked.
const COMMAND_LINE: &str = "bursar";

/// Group of a crate, which determines its permitted dependencies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ring {
    /// `crates/pure`: computes.
    Pure,
    /// `crates/io`: does IO.
    Io,
    /// `crates/dev`: tests, measures, builds.
    Dev,
}

/// One of our crates with its dependencies.
#[derive(Clone, Debug)]
pub struct Node {
    /// Package name.
    pub name: String,
    /// Group.
    pub ring: Ring,
    /// Dependencies of all kinds.
    pub arrows: Vec<Arrow>,
}

/// One dependency.
#[derive(Clone, Debug)]
pub struct Arrow {
    /// Name of the crate that is depended on.
    pub to: String,
    /// Whether only its tests need it.
    pub for_tests: bool,
}

/// Dependency graph of our own crates.
pub fn graph(metadata: &Metadata) -> anyhow::Result<Vec<Node>> {
    let members = metadata
        .packages
        .iter()
        .filter(|package| metadata.workspace_members.contains(&package.id));
    members
        .map(|package| {
            let arrows = package.dependencies.iter().map(|dependency| Arrow {
                to: dependency.name.clone(),
                for_tests: dependency.kind.as_deref() == Some("dev"),
            });
            Ok(Node {
                name: package.name.clone(),
                ring: ring(&metadata.workspace_root, &package.manifest_path)?,
                arrows: arrows.collect(),
            })
        })
        .collect()
}

/// Forbidden dependencies.
pub fn check(graph: &[Node]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in graph {
        for arrow in &node.arrows {
            let target = graph.iter().find(|other| other.name == arrow.to);
            let complaint = match target {
                Some(target) => inside(node, target),
                None => outside(node, arrow),
            };
            if let Some(complaint) = complaint {
                findings.push(Finding::of(
                    &node.name,
                    format!("must not depend on {}: {complaint}", arrow.to),
                ));
            }
        }
    }
    findings
}

/// Reason why one of our crates must not depend on another. Also applies to tests: a test that needs an
/// outer crate belongs to that crate.
fn inside(from: &Node, to: &Node) -> Option<&'static str> {
    if to.name == COMMAND_LINE {
        return Some("nothing links the command line; start the program instead");
    }
    if from.name == to.name {
        // The tests of a crate enable its features this way.
        return None;
    }
    if from.name == XTASK {
        return Some("`cargo xtask` builds before everything else");
    }
    match (from.ring, to.ring) {
        (Ring::Dev, _) | (Ring::Io | Ring::Pure, Ring::Pure) => None,
        (Ring::Io | Ring::Pure, Ring::Dev) => Some("dev crates are not part of the product"),
        (Ring::Pure, Ring::Io) => {
            Some("pure crates compute, io crates talk; the arrow points inward")
        }
        (Ring::Io, Ring::Io) => {
            let may_use = IO_MAY_USE
                .iter()
                .find(|(name, _)| *name == from.name)
                .map_or(&[][..], |(_, may)| may);
            let allowed = may_use.contains(&to.name.as_str());
            (!allowed).then_some(
                "io crates point at each other only as `IO_MAY_USE` in xtask's arrows.rs says",
            )
        }
    }
}

/// Reason why a crate must not depend on an external crate.
fn outside(from: &Node, arrow: &Arrow) -> Option<&'static str> {
    if let Some((_, may, reason)) = CONFINED.iter().find(|(name, ..)| *name == arrow.to) {
        let exempt = from.ring == Ring::Dev && arrow.to != CONFINED_FOR_ALL;
        if !exempt && !may.contains(&from.name.as_str()) {
            return Some(reason);
        }
    }
    let unlisted =
        from.ring == Ring::Pure && !arrow.for_tests && !PURE_MAY_LINK.contains(&arrow.to.as_str());
    unlisted.then_some(
        "it is not in `PURE_MAY_LINK` in xtask's arrows.rs; a pure crate links only what computes",
    )
}

fn ring(root: &str, manifest: &str) -> anyhow::Result<Ring> {
    let path = manifest
        .strip_prefix(root)
        .unwrap_or(manifest)
        .replace('\\', "/");
    match path.trim_start_matches('/').split('/').nth(1) {
        Some("pure") => Some(Ring::Pure),
        Some("io") => Some(Ring::Io),
        Some("dev") => Some(Ring::Dev),
        _ => None,
    }
    .with_context(|| format!("{path} is outside crates/pure, crates/io and crates/dev"))
}
