//! Drop-in replacement of a resource allocation repository over a database table.
//!
//! Its three operations keep their names and meaning. Unlike a row of a table, an allocation is
//! renewed while this process lives, and its slots become free after the process ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bursar_units::{BookingId, Label, NameError, quantity};
use thiserror::Error;
use tokio::time::Instant;

use crate::api::{Allocation, Booking, BookingRequest, ListBookings, Outcome, State};
use crate::client::{self, Client, Mode};
use crate::problem::{Code, Problem};
use crate::slot::{self, RELEASE_WAIT, Repeats, Slot};

/// Renewal of allocations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Renewal {
    /// Renewed in the background while this process lives.
    Background,
    /// Held for 24 hours without renewal: for processes that end before their work does.
    Day,
}

/// Arguments of `create_allocation`, with Kubernetes quantities.
#[derive(Clone, Debug)]
pub struct NewAllocation<'a> {
    /// Id; usually that of the execution.
    pub allocation_id: &'a str,
    /// Execution that it belongs to.
    pub execution_id: &'a str,
    /// Class whose limit counts it.
    pub language: &'a str,
    /// CPU charged, as in `100m`.
    pub cpu_request: &'a str,
    /// Memory charged, as in `128Mi`.
    pub memory_request: &'a str,
    /// CPU limit for the executor, as in `500m`.
    pub cpu_limit: &'a str,
    /// Memory limit for the executor, as in `256Mi`.
    pub memory_limit: &'a str,
}

/// Error of an operation of the repository.
#[derive(Debug, Error)]
pub enum Error {
    /// A limit is reached.
    #[error("Resource limit exceeded: {0}")]
    Refused(Box<Problem>),
    /// An argument is not a valid name.
    #[error("{field} {source}")]
    Name {
        /// Name of the argument.
        field: &'static str,
        /// Cause.
        #[source]
        source: NameError,
    },
    /// An argument is not a quantity.
    #[error("{field}: {source}")]
    Quantity {
        /// Name of the argument.
        field: &'static str,
        /// Cause.
        #[source]
        source: quantity::Error,
    },
    /// The server refused for another reason, or did not answer.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The slot was not granted, or was lost.
    #[error(transparent)]
    Slot(slot::Error),
}

/// Repository of allocations.
#[derive(Debug)]
pub struct ResourceAllocationRepository {
    client: Client,
    tenant: Option<Label>,
    renewal: Renewal,
    held: Mutex<BTreeMap<BookingId, Slot>>,
}

const DAY_MS: u64 = 86_400_000;

impl ResourceAllocationRepository {
    /// Repository of a tenant; without one, that of the caller's only tenant.
    pub fn new(client: Client, tenant: Option<Label>, renewal: Renewal) -> Self {
        Self {
            client,
            tenant,
            renewal,
            held: Mutex::default(),
        }
    }

    /// Number of active allocations of a language.
    pub async fn count_active(&self, language: &str) -> Result<u64, Error> {
        let filter = ListBookings {
            class: Some(class(language)?),
            state: Some([State::Granted].into()),
            ..ListBookings::default()
        };
        let bookings = self.client.all_bookings(&filter).await?;
        Ok(u64::try_from(bookings.items.len()).unwrap_or(u64::MAX))
    }

    /// Creates an allocation, or refuses at once if the limit is reached.
    pub async fn create_allocation(&self, new: &NewAllocation<'_>) -> Result<Allocation, Error> {
        let id = booking_id("allocation_id", new.allocation_id)?;
        let request = self.request(&id, new)?;
        match self.renewal {
            Renewal::Background => {
                let slot = Slot::reserve_as(&self.client, &id, &request)
                    .await
                    .map_err(refused)?;
                self.held().insert(id.clone(), slot);
            }
            Renewal::Day => {
                let reserved = self.client.reserve(&id, &request, Mode::Do).await;
                reserved.map_err(|error| refused(error.into()))?;
            }
        }
        self.find(&id).await
    }

