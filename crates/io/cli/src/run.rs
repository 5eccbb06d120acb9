//! Runs a command line and returns its exit code, for `main` and for the scenario runner.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser as _;
use jiff::tz::TimeZone;

use crate::command;
use crate::console::Console;
use crate::environment::Environment;
use crate::failure::{Failure, Stop};
use crate::grammar::{Arguments, Command, Format};
use crate::layout::escaped;
use crate::session::{Now, Reach, Session, Terminal};
use crate::usage::{self, NoCommand};

/// A command line, and the parts of its [`Session`].
pub(crate) struct Invocation {
    /// The command line; the first word is the program.
    pub(crate) words: Vec<OsString>,
    pub(crate) console: Console,
    pub(crate) environment: Environment,
    pub(crate) now: Now,
    pub(crate) zone: TimeZone,
    pub(crate) directory: PathBuf,
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) terminal: Terminal,
    pub(crate) reach: Reach,
}

/// Result of a command.
pub(crate) struct CommandResult {
    pub(crate) exit: u8,
    pub(crate) console: Console,
    pub(crate) reach: Reach,
}

/// Runs the command of this process, on the runtime that it needs.
pub(crate) fn in_process(invocation: Invocation) -> u8 {
    let parsed = match parse(invocation) {
        Ok(parsed) => parsed,
        Err(ended) => return ended.exit,
    };
    // A scenario has its own runtime, on virtual time; a server uses every core.
    let runtime = match &parsed.command {
        Command::Up(_) => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build(),
        Command::Scenario(arguments) => {
            let mut session = parsed.session;
            let result = command::scenario::run(&mut session, arguments);
            return report(&mut session, result);
        }
        _ => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build(),
    };
    match runtime {
        Ok(runtime) => {
            let exit = runtime.block_on(perform(parsed)).exit;
            // A task that still reads a store must not delay the end.
            runtime.shutdown_background();
            exit
        }
        Err(error) => {
            let failure = Failure::unavailable(format!("cannot start: {error}"));
            let mut session = parsed.session;
            report(&mut session, Err(failure.into()))
        }
    }
}

/// Runs a command on the present runtime, for scenarios.
pub(crate) async fn within(invocation: Invocation) -> CommandResult {
    match parse(invocation) {
        Ok(parsed) => perform(parsed).await,
        Err(ended) => ended,
    }
}

struct Parsed {
    session: Session,
    command: Command,
}

fn parse(invocation: Invocation) -> Result<Parsed, CommandResult> {
    let Invocation {
        words,
        mut console,
        environment,
        now,
        zone,
        directory,
        scratch,
        terminal,
        reach,
    } = invocation;
    let words = usage::help_as_flag(words);
    match Arguments::try_parse_from(&words) {
        Ok(Arguments { common, command }) => {
            let session = Session {
                console,
                environment,
                now,
                zone,
                directory,
                scratch,
                terminal,
                reach,
                common,
            };
            Ok(Parsed { session, command })
        }
        Err(error) => {
            let lossy = words.iter().map(|word| word.to_string_lossy().into_owned());
            let words: Vec<String> = lossy.collect();
            let exit = match usage::explain(&error, &words) {
                NoCommand::Text(text) => match console.data(&text) {
                    Ok(()) | Err(Stop::Pipe | Stop::Exit(_)) => 0,
                    Err(Stop::Failed(failure)) => failure.exit,
                },
                NoCommand::Mistake(failure) if usage::wants(&words, "json") => {
                    console.words(&failure.value_text(false));
                    failure.exit
                }
                NoCommand::Mistake(failure) if usage::wants(&words, "yaml") => {
                    console.words(&failure.value_text(true));
                    failure.exit
                }
                NoCommand::Mistake(failure) => {
                    console.words(&escaped(&failure.text()));
                    failure.exit
                }
            };
            Err(CommandResult {
                exit,
                console,
                reach,
            })
        }
    }
}

async fn perform(parsed: Parsed) -> CommandResult {
    let Parsed {
        mut session,
        command,
    } = parsed;
    let result = command::run(&mut session, command).await;
    let exit = report(&mut session, result);
    CommandResult {
        exit,
        console: session.console,
        reach: session.reach,
    }
}

/// Prints the error of a command, if any, and returns its exit code.
pub(crate) fn report(session: &mut Session, result: Result<(), Stop>) -> u8 {
    match result {
        Ok(()) | Err(Stop::Pipe) => 0,
        Err(Stop::Exit(code)) => code,
        Err(Stop::Failed(mut failure)) => {
            if session.for_programs() {
                let is_yaml = session.common.output == Format::Yaml;
                session.console.words(&failure.value_text(is_yaml));
            } else {
                if session.common.quiet {
                    failure.hint = None;
                }
                session.say(&failure.text());
            }
            failure.exit
        }
    }
}
