//! `/v1/bookings`.

use std::collections::BTreeSet;
use std::time::Duration;

use bursar_client::Problem;
use bursar_client::api::{
    Batch, BatchAnswer, Booking, BookingRequest, CancelRequest, ListAnswer, Operation,
    ReleaseRequest, RenewRequest, State as BookingState,
};
use bursar_units::{BookingId, Label, Millis};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::call::Call;
use super::query::Parameters;
use super::respond::{Handled, json};
use crate::service::{BookingFilter, LONG_POLL_MAX, LookAt};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_bookings, batch_bookings))
        .routes(routes!(get_booking, reserve_booking))
        .routes(routes!(renew_booking))
        .routes(routes!(release_booking))
        .routes(routes!(cancel_booking))
}

/// Asks for slots under an id.
///
/// The same id and body again answers with the present state of that booking.
#[utoipa::path(
    put, path = "/v1/bookings/{id}", tag = "bookings",
    params(("id" = String, Path, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$"),
           ("dryRun" = Option<bool>, Query, description = "Answer what would happen and change nothing")),
    request_body = BookingRequest,
    responses((status = 201, body = Booking, description = "Granted"),
              (status = 202, body = Booking, description = "It waits"),
              (status = 200, body = Booking, description = "It was asked for before; this is its present state"),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")),
)]
async fn reserve_booking(call: Call) -> Handled {
    call.query.only(&["dryRun"])?;
    let operation = Operation::Reserve {
        id: call.name("id")?,
        request: call.body_for_tenant::<BookingRequest>()?,
    };
    json(
        call.service()
            .operate(&call.caller, operation, call.mode()?)
            .await?,
    )
}

/// How a booking stands.
#[utoipa::path(
    get, path = "/v1/bookings/{id}", tag = "bookings",
    params(("id" = String, Path, max_length = 128),
           ("fence" = Option<u64>, Query, description = "Ask whether this is the present fence: `held`"),
           ("wait" = Option<String>, Query, description = "Wait so long, as in `30s`, for a queued booking to change; at most 5m"),
           ("minRecord" = Option<u64>, Query, description = "Wait until this record is reflected")),
    responses((status = 200, body = Booking),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")),
)]
async fn get_booking(call: Call) -> Handled {
    let mut query = call.query.parameters(&["fence", "wait", "minRecord"]);
    let look_at = LookAt {
        fence: query.read("fence"),
        wait: wait(&mut query),
    };
    query.end()?;
    let id: BookingId = call.name("id")?;
    let looked = call.service().booking(&call.caller, &id, look_at);
    json(call.hold(looked).await?)
}

/// Shows that the holder lives. Answered at once; the ledger notes it when the deadline comes.
#[utoipa::path(
    post, path = "/v1/bookings/{id}/renew", tag = "bookings",
    params(("id" = String, Path, max_length = 128), ("dryRun" = Option<bool>, Query)),
    request_body = RenewRequest,
    responses((status = 200, body = Booking),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")),
)]
async fn renew_booking(call: Call) -> Handled {
    call.query.only(&["dryRun"])?;
    let operation = Operation::Renew {
        id: call.name("id")?,
        request: call.body::<RenewRequest>()?,
    };
    json(
        call.service()
            .operate(&call.caller, operation, call.mode()?)
            .await?,
    )
}

/// Gives slots back. A repeat has no effect and is no problem: `applied` is false.
#[utoipa::path(
    post, path = "/v1/bookings/{id}/release", tag = "bookings",
    params(("id" = String, Path, max_length = 128), ("dryRun" = Option<bool>, Query)),
    request_body = ReleaseRequest,
    responses((status = 200, body = Booking),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")),
)]
async fn release_booking(call: Call) -> Handled {
    call.query.only(&["dryRun"])?;
    let operation = Operation::Release {
        id: call.name("id")?,
        request: call.body::<ReleaseRequest>()?,
    };
    json(
        call.service()
            .operate(&call.caller, operation, call.mode()?)
            .await?,
    )
}

