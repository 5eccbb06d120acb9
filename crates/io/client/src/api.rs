//! The JSON of `/v1`: camelCase, unit last, integers for quantities, RFC 3339 for instants.
//!
//! Requests refuse fields they do not know, because a typo must not be ignored; answers are
//! read with unknown fields ignored, so that the server may add some (design 80, 4.1).

pub mod allocation;
pub mod apply;
pub mod body;
pub mod booking;
pub mod clearing;
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
pub mod token;
pub mod word;

pub use allocation::{Allocation, AllocationStatus};
pub use apply::{ApplyAnswer, ApplyRequest, Change, ChangeKind, FieldChange};
pub use booking::batch::{Batch, BatchAnswer, BatchDone, BatchRefused, BatchResult, Operation};
pub use booking::{
    Booking, BookingRequest, CancelRequest, End, Outcome, Priority, ReleaseRequest, RenewRequest,
    State,
};
pub use clearing::{ClearedPod, Clearing};
pub use event::{SIGNED_OUT, StreamEvent};
pub use execution::{
    Course, Execution, ExecutionOutcome, ExecutionRequest, ExecutionState, Isolation, LogStream,
    Saga, Step, StepState, StopCause,
};
pub use explanation::{Explanation, ObjectRef, RestsOn, WaitsFor, When, Who, Why};
pub use health::Health;
pub use ledger::{
    Checkpoint, ExportedAnswer, ExportedRequest, Inclusion, LedgerStatus, PruneAnswer,
    PruneRequest, RecordView, RotateKeyAnswer, RotateKeyRequest,
};
pub use limit::{Limit, LimitCounter, LimitSpec, LimitStatus, Metadata};
pub use list::ListAnswer;
pub use market::{
    FailedPod, MarketActs, MarketAgent, MarketBound, MarketDemand, MarketHeld, MarketKind,
    MarketLevel, MarketMode, MarketPod, MarketPodPoint, MarketPoint, MarketPolicy, MarketStep,
    NodeMarket, ObservedGroup, RestoreAnswer, RestoreRequest, RestoredPod, UnmanagedPods, Wrote,
};
pub use node::{Node, NodeMetadata, NodeStatus};
pub use token::{Identity, Role, Token, TokenCreated, TokenRequest};

/// Bytes a request body may have.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Operations a batch may have.
pub const BATCH_OPERATIONS_MAX: usize = 1_024;
/// Items a page has where the caller does not say.
pub const PAGE_DEFAULT: u64 = 100;
/// Items a page may have.
pub const PAGE_MAX: u64 = 1_000;
/// Objects that one apply may have.
pub const APPLY_OBJECTS_MAX: usize = 10_000;
/// The header of every answer that names the last record it reflects.
pub const RECORD_HEADER: &str = "bursar-record";
/// The header under which an action without a thing of its own is repeated safely (L6).
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// The media type of a problem.
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";
