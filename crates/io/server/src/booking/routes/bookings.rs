//! `/v1/bookings`.

use bursar_client::api::body::Body;
use bursar_client::api::{Batch, BookingRequest, CancelRequest, ListBookings, Operation};
use bursar_schema::route;
use bursar_units::BookingId;

use crate::http::Route;
use crate::http::call::Call;
use crate::http::respond::{Handled, json};

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
    params(("id" = String, Path, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$"), DryRun),
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
    let (service, operation) = (call.service(), Operation::Reserve { id, request });
    json(service.operate(&call.caller, operation, mode).await?)
}

/// A booking.
#[route(get, path = "/v1/bookings/{id}", tag = "bookings",
    params(("id" = String, Path, max_length = 128), GetBooking, MinRecord),
    responses((status = 200, body = Booking), Refusals))]
async fn get_booking(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let id = reading.part("id");
    let query = reading.query();
    let id: BookingId = reading.end(id).await?;
    let answer = call.service().booking(&call.caller, &id, query);
    json(call.hold(answer).await?)
}

/// Renews a booking: shows that its holder is alive. It is recorded when the old deadline comes.
#[route(post, path = "/v1/bookings/{id}/renew", tag = "bookings",
    params(("id" = String, Path, max_length = 128), DryRun),
    request_body = RenewRequest,
    responses((status = 200, body = Booking), Refusals))]
async fn renew_booking(call: Call) -> Handled {
    operate(call, |id, request| Operation::Renew { id, request }).await
}

/// Releases a booking. A repeat succeeds without effect: `applied` is false.
#[route(post, path = "/v1/bookings/{id}/release", tag = "bookings",
    params(("id" = String, Path, max_length = 128), DryRun),
    request_body = ReleaseRequest,
    responses((status = 200, body = Booking), Refusals))]
async fn release_booking(call: Call) -> Handled {
    operate(call, |id, request| Operation::Release { id, request }).await
}

/// Takes a booking out of the queue, or stops an execution.
#[route(post, path = "/v1/bookings/{id}/cancel", tag = "bookings",
    params(("id" = String, Path, max_length = 128), DryRun),
    request_body = Option<CancelRequest>,
    responses((status = 200, body = Booking), Refusals))]
async fn cancel_booking(call: Call) -> Handled {
    let mut reading = call.reading();
    let id = reading.part("id");
    let mode = reading.mode();
    let body = reading.body_or_empty();
    let (id, CancelRequest {}) = reading.end(id.zip(body)).await?;
    let (service, operation) = (call.service(), Operation::Cancel { id });
    json(service.operate(&call.caller, operation, mode).await?)
}

/// Records a remark on a booking, in place of the one before it.
#[route(put, path = "/v1/bookings/{id}/note", tag = "bookings",
    params(("id" = String, Path, max_length = 128), DryRun),
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
    params(DryRun),
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
    params(ListBookings, Page, MinRecord),
    responses((status = 200, body = ListAnswer<Booking>), Refusals))]
async fn list_bookings(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let filter: ListBookings = reading.query();
    let (page, cursor) = reading.page();
    let filter = reading.end(Some(filter)).await?;
    let service = call.service();
    json(service.page(&call.caller, filter, page, cursor).await?)
}

/// Runs the operation that the body of a request describes.
async fn operate<T: Body>(call: Call, operation: fn(BookingId, T) -> Operation) -> Handled {
    let mut reading = call.reading();
    let (id, mode, request) = (reading.part("id"), reading.mode(), reading.body());
    let (id, request) = reading.end(id.zip(request)).await?;
    let service = call.service();
    json(
        service
            .operate(&call.caller, operation(id, request), mode)
            .await?,
    )
}
