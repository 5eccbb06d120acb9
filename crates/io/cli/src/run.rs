//! From words to an exit code: the one path that `main` and the scenario runner share.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser as _;
use jiff::tz::TimeZone;

use crate::command;
use crate::console::Console;
use crate::environment::Environment;
use crate::failure::{Failure, Stop};
use crate::grammar::{Arguments, Command};
use crate::layout::escaped;
use crate::session::{Now, Reach, Session, Terminal};
use crate::usage::{self, Asked};

/// A command line, and all that it may touch.
pub(crate) struct Invocation {
    /// The words, of which the first is the program.
    pub(crate) words: Vec<OsString>,
    /// The streams.
    pub(crate) console: Console,
    /// What the process was given.
    pub(crate) environment: Environment,
    /// The time.
    pub(crate) now: Now,
    /// Where the reader's clock stands.
    pub(crate) zone: TimeZone,
    /// Where relative paths begin.
    pub(crate) directory: PathBuf,
    /// Where files are written instead, in a scenario.
    pub(crate) scratch: Option<PathBuf>,
    /// What is a terminal.
    pub(crate) terminal: Terminal,
    /// How the server is reached.
    pub(crate) reach: Reach,
}

/// What a command leaves behind.
pub(crate) struct Ended {
    /// Its exit code.
    pub(crate) exit: u8,
    /// The streams, with what was written where they are kept.
    pub(crate) console: Console,
    /// The way to the server.
    pub(crate) reach: Reach,
}

/// Runs a command of the process, with the runtime that it needs.
pub(crate) fn in_process(invocation: Invocation) -> u8 {
    let parsed = match parse(invocation) {
        Ok(parsed) => parsed,
        Err(ended) => return ended.exit,
    };
    // A scenario brings a runtime of its own, on virtual time; a server wants every core.
    let runtime = match &parsed.command {
        Command::Up(_) => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build(),
        Command::Scenario(_) => {
            return command::scenario::run(parsed.session, &parsed.command).exit;
        }
        _ => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build(),
    };
    match runtime {
        Ok(runtime) => {
            let exit = runtime.block_on(perform(parsed)).exit;
            // What still reads a store must not hold up the end.
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

/// Runs a command on the runtime there is: for scenarios.
pub(crate) async fn within(invocation: Invocation) -> Ended {
    match parse(invocation) {
        Ok(parsed) => perform(parsed).await,
        Err(ended) => ended,
    }
}

/// A command line that makes sense.
struct Parsed {
    session: Session,
    command: Command,
}

fn parse(invocation: Invocation) -> Result<Parsed, Ended> {
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
                Asked::Text(text) => match console.data(&text) {
                    Ok(()) | Err(Stop::Pipe | Stop::Exit(_)) => 0,
                    Err(Stop::Failed(failure)) => failure.exit,
                },
                Asked::Mistake(failure) if usage::wants_json(&words) => {
                    console.words(&format!("{}\n", failure.json_text()));
                    failure.exit
                }
                Asked::Mistake(failure) => {
                    console.words(&escaped(&failure.text()));
                    failure.exit
                }
            };
            Err(Ended {
                exit,
                console,
                reach,
            })
        }
    }
}

async fn perform(parsed: Parsed) -> Ended {
    let Parsed {
        mut session,
        command,
    } = parsed;
    let result = command::run(&mut session, command).await;
    let exit = report(&mut session, result);
    Ended {
        exit,
        console: session.console,
        reach: session.reach,
    }
}

/// Says how a command ended, and gives its exit code.
pub(crate) fn report(session: &mut Session, result: Result<(), Stop>) -> u8 {
    match result {
        Ok(()) | Err(Stop::Pipe) => 0,
        Err(Stop::Exit(code)) => code,
        Err(Stop::Failed(mut failure)) => {
            if session.for_programs() {
                let text = failure.json_text();
                session.console.words(&format!("{text}\n"));
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
