//! Batches: independent operations, decided in order, with one result each (S8).

use bursar_units::{BookingId, Label, vocabulary};
use serde::{Deserialize, Serialize};

use super::{Booking, BookingRequest, Outcome, Priority, ReleaseRequest, RenewRequest};
use crate::ToSchema;
use crate::api::fields::Fields;
use crate::api::integer;
use crate::problem::{FieldError, Problem};
use crate::shape::{Case, Field};

/// The body of `POST /v1/bookings`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Batch {
    /// At most 1,024 operations. They are independent: a batch is not atomic.
    #[schema(max_items = 1024, value_type = Vec<FlatOperation>)]
    pub operations: Vec<Operation>,
}

/// One operation of a batch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Fields<FlatOperation>", into = "FlatOperation")]
pub enum Operation {
    /// As `PUT /v1/bookings/{id}`.
    Reserve {
        /// Id of the booking.
        id: BookingId,
        /// Request for the booking.
        request: BookingRequest,
    },
    /// As `POST /v1/bookings/{id}/renew`.
    Renew {
        /// Id of the booking.
        id: BookingId,
        /// Fence and duration.
        request: RenewRequest,
    },
    /// As `POST /v1/bookings/{id}/release`.
    Release {
        /// Id of the booking.
        id: BookingId,
        /// Fence and outcome.
        request: ReleaseRequest,
    },
    /// As `POST /v1/bookings/{id}/cancel`.
    Cancel {
        /// Id of the booking.
        id: BookingId,
    },
}

/// The answer to a batch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// One result for each operation, in order.
    pub results: Vec<BatchResult>,
    /// Last ledger record that this answer reflects.
    pub record: u64,
    /// True for a dry run: nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// Result of one operation.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchResult {
    /// The operation was done.
    Done(BatchDone),
    /// The operation was refused.
    Refused(BatchRefused),
}

/// An operation that was done.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchDone {
    /// HTTP status of the same operation outside a batch.
    pub status: u16,
    /// Booking after the operation.
    #[serde(flatten)]
    pub booking: Booking,
}

/// An operation that was refused.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchRefused {
    /// Id of the booking.
    #[schema(value_type = String)]
    pub id: BookingId,
    /// Refusal.
    #[serde(flatten)]
    pub problem: Problem,
}

/// An operation in JSON: one flat object, of which each kind uses some fields.
///
/// Serde would read a tagged enum into a tree first; this object is read directly.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Operation)]
pub struct FlatOperation {
    #[schema(value_type = crate::api::word::Kind)]
    op: OperationKind,
    #[schema(value_type = String)]
    id: BookingId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    class: Option<Label>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    tenant: Option<Label>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "integer::optional")]
    slots: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "integer::optional")]
    cpu_milli: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "integer::optional")]
    memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "integer::optional")]
    gpus: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "integer::optional")]
    ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "integer::optional")]
    wait_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::Priority>)]
    priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    execution_id: Option<BookingId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "integer::optional")]
    cpu_limit_milli: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "integer::optional")]
    memory_limit_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "integer::optional")]
    fence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::Outcome>)]
    outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    force: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

vocabulary! {
    pub(crate) enum OperationKind {
        Reserve = "reserve",
        Renew = "renew",
        Release = "release",
        Cancel = "cancel",
    }
}

impl OperationKind {
    /// Fields besides `op` and `id`: those of the request of the single operation.
    pub(crate) const fn fields(self) -> &'static [Field] {
        match self {
            Self::Reserve => BookingRequest::FIELDS,
            Self::Renew => RenewRequest::FIELDS,
            Self::Release => ReleaseRequest::FIELDS,
            Self::Cancel => &[],
        }
    }

    pub(crate) const fn case(self) -> Case {
        (self.word(), self.fields())
    }
}

impl Operation {
    /// Id of the booking.
    pub fn id(&self) -> &BookingId {
        match self {
            Self::Reserve { id, .. }
            | Self::Renew { id, .. }
            | Self::Release { id, .. }
            | Self::Cancel { id } => id,
        }
    }

    /// Mistakes that the types of the fields do not exclude.
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

    /// The first field that is present but does not belong to this kind of operation.
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
