//! The seed's view of a booking (design 40, the seed's repository).

use bursar_units::{BookingId, Instant, Label};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::booking::{Booking, State};
use super::instant;

/// A booking in the seed's words.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// The booking's id.
    #[schema(value_type = String)]
    pub allocation_id: BookingId,
    /// The execution it belongs to; the booking's own id where none was named.
    #[schema(value_type = String)]
    pub execution_id: BookingId,
    /// The booking's class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub language: Option<Label>,
    /// Whether it still counts.
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
    /// When it was granted.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub allocated_at: Option<Instant>,
    /// When it ended.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub released_at: Option<Instant>,
}

/// The seed's two states.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllocationStatus {
    /// Granted.
    Active,
    /// Ended, however it did.
    Released,
}

impl Allocation {
    /// The seed's view; `None` of a booking that waits, which the seed does not know.
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
