//! Each rule finds its violations, and nothing else.
//!
//! Words that a rule searches for are concatenated here, or the rule would find this file.

use xtask::tidy::check;
use xtask::tree::{self, File};

const ROOT: &str =
    "[workspace.dependencies]\nours = { path = \"crates/pure/ours\" }\n\nserde = \"1\"\n";
const MEMBER: &str =
    "[lints]\nworkspace = true\n\n[dependencies]\nours.workspace = true\nserde.workspace = true\n";
const REASONS: &str =
    "# Dependencies\n\n| crate | why |\n|---|---|\n| `serde` | reads and writes |\n";

/// Findings in the smallest tidy tree with one file added or replaced.
fn complaints(path: &str, text: &str) -> Vec<String> {
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let mut files = vec![
        file("ARCHITECTURE.md", REASONS),
        file("Cargo.toml", ROOT),
        file("crates/pure/ours/Cargo.toml", MEMBER),
    ];
    files.retain(|file| file.path != path);
    files.push(file(path, text));
    check(&files).iter().map(ToString::to_string).collect()
}

fn passes(path: &str, text: &str) {
    assert_eq!(complaints(path, text), [""; 0], "{path}: {text}");
}

/// Asserts that the tree has one finding, at `location`, with `message` in its text.
fn fails(path: &str, text: &str, location: &str, message: &str) {
    let found = complaints(path, text);
    let [complaint] = found.as_slice() else {
        panic!("{path}: {text}: {found:?}")
    };
    assert!(
        complaint.starts_with(&format!("{location}: ")),
        "{complaint}"
    );
    assert!(complaint.contains(message), "{complaint}");
}

