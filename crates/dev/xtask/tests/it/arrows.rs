//! Dependencies between crates point inward, and the checker finds those that do not.

use xtask::arrows::{Arrow, Node, Ring, check, graph};
use xtask::{metadata, tree};

fn node(name: &str, ring: Ring, arrows: &[&str]) -> Node {
    let arrows = arrows.iter().map(|to| Arrow {
        to: (*to).to_owned(),
        for_tests: false,
    });
    Node {
        name: name.to_owned(),
        ring,
        arrows: arrows.collect(),
    }
}

/// A small graph of the same shape as ours, in which `from` also depends on `to`.
fn world(from: &str, to: &str, for_tests: bool) -> Vec<Node> {
    let mut world = vec![
        node("bursar-units", Ring::Pure, &["serde", "thiserror"]),
        node("bursar-engine", Ring::Pure, &["bursar-units", "serde_json"]),
        node(
            "bursar-ledger",
            Ring::Io,
            &["bursar-engine", "rusqlite", "tokio"],
        ),
        node(
            "bursar-client",
            Ring::Io,
            &["bursar-units", "hyper", "utoipa"],
        ),
        node(
            "bursar-server",
            Ring::Io,
            &["bursar-client", "bursar-ledger", "axum"],
        ),
        node(
            "bursar",
            Ring::Io,
            &["bursar-server", "bursar-client", "clap"],
        ),
        node(
            "bursar-sim",
            Ring::Dev,
            &["bursar-server", "bursar-engine", "hyper"],
        ),
        node("xtask", Ring::Dev, &["clap"]),
    ];
    for node in world.iter_mut().filter(|node| node.name == from) {
        node.arrows.push(Arrow {
            to: to.to_owned(),
            for_tests,
        });
    }
    world
}

#[test]
fn our_own_arrows_point_inward() {
    let root = tree::root().unwrap();
    let graph = graph(&metadata::read(&root).unwrap()).unwrap();
    assert!(
        graph
            .iter()
            .any(|node| node.ring == Ring::Pure && !node.arrows.is_empty())
    );
    let findings: Vec<String> = check(&graph).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn a_tree_whose_arrows_point_inward_passes() {
    assert_eq!(check(&world("bursar-engine", "sha2", false)), []);
    // Tests of a pure crate may link crates that are not part of the product.
    assert_eq!(check(&world("bursar-engine", "proptest", true)), []);
    assert_eq!(check(&world("bursar-sim", "axum", false)), []);
}

#[test]
fn an_outward_arrow_is_named_with_both_its_ends_and_the_reason() {
    for (from, to, reason) in [
        ("bursar-engine", "bursar-ledger", "the arrow points inward"),
        ("bursar-engine", "bursar-sim", "not part of the product"),
        (
            "bursar-engine",
            "tokio",
            "a pure crate links only what computes",
        ),
        ("bursar-engine", "rusqlite", "only the ledger knows SQL"),
        ("bursar-server", "bursar-sim", "not part of the product"),
        ("bursar-server", "rusqlite", "only the ledger knows SQL"),
        ("bursar-ledger", "hyper", "only the edges speak HTTP"),
        ("bursar-ledger", "bursar-client", "IO_MAY_USE"),
        ("bursar-client", "bursar-server", "IO_MAY_USE"),
        ("bursar-client", "axum", "only the server has routes"),
        (
            "bursar-server",
            "clap",
            "only the command line parses arguments",
        ),
        ("bursar-server", "bursar", "nothing links the command line"),
        ("bursar-sim", "bursar", "nothing links the command line"),
        ("bursar-sim", "rusqlite", "only the ledger knows SQL"),
        ("xtask", "bursar-units", "builds before everything else"),
    ] {
        let findings = check(&world(from, to, false));
        let [finding] = findings.as_slice() else {
            panic!("{from} → {to}: {findings:?}")
        };
        assert_eq!(finding.location, from);
        assert!(
            finding
                .message
                .starts_with(&format!("must not depend on {to}: ")),
            "{finding}"
        );
        assert!(finding.message.contains(reason), "{finding}");
    }
}

#[test]
fn tests_of_a_pure_crate_must_not_point_outward_either() {
    assert_eq!(
        check(&world("bursar-engine", "bursar-ledger", true)).len(),
        1
    );
    assert_eq!(check(&world("bursar-engine", "rusqlite", true)).len(), 1);
}
