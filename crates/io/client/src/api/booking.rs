//! Bookings: what is asked, and what is answered.

pub(super) mod answer;
pub mod batch;

use bursar_units::{BookingId, Label, vocabulary};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{ID, LABEL, OUTCOME, PRIORITY, SLOTS, TTL, reason_of_force};
use super::fields::object;
use super::{integer, word};
use crate::shape::{Shape, WHOLE};

pub use answer::Booking;
pub use bursar_booking::{End, Outcome, Priority};

object! {
    /// What is asked for under an id: the body of `PUT /v1/bookings/{id}`.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct BookingRequest {
        /// What kind of execution it is; the seed's language.
        #[schema(value_type = String, min_length = 1, max_length = 128)]
        required class "class": Label = LABEL;
        /// Whom it counts for; may be left out by a caller who may act as one tenant only.
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
        /// How long a grant lasts without renewal, in milliseconds.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 60_000, minimum = 1_000, maximum = 86_400_000)]
        optional ttl_ms "ttlMs": u64 = TTL;
        /// How long it may wait, in milliseconds; 0 refuses at once.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 0, maximum = 9_007_199_254_740_991_u64)]
        optional wait_ms "waitMs": u64 = WHOLE;
        /// How urgent it is.
        #[schema(value_type = Option<word::Priority>, default = "normal")]
        optional priority "priority": Priority = PRIORITY;
        /// The execution it belongs to, where that is not the booking's own id.
        #[schema(value_type = Option<String>, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$")]
        optional execution_id "executionId": BookingId = ID;
        /// CPU limit for the executor, in millicores; stored, charged to nothing.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional cpu_limit_milli "cpuLimitMilli": u64 = WHOLE;
        /// Memory limit for the executor, in bytes; stored, charged to nothing.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional memory_limit_bytes "memoryLimitBytes": u64 = WHOLE;
    }
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

object! {
    /// Shows life: the body of `POST /v1/bookings/{id}/renew`.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RenewRequest {
        /// Proof that it is still the caller's.
        #[serde(deserialize_with = "integer::required")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        required fence "fence": u64 = WHOLE;
        /// For how long, in milliseconds; the booking's own ttl where absent.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(minimum = 1_000, maximum = 86_400_000)]
        optional ttl_ms "ttlMs": u64 = TTL;
    }
}

object! {
    /// Gives slots back: the body of `POST /v1/bookings/{id}/release`.
    ///
    /// A holder sends `fence`; an operator without one sends `force` and `reason`.
    #[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ReleaseRequest {
        /// Proof that it is still the caller's.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional fence "fence": u64 = WHOLE;
        /// How the work went.
        #[schema(value_type = Option<word::Outcome>)]
        optional outcome "outcome": Outcome = OUTCOME;
        /// Its exit code.
        optional exit_code "exitCode": i32 = Shape::Signed32;
        /// True where an operator takes it back without the fence.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        defaulted force "force": bool = Shape::Bool, false;
        /// Why an operator takes it back; goes on record.
        #[schema(max_length = 1024)]
        optional reason "reason": String = Shape::Text(reason_of_force);
    }
}

/// Gives up a wait: the body, which may be empty, of `POST /v1/bookings/{id}/cancel`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRequest {}

pub(super) fn one() -> u64 {
    1
}