#[test]
fn our_own_tree_is_tidy() {
    let files = tree::files(&tree::root().unwrap()).unwrap();
    assert!(
        files
            .iter()
            .any(|file| file.path == "crates/dev/xtask/tests/it/tidy.rs")
    );
    let findings: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn whitespace_is_where_it_belongs() {
    passes("a.md", "one\n\ntwo\n");
    passes("a.md", "");
    fails("a.md", "one \ntwo\n", "a.md:1", "trailing whitespace");
    fails("a.md", "one\n\t\ntwo\n", "a.md:2", "trailing whitespace");
    fails("a.md", "one\r\n", "a.md:1", "carriage return");
    fails("a.md", "one", "a.md", "exactly one newline");
    fails("a.md", "one\n\n", "a.md", "exactly one newline");
    passes("crates/pure/ours/tests/corpus/odd", "kept byte for byte \r");
}

#[test]
fn nothing_is_promised_for_later() {
    for word in [["TO", "DO"].concat(), ["FIX", "ME"].concat()] {
        fails("a.md", &format!("one\n{word}: two\n"), "a.md:2", &word);
        passes("a.md", &format!("A{word}S\n"));
    }
}

#[test]
fn no_path_of_one_machine_is_in_the_tree() {
    for root in [
        ["/ho", "me/me"].concat(),
        ["/ro", "ot/.x"].concat(),
        ["/Us", "ers/me"].concat(),
        ["/wo", "rk/a"].concat(),
    ] {
        fails("a.md", &format!("see `{root}`\n"), "a.md:1", "one machine");
        passes("a.md", &format!("see v1{root} and ~{root}\n"));
    }
}

#[test]
fn no_registry_is_named_but_the_default_one_in_the_lock_file() {
    let default = ["registry+https://github.com/rust-lang/crates", ".io-index"].concat();
    passes(
        "Cargo.lock",
        &format!("[[package]]\nsource = \"{default}\"\n"),
    );
    fails(
        "a.toml",
        &format!("index = \"{default}\"\n"),
        "a.toml:1",
        "registry",
    );
    fails(
        "a.md",
        &["https://pypi", ".org/simple\n"].concat(),
        "a.md:1",
        "registry",
    );
    fails(
        ".cargo/config.toml",
        &["replace", "-with = \"x\"\n"].concat(),
        ".cargo/config.toml:1",
        "registry",
    );
    fails(
        "Cargo.lock",
        "source = \"registry+https://mirror/\"\n",
        "Cargo.lock:1",
        "not the default registry",
    );
}

#[test]
fn modules_are_files_with_specific_names() {
    passes("crates/pure/ours/src/limit.rs", "\n");
    fails(
        "crates/pure/ours/src/limit/mod.rs",
        "\n",
        "crates/pure/ours/src/limit/mod.rs",
        "`foo.rs`",
    );
    fails(
        "crates/pure/ours/src/utils.rs",
        "\n",
        "crates/pure/ours/src/utils.rs",
        "noun",
    );
    fails(
        "crates/pure/ours/src/misc/a.rs",
        "\n",
        "crates/pure/ours/src/misc/a.rs",
        "noun",
    );
}

#[test]
fn a_crate_has_one_test_binary() {
    passes("crates/pure/ours/tests/it/main.rs", "\n");
    passes("crates/pure/ours/tests/it/limits.rs", "\n");
    passes("crates/pure/ours/src/tests.rs", "\n");
    fails(
        "crates/pure/ours/tests/limits.rs",
        "\n",
        "crates/pure/ours/tests/limits.rs",
        "tests/it/main.rs",
    );
    fails(
        "crates/pure/ours/tests/more/main.rs",
        "\n",
        "crates/pure/ours/tests/more/main.rs",
        "tests/it/main.rs",
    );
}

#[test]
fn lints_are_expected_and_never_silenced() {
    passes("a.rs", "#[expect(dead_code, reason = \"…\")]\nfn a() {}\n");
    passes(
        "a.rs",
        "//! `#[allow(x)]` in a comment\nfn a() { b.allow(1) }\n#[cfg(x)]\nfn c() { allow(2) }\n",
    );
    passes("a.rs", "const A: &str = r#\"#[allow(x)]\"#;\n");
    fails(
        "a.rs",
        "fn a() {}\n#[allow(dead_code)]\nfn b() {}\n",
        "a.rs:2",
        "expect",
    );
    fails(
        "a.rs",
        "#![allow(\n  dead_code,\n  reason = \"]\"\n)]\n",
        "a.rs:1",
        "expect",
    );
    fails(
        "a.rs",
        "#[cfg_attr(test, allow(dead_code))]\nfn a() {}\n",
        "a.rs:1",
        "expect",
    );
    fails(
        "a.rs",
        "fn a<'a>(b: &'a str) {}\n#[allow(x)]\nfn b() {}\n",
        "a.rs:2",
        "expect",
    );
    fails(
        "a.rs",
        "const A: char = '\"';\n#[allow(x)]\nfn b() {}\n",
        "a.rs:2",
        "expect",
    );
    fails(
        "a.rs",
        "const A: char = '\\'';\n#[allow(x)]\nfn b() {}\n",
        "a.rs:2",
        "expect",
    );
    fails(
        "a.rs",
        "/* a /* b */ \" */\n#[allow(x)]\nfn b() {}\n",
        "a.rs:2",
        "expect",
    );
    fails(
        "a.rs",
        "const A: &str = r#\"\"\\\"#;\n#[allow(x)]\nfn b() {}\n",
        "a.rs:2",
        "expect",
    );
    fails(
        "a.rs",
        "const A: &[u8] = b\"\\\"\";\n#[allow(x)]\nfn b() {}\n",
        "a.rs:2",
        "expect",
    );
}

#[test]
fn no_test_is_skipped() {
    passes(
        "a.rs",
        "#[test]\nfn ignore() {}\n#[serde(ignore)]\nstruct A;\n",
    );
    fails(
        "a.rs",
        "#[test]\n#[ignore]\nfn a() {}\n",
        "a.rs:2",
        "skipped",
    );
    fails(
        "a.rs",
        "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n",
        "a.rs:2",
        "skipped",
    );
}

#[test]
fn pure_crates_decide_with_integers() {
    let path = "crates/pure/ours/src/lib.rs";
    for line in [
        "fn a(b: f64) {}",
        "type A = Vec<f32>;",
        "let a = 1.5;",
        "let a = 2.;",
        "let a = 1e9;",
        "a(1_0.0_1)",
    ] {
        fails(
            path,
            &format!("\n{line}\n"),
            &format!("{path}:2"),
            "no floats",
        );
        passes("crates/io/ours/src/lib.rs", &format!("{line}\n"));
    }
    for line in [
        "let a = pair.0.1;",
        "for a in 0..10 {}",
        "let a = [0; 4]; // 0.5",
        "let a = \"1.5\";",
        "let a = 0x1e9;",
        "let a = '1';",
        "let a = b.1.c;",
        "let a = af64;",
        "let a = 1..=5;",
    ] {
        passes(path, &format!("{line}\n"));
    }
}

#[test]
fn pure_crates_reach_nothing_outside() {
    let path = "crates/pure/ours/src/lib.rs";
    for module in ["env", "fs", "net", "os", "process", "thread"] {
        fails(
            path,
            &format!("use std::{module}::a;\n"),
            &format!("{path}:1"),
            "nothing outside",
        );
        passes(
            "crates/pure/ours/tests/it/main.rs",
            &format!("use std::{module}::a;\n"),
        );
    }
    passes(path, "use std::fmt;\nuse std::ops::Add;\n");
}

#[test]
fn a_manifest_takes_lints_and_versions_from_the_workspace() {
    let path = "crates/pure/ours/Cargo.toml";
    let dependencies = "[dependencies]\nours.workspace = true\nserde.workspace = true\n";
    fails(path, dependencies, path, "lints");
    fails(
        path,
        &format!("[lints]\nworkspace = false\n\n{dependencies}"),
        path,
        "lints",
    );
    passes(path, &format!("lints.workspace = true\n\n{dependencies}"));
    fails(
        path,
        &format!("{MEMBER}rand = \"1\"\n"),
        &format!("{path}:7"),
        "declare `rand` in the workspace",
    );
    passes(
        path,
        &format!("{MEMBER}\n[dev-dependencies]\nserde = {{ workspace = true, features = [] }}\n"),
    );
}

#[test]
fn declared_dependencies_are_sorted_and_used_and_have_a_reason() {
    let path = "crates/pure/ours/Cargo.toml";
    let unsorted = ROOT.replace("serde = \"1\"", "serde = \"1\"\nours = \"1\"");
    assert!(
        complaints("Cargo.toml", &unsorted)
            .contains(&"Cargo.toml:5: `ours` belongs before `serde`".to_owned())
    );
    fails(
        path,
        &MEMBER.replace("serde.workspace = true\n", ""),
        "Cargo.toml:4",
        "no crate uses `serde`",
    );
    fails(
        "ARCHITECTURE.md",
        "# Dependencies\n",
        "ARCHITECTURE.md",
        "no reason for `serde`",
    );
    fails(
        "ARCHITECTURE.md",
        "# Dependencies\n| `serde` |  |\n",
        "ARCHITECTURE.md",
        "no reason for `serde`",
    );
    fails(
        "ARCHITECTURE.md",
        &format!("{REASONS}| `gone` | was useful |\n"),
        "ARCHITECTURE.md:6",
        "does not declare",
    );
    passes(
        "ARCHITECTURE.md",
        &format!("{REASONS}\n## Glossary\n\n| `fence` | a number |\n"),
    );
}
