//! The seed's repository, over the same calls (design 40).
//!
//! Its three operations keep their names and meaning; what is fixed is the life of a row: a
//! created allocation is renewed while this process lives, and comes back by itself after.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bursar_units::{BookingId, Label, NameError, quantity};
use thiserror::Error;
use tokio::time::Instant;

use crate::api::{Allocation, Booking, BookingRequest, Outcome, State};
use crate::client::{self, Client, Mode, Query};
use crate::problem::{Code, Problem};
use crate::slot::{self, RELEASE_WAIT, Repeats, Slot};

/// How an allocation is kept while it is held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Renewal {
    /// Renewed in the background while this process lives.
    Background,
    /// Held for 24 hours without renewal: for processes that end before their work does.
    Day,
}

/// What `create_allocation` is given, with quantities as Kubernetes writes them.
#[derive(Clone, Debug)]
pub struct NewAllocation<'a> {
    /// Its id; the seed uses the execution's.
    pub allocation_id: &'a str,
    /// The execution it belongs to.
    pub execution_id: &'a str,
    /// The class whose limit counts it.
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

/// Why an operation of the repository failed.
#[derive(Debug, Error)]
pub enum Error {
    /// A limit is reached.
    #[error("Resource limit exceeded: {0}")]
    Refused(Box<Problem>),
    /// A name that cannot be one.
    #[error("{field} {source}")]
    Name {
        /// Which argument.
        field: &'static str,
        /// Why.
        #[source]
        source: NameError,
    },
    /// A quantity that cannot be one.
    #[error("{field}: {source}")]
    Quantity {
        /// Which argument.
        field: &'static str,
        /// Why.
        #[source]
        source: quantity::Error,
    },
    /// The server refused for another reason, or could not be asked.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// It did not come to hold.
    #[error(transparent)]
    Slot(slot::Error),
}

/// The seed's repository.
#[derive(Debug)]
pub struct ResourceAllocationRepository {
    client: Client,
    tenant: Option<Label>,
    renewal: Renewal,
    held: Mutex<BTreeMap<BookingId, Slot>>,
}

/// The longest ttl (S7).
const DAY_MS: u64 = 86_400_000;

impl ResourceAllocationRepository {
    /// A repository for a tenant; without one, the caller's only one.
    pub fn new(client: Client, tenant: Option<Label>, renewal: Renewal) -> Self {
        Self {
            client,
            tenant,
            renewal,
            held: Mutex::default(),
        }
    }

    /// How many allocations of a language are active.
    pub async fn count_active(&self, language: &str) -> Result<u64, Error> {
        let query = Query::new()
            .with("class", language)
            .with("state", State::Granted.word());
        let bookings = self.client.all_bookings(&query).await?;
        Ok(u64::try_from(bookings.items.len()).unwrap_or(u64::MAX))
    }

    /// Creates an allocation, or refuses at once where the limit is reached.
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

    /// Releases an allocation; one that has ended already stays as it ended.
    ///
    /// One that this repository renewed and lost meanwhile is [`slot::Error::Fenced`]. A release
    /// is repeated as [`Slot::release`] does; of one that is not renewed here the deadline is not
    /// known, so its release is repeated for [`RELEASE_WAIT`] and not in the background.
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

    /// A booking; a server that is away is asked again.
    async fn look(&self, id: &BookingId, repeats: &mut Repeats) -> Result<Booking, client::Error> {
        loop {
            match self.client.booking(id).await {
                Err(error) if !slot::is_refusal(&error) && repeats.again().await => {}
                answer => return answer,
            }
        }
    }

    /// The allocation that a booking is. What was done before stays done, so a server that goes
    /// away now is waited for.
    async fn find(&self, id: &BookingId) -> Result<Allocation, Error> {
        let mut repeats = Repeats::until(Instant::now() + RELEASE_WAIT);
        let booking = self.look(id, &mut repeats).await?;
        let waits = || {
            self.client
                .protocol(format!("allocation {id} waits though told not to"))
        };
        Ok(Allocation::of(&booking).ok_or_else(waits)?)
    }

    fn request(&self, id: &BookingId, new: &NewAllocation<'_>) -> Result<BookingRequest, Error> {
        let class = Label::new(new.language).map_err(|source| Error::Name {
            field: "language",
            source,
        })?;
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

/// The seed's word for what a full limit says.
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
