//! Bookings: what is asked, and what is answered.

use bursar_units::{BookingId, Instant, Label, vocabulary};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::execution::Course;
use super::{instant, integer, word};

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

/// A booking as answered.
///
/// Answers to writes carry what the write decided; `GET` and lists carry all that is known. The
/// fence is told only to callers who may act as the tenant.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Booking {
    /// The client's name for it.
    #[schema(value_type = String)]
    pub id: BookingId,
    /// Where it is in its life.
    #[schema(value_type = word::State)]
    pub state: State,
    /// The number that proves it is still yours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// What kind of execution it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub class: Option<Label>,
    /// Whom it counts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tenant: Option<Label>,
    /// Units of admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,
    /// CPU charged, in millicores; absent where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u64>,
    /// Memory charged, in bytes; absent where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// GPUs charged; absent where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u64>,
    /// How urgent it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::Priority>)]
    pub priority: Option<Priority>,
    /// How long a grant lasts without renewal, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The execution it belongs to, where that is not the booking's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub execution_id: Option<BookingId>,
    /// CPU limit for the executor, in millicores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit_milli: Option<u64>,
    /// Memory limit for the executor, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// When it was asked for.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub queued_at: Option<Instant>,
    /// When it was granted.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub granted_at: Option<Instant>,
    /// When it ends unless the holder renews.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Instant>,
    /// Until when it waits.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub wait_until: Option<Instant>,
    /// When it ended.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Instant>,
    /// How often the ledger has recorded that its holder lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewals: Option<u64>,
    /// How many of its class come before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// In about how many milliseconds it may be granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_ms: Option<u64>,
    /// What the estimate rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rests_on: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::End>)]
    pub end: Option<End>,
    /// What the holder said of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::Outcome>)]
    pub outcome: Option<Outcome>,
    /// The exit code of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why an operator took it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How it goes, if it is an execution: the booking of the same id tells its slots only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Box<Course>>,
    /// Whether this release or cancel had an effect; a repeat has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<bool>,
    /// Whether the fence that was asked about is the present one of a granted booking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// The last ledger record this answer reflects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<u64>,
    /// True where nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
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

impl Booking {
    /// A booking of which nothing is told but where it is; to be filled in.
    pub fn new(id: BookingId, state: State) -> Self {
        Self {
            id,
            state,
            fence: None,
            class: None,
            tenant: None,
            slots: None,
            cpu_milli: None,
            memory_bytes: None,
            gpus: None,
            priority: None,
            ttl_ms: None,
            execution_id: None,
            cpu_limit_milli: None,
            memory_limit_bytes: None,
            queued_at: None,
            granted_at: None,
            expires_at: None,
            wait_until: None,
            ended_at: None,
            renewals: None,
            ahead: None,
            estimate_ms: None,
            rests_on: None,
            end: None,
            outcome: None,
            exit_code: None,
            reason: None,
            execution: None,
            applied: None,
            held: None,
            record: None,
            dry_run: None,
        }
    }
}

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
