//! Which crate may depend on which: arrows point inward (style rules 1, 7 and 26).
//!
//! ```text
//! dev/sim ──▶ io/cli ──▶ io/server ──▶ io/ledger ─┐
//!                  │         ├───────▶ io/client ─┼──▶ pure/engine ──▶ pure/…
//!                  │         └───────▶ io/node ───┤
//!                  └─────────────────────▲────────┘        (pure never points out)
//! ```
//! Nothing points at the command line (`dev/sim` starts it as a program), and nothing points at dev.

use anyhow::Context as _;

use crate::Finding;
use crate::metadata::Metadata;

/// Crates from outside that a pure crate may link: they compute, and touch nothing.
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

/// Which of our io crates each io crate may point at, besides pure ones.
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

/// Crates from outside that only some of ours may name, with the reason.
/// Dev crates may name all but the database: they build the worlds in which the others are tested.
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

/// The one crate that not even dev crates may reach past.
const CONFINED_FOR_ALL: &str = "rusqlite";

/// The crate that builds before everything else and so points at none of ours.
const CHORES: &str = "xtask";

/// The binary; a program is started, not linked.
const COMMAND_LINE: &str = "bursar";

/// Where a crate lives, which decides where its arrows may point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ring {
    /// `crates/pure`: computes.
    Pure,
    /// `crates/io`: talks.
    Io,
    /// `crates/dev`: tests, measures, builds.
    Dev,
}

/// One of our crates with all it names in its manifest.
#[derive(Clone, Debug)]
pub struct Node {
    /// The package's name.
    pub name: String,
    /// Where it lives.
    pub ring: Ring,
    /// What it links, in any kind of build.
    pub arrows: Vec<Arrow>,
}

/// One dependency.
#[derive(Clone, Debug)]
pub struct Arrow {
    /// The crate it points at.
    pub to: String,
    /// Whether only its tests need it.
    pub for_tests: bool,
}

/// The graph of our own crates, from cargo's answer.
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

/// Every arrow that points where it must not.
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

/// What is wrong with an arrow between two of our crates. Tests obey too: a test that needs an outer
/// crate belongs to that crate.
fn inside(from: &Node, to: &Node) -> Option<&'static str> {
    if to.name == COMMAND_LINE {
        return Some("nothing links the command line; start the program instead");
    }
    if from.name == CHORES {
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

/// What is wrong with an arrow to a crate that is not ours.
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
    let place = manifest
        .strip_prefix(root)
        .unwrap_or(manifest)
        .replace('\\', "/");
    match place.trim_start_matches('/').split('/').nth(1) {
        Some("pure") => Some(Ring::Pure),
        Some("io") => Some(Ring::Io),
        Some("dev") => Some(Ring::Dev),
        _ => None,
    }
    .with_context(|| format!("{place} is outside crates/pure, crates/io and crates/dev"))
}
