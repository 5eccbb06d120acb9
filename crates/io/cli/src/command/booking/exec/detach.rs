//! `bursar exec --detach`: submits the program to the server and returns.
//!
//! A server on this machine gets the directory and a fixed list of environment variables: paths,
//! user, language and time zone. Other variables may hold secrets and are not sent. A server
//! elsewhere gets neither directory nor environment.

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

/// Time limit for cancelling a request whose outcome is unknown.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Submits the execution, prints its id, and returns the exit code.
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
    let execution = match send(&client, &id, request).await {
        Ok(execution) => execution,
        Err(Error::Problem(problem)) if problem.code != Code::OutcomeUnknown => {
            return Err(refusal(&client, &id, arguments, problem).await.into());
        }
        Err(error) => {
            // A new id is printed only on success, so nobody could find the execution: cancel it.
            // An id of the caller may run since an earlier request, and a repeat shows its state.
            if arguments.id.is_none() {
                let _unknown =
                    timeout(CANCEL_TIMEOUT, client.cancel_execution(&id, Mode::Do)).await;
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

fn check_cpu(arguments: &ExecArguments) -> Result<(), Failure> {
    match (arguments.cpu, arguments.cpu_limit) {
        (Some(cpu), Some(limit)) if limit < cpu => Err(Failure::usage(format!(
            "`--cpu-limit {}` is less than `--cpu {}`",
            format_cpu(limit),
            format_cpu(cpu)
        ))),
        (_, Some(0)) => Err(Failure::usage(
            "`--cpu-limit 0` leaves no CPU to run with; omit it for no limit",
        )),
        _ => Ok(()),
    }
}

fn text(word: impl AsRef<std::ffi::OsStr>) -> Result<String, Failure> {
    let word: OsString = word.as_ref().to_owned();
    word.into_string().map_err(|word| {
        let word = word.to_string_lossy();
        Failure::usage(format!("`{word}` is not UTF-8, which `--detach` requires"))
    })
}

/// Sends the request. If a limit allows less than the default wait, sends it again with the longest
/// allowed wait.
async fn send(
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

/// Failure of a repeated request whose execution has ended: it does not run again.
fn has_ended(execution: &Execution) -> Failure {
    let outcome = execution.course.outcome.map(ExecutionOutcome::word);
    let code = execution.exit_code.map(|code| format!(", exit {code}"));
    let message = format!(
        "`{}` has ended already: {}{}",
        execution.id,
        outcome.unwrap_or("nobody knows how"),
        code.unwrap_or_default()
    );
    Failure::new(exit::EXEC, message).hint(super::ID_IS_TAKEN)
}
