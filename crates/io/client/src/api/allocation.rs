//! A booking as an allocation: the form of the reservation repository that Bursar replaces.

use bursar_units::{BookingId, Instant, Label};
use serde::{Deserialize, Serialize};

use super::booking::{Booking, State};
use super::instant;
use crate::ToSchema;

/// A booking as an allocation.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// Id of the booking.
    #[schema(value_type = String)]
    pub allocation_id: BookingId,
    /// Execution that the booking belongs to; the booking's own id if the request named none.
    #[schema(value_type = String)]
    pub execution_id: BookingId,
    /// Class of the booking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub language: Option<Label>,
    /// Status.
    pub status: AllocationStatus,
    /// CPU charged, in millicores.
    pub cpu_request_milli: u64,
    /// Memory charged, in bytes.
    pub memory_request_bytes: u64,
    /// CPU limit for the executor, in millicores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit_milli: Option<u64>,
    /// Memory limit for the executor, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Time of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub allocated_at: Option<Instant>,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub released_at: Option<Instant>,
}

/// Status of an allocation.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllocationStatus {
    /// Granted.
    Active,
    /// Ended, for any reason.
    Released,
}

impl Allocation {
    /// Converts a booking. A queued booking gives `None`: allocations have no state for it.
    pub fn of(booking: &Booking) -> Option<Self> {
        let status = match booking.state {
            State::Queued => return None,
            State::Granted => AllocationStatus::Active,
            State::Ended => AllocationStatus::Released,
        };
        Some(Self {
            allocation_id: booking.id.clone(),
            execution_id: booking
                .execution_id
                .clone()
                .unwrap_or_else(|| booking.id.clone()),
            language: booking.class.clone(),
            status,
            cpu_request_milli: booking.cpu_milli.unwrap_or_default(),
            memory_request_bytes: booking.memory_bytes.unwrap_or_default(),
            cpu_limit_milli: booking.cpu_limit_milli,
            memory_limit_bytes: booking.memory_limit_bytes,
            allocated_at: booking.granted_at,
            released_at: booking.ended_at,
        })
    }
}
