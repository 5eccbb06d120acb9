//! `bursar exec --detach`: the server runs it, and we go.
//!
//! A server on this machine is given the directory and the plain part of the environment: where
//! programs and the home directory are, and how the user's language and time zone are called.
//! Whatever else is set stays here, for it may hold secrets. A server elsewhere gets neither.

use std::ffi::OsString;
use std::time::Duration;

use bursar_client::api::{Execution, ExecutionOutcome, ExecutionRequest, ExecutionState};
use bursar_client::client::{Error, Mode};
use bursar_client::{Client, Code};
use bursar_units::quantity::format_cpu;
use bursar_units::{BookingId, Millis};
use tokio::time::timeout;

use super::queue::{WAIT_MAX_MS, longest_allowed, refusal};
use super::{new_id, program};
use crate::failure::{Failure, Stop, exit};
use crate::grammar::ExecArguments;
use crate::session::Session;

/// How long it may take to call off what may have been submitted.
const CALL_OFF: Duration = Duration::from_secs(5);

/// Submits it and prints its id; answers the exit code.
pub(super) async fn submit(session: &mut Session, arguments: &ExecArguments) -> Result<u8, Stop> {
    check_cpu(arguments)?;
    let client = session.client().await?;
    let is_here = client.server().starts_with("unix:");
    if is_here {
        program::check(session, &arguments.program)?;
    }
    let id = match &arguments.id {
        Some(id) => id.clone(),
        None => new_id(session)?,
    };
    let request = request(session, arguments, is_here)?;
    let execution = match ask(&client, &id, request).await {
        Ok(execution) => execution,
        Err(Error::Problem(problem)) if problem.code != Code::OutcomeUnknown => {
            return Err(refusal(&client, &id, arguments, problem).await.into());
        }
        Err(error) => {
            // Nobody will be told a new id, so it must not run. Under one of the caller's it may run
            // since an earlier request, and repeating tells.
            if arguments.id.is_none() {
                let _unknown = timeout(CALL_OFF, client.cancel_execution(&id, Mode::Do)).await;
            }
            return Err(error.into());
        }
    };
    let is_repeat = execution.applied == Some(false);
    if is_repeat && execution.course.state == ExecutionState::Ended {
        return Err(has_ended(&execution).into());
    }
    session.show(&execution, &format!("booking/{id}"), |_| format!("{id}\n"))?;
    Ok(0)
}

fn request(
    session: &Session,
    arguments: &ExecArguments,
    is_here: bool,
) -> Result<ExecutionRequest, Failure> {
    let mut words = arguments.program.iter().map(text);
    let command = words.next().transpose()?.unwrap_or_default();
    let mut request = ExecutionRequest {
        tenant: arguments.tenant.clone(),
        slots: arguments.slots,
        args: words.collect::<Result<_, _>>()?,
        cpu_milli: arguments.cpu,
        cpu_limit_milli: arguments.cpu_limit,
        memory_bytes: arguments.memory,
        priority: Some(arguments.priority),
        wait_ms: Some(arguments.wait.map_or(WAIT_MAX_MS, Millis::ms)),
        max_time_ms: arguments.max_time.map(Millis::ms),
        allow_privilege_escalation: arguments.allow_privilege_escalation,
        ..ExecutionRequest::new(arguments.class.clone(), command)
    };
    if is_here {
        request.env.clone_from(&session.environment.plain);
        request.directory = Some(text(session.directory.as_os_str())?);
    }
    Ok(request)
}

/// What it may use at most is not less than what it is given.
fn check_cpu(arguments: &ExecArguments) -> Result<(), Failure> {
    match (arguments.cpu, arguments.cpu_limit) {
        (Some(cpu), Some(limit)) if limit < cpu => Err(Failure::usage(format!(
            "`--cpu-limit {}` is less than `--cpu {}`",
            format_cpu(limit),
            format_cpu(cpu)
        ))),
        (_, Some(0)) => Err(Failure::usage(
            "`--cpu-limit 0` is nothing to run with; leave it out for no limit",
        )),
        _ => Ok(()),
    }
}

/// A word as the API has it.
fn text(word: impl AsRef<std::ffi::OsStr>) -> Result<String, Failure> {
    let word: OsString = word.as_ref().to_owned();
    word.into_string().map_err(|word| {
        let word = word.to_string_lossy();
        Failure::usage(format!("`{word}` is no text, which `--detach` needs"))
    })
}

/// Asks; where a limit allows less than the wait that nobody asked for, that is taken.
async fn ask(
    client: &Client,
    id: &BookingId,
    mut request: ExecutionRequest,
) -> Result<Execution, Error> {
    let error = match client.submit(id, &request, Mode::Do).await {
        Err(error) if request.wait_ms == Some(WAIT_MAX_MS) => error,
        answer => return answer,
    };
    match error.problem().and_then(longest_allowed) {
        Some(("waitMs", ms)) => {
            request.wait_ms = Some(ms);
            client.submit(id, &request, Mode::Do).await
        }
        _ => Err(error),
    }
}

/// Repeating a request is safe, and when it has run already nothing runs again.
fn has_ended(execution: &Execution) -> Failure {
    let outcome = execution.course.outcome.map(ExecutionOutcome::word);
    let code = execution.exit_code.map(|code| format!(", exit {code}"));
    let message = format!(
        "`{}` has ended already: {}{}",
        execution.id,
        outcome.unwrap_or("nobody knows how"),
        code.unwrap_or_default()
    );
    Failure::new(exit::EXEC, message).hint(super::ONE_NAME)
}
