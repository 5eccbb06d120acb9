//! Batches: independent operations, decided in order, one result each (design 40, S8).

use bursar_units::{BookingId, Label, vocabulary};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Booking, BookingRequest, Outcome, Priority, ReleaseRequest, RenewRequest};
use crate::api::fields::Fields;
use crate::api::{integer, word};
use crate::problem::{FieldError, Problem};
use crate::shape::{Case, Field};

/// The body of `POST /v1/bookings`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Batch {
    /// At most 1,024 of them. They are independent: a batch is not atomic.
    #[schema(max_items = 1024, value_type = Vec<FlatOperation>)]
    pub operations: Vec<Operation>,
}

/// One operation of a batch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Fields<FlatOperation>", into = "FlatOperation")]
pub enum Operation {
    /// As `PUT /v1/bookings/{id}`.
    Reserve {
        /// Which booking.
        id: BookingId,
        /// What is asked.
        request: BookingRequest,
    },
    /// As `POST /v1/bookings/{id}/renew`.
    Renew {
        /// Which booking.
        id: BookingId,
        /// The proof, and for how long.
        request: RenewRequest,
    },
    /// As `POST /v1/bookings/{id}/release`.
    Release {
        /// Which booking.
        id: BookingId,
        /// The proof, and how it went.
        request: ReleaseRequest,
    },
    /// As `POST /v1/bookings/{id}/cancel`.
    Cancel {
        /// Which booking.
        id: BookingId,
    },
}

/// The answer to a batch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// One each, in order.
    pub results: Vec<BatchResult>,
    /// The last ledger record this answer reflects.
    pub record: u64,
    /// True where nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// What one operation came to.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchResult {
    /// It was done.
    Done(BatchDone),
    /// It was refused.
    Refused(BatchRefused),
}

/// An operation that was done.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchDone {
    /// The HTTP status that the operation alone would have had.
    pub status: u16,
    /// The booking.
    #[serde(flatten)]
    pub booking: Booking,
}

/// An operation that was refused.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchRefused {
    /// Which booking.
    #[schema(value_type = String)]
    pub id: BookingId,
    /// Why.
    #[serde(flatten)]
    pub problem: Problem,
}

/// An operation as it travels: one flat object, of which each kind uses a part.
///
/// Serde's tagged enums would read every operation into a tree first; this is read straight.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Operation)]
pub struct FlatOperation {
    #[schema(value_type = word::Kind)]
    op: OperationKind,
    #[schema(value_type = String)]
    id: BookingId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    class: Option<Label>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    tenant: Option<Label>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    slots: Option<u64>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    cpu_milli: Option<u64>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    memory_bytes: Option<u64>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    gpus: Option<u64>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    ttl_ms: Option<u64>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    wait_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::Priority>)]
    priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    execution_id: Option<BookingId>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    cpu_limit_milli: Option<u64>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    memory_limit_bytes: Option<u64>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    fence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::Outcome>)]
    outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    force: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

vocabulary! {
    /// The four operations.
    pub(crate) enum OperationKind {
        /// Asks for slots.
        Reserve = "reserve",
        /// Shows life.
        Renew = "renew",
        /// Gives slots back.
        Release = "release",
        /// Gives up a wait.
        Cancel = "cancel",
    }
}

impl OperationKind {
    /// The fields of such an operation beside `op` and `id`: those of the request of its own.
    pub(crate) const fn fields(self) -> &'static [Field] {
        match self {
            Self::Reserve => BookingRequest::FIELDS,
            Self::Renew => RenewRequest::FIELDS,
            Self::Release => ReleaseRequest::FIELDS,
            Self::Cancel => &[],
        }
    }

    /// Its word and its fields.
    pub(crate) const fn case(self) -> Case {
        (self.word(), self.fields())
    }
}

impl Operation {
    /// The booking it names.
    pub fn id(&self) -> &BookingId {
        match self {
            Self::Reserve { id, .. }
            | Self::Renew { id, .. }
            | Self::Release { id, .. }
            | Self::Cancel { id } => id,
        }
    }

    /// What is wrong although every field has the right kind.
    pub fn mistakes(&self) -> Vec<FieldError> {
        match self {
            Self::Reserve { request, .. } => request.mistakes(),
            Self::Renew { request, .. } => request.mistakes(),
            Self::Release { request, .. } => request.mistakes(),
            Self::Cancel { .. } => Vec::new(),
        }
    }
}

