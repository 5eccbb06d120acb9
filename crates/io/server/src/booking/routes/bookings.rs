//! `/v1/bookings`.

use std::collections::BTreeSet;
use std::time::Duration;

use bursar_client::api::{
    Batch, BookingRequest, CancelRequest, Operation, ReleaseRequest, RenewRequest,
    State as BookingState,
};
use bursar_schema::route;
use bursar_units::{BookingId, Label, Millis};

use crate::http::Route;
use crate::http::call::{Call, Reading};
use crate::http::respond::{Handled, json};
use crate::service::{BookingFilter, BookingQuery, LONG_POLL_MAX, WriteMode};

pub(crate) const ROUTES: &[Route] = &[
    list_bookings::ROUTE,
    batch_bookings::ROUTE,
    get_booking::ROUTE,
    reserve_booking::ROUTE,
    renew_booking::ROUTE,
    release_booking::ROUTE,
    cancel_booking::ROUTE,
    note_booking::ROUTE,
];

/// Reserves slots under an id.
///
/// A repeated request with the same id and body returns the current state of that booking.
#[route(put, path = "/v1/bookings/{id}", tag = "bookings",
    params(("id" = String, Path, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$"),
           ("dryRun" = Option<bool>, Query, description = "Return what would happen and change nothing")),
    request_body = BookingRequest,
    responses((status = 201, body = Booking, description = "Granted"),
              (status = 202, body = Booking, description = "Queued"),
              (status = 200, body = Booking, description = "Requested before; this is its current state"), Refusals))]
async fn reserve_booking(call: Call) -> Handled {
    let mut reading = call.reading();
    let id = reading.part("id");
    let mode = reading.mode();
    let request = reading.body_for_tenant(|request: &BookingRequest| request.tenant.as_ref());
    let (id, request) = reading.end(id.zip(request)).await?;
    let operation = Operation::Reserve { id, request };
    operate(&call, operation, mode).await
}

/// A booking.
#[route(get, path = "/v1/bookings/{id}", tag = "bookings",
    params(("id" = String, Path, max_length = 128),
           ("fence" = Option<u64>, Query, description = "Compare with the current fence; the result is `held`"),
           ("wait" = Option<String>, Query, description = "Time to wait until a queued booking changes, such as `30s`; at most 5m"),
           ("minRecord" = Option<u64>, Query, description = "Wait until this record is reflected")),
    responses((status = 200, body = Booking), Refusals))]
async fn get_booking(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let id = reading.part("id");
    let query = BookingQuery {
        fence: reading.query("fence"),
        wait: wait(&mut reading),
    };
    let id: BookingId = reading.end(id).await?;
    let answer = call.service().booking(&call.caller, &id, query);
    json(call.hold(answer).await?)
}

/// Renews a booking: shows that its holder is alive. It is recorded when the old deadline comes.
#[route(post, path = "/v1/bookings/{id}/renew", tag = "bookings",
    params(("id" = String, Path, max_length = 128), ("dryRun" = Option<bool>, Query)),
    request_body = RenewRequest,
    responses((status = 200, body = Booking), Refusals))]
async fn renew_booking(call: Call) -> Handled {
    let mut reading = call.reading();
    let id = reading.part("id");
    let mode = reading.mode();
    let request = reading.body();
    let (id, request): (_, RenewRequest) = reading.end(id.zip(request)).await?;
    let operation = Operation::Renew { id, request };
    operate(&call, operation, mode).await
}

/// Releases a booking. A repeat succeeds without effect: `applied` is false.
#[route(post, path = "/v1/bookings/{id}/release", tag = "bookings",
    params(("id" = String, Path, max_length = 128), ("dryRun" = Option<bool>, Query)),
    request_body = ReleaseRequest,
    responses((status = 200, body = Booking), Refusals))]
async fn release_booking(call: Call) -> Handled {
    let mut reading = call.reading();
    let id = reading.part("id");
    let mode = reading.mode();
    let request = reading.body();
    let (id, request): (_, ReleaseRequest) = reading.end(id.zip(request)).await?;
    let operation = Operation::Release { id, request };
    operate(&call, operation, mode).await
}

