//! Requests and answers about bookings.

pub(super) mod answer;
pub mod batch;
pub mod query;

use bursar_units::{BookingId, Label, vocabulary};
use serde::{Deserialize, Serialize};

use super::body::{ID, LABEL, OUTCOME, PRIORITY, SLOTS, TTL, note_text, reason_of_force};
use super::fields::object;
use super::integer;
use crate::ToSchema;
use crate::shape::{Shape, WHOLE};

pub use answer::Booking;
pub use bursar_booking::{End, Outcome, Priority};

object! {
    /// Request for a booking: the body of `PUT /v1/bookings/{id}`.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct BookingRequest {
        /// Kind of execution, for example a language.
        #[schema(value_type = String, min_length = 1, max_length = 128)]
        required class "class": Label = LABEL;
        /// Tenant that the booking counts for; optional for a caller who may act as one tenant only.
        #[schema(value_type = Option<String>, min_length = 1, max_length = 128)]
        optional tenant "tenant": Label = LABEL;
        /// Units of admission.
        #[serde(default = "one", deserialize_with = "integer::required")]
        #[schema(default = 1, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
        defaulted slots "slots": u64 = SLOTS, one();
        /// CPU charged to limits, in millicores.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional cpu_milli "cpuMilli": u64 = WHOLE;
        /// Memory charged to limits, in bytes.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional memory_bytes "memoryBytes": u64 = WHOLE;
        /// Whole GPUs charged to limits.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional gpus "gpus": u64 = WHOLE;
        /// Duration of a grant without renewal, in milliseconds.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 60_000, minimum = 1_000, maximum = 86_400_000)]
        optional ttl_ms "ttlMs": u64 = TTL;
        /// Maximum wait, in milliseconds; 0 means: refuse at once.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 0, maximum = 9_007_199_254_740_991_u64)]
        optional wait_ms "waitMs": u64 = WHOLE;
        /// Priority in the queue.
        #[schema(value_type = Option<crate::api::word::Priority>, default = "normal")]
        optional priority "priority": Priority = PRIORITY;
        /// Execution that the booking belongs to, if it is not the booking's own id.
        #[schema(value_type = Option<String>, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$")]
        optional execution_id "executionId": BookingId = ID;
        /// CPU limit for the executor, in millicores; stored, not charged to any limit.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional cpu_limit_milli "cpuLimitMilli": u64 = WHOLE;
        /// Memory limit for the executor, in bytes; stored, not charged to any limit.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional memory_limit_bytes "memoryLimitBytes": u64 = WHOLE;
    }
}

vocabulary! {
    /// State of a booking.
    pub enum State {
        /// The booking waits for its slots.
        Queued = "queued",
        /// The booking holds its slots.
        Granted = "granted",
        /// The booking has ended.
        Ended = "ended",
    }
}

object! {
    /// Renewal of a grant: the body of `POST /v1/bookings/{id}/renew`.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RenewRequest {
        /// Proof that the caller still holds the booking.
        #[serde(deserialize_with = "integer::required")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        required fence "fence": u64 = WHOLE;
        /// Duration of the renewed grant, in milliseconds; the booking's own ttl if absent.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(minimum = 1_000, maximum = 86_400_000)]
        optional ttl_ms "ttlMs": u64 = TTL;
    }
}

object! {
    /// Release of slots: the body of `POST /v1/bookings/{id}/release`.
    ///
    /// A holder sends `fence`; an operator without one sends `force` and `reason`.
    #[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ReleaseRequest {
        /// Proof that the caller still holds the booking.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional fence "fence": u64 = WHOLE;
        /// Outcome of the work.
        #[schema(value_type = Option<crate::api::word::Outcome>)]
        optional outcome "outcome": Outcome = OUTCOME;
        /// Exit code of the work.
        optional exit_code "exitCode": i32 = Shape::Signed32;
        /// True if an operator releases the booking without its fence.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        defaulted force "force": bool = Shape::Bool, false;
        /// Reason of a forced release; it is recorded.
        #[schema(max_length = 1024)]
        optional reason "reason": String = Shape::Text(reason_of_force);
    }
}

object! {
    /// Remark on a booking: the body of `PUT /v1/bookings/{id}/note`.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct NoteRequest {
        /// The remark; it is recorded in clear.
        #[schema(min_length = 1, max_length = 200)]
        required text "text": String = Shape::Text(note_text);
    }
}

/// End of a wait: the body of `POST /v1/bookings/{id}/cancel`, which may be empty.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRequest {}

pub(super) fn one() -> u64 {
    1
}
