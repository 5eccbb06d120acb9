//! `/v1/executions`.

use std::io;

use bursar_client::api::{
    CancelRequest, ExecutionRequest, GetExecution, GetLogs, ListExecutions, LogStream,
};
use bursar_node::executor::Stream;
use bursar_schema::route;
use bursar_units::BookingId;
use bytes::Bytes;
use futures_util::stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};

use crate::http::Route;
use crate::http::call::Call;
use crate::http::respond::{Handled, json};
use crate::service::{Logs, LogsFrom};

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
/// program is started at most once. If its outcome cannot be known, it is `lost`. A dry run does not
/// compare the program with an earlier one.
#[route(put, path = "/v1/executions/{id}", tag = "executions",
    params(("id" = String, Path, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$"), DryRun),
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
    params(("id" = String, Path, max_length = 128), GetExecution, MinRecord),
    responses((status = 200, body = Execution), Refusals))]
async fn get_execution(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let id = reading.part("id");
    let GetExecution { wait } = reading.query();
    let id = reading.end(id).await?;
    let answer = call.service().execution(&call.caller, &id, wait);
    json(call.hold(answer).await?)
}

/// Stops an execution in any state. A repeat has no effect: `applied` is false.
///
/// Its slots are free only when its process is gone.
#[route(post, path = "/v1/executions/{id}/cancel", tag = "executions",
    params(("id" = String, Path, max_length = 128), DryRun),
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
    params(ListExecutions, Page, MinRecord),
    responses((status = 200, body = ListAnswer<Execution>), Refusals))]
async fn list_executions(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let filter: ListExecutions = reading.query();
    let (page, cursor) = reading.page();
    let filter = reading.end(Some(filter)).await?;
    let service = call.service();
    json(service.page(&call.caller, filter, page, cursor).await?)
}

/// Output of an execution, unchanged. Only callers that may act as its tenant can read it.
#[route(get, path = "/v1/executions/{id}/logs", tag = "executions",
    params(("id" = String, Path, max_length = 128), GetLogs, MinRecord),
    responses((status = 200, body = String, content_type = "text/plain"), Refusals))]
async fn get_execution_logs(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let id = reading.part("id");
    let query: GetLogs = reading.query();
    let wanted = LogsFrom {
        stream: match query.stream.unwrap_or_default() {
            LogStream::Stdout => Stream::Stdout,
            LogStream::Stderr => Stream::Stderr,
        },
        from: query.from.unwrap_or_default(),
        follow: query.follow.unwrap_or_default(),
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
