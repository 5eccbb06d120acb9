//! `/v1/executions`.

use std::io;

use bursar_client::api::{CancelRequest, ExecutionOutcome, ExecutionRequest, ExecutionState};
use bursar_node::executor::Stream;
use bursar_schema::route;
use bursar_units::BookingId;
use bytes::Bytes;
use futures_util::stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};

use super::bookings::wait;
use crate::http::Route;
use crate::http::call::Call;
use crate::http::respond::{Handled, json};
use crate::service::{ExecutionFilter, Logs, LogsFrom};

pub(crate) const ROUTES: &[Route] = &[
    list_executions::ROUTE,
    get_execution::ROUTE,
    submit_execution::ROUTE,
    cancel_execution::ROUTE,
    get_execution_logs::ROUTE,
];

/// Runs a program under an id, in slots of its own.
///
/// A repeated request with the same id and body returns the current state of that execution. Its
/// program is started at most once. If its outcome cannot be known, it is `lost`.
#[route(put, path = "/v1/executions/{id}", tag = "executions",
    params(("id" = String, Path, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$"),
           ("dryRun" = Option<bool>, Query, description = "Return what would happen and change nothing; the program is not compared with an earlier one")),
    request_body = ExecutionRequest,
    responses((status = 201, body = Execution, description = "Granted: it starts"),
              (status = 202, body = Execution, description = "Queued"),
              (status = 200, body = Execution, description = "Submitted before; this is its current state"), Refusals))]
async fn submit_execution(call: Call) -> Handled {
    let mut reading = call.reading();
    let id = reading.part("id");
    let mode = reading.mode();
    let request = reading.body_for_tenant(|request: &ExecutionRequest| request.tenant.as_ref());
    let (id, request) = reading.end(id.zip(request)).await?;
    let service = call.service();
    json(
        service
            .submit_execution(&call.caller, id, request, mode)
            .await?,
    )
}

/// An execution, with the steps of its saga.
#[route(get, path = "/v1/executions/{id}", tag = "executions",
    params(("id" = String, Path, max_length = 128),
           ("wait" = Option<String>, Query, description = "Time to wait for another state, such as `30s`; at most 5m"),
           ("minRecord" = Option<u64>, Query, description = "Wait until this record is reflected")),
    responses((status = 200, body = Execution), Refusals))]
async fn get_execution(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let id = reading.part("id");
    let wait = wait(&mut reading);
    let id = reading.end(id).await?;
    let answer = call.service().execution(&call.caller, &id, wait);
    json(call.hold(answer).await?)
}

/// Stops an execution in any state. A repeat has no effect: `applied` is false.
///
/// Its slots are free only when its process is gone.
#[route(post, path = "/v1/executions/{id}/cancel", tag = "executions",
    params(("id" = String, Path, max_length = 128), ("dryRun" = Option<bool>, Query)),
    request_body = Option<CancelRequest>,
    responses((status = 200, body = Execution), Refusals))]
async fn cancel_execution(call: Call) -> Handled {
    let mut reading = call.reading();
    let id = reading.part("id");
    let mode = reading.mode();
    let body = reading.body_or_empty();
    let (id, CancelRequest {}) = reading.end(id.zip(body)).await?;
    json(
        call.service()
            .cancel_execution(&call.caller, id, mode)
            .await?,
    )
}

/// Executions that the caller may see: live ones by id, then ended ones, newest first.
#[route(get, path = "/v1/executions", tag = "executions",
    params(("class" = Option<String>, Query), ("tenant" = Option<String>, Query),
           ("state" = Option<String>, Query, description = "`queued`, `starting`, `running`, `stopping`, `stuck`, `ended`, or several separated by commas"),
           ("outcome" = Option<String>, Query, description = "`completed`, `failed`, `lost`, `cancelled`, `timed-out`, `wait-over`, or several separated by commas"),
           ("id" = Option<String>, Query),
           ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000), ("cursor" = Option<String>, Query),
           ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = ListAnswer<Execution>), Refusals))]
async fn list_executions(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let states = ExecutionState::ALL.map(|state| (state.word(), state));
    let outcomes = ExecutionOutcome::ALL.map(|outcome| (outcome.word(), outcome));
    let filter = ExecutionFilter {
        class: reading.query("class"),
        tenant: reading.query("tenant"),
        states: reading.chosen("state", &states),
        outcomes: reading.chosen("outcome", &outcomes),
        id: reading.query("id"),
    };
    let (page, cursor) = (reading.page(), reading.query("cursor"));
    let filter = reading.end(Some(filter)).await?;
    let service = call.service();
    json(service.page(&call.caller, filter, page, cursor).await?)
}

/// Output of an execution, unchanged. Only callers that may act as its tenant can read it.
#[route(get, path = "/v1/executions/{id}/logs", tag = "executions",
    params(("id" = String, Path, max_length = 128),
           ("stream" = Option<String>, Query, description = "`stdout`, the default, or `stderr`"),
           ("follow" = Option<bool>, Query, description = "Continue until the execution has ended"),
           ("from" = Option<u64>, Query, description = "Number of bytes to skip"),
           ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = String, content_type = "text/plain"), Refusals))]
async fn get_execution_logs(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let id = reading.part("id");
    let wanted = LogsFrom {
        stream: match reading.text("stream") {
            Some("stderr") => Stream::Stderr,
            named => {
                if named.is_some_and(|named| named != "stdout") {
                    reading.mistake("stream", "must be `stdout` or `stderr`");
                }
                Stream::Stdout
            }
        },
        from: reading.query("from").unwrap_or_default(),
        follow: reading.flag("follow"),
    };
    let id: BookingId = reading.end(id).await?;
    let logs = call
        .shared_service()
        .logs(&call.caller, &id, wanted)
        .await?;
    let mut response = call.pieces("text/plain", pieces(logs), |_| None);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Output that looks like HTML must not be rendered as a page.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

fn pieces(logs: Logs) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold(logs, |mut logs| async move {
        logs.next().await.map(|piece| (piece, logs))
    })
}
