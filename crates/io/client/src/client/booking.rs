//! Calls of the plane of bookings.

use std::time::Duration;

use bursar_units::{BookingId, ObjectName};
use http::{Method, header};

use super::calls::{Mode, call};
use super::{Client, Error, Query};
use crate::api::{
    ApplyAnswer, Booking, BookingRequest, CancelRequest, Execution, ExecutionRequest, GetBooking,
    GetExecution, Limit, ListAnswer, ListBookings, ListExecutions, NoteRequest, Page,
    ReleaseRequest, RenewRequest, Wait,
};

/// Bookings.
impl Client {
    /// Requests slots under an id. A repeat with the same id and request returns the present state.
    pub async fn reserve(
        &self,
        id: &BookingId,
        request: &BookingRequest,
        mode: Mode,
    ) -> Result<Booking, Error> {
        self.put(&format!("/v1/bookings/{id}"), &mode.query(), request)
            .await
    }

    /// Present state of a booking.
    pub async fn booking(&self, id: &BookingId) -> Result<Booking, Error> {
        self.get(&format!("/v1/bookings/{id}"), &Query::new()).await
    }

    /// State of a booking as soon as it no longer waits, or after `wait`.
    pub async fn booking_wait(&self, id: &BookingId, wait: Duration) -> Result<Booking, Error> {
        let query = Query::of(&GetBooking {
            fence: None,
            wait: Some(Wait(wait)),
        });
        self.get_waiting(&format!("/v1/bookings/{id}"), &query, wait)
            .await
    }

    /// Present state of a booking; `held` is true if the fence is its present one (S5).
    pub async fn booking_fence(&self, id: &BookingId, fence: u64) -> Result<Booking, Error> {
        let query = Query::of(&GetBooking {
            fence: Some(fence),
            wait: None,
        });
        self.get(&format!("/v1/bookings/{id}"), &query).await
    }

    /// Renews a grant.
    pub async fn renew(
        &self,
        id: &BookingId,
        request: &RenewRequest,
        mode: Mode,
    ) -> Result<Booking, Error> {
        self.post(&format!("/v1/bookings/{id}/renew"), &mode.query(), request)
            .await
    }

    /// Releases slots.
    pub async fn release(
        &self,
        id: &BookingId,
        request: &ReleaseRequest,
        mode: Mode,
    ) -> Result<Booking, Error> {
        self.post(
            &format!("/v1/bookings/{id}/release"),
            &mode.query(),
            request,
        )
        .await
    }

    /// Ends a wait.
    pub async fn cancel(&self, id: &BookingId, mode: Mode) -> Result<Booking, Error> {
        let path = format!("/v1/bookings/{id}/cancel");
        self.post(&path, &mode.query(), &CancelRequest {}).await
    }

    /// Records a remark in place of the one before it.
    pub async fn note(
        &self,
        id: &BookingId,
        request: &NoteRequest,
        mode: Mode,
    ) -> Result<Booking, Error> {
        self.put(&format!("/v1/bookings/{id}/note"), &mode.query(), request)
            .await
    }

    /// One page of bookings.
    pub async fn bookings(
        &self,
        filter: &ListBookings,
        page: &Page,
    ) -> Result<ListAnswer<Booking>, Error> {
        self.get("/v1/bookings", &Query::of(filter).and(page)).await
    }

    /// All bookings of a filter, from all pages.
    pub async fn all_bookings(&self, filter: &ListBookings) -> Result<ListAnswer<Booking>, Error> {
        self.all("/v1/bookings", &Query::of(filter)).await
    }
}

/// Executions.
impl Client {
    /// Submits a program under an id. A repeat with the same id and request returns the present state.
    pub async fn submit(
        &self,
        id: &BookingId,
        request: &ExecutionRequest,
        mode: Mode,
    ) -> Result<Execution, Error> {
        self.put(&format!("/v1/executions/{id}"), &mode.query(), request)
            .await
    }

    /// Present state of an execution.
    pub async fn execution(&self, id: &BookingId) -> Result<Execution, Error> {
        self.get(&format!("/v1/executions/{id}"), &Query::new())
            .await
    }

    /// State of an execution as soon as it changes, or after `wait`.
    pub async fn execution_wait(&self, id: &BookingId, wait: Duration) -> Result<Execution, Error> {
        let query = Query::of(&GetExecution {
            wait: Some(Wait(wait)),
        });
        self.get_waiting(&format!("/v1/executions/{id}"), &query, wait)
            .await
    }

    /// Stops an execution in any state.
    pub async fn cancel_execution(&self, id: &BookingId, mode: Mode) -> Result<Execution, Error> {
        let path = format!("/v1/executions/{id}/cancel");
        self.post(&path, &mode.query(), &CancelRequest {}).await
    }

    /// All executions of a filter, from all pages.
    pub async fn all_executions(
        &self,
        filter: &ListExecutions,
    ) -> Result<ListAnswer<Execution>, Error> {
        self.all("/v1/executions", &Query::of(filter)).await
    }
}

/// Limits.
impl Client {
    /// All limits.
    pub async fn limits(&self) -> Result<ListAnswer<Limit>, Error> {
        self.all("/v1/limits", &Query::new()).await
    }

    /// One limit.
    pub async fn limit(&self, name: &ObjectName) -> Result<Limit, Error> {
        self.get(&format!("/v1/limits/{name}"), &Query::new()).await
    }

    /// Declares one limit; with a `resourceVersion`, only if it is the present one.
    pub async fn put_limit(&self, limit: &Limit, mode: Mode) -> Result<ApplyAnswer, Error> {
        let path = format!("/v1/limits/{}", limit.metadata.name);
        let call = call(Method::PUT, &path, &mode.query()).json(limit);
        let call = match &limit.metadata.resource_version {
            Some(version) => call.header(header::IF_MATCH, version),
            None => call,
        };
        self.fetch(&call).await
    }

    /// Removes a limit.
    pub async fn delete_limit(&self, name: &ObjectName, mode: Mode) -> Result<ApplyAnswer, Error> {
        self.delete(&format!("/v1/limits/{name}"), &mode.query())
            .await
    }
}
