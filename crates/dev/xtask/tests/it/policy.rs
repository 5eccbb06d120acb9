//! Licences, sources, bans and duplicate versions: the rules of deny.toml, applied without cargo-deny.

use std::collections::BTreeSet;

use xtask::metadata::{Metadata, Package};
use xtask::policy::{DEFAULT_REGISTRY, Rules, accepted, check, read};
use xtask::{metadata, tree};

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn rules() -> Rules {
    Rules {
        licenses: set(&["MIT", "Apache-2.0"]),
        banned: set(&["chrono"]),
        doubled: set(&[]),
    }
}

fn package(name: &str, version: &str) -> Package {
    Package {
        id: format!("{name}@{version}"),
        name: name.to_owned(),
        version: version.to_owned(),
        license: Some("MIT".to_owned()),
        source: Some(DEFAULT_REGISTRY.to_owned()),
        manifest_path: String::new(),
        dependencies: Vec::new(),
    }
}

fn complaints(packages: Vec<Package>, rules: &Rules) -> Vec<String> {
    let ours = Package {
        source: None,
        ..package("ours", "0.1.0")
    };
    let metadata = Metadata {
        workspace_members: vec![ours.id.clone()],
        packages: packages.into_iter().chain([ours]).collect(),
        workspace_root: String::new(),
    };
    check(&metadata, rules)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn linked_crates_obey_our_rules() {
    let root = tree::root().unwrap();
    let rules = read(&std::fs::read_to_string(root.join("deny.toml")).unwrap());
    assert!(
        rules.licenses.contains("MIT") && rules.banned.contains("openssl-sys"),
        "{rules:?}"
    );
    let findings = check(&metadata::read(&root).unwrap(), &rules);
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn rules_are_read_only_from_their_lists_in_the_file() {
    let text = "
# allow = [\"Comment\"]
[licenses]
confidence = \"high\"
allow = [
  \"MIT\",
  # \"GPL-3.0\",
]
[bans]
multiple-versions = \"deny\"
deny = [
  { crate = \"chrono\", reason = \"because of \\\"this\\\"\" },
]
skip = [
  { crate = \"syn@2\", reason = \"old\" },
]
[sources]
allow = [
  \"elsewhere\",
]
";
    let expected = Rules {
        licenses: set(&["MIT"]),
        banned: set(&["chrono"]),
        doubled: set(&["syn"]),
    };
    assert_eq!(read(text), expected);
}

#[test]
fn a_crate_that_breaks_no_rule_passes() {
    assert_eq!(
        complaints(vec![package("serde", "1.0.0")], &rules()),
        [""; 0]
    );
}

#[test]
fn a_crate_that_breaks_a_rule_is_named_with_the_rule() {
    let foreign = |source: Option<&str>| Package {
        source: source.map(String::from),
        ..package("a", "1.0.0")
    };
    let licensed = |license: Option<&str>| Package {
        license: license.map(String::from),
        ..package("a", "1.0.0")
    };
    for (package, expected) in [
        (
            package("chrono", "0.4.0"),
            "chrono 0.4.0: is banned in deny.toml, which gives the reason",
        ),
        (
            foreign(None),
            "a 1.0.0: comes from a directory, not from the default registry",
        ),
        (
            foreign(Some("git+x")),
            "a 1.0.0: comes from git+x, not from the default registry",
        ),
        (licensed(None), "a 1.0.0: states no licence"),
        (
            licensed(Some("GPL-3.0")),
            "a 1.0.0: licence `GPL-3.0` is not in deny.toml's list",
        ),
    ] {
        assert_eq!(complaints(vec![package], &rules()), [expected]);
    }
}

#[test]
fn a_doubled_crate_needs_an_explanation_and_an_explanation_a_doubled_crate() {
    let both = || vec![package("syn", "2.0.0"), package("syn", "3.0.0")];
    let explained = Rules {
        doubled: set(&["syn"]),
        ..rules()
    };
    let complaint =
        "syn: is linked in several versions (2.0.0, 3.0.0): update, or explain in deny.toml";
    assert_eq!(complaints(both(), &rules()), [complaint]);
    assert_eq!(complaints(both(), &explained), [""; 0]);
    let stale = "deny.toml: `syn` is no longer doubled: remove it from `skip`";
    assert_eq!(
        complaints(vec![package("syn", "3.0.0")], &explained),
        [stale]
    );
}

#[test]
fn a_licence_expression_is_met_by_the_licences_we_accept() {
    let allowed = set(&["MIT", "Unicode-3.0", "BSD-3-Clause", "LLVM WITH exception"]);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
        ("(MIT OR GPL-3.0) AND GPL-3.0", false),
        ("MIT OR GPL-3.0 AND GPL-2.0", true),
        ("GPL-3.0 AND GPL-2.0 OR MIT", true),
        ("MIT AND (GPL-3.0 OR (BSD-3-Clause AND Unicode-3.0))", true),
        ("MIT WITH anything", true),
        ("LLVM WITH exception", true),
        ("LLVM WITH other", false),
        ("LLVM", false),
        ("", false),
        ("(MIT", false),
        ("MIT)", false),
    ] {
        assert_eq!(accepted(expression, &allowed), expected, "{expression}");
    }
}