    /// Releases an allocation. An allocation that has ended stays unchanged.
    ///
    /// The error of an allocation that this repository renewed and lost is [`slot::Error::Fenced`].
    /// A release is repeated like [`Slot::release`]. If the allocation is not renewed here, its
    /// deadline is unknown: the release is repeated for [`RELEASE_WAIT`], not in the background.
    pub async fn release_allocation(&self, allocation_id: &str) -> Result<Allocation, Error> {
        let id = booking_id("allocation_id", allocation_id)?;
        let slot = self.held().remove(&id);
        if let Some(slot) = slot {
            slot.release(Outcome::Ok, None).await.map_err(refused)?;
        } else {
            self.release_by_id(&id).await?;
        }
        self.find(&id).await
    }

    async fn release_by_id(&self, id: &BookingId) -> Result<(), client::Error> {
        let mut repeats = Repeats::until(Instant::now() + RELEASE_WAIT);
        let booking = self.look(id, &mut repeats).await?;
        if let (State::Granted, Some(fence)) = (booking.state, booking.fence) {
            let request = slot::with_fence(fence);
            repeats.release(&self.client, id, &request).await?;
        }
        Ok(())
    }

    /// Reads a booking, with repeats while the server is not available.
    async fn look(&self, id: &BookingId, repeats: &mut Repeats) -> Result<Booking, client::Error> {
        loop {
            match self.client.booking(id).await {
                Err(error) if !slot::is_refusal(&error) && repeats.again().await => {}
                answer => return answer,
            }
        }
    }

    /// Reads an allocation after a change. The change is done, so an unavailable server is waited
    /// for.
    async fn find(&self, id: &BookingId) -> Result<Allocation, Error> {
        let mut repeats = Repeats::until(Instant::now() + RELEASE_WAIT);
        let booking = self.look(id, &mut repeats).await?;
        let waits = || {
            self.client.protocol(format!(
                "allocation {id} is queued although its request does not wait"
            ))
        };
        Ok(Allocation::of(&booking).ok_or_else(waits)?)
    }

    fn request(&self, id: &BookingId, new: &NewAllocation<'_>) -> Result<BookingRequest, Error> {
        let class = class(new.language)?;
        let execution = booking_id("execution_id", new.execution_id)?;
        Ok(BookingRequest {
            tenant: self.tenant.clone(),
            cpu_milli: Some(amount("cpu_request", new.cpu_request, quantity::cpu_milli)?),
            memory_bytes: Some(amount(
                "memory_request",
                new.memory_request,
                quantity::memory_bytes,
            )?),
            cpu_limit_milli: Some(amount("cpu_limit", new.cpu_limit, quantity::cpu_milli)?),
            memory_limit_bytes: Some(amount(
                "memory_limit",
                new.memory_limit,
                quantity::memory_bytes,
            )?),
            ttl_ms: (self.renewal == Renewal::Day).then_some(DAY_MS),
            wait_ms: Some(0),
            execution_id: (execution != *id).then_some(execution),
            ..BookingRequest::new(class)
        })
    }

    fn held(&self) -> std::sync::MutexGuard<'_, BTreeMap<BookingId, Slot>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn class(language: &str) -> Result<Label, Error> {
    Label::new(language).map_err(|source| Error::Name {
        field: "language",
        source,
    })
}

fn booking_id(field: &'static str, text: &str) -> Result<BookingId, Error> {
    BookingId::new(text).map_err(|source| Error::Name { field, source })
}

fn amount(
    field: &'static str,
    text: &str,
    read: fn(&str) -> Result<u64, quantity::Error>,
) -> Result<u64, Error> {
    read(text).map_err(|source| Error::Quantity { field, source })
}

/// Maps refusals by a full limit to [`Error::Refused`].
fn refused(error: slot::Error) -> Error {
    match error {
        slot::Error::Client(client::Error::Problem(problem))
            if matches!(problem.code, Code::OverLimit | Code::NeverFits) =>
        {
            Error::Refused(problem)
        }
        slot::Error::Client(error) => Error::Client(error),
        error => Error::Slot(error),
    }
}
