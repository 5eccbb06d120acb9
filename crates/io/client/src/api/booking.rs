//! Bookings: what is asked, and what is answered.

use bursar_units::{BookingId, Label, vocabulary};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{integer, word};

pub use super::answer::Booking;
pub use bursar_booking::{End, Outcome, Priority};

/// What is asked for under an id: the body of `PUT /v1/bookings/{id}`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BookingRequest {
    /// What kind of execution it is; the seed's language.
    #[schema(value_type = String, min_length = 1, max_length = 128)]
    pub class: Label,
    /// Whom it counts for; may be left out by a caller who may act as one tenant only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 128)]
    pub tenant: Option<Label>,
    /// Units of admission.
    #[serde(default = "one", deserialize_with = "integer::required")]
    #[schema(default = 1, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub slots: u64,
    /// CPU charged to limits, in millicores.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub cpu_milli: Option<u64>,
    /// Memory charged to limits, in bytes.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub memory_bytes: Option<u64>,
    /// Whole GPUs charged to limits.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub gpus: Option<u64>,
    /// How long a grant lasts without renewal, in milliseconds.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(default = 60_000, minimum = 1_000, maximum = 86_400_000)]
    pub ttl_ms: Option<u64>,
    /// How long it may wait, in milliseconds; 0 refuses at once.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(default = 0, maximum = 9_007_199_254_740_991_u64)]
    pub wait_ms: Option<u64>,
    /// How urgent it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::Priority>, default = "normal")]
    pub priority: Option<Priority>,
    /// The execution it belongs to, where that is not the booking's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$")]
    pub execution_id: Option<BookingId>,
    /// CPU limit for the executor, in millicores; stored, charged to nothing.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub cpu_limit_milli: Option<u64>,
    /// Memory limit for the executor, in bytes; stored, charged to nothing.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub memory_limit_bytes: Option<u64>,
}

vocabulary! {
    /// Where a booking is in its life.
    pub enum State {
        /// It waits.
        Queued = "queued",
        /// It holds.
        Granted = "granted",
        /// It has ended.
        Ended = "ended",
    }
}

/// Shows life: the body of `POST /v1/bookings/{id}/renew`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewRequest {
    /// Proof that it is still the caller's.
    #[serde(deserialize_with = "integer::required")]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub fence: u64,
    /// For how long, in milliseconds; the booking's own ttl where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(minimum = 1_000, maximum = 86_400_000)]
    pub ttl_ms: Option<u64>,
}

/// Gives slots back: the body of `POST /v1/bookings/{id}/release`.
///
/// A holder sends `fence`; an operator without one sends `force` and `reason`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Proof that it is still the caller's.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub fence: Option<u64>,
    /// How the work went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::Outcome>)]
    pub outcome: Option<Outcome>,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True where an operator takes it back without the fence.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Why an operator takes it back; goes on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub reason: Option<String>,
}

/// Gives up a wait: the body, which may be empty, of `POST /v1/bookings/{id}/cancel`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRequest {}

impl BookingRequest {
    /// One slot of a class and nothing else; to be filled in.
    pub fn new(class: Label) -> Self {
        Self {
            class,
            tenant: None,
            slots: 1,
            cpu_milli: None,
            memory_bytes: None,
            gpus: None,
            ttl_ms: None,
            wait_ms: None,
            priority: None,
            execution_id: None,
            cpu_limit_milli: None,
            memory_limit_bytes: None,
        }
    }
}

pub(super) fn one() -> u64 {
    1
}
