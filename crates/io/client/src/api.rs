//! The JSON of `/v1`: camelCase, unit last, integers for quantities, RFC 3339 for instants.
//!
//! Requests with unknown fields are refused, because a typo must not be ignored. Unknown fields of
//! answers are ignored, so that the server may add fields.

pub mod allocation;
pub mod apply;
pub mod body;
pub mod booking;
pub mod clearing;
pub mod cluster;
pub mod event;
pub mod execution;
pub mod explanation;
mod fields;
pub mod health;
pub mod instant;
pub mod integer;
pub mod ledger;
pub mod limit;
pub mod list;
pub mod market;
pub mod node;
pub mod query;
pub mod simulated;
pub mod token;
#[cfg(feature = "schema")]
pub mod word;

pub use allocation::{Allocation, AllocationStatus};
pub use apply::{ApplyAnswer, ApplyRequest, Change, ChangeKind, FieldChange};
pub use booking::batch::{Batch, BatchAnswer, BatchDone, BatchRefused, BatchResult, Operation};
pub use booking::query::{
    BookingStatus, GetBooking, GetExecution, GetLogs, ListBookings, ListExecutions,
};
pub use booking::{
    Booking, BookingRequest, CancelRequest, End, NoteRequest, Outcome, Priority, ReleaseRequest,
    RenewRequest, State,
};
pub use bursar_engine::explain::WaitsFor;
pub use clearing::{ClearedPod, Clearing};
pub use cluster::{
    Budget, Envelope, GetRun, GetUsage, GpuLease, ListBudgets, ListLeases, ListRuns, PutRun,
    RotateRequest, Run, RunAnswer, Usage,
};
pub use event::{SIGNED_OUT, StreamEvent, StreamEvents};
pub use execution::{
    Course, Execution, ExecutionOutcome, ExecutionRequest, ExecutionState, Isolation, LogStream,
    Saga, Step, StepState, StopCause,
};
pub use explanation::{Explanation, ObjectRef, RestsOn, When, Who, Why};
pub use health::Health;
pub use ledger::{
    Checkpoint, ExportLedger, ExportedAnswer, ExportedRequest, Inclusion, LedgerStatus,
    ListRecords, PruneAnswer, PruneRequest, RecordView, RotateKeyAnswer, RotateKeyRequest,
};
pub use limit::{Limit, LimitCounter, LimitSpec, LimitStatus, Metadata};
pub use list::ListAnswer;
pub use market::{
    FailedPod, GetMarket, MarketActs, MarketAgent, MarketAsk, MarketBound, MarketHeld, MarketKind,
    MarketLevel, MarketMode, MarketPod, MarketPodPoint, MarketPoint, MarketPolicy, MarketStep,
    NodeMarket, ObservedGroup, RestoreAnswer, RestoreRequest, RestoredPod, UnmanagedPods, Wrote,
};
pub use node::{Node, NodeExecutor, NodeMetadata, NodeSpec, NodeStatus};
pub use query::{DryRun, MinRecord, Page, PageSize, Since, Wait, Words};
pub use simulated::{Simulated, SimulatedChange};
pub use token::{Identity, Role, Token, TokenCreated, TokenRequest};

/// Maximum size of a request body, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum number of operations of a batch.
pub const BATCH_OPERATIONS_MAX: usize = 1_024;
/// Items of a page if the request has no `limit`.
pub const PAGE_DEFAULT: u64 = 100;
/// Maximum number of items of a page.
pub const PAGE_MAX: u64 = 1_000;
/// Maximum number of objects of an apply.
pub const APPLY_OBJECTS_MAX: usize = 10_000;
/// Header of every answer: the last record that the answer reflects.
pub const RECORD_HEADER: &str = "bursar-record";
/// Header that makes repeats of an action without an id of its own safe (L6).
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// Media type of a problem.
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";
