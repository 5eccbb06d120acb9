//! The binary `bursar`: reads the environment once, makes a session and runs one command in it.

mod command;
mod config;
mod connect;
mod console;
mod environment;
mod failure;
mod grammar;
mod layout;
mod list;
mod log;
mod pins;
mod progress;
mod run;
mod scenario;
mod session;
mod store;
mod suggest;
mod time;
mod usage;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use mimalloc::MiMalloc;

use crate::console::Console;
use crate::environment::Environment;
use crate::run::Invocation;
use crate::session::Terminal;

/// A record is made on one thread and dropped on another, which glibc's allocator does slowly.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[expect(
    clippy::disallowed_methods,
    reason = "only `main` reads the environment"
)]
fn main() -> ExitCode {
    // One shim runs for each execution, so it must stay small: it reads no environment.
    let mut words = std::env::args_os().skip(1);
    if words
        .next()
        .is_some_and(|word| word == bursar_node::shim::WORD)
    {
        return bursar_node::shim::main(words);
    }
    let is_root = rustix::process::getuid().is_root();
    let environment = Environment::read(|name| std::env::var_os(name), is_root);
    let words = std::env::args_os().collect();
    let clock = bursar_ledger::clock::MachineClock::default();
    let stderr = std::io::stderr().is_terminal();
    let invocation = Invocation {
        words,
        console: Console::Process,
        environment,
        now: Arc::new(move || bursar_ledger::clock::Clock::wall(&clock)),
        zone: jiff::tz::TimeZone::system(),
        directory: std::env::current_dir().unwrap_or_default(),
        scratch: None,
        terminal: Terminal {
            answers: stderr && std::io::stdin().is_terminal(),
            data: std::io::stdout().is_terminal(),
            words: stderr,
        },
        reach: session::Reach::Discover,
    };
    ExitCode::from(run::in_process(invocation))
}
