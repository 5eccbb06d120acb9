//! The Python client: it compiles without a warning, and its tests pass against the real server.
//!
//! Promises: any `python3` from 3.9 on will do, and it needs no package beside its own library; where
//! there is none, it is installed if that can be done without asking anybody. Nothing is written
//! into the tree: compiled files go below the target directory.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::debian;
use crate::invocation::Invocation;

/// Where the client and its tests are.
const CLIENT: &str = "clients/python";

/// Succeeds on a Python that is new enough.
const IS_NEW_ENOUGH: &str = "import sys; sys.exit(sys.version_info < (3, 9))";

/// The part of cargo's answer that says where it builds.
#[derive(Deserialize)]
struct Built {
    target_directory: String,
}

/// Runs the whole part, with the Python that [`find`] saw to.
pub fn check(root: &Path) -> anyhow::Result<()> {
    server().run(root)?;
    let target = target(root)?;
    let client = root.join(CLIENT);
    compile(&target).run(&client)?;
    tests(&target).run(&client)
}

/// Sees to it that there is a Python.
pub fn find(root: &Path) -> anyhow::Result<()> {
    let is_there = || Invocation::new("python3", &["-c", IS_NEW_ENOUGH]).succeeds(root);
    if is_there() {
        return Ok(());
    }
    if debian::may_install(root) {
        debian::install(root, "python3")?;
        if is_there() {
            return Ok(());
        }
    }
    bail!(
        "no python3 of version 3.9 or later is on the search path\nhint: install the package `python3`"
    )
}

/// Builds the server that the tests start.
pub fn server() -> Invocation {
    Invocation::cargo(&["build", "--locked", "--package", "bursar"])
}

/// Compiles the client; what Python would only warn of fails.
pub fn compile(target: &str) -> Invocation {
    python(&["-m", "py_compile", "bursar.py", "test_bursar.py"], target)
}

/// Runs the tests against the server of that target directory.
pub fn tests(target: &str) -> Invocation {
    against_server(&["-m", "unittest", "--verbose", "test_bursar"], target)
}

/// Runs something in Python that finds the server of that target directory in `BURSAR_BIN`.
pub fn against_server(arguments: &[&str], target: &str) -> Invocation {
    let server = format!("{target}/debug/bursar");
    python(arguments, target).with_variable("BURSAR_BIN", &server)
}

fn python(arguments: &[&str], target: &str) -> Invocation {
    let python = Invocation::new("python3", &["-W", "error"]).with(arguments.iter().copied());
    python.with_variable("PYTHONPYCACHEPREFIX", &format!("{target}/python"))
}

/// Where cargo puts what it builds.
pub fn target(root: &Path) -> anyhow::Result<String> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--no-deps"];
    let text = Invocation::cargo(&arguments).output(root)?;
    let built: Built =
        serde_json::from_str(&text).context("cannot read the answer of `cargo metadata`")?;
    Ok(built.target_directory)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_person_could_type_what_is_run() {
        let expected = "PYTHONPYCACHEPREFIX=t/python BURSAR_BIN=t/debug/bursar \
                        python3 -W error -m unittest --verbose test_bursar";
        assert_eq!(super::tests("t").to_string(), expected);
        let expected = "PYTHONPYCACHEPREFIX=t/python \
                        python3 -W error -m py_compile bursar.py test_bursar.py";
        assert_eq!(super::compile("t").to_string(), expected);
    }
}