/// Gives up a wait, or has an execution stopped.
#[utoipa::path(
    post, path = "/v1/bookings/{id}/cancel", tag = "bookings",
    params(("id" = String, Path, max_length = 128), ("dryRun" = Option<bool>, Query)),
    request_body = Option<CancelRequest>,
    responses((status = 200, body = Booking),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")),
)]
async fn cancel_booking(call: Call) -> Handled {
    call.query.only(&["dryRun"])?;
    call.body_or_empty::<CancelRequest>()?;
    let operation = Operation::Cancel {
        id: call.name("id")?,
    };
    json(
        call.service()
            .operate(&call.caller, operation, call.mode()?)
            .await?,
    )
}

/// Independent operations, decided in order, one result each. A batch is not atomic.
#[utoipa::path(
    post, path = "/v1/bookings", tag = "bookings",
    params(("dryRun" = Option<bool>, Query)),
    request_body = Batch,
    responses((status = 200, body = BatchAnswer),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")),
)]
async fn batch_bookings(call: Call) -> Handled {
    call.query.only(&["dryRun"])?;
    let batch: Batch = call.body()?;
    json(
        call.service()
            .batch(&call.caller, batch, call.mode()?)
            .await?,
    )
}

/// Bookings that the caller may see: those that live by id, then those that ended, newest first.
#[utoipa::path(
    get, path = "/v1/bookings", tag = "bookings",
    params(("class" = Option<String>, Query), ("language" = Option<String>, Query, description = "The seed's word for `class`"),
           ("tenant" = Option<String>, Query),
           ("state" = Option<String>, Query, description = "`queued`, `granted`, `ended`, or several with commas"),
           ("status" = Option<String>, Query, description = "The seed's word for states: `active` or `released`"),
           ("id" = Option<String>, Query), ("execution" = Option<String>, Query),
           ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000), ("cursor" = Option<String>, Query),
           ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = ListAnswer<Booking>),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")),
)]
async fn list_bookings(call: Call) -> Handled {
    let mut query = call.query.parameters(&[
        "class",
        "language",
        "tenant",
        "state",
        "status",
        "id",
        "execution",
        "limit",
        "cursor",
        "minRecord",
    ]);
    let class: Option<Label> = query.read("class");
    let language = query.read("language");
    if class.is_some() && language.is_some() && class != language {
        query.mistake("language", "is an alias of `class`; the two differ");
    }
    let filter = BookingFilter {
        class: class.or(language),
        tenant: query.read("tenant"),
        states: states(&mut query),
        id: query.read("id"),
        execution: query.read("execution"),
    };
    let page = query.page();
    query.end()?;
    let listed = call
        .service()
        .bookings(&call.caller, filter, page, call.query.get("cursor"))
        .await?;
    json(listed)
}

/// How long a look may wait for what it looks at to change.
pub(super) fn wait(query: &mut Parameters<'_>) -> Option<Duration> {
    let wait: Option<Millis> = query.read("wait");
    let wait = wait.map(|wait| Duration::from_millis(wait.ms()));
    if wait.is_some_and(|wait| wait > LONG_POLL_MAX) {
        query.mistake("wait", "is too long, at most 5m is allowed");
    }
    wait
}

/// The states that are wanted, in our words or the seed's.
fn states(query: &mut Parameters<'_>) -> BTreeSet<BookingState> {
    let all = [
        BookingState::Queued,
        BookingState::Granted,
        BookingState::Ended,
    ];
    let mut wanted = query.chosen("state", &all.map(|state| (state.word(), state)));
    match query.text("status") {
        None => {}
        Some("active") => drop(wanted.insert(BookingState::Granted)),
        Some("released") => drop(wanted.insert(BookingState::Ended)),
        Some(_) => query.mistake("status", "is neither `active` nor `released`"),
    }
    wanted
}
