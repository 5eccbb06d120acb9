//! `bursar exec`: book a slot, run the program here, give the slot back.
//!
//! The program is a child of this process in the caller's terminal, directory and environment, so
//! colours, keys and window size need no work of ours. However the program ends, the slot is given
//! back; if the slot is lost, the program is stopped. On success nothing of our own is printed.
//! Not covered: a `kill -9` of this process leaves the program running, and its slot ends by ttl.

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
use bursar_units::causes::chain;
use bursar_units::{BookingId, Millis};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::failure::{Failure, Stop, exit};
use crate::grammar::ExecArguments;
use crate::run::report;
use crate::session::Session;
use child::{Child, GRACE};
use signals::Signals;

/// Exit code: the program ran longer than `--max-time`.
const TOO_LONG: u8 = 124;
/// Exit code: the program exists and cannot be run.
const CANNOT_RUN: u8 = 126;
/// Exit code: the program was not found.
const NOT_FOUND: u8 = 127;

const ID_IS_TAKEN: &str = "an id runs at most once; leave out `--id` or choose another";

/// Time limit of the request for the cause of a lost slot: the program must be stopped meanwhile.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time after which a release without an answer is announced.
const QUIET: Duration = Duration::from_secs(1);

/// End of a program.
struct Ending {
    code: u8,
    is_loss_reported: bool,
}

pub(in crate::command) async fn run(
    session: &mut Session,
    arguments: &ExecArguments,
) -> Result<(), Stop> {
    match perform(session, arguments).await {
        Ok(0) => Ok(()),
        Ok(code) => Err(Stop::Exit(code)),
        // Lower codes may be the program's own, so a failure of ours is never below `EXEC`.
        Err(Stop::Failed(failure)) => {
            let code = failure.exit.max(exit::EXEC);
            report(session, Err(Stop::Failed(failure)));
            Err(Stop::Exit(code))
        }
        Err(stop) => Err(stop),
    }
}

/// Returns the exit code.
async fn perform(session: &mut Session, arguments: &ExecArguments) -> Result<u8, Stop> {
    if arguments.detach {
        return detach::submit(session, arguments).await;
    }
    if arguments.cpu_limit.is_some() {
        let message = "`--cpu-limit` applies only to programs that the server runs";
        return Err(Failure::usage(message).hint("add `--detach`").into());
    }
    if arguments.allow_privilege_escalation {
        let message =
            "`--allow-privilege-escalation` applies only to programs that the server runs";
        return Err(Failure::usage(message).hint("add `--detach`").into());
    }
    if session.is_virtual() {
        return Err(
            Failure::usage("a scenario cannot run programs; `--detach` simulates them").into(),
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

/// Waits for the end of the program. Passes signals on, and stops it when its slot or its time is
/// over.
async fn attend(
    session: &mut Session,
    arguments: &ExecArguments,
    client: &Client,
    slot: &Slot,
    child: &mut Child,
    signals: &mut Signals,
) -> Result<Ending, Stop> {
    let name = program::name(&arguments.program);
    let max_time = arguments
        .max_time
        .map(Millis::ms)
        .map(Duration::from_millis);
    let deadline = max_time.and_then(|time| Instant::now().checked_add(time));
    let mut stopped = None;
    loop {
        tokio::select! {
            ended = child.ended() => {
                let own = ended.map_err(|error| {
                    Failure::unavailable(format!("the exit status of `{name}` cannot be read: {error}"))
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
                let grace = words::length(Millis::from_secs(GRACE.as_secs()));
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

/// Failure of a lost slot: the cause, the time, and a hint.
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
            let how = format!("it was not renewed in time{cause}");
            (how, Some(format!("last renewed {}", look.moment(*renewed))))
        }
        Lost::Fenced { how } => match timeout(CAUSE_TIMEOUT, client.booking(id)).await {
            Ok(Ok(booking)) => (
                super::end_words(&booking),
                booking.ended_at.map(|at| look.moment(at)),
            ),
            _ => (how.clone(), None),
        },
    };
    let failure = Failure::new(exit::EXEC, format!("the slot of `{name}` is lost: {how}"))
        .detail("booking", id.to_string())
        .hint(format!(
            "check what `{name}` has written, then run it again under a new id; \
             `bursar explain booking/{id}` shows what happened"
        ));
    match since {
        Some(since) => failure.detail("since", since),
        None => failure,
    }
}

/// Releases the slot and returns the exit code.
///
/// While the server is away, the release is retried for [`RELEASE_WAIT`] or until a signal. A slot
/// that is still held then ends by its ttl; a warning says so, even with `-q`.
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
                    // The signal was meant for the program, which may have ended by it.
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
                    "giving back booking {id}: waiting up to {} for {}, Ctrl-C stops waiting\n",
                    words::length(Millis::from_secs(RELEASE_WAIT.as_secs())),
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

/// A new id, without hyphens to keep tables narrow.
fn new_id(session: &mut Session) -> Result<BookingId, Failure> {
    let text = format!("exec-{}", session.new_uuid().simple());
    BookingId::new(&text)
        .map_err(|error| Failure::unavailable(format!("cannot make an id: {error}")))
}

/// Waits until that moment; without one, for ever.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
