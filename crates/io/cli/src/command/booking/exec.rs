//! `bursar exec`: book a slot, run the program here, give the slot back (design 40, X7).
//!
//! The program is our own child in the caller's terminal, directory and environment, so colours,
//! keys and window size reach it without our doing. Whatever happens to it, the slot is given
//! back; whatever happens to the slot, the program hears of it. Nothing of our own is printed
//! while that works. What is not done: a `kill -9` of this process leaves the program running,
//! and its slot to the ttl.

mod child;
mod detach;
mod program;
mod queue;
mod signals;

use std::future::pending;
use std::time::Duration;

use bursar_client::api::Outcome;
use bursar_client::slot::{self, Lost, RELEASE_WAIT};
use bursar_client::{Client, Slot};
use bursar_engine::words;
use bursar_units::BookingId;
use bursar_units::causes::chain;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::failure::{Failure, Stop, exit};
use crate::grammar::ExecArguments;
use crate::run::report;
use crate::session::Session;
use child::{Child, GRACE};
use signals::Signals;

/// The program ran longer than it was allowed to.
const TOO_LONG: u8 = 124;
/// It is there and cannot be run.
const CANNOT_RUN: u8 = 126;
/// It is not there.
const NOT_FOUND: u8 = 127;

/// What to do where an id is taken.
const ONE_NAME: &str = "nothing runs twice under one id; leave out `--id` or name another";

/// How long it may take to find out how a slot was lost: its program must be stopped meanwhile.
const ASK_HOW: Duration = Duration::from_secs(2);

/// How long a release may take before it is said that it is waited for.
const QUIET: Duration = Duration::from_secs(1);

/// How a program ended.
struct Ending {
    /// The exit code.
    code: u8,
    /// Whether it was said that the slot is lost.
    is_loss_reported: bool,
}

pub(in crate::command) async fn run(
    session: &mut Session,
    arguments: &ExecArguments,
) -> Result<(), Stop> {
    match perform(session, arguments).await {
        Ok(0) => Ok(()),
        Ok(code) => Err(Stop::Exit(code)),
        // The program may end with any code below these, so what is ours must be one of them.
        Err(Stop::Failed(failure)) => {
            let code = failure.exit.max(exit::EXEC);
            report(session, Err(Stop::Failed(failure)));
            Err(Stop::Exit(code))
        }
        Err(stop) => Err(stop),
    }
}

/// All of it; answers the exit code.
async fn perform(session: &mut Session, arguments: &ExecArguments) -> Result<u8, Stop> {
    if arguments.detach {
        return detach::submit(session, arguments).await;
    }
    if arguments.cpu_limit.is_some() {
        let message = "`--cpu-limit` is kept by the server, for what it runs itself";
        return Err(Failure::usage(message).hint("add `--detach`").into());
    }
    if arguments.allow_privilege_escalation {
        let message = "`--allow-privilege-escalation` is for programs that the server runs; \
                       one that runs here may escalate as you may";
        return Err(Failure::usage(message).hint("add `--detach`").into());
    }
    if session.is_virtual() {
        return Err(
            Failure::usage("a scenario runs no programs, but plays them with `--detach`").into(),
        );
    }
    program::check(session, &arguments.program)?;
    let client = session.client().await?;
    let mut signals = Signals::listen()?;
    let slot = queue::slot(session, &client, arguments, &mut signals).await?;
    session.verbose(&format!("booking {}, fence {}", slot.id(), slot.fence()));
    let name = program::name(&arguments.program);
    let mut child = match Child::spawn(&arguments.program, slot.id(), slot.fence()) {
        Ok(child) => child,
        Err(error) => {
            let failure = program::not_run(session, &arguments.program, &error);
            let ending = Ending {
                code: failure.exit,
                is_loss_reported: true,
            };
            give_back(session, &client, slot, ending, &name, &mut signals).await;
            return Err(failure.into());
        }
    };
    let ending = attend(session, arguments, &client, &slot, &mut child, &mut signals).await?;
    Ok(give_back(session, &client, slot, ending, &name, &mut signals).await)
}

/// Stays with the program until it has ended.
async fn attend(
    session: &mut Session,
    arguments: &ExecArguments,
    client: &Client,
    slot: &Slot,
    child: &mut Child,
    signals: &mut Signals,
) -> Result<Ending, Stop> {
    let name = program::name(&arguments.program);
    let most = arguments
        .max_time
        .map(|time| Duration::from_millis(time.ms()));
    let deadline = most.and_then(|most| Instant::now().checked_add(most));
    let mut stopped = None;
    loop {
        tokio::select! {
            ended = child.ended() => {
                let own = ended.map_err(|error| {
                    Failure::unavailable(format!("how `{name}` ended cannot be told: {error}"))
                })?;
                return Ok(Ending {
                    code: stopped.unwrap_or(own),
                    is_loss_reported: stopped == Some(exit::EXEC),
                });
            }
            signal = signals.next() => child.pass_on(signal),
            why = slot.lost(), if stopped.is_none() => {
                child.stop();
                stopped = Some(exit::EXEC);
                let grace = words::length(bursar_units::Millis::from_secs(GRACE.as_secs()));
                let effect = format!("others may hold it, so `{name}` is stopped, within {grace}");
                let failure = lost(session, client, slot.id(), &why, &name).await;
                report(session, Err(failure.detail("effect", effect).into()));
            }
            () = at(deadline), if stopped.is_none() => {
                child.stop();
                stopped = Some(TOO_LONG);
                let longest = arguments.max_time.unwrap_or_default();
                let message = format!("`{name}` ran longer than `--max-time {longest}` and is stopped");
                report(session, Err(Failure::new(TOO_LONG, message).into()));
            }
        }
    }
}