/// Takes a booking out of the queue, or stops an execution.
#[route(post, path = "/v1/bookings/{id}/cancel", tag = "bookings",
    params(("id" = String, Path, max_length = 128), ("dryRun" = Option<bool>, Query)),
    request_body = Option<CancelRequest>,
    responses((status = 200, body = Booking), Refusals))]
async fn cancel_booking(call: Call) -> Handled {
    let mut reading = call.reading();
    let id = reading.part("id");
    let mode = reading.mode();
    let body = reading.body_or_empty();
    let (id, CancelRequest {}) = reading.end(id.zip(body)).await?;
    let operation = Operation::Cancel { id };
    operate(&call, operation, mode).await
}

/// Records a remark on a booking, in place of the one before it.
#[route(put, path = "/v1/bookings/{id}/note", tag = "bookings",
    params(("id" = String, Path, max_length = 128), ("dryRun" = Option<bool>, Query)),
    request_body = NoteRequest,
    responses((status = 200, body = Booking), Refusals))]
async fn note_booking(call: Call) -> Handled {
    let mut reading = call.reading();
    let id = reading.part("id");
    let mode = reading.mode();
    let request = reading.body();
    let (id, request) = reading.end(id.zip(request)).await?;
    json(call.service().note(&call.caller, id, request, mode).await?)
}

/// Runs independent operations in order, with one result each. A batch is not atomic.
#[route(post, path = "/v1/bookings", tag = "bookings",
    params(("dryRun" = Option<bool>, Query)),
    request_body = Batch,
    responses((status = 200, body = BatchAnswer), Refusals))]
async fn batch_bookings(call: Call) -> Handled {
    let mut reading = call.reading();
    let mode = reading.mode();
    let batch = reading.body();
    let batch: Batch = reading.end(batch).await?;
    json(call.service().batch(&call.caller, batch, mode).await?)
}

/// Bookings that the caller may see: live ones by id, then ended ones, newest first.
#[route(get, path = "/v1/bookings", tag = "bookings",
    params(("class" = Option<String>, Query), ("language" = Option<String>, Query, description = "Alias of `class`"),
           ("tenant" = Option<String>, Query),
           ("state" = Option<String>, Query, description = "`queued`, `granted`, `ended`, or several separated by commas"),
           ("status" = Option<String>, Query, description = "Alias of `state`: `active` means `granted`, `released` means `ended`"),
           ("id" = Option<String>, Query), ("execution" = Option<String>, Query),
           ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000), ("cursor" = Option<String>, Query),
           ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = ListAnswer<Booking>), Refusals))]
async fn list_bookings(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let class: Option<Label> = reading.query("class");
    let language = reading.query("language");
    if let (Some(class), Some(language)) = (reading.text("class"), reading.text("language"))
        && class != language
    {
        reading.mistake("language", "is an alias of `class`; the two differ");
    }
    let filter = BookingFilter {
        class: class.or(language),
        tenant: reading.query("tenant"),
        states: states(&mut reading),
        id: reading.query("id"),
        execution: reading.query("execution"),
    };
    let (page, cursor) = (reading.page(), reading.query("cursor"));
    let filter = reading.end(Some(filter)).await?;
    let service = call.service();
    json(service.page(&call.caller, filter, page, cursor).await?)
}

async fn operate(call: &Call, operation: Operation, mode: WriteMode) -> Handled {
    let service = call.service();
    json(service.operate(&call.caller, operation, mode).await?)
}

pub(crate) fn wait(reading: &mut Reading<'_>) -> Option<Duration> {
    let wait: Option<Millis> = reading.query("wait");
    let wait = wait.map(|wait| Duration::from_millis(wait.ms()));
    if wait.is_some_and(|wait| wait > LONG_POLL_MAX) {
        reading.mistake("wait", "must be at most 5m");
    }
    wait
}

/// Reads the wanted states from `state` and its alias `status`.
fn states(reading: &mut Reading<'_>) -> BTreeSet<BookingState> {
    let all = BookingState::ALL.map(|state| (state.word(), state));
    let mut wanted = reading.chosen("state", &all);
    match reading.text("status") {
        None => {}
        Some("active") => drop(wanted.insert(BookingState::Granted)),
        Some("released") => drop(wanted.insert(BookingState::Ended)),
        Some(_) => reading.mistake("status", "must be `active` or `released`"),
    }
    wanted
}
