//! The hostile tests: attacks that the real program must withstand.
//!
//! They are Python without packages and know nothing of our crates: what they judge by is an export,
//! an answer or an exit code. Their random choices follow from a seed that they print.

use std::path::Path;

use crate::invocation::Invocation;
use crate::programs::Programs;

/// Where the tests are; a directory with a `__main__.py` is a program to Python.
const TESTS: &str = "tests/hostile";

/// Runs the whole part, with the Python that [`find`](crate::python::find) saw to.
pub fn check(root: &Path) -> anyhow::Result<()> {
    tests(&Programs::build(root)?).run(root)
}

/// Runs the tests against the server.
pub fn tests(programs: &Programs) -> Invocation {
    programs.start_python(&[TESTS])
}

#[cfg(test)]
mod tests {
    use crate::programs::Programs;

    #[test]
    fn a_person_could_type_what_is_run() {
        let expected = "PYTHONPYCACHEPREFIX=t/python BURSAR_BIN=t/debug/bursar \
                        python3 -W error tests/hostile";
        assert_eq!(super::tests(&Programs::below("t")).to_string(), expected);
    }
}