/// What to say of a slot that is no longer held: how it was lost, since when, and what to do.
async fn lost(
    session: &Session,
    client: &Client,
    id: &BookingId,
    why: &Lost,
    name: &str,
) -> Failure {
    let look = session.look();
    let (how, since) = match why {
        Lost::Unrenewed { renewed, cause } => {
            let cause = cause.as_ref().map(|error| format!(": {}", chain(error)));
            let cause = cause.unwrap_or_default();
            let how = format!("it was not renewed until its time was over{cause}");
            (how, Some(format!("last renewed {}", look.moment(*renewed))))
        }
        Lost::Fenced { how } => match timeout(ASK_HOW, client.booking(id)).await {
            Ok(Ok(booking)) => (
                super::end_words(&booking),
                booking.ended_at.map(|at| look.moment(at)),
            ),
            _ => (how.clone(), None),
        },
    };
    let mut failure = Failure::new(exit::EXEC, format!("the slot of `{name}` is lost: {how}"))
        .detail("booking", id.to_string())
        .hint(format!(
            "check what `{name}` has written, then run it again under a new id; \
             `bursar explain booking/{id}` shows what happened"
        ));
    failure
        .details
        .extend(since.map(|since| ("since".to_owned(), since)));
    failure
}

/// Gives the slot back and says how it went; answers the exit code.
///
/// A server that is away gets [`RELEASE_WAIT`] to come back, or until a signal; what is not given
/// back then is said, also with `-q`, and ends by its ttl.
async fn give_back(
    session: &mut Session,
    client: &Client,
    slot: Slot,
    ending: Ending,
    name: &str,
    signals: &mut Signals,
) -> u8 {
    let code = ending.code;
    let outcome = if code == 0 {
        Outcome::Ok
    } else {
        Outcome::Failed
    };
    let id = slot.id().clone();
    let ends = session.look().moment(slot.ends());
    let release = slot.release(outcome, Some(i32::from(code)));
    let quiet = sleep(QUIET);
    tokio::pin!(release, quiet);
    let mut is_quiet = true;
    let answer = loop {
        tokio::select! {
            answer = &mut release => break answer,
            signal = signals.ending() => {
                if is_quiet {
                    // It was meant for the program, which may have ended by it.
                    continue;
                }
                session.say(&format!(
                    "warning: booking {id} was not given back: interrupted by signal {}; its ttl ends it {ends}, or one ttl after the server starts again\n",
                    signal.as_raw()
                ));
                return code;
            }
            () = &mut quiet, if is_quiet => {
                is_quiet = false;
                session.aside(&format!(
                    "giving back booking {id}: waiting up to {} for {}, Ctrl-C stops that\n",
                    words::length(bursar_units::Millis::from_secs(RELEASE_WAIT.as_secs())),
                    client.server()
                ));
            }
        }
    };
    match answer {
        Ok(booking) => {
            let end = super::end_words(&booking);
            session.verbose(&format!("booking {id} {end}"));
        }
        Err(slot::Error::Fenced { .. }) if ending.is_loss_reported => {}
        Err(slot::Error::Fenced { lost: why, .. }) => {
            let effect = format!(
                "`{name}` ended with exit {code}, but others may have held the slot while it ran"
            );
            let failure = lost(session, client, &id, &why, name).await;
            report(session, Err(failure.detail("effect", effect).into()));
            return exit::EXEC;
        }
        Err(slot::Error::NotGivenBack { ends, source, .. }) => {
            let ends = session.look().moment(ends);
            session.say(&format!(
                "warning: booking {id} was not given back: {}; its ttl ends it {ends}, or one ttl after the server starts again\n",
                chain(&source)
            ));
        }
        Err(error) => session.say(&format!(
            "warning: booking {id} was not given back: {}; its ttl ends it\n",
            chain(&error)
        )),
    }
    code
}

/// A new id, without hyphens so that a table of them has room for the rest.
fn new_id(session: &mut Session) -> Result<BookingId, Failure> {
    let text = format!("exec-{}", session.new_uuid().simple());
    BookingId::new(&text)
        .map_err(|error| Failure::unavailable(format!("cannot make an id: {error}")))
}

/// That moment, or never.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
