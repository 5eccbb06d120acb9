//! Clippy applies the restrictions on pure crates.
//!
//! Method: clippy runs on a small workspace of the same shape with our two `clippy.toml` files. It
//! reports forbidden items in the pure crate with their reasons, and judges the other crate by the
//! other file.

use std::path::Path;
use std::process::Command;

use xtask::tree;

const PURE: &str = "//! Breaks the fence.
pub fn clock() -> std::time::Instant { std::time::Instant::now() }
pub fn float(a: f64) -> bool { a.is_nan() }
pub fn order() -> std::collections::HashMap<u8, u8> { Default::default() }
pub fn file() -> bool { std::fs::read(\"a\").is_ok() }
pub fn environment() -> bool { std::env::var(\"A\").is_ok() }
pub fn terminal() { println!(\"a\") }
pub fn process() { std::process::exit(1) }
pub fn thread() { std::thread::yield_now() }
pub fn socket(_: std::net::TcpStream) {}
";

const OUTSIDE: &str = "//! Breaks only what holds everywhere.
pub fn clock() -> std::time::Instant { std::time::Instant::now() }
pub fn environment() -> bool { std::env::var(\"A\").is_ok() }
";

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn forbidden_items_of_a_pure_crate_are_reported_with_the_reason() {
    let (tree, scratch) = (tree::root().unwrap(), tempfile::tempdir().unwrap());
    let root = scratch.path();
    write(
        &root.join("Cargo.toml"),
        "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*/*\"]\n",
    );
    for (place, name, text) in [
        ("crates/pure", "inside", PURE),
        ("crates/io", "outside", OUTSIDE),
    ] {
        let manifest =
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        write(&root.join(place).join(name).join("Cargo.toml"), &manifest);
        write(&root.join(place).join(name).join("src/lib.rs"), text);
    }
    for file in ["clippy.toml", "crates/pure/clippy.toml"] {
        std::fs::copy(tree.join(file), root.join(file)).unwrap();
    }

    let mut clippy = Command::new("cargo");
    clippy.args([
        "clippy",
        "--workspace",
        "--offline",
        "--message-format",
        "short",
    ]);
    let output = clippy
        .current_dir(root)
        .env("CARGO_TARGET_DIR", root.join("target"))
        .output();
    let report = String::from_utf8(output.unwrap().stderr).unwrap();

    for (line, what) in [
        (2, "type `std::time::Instant`"),
        (2, "method `std::time::Instant::now`"),
        (3, "type `f64`"),
        (4, "type `std::collections::HashMap`"),
        (5, "method `std::fs::read`"),
        (6, "method `std::env::var`"),
        (7, "macro `std::println`"),
        (8, "method `std::process::exit`"),
        (9, "method `std::thread::yield_now`"),
        (10, "type `std::net::TcpStream`"),
    ] {
        let place = format!("crates/pure/inside/src/lib.rs:{line}:");
        let found = report
            .lines()
            .any(|text| text.starts_with(&place) && text.contains(what));
        assert!(found, "line {line}: no report of {what} in:\n{report}");
    }
    let outside: Vec<&str> = report
        .lines()
        .filter(|text| text.starts_with("crates/io/"))
        .collect();
    assert!(
        matches!(outside.as_slice(), [only] if only.contains("std::env::var")),
        "{report}"
    );
    // Clippy warns about a path in clippy.toml that it cannot resolve; it would forbid nothing.
    assert!(!report.contains("clippy.toml"), "{report}");
}
