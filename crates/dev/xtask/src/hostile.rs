//! The hostile tests: attacks that the real program must withstand.
//!
//! They are Python without packages and use none of our crates: they judge an export, an answer or
//! an exit code. Their random choices follow from a seed that they print.

use std::path::Path;

use crate::invocation::Invocation;
use crate::programs::Programs;

/// Directory of the tests; Python runs its `__main__.py`.
const TESTS: &str = "tests/hostile";

/// Runs the part. [`find`](crate::python::find) has made sure that Python is available.
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
    fn the_command_is_printed_as_a_person_would_type_it() {
        let expected = "PYTHONPYCACHEPREFIX=t/python BURSAR_BIN=t/debug/bursar \
                        python3 -W error tests/hostile";
        assert_eq!(super::tests(&Programs::below("t")).to_string(), expected);
    }
}
