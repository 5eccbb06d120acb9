//! The Python client: it compiles without a warning, and its tests pass against the real server.
//!
//! Promises: needs only `python3` from 3.9 on and its standard library. A missing Python is installed
//! as root on Debian. Nothing is written into the tree: compiled files go below the target directory.

use std::path::Path;

use anyhow::bail;

use crate::debian;
use crate::invocation::Invocation;
use crate::programs::Programs;

/// Directory of the client and its tests.
const CLIENT: &str = "clients/python";

/// A script that succeeds if Python is new enough.
const IS_NEW_ENOUGH: &str = "import sys; sys.exit(sys.version_info < (3, 9))";

/// Runs the part. [`find`] has made sure that Python is available.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let programs = Programs::build(root)?;
    let client = root.join(CLIENT);
    compile(&programs).run(&client)?;
    tests(&programs).run(&client)
}

/// Makes sure that Python is available.
pub fn find(root: &Path) -> anyhow::Result<()> {
    let is_there = || Invocation::new("python3", &["-c", IS_NEW_ENOUGH]).succeeds(root);
    if debian::ensure(root, "python3", is_there)? {
        return Ok(());
    }
    bail!(
        "no python3 of version 3.9 or later is on the search path\nhint: install the package `python3`"
    )
}

/// Compiles the client.
pub fn compile(programs: &Programs) -> Invocation {
    programs.start_python(&["-m", "py_compile", "bursar.py", "test_bursar.py"])
}

/// Runs the tests against the server.
pub fn tests(programs: &Programs) -> Invocation {
    programs.start_python(&["-m", "unittest", "--verbose", "test_bursar"])
}

#[cfg(test)]
mod tests {
    use crate::programs::Programs;

    #[test]
    fn the_commands_are_printed_as_a_person_would_type_them() {
        let programs = Programs::below("t");
        let python = "PYTHONPYCACHEPREFIX=t/python BURSAR_BIN=t/debug/bursar python3 -W error -m";
        let expected = format!("{python} unittest --verbose test_bursar");
        assert_eq!(super::tests(&programs).to_string(), expected);
        let expected = format!("{python} py_compile bursar.py test_bursar.py");
        assert_eq!(super::compile(&programs).to_string(), expected);
    }
}
