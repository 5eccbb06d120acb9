//! Executables of the machine: the tests of `bursar-node` with the programs they start, `bursar`
//! itself, and the libraries that all of them need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

use crate::invocation::Invocation;

/// An executable and its path in the machine.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Executable {
    pub(super) built: PathBuf,
    /// Without a leading slash.
    pub(super) guest_path: String,
}

/// One line of cargo's JSON output.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    #[serde(default)]
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: String,
}

/// Directory of the tested crate.
const TESTED: &str = "/crates/io/node/";

pub(super) fn build(root: &Path) -> anyhow::Result<Vec<Executable>> {
    let build = invocation();
    eprintln!("$ {build}");
    executables(&build.output(root)?)
}

/// Builds the same as the part `unit` and prints the paths.
fn invocation() -> Invocation {
    let build = ["test", "--workspace", "--locked", "--no-run"];
    Invocation::cargo(&build).with(["--message-format", "json-render-diagnostics"])
}

/// A copy of the executable without debug information, which is most of its size; the executable
/// itself if `strip` fails, which only makes the machine boot more slowly.
pub(super) fn without_debugging(root: &Path, executable: &Path, scratch: &Path) -> PathBuf {
    let name = executable.file_name().unwrap_or_default();
    let small = scratch.join(name);
    let (from, to) = (executable.to_string_lossy(), small.to_string_lossy());
    if Invocation::new("strip", &["--strip-debug", "-o", &to, &from]).succeeds(root) {
        small
    } else {
        executable.to_owned()
    }
}

/// Shared libraries of an executable on this machine.
pub(super) fn libraries(root: &Path, executable: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let executable = executable.to_string_lossy();
    let text = Invocation::new("ldd", &[&executable]).output(root)?;
    Ok(loaded(&text))
}

/// Finds the executables in cargo's output. As in cargo's target directory, the tests are in a
/// directory beside that of the programs they start.
fn executables(text: &str) -> anyhow::Result<Vec<Executable>> {
    let mut executables = Vec::new();
    for line in text.lines() {
        let message: Message =
            serde_json::from_str(line).context("cannot parse the output of `cargo test`")?;
        let (Some(target), Some(built)) = (message.target, message.executable) else {
            continue;
        };
        let is = |kind: &str| target.kind.iter().any(|word| word == kind);
        let is_tested = target.src_path.contains(TESTED);
        let directory = if is_tested && is("test") {
            "tests/deps"
        } else if is_tested && is("example") {
            "tests/examples"
        } else if is("bin") && target.name == "bursar" && !message.profile.test {
            "usr/bin"
        } else {
            continue;
        };
        let guest_path = format!("{directory}/{}", target.name);
        executables.push(Executable { built, guest_path });
    }
    Ok(executables)
}

/// Paths in the output of `ldd`: `name => /file (address)`, or the loader itself, `/file (address)`.
fn loaded(text: &str) -> BTreeSet<PathBuf> {
    let words = text.lines().flat_map(str::split_whitespace);
    words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::{Executable, executables, invocation, loaded};

    #[test]
    fn the_command_is_printed_as_a_person_would_type_it() {
        let expected =
            "cargo test --workspace --locked --no-run --message-format json-render-diagnostics";
        assert_eq!(invocation().to_string(), expected);
    }

    #[test]
    fn tests_examples_and_programs_are_found_in_the_output_of_cargo() {
        let artifact = |name: &str, kind: &str, source: &str, test: bool, file: &str| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "target": {"name": name, "kind": [kind], "src_path": format!("/w/crates/{source}")},
                "profile": {"test": test},
                "executable": file,
            })
            .to_string()
        };
        let text = [
            r#"{"reason":"compiler-artifact","target":{"name":"serde","kind":["lib"],"src_path":"/s"},"executable":null}"#
                .to_owned(),
            artifact("bursar_node", "lib", "io/node/src/lib.rs", true, "/t/deps/node-1"),
            artifact("it", "test", "io/cli/tests/it/main.rs", true, "/t/deps/it-2"),
            artifact("it", "test", "io/node/tests/it/main.rs", true, "/t/deps/it-1"),
            artifact("openapi", "example", "io/server/examples/openapi.rs", false, "/t/examples/openapi"),
            artifact("shim", "example", "io/node/examples/shim.rs", false, "/t/examples/shim"),
            artifact("simulate", "bin", "dev/sim/src/bin/simulate.rs", false, "/t/simulate"),
            artifact("bursar", "bin", "io/cli/src/main.rs", true, "/t/deps/bursar-1"),
            artifact("bursar", "bin", "io/cli/src/main.rs", false, "/t/bursar"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ]
        .join("\n");
        let executable = |built: &str, guest_path: &str| Executable {
            built: built.into(),
            guest_path: guest_path.to_owned(),
        };
        let expected = [
            executable("/t/deps/it-1", "tests/deps/it"),
            executable("/t/examples/shim", "tests/examples/shim"),
            executable("/t/bursar", "usr/bin/bursar"),
        ];
        assert_eq!(executables(&text).unwrap(), expected);
    }

    #[test]
    fn the_loader_is_a_library_too() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so.2 (0x3)\n";
        let found: Vec<_> = loaded(text).into_iter().collect();
        assert_eq!(
            found,
            ["/lib/libc.so.6", "/lib64/ld.so.2"].map(std::path::PathBuf::from)
        );
    }
}