impl FlatOperation {
    fn empty(op: OperationKind, id: BookingId) -> Self {
        Self {
            op,
            id,
            class: None,
            tenant: None,
            slots: None,
            cpu_milli: None,
            memory_bytes: None,
            gpus: None,
            ttl_ms: None,
            wait_ms: None,
            priority: None,
            execution_id: None,
            cpu_limit_milli: None,
            memory_limit_bytes: None,
            fence: None,
            outcome: None,
            exit_code: None,
            force: false,
            reason: None,
        }
    }

    /// The first field that is there though this kind of operation has no use for it.
    fn stray(&self) -> Option<&'static str> {
        let present = [
            ("class", self.class.is_some()),
            ("tenant", self.tenant.is_some()),
            ("slots", self.slots.is_some()),
            ("cpuMilli", self.cpu_milli.is_some()),
            ("memoryBytes", self.memory_bytes.is_some()),
            ("gpus", self.gpus.is_some()),
            ("ttlMs", self.ttl_ms.is_some()),
            ("waitMs", self.wait_ms.is_some()),
            ("priority", self.priority.is_some()),
            ("executionId", self.execution_id.is_some()),
            ("cpuLimitMilli", self.cpu_limit_milli.is_some()),
            ("memoryLimitBytes", self.memory_limit_bytes.is_some()),
            ("fence", self.fence.is_some()),
            ("outcome", self.outcome.is_some()),
            ("exitCode", self.exit_code.is_some()),
            ("force", self.force),
            ("reason", self.reason.is_some()),
        ];
        let fields = self.op.fields();
        present
            .into_iter()
            .filter(|(_, is_present)| *is_present)
            .map(|(name, _)| name)
            .find(|name| fields.iter().all(|field| field.name != *name))
    }
}

impl TryFrom<Fields<FlatOperation>> for Operation {
    type Error = String;

    fn try_from(Fields(flat): Fields<FlatOperation>) -> Result<Self, String> {
        if let Some(field) = flat.stray() {
            return Err(format!("{field} is not a field of this operation"));
        }
        let id = flat.id;
        Ok(match flat.op {
            OperationKind::Reserve => Self::Reserve {
                id,
                request: BookingRequest {
                    class: flat.class.ok_or("class is missing")?,
                    tenant: flat.tenant,
                    slots: flat.slots.unwrap_or(1),
                    cpu_milli: flat.cpu_milli,
                    memory_bytes: flat.memory_bytes,
                    gpus: flat.gpus,
                    ttl_ms: flat.ttl_ms,
                    wait_ms: flat.wait_ms,
                    priority: flat.priority,
                    execution_id: flat.execution_id,
                    cpu_limit_milli: flat.cpu_limit_milli,
                    memory_limit_bytes: flat.memory_limit_bytes,
                },
            },
            OperationKind::Renew => Self::Renew {
                id,
                request: RenewRequest {
                    fence: flat.fence.ok_or("fence is missing")?,
                    ttl_ms: flat.ttl_ms,
                },
            },
            OperationKind::Release => Self::Release {
                id,
                request: ReleaseRequest {
                    fence: flat.fence,
                    outcome: flat.outcome,
                    exit_code: flat.exit_code,
                    force: flat.force,
                    reason: flat.reason,
                },
            },
            OperationKind::Cancel => Self::Cancel { id },
        })
    }
}

impl From<Operation> for FlatOperation {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Reserve { id, request } => Self {
                class: Some(request.class),
                tenant: request.tenant,
                slots: Some(request.slots),
                cpu_milli: request.cpu_milli,
                memory_bytes: request.memory_bytes,
                gpus: request.gpus,
                ttl_ms: request.ttl_ms,
                wait_ms: request.wait_ms,
                priority: request.priority,
                execution_id: request.execution_id,
                cpu_limit_milli: request.cpu_limit_milli,
                memory_limit_bytes: request.memory_limit_bytes,
                ..Self::empty(OperationKind::Reserve, id)
            },
            Operation::Renew { id, request } => Self {
                fence: Some(request.fence),
                ttl_ms: request.ttl_ms,
                ..Self::empty(OperationKind::Renew, id)
            },
            Operation::Release { id, request } => Self {
                fence: request.fence,
                outcome: request.outcome,
                exit_code: request.exit_code,
                force: request.force,
                reason: request.reason,
                ..Self::empty(OperationKind::Release, id)
            },
            Operation::Cancel { id } => Self::empty(OperationKind::Cancel, id),
        }
    }
}
