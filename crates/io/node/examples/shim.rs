//! The shim alone, for tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args
        .next()
        .is_none_or(|word| word != bursar_node::shim::WORD)
    {
        return ExitCode::FAILURE;
    }
    bursar_node::shim::main(args)
}
