//! The JSON shapes of commands and events. They stay still while the inside moves.

use std::fmt;

use bursar_journal::hash::Hash;
use bursar_journal::record::BlobRef;
use bursar_units::{BookingId, Instant, Label, Millis, ObjectName};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::market::{
    MarketDigestedShape, MarketLabelledShape, MarketReportShape, MarketSetShape,
    OriginalReturnedShape, OriginalTakenShape,
};
use super::whole::Whole;
use crate::Event;

pub(super) fn raw<T: Serialize>(value: &T) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::value::to_raw_value(value)
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum CommandShape {
    Genesis {
        ledger: String,
        format: Whole,
    },
    Level {
        n: Whole,
    },
    Resume {
        wall: Instant,
    },
    Tick {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        renewed: Vec<(BookingId, Instant)>,
    },
    Reserve(BookingShape),
    Release(ReleaseShape),
    Renew {
        id: BookingId,
        fence: Whole,
        #[serde(default, skip_serializing_if = "Option::is_none", rename = "ttlMs")]
        ttl: Option<Millis>,
    },
    Submit(ExecutionShape),
    Started {
        id: BookingId,
        isolation: IsolationShape,
    },
    Adopt(AdoptionShape),
    Exited {
        id: BookingId,
        exit: ExitShape,
    },
    StopFailed {
        id: BookingId,
        attempt: u32,
    },
    Cancel {
        id: BookingId,
    },
    Force {
        id: BookingId,
        reason: String,
    },
    Change {
        changes: Vec<ChangeShape>,
    },
    CreateToken(TokenShape),
    RevokeToken {
        name: ObjectName,
    },
    RotateKey {
        key: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency: Option<BookingId>,
    },
    Anchor {
        record: Whole,
        sha256: Hash,
    },
    Prune {
        below: Whole,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency: Option<BookingId>,
    },
    Restore {
        size: Whole,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Whole>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaces: Option<Whole>,
        #[serde(default, skip_serializing_if = "is_false", rename = "endTokens")]
        end_tokens: bool,
    },
    ReportMarket(MarketReportShape),
}

/// `t` stands in an event only where it differs from the record's own.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum EventShape {
    Genesis {
        ledger: String,
        format: Whole,
    },
    Level {
        n: Whole,
    },
    Resumed {
        wall: Instant,
    },
    Reserved(BookingShape),
    Granted {
        id: BookingId,
        fence: Whole,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    Renewed {
        id: BookingId,
        expires: Instant,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    Ended(EndedShape),
    Submitted(ExecutionShape),
    Started {
        id: BookingId,
        isolation: IsolationShape,
    },
    Adopted(AdoptionShape),
    Stopping {
        id: BookingId,
        cause: CauseShape,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    StopFailed {
        id: BookingId,
        attempt: u32,
    },
    Exited(ExitedShape),
    LimitSet(LimitShape),
    LimitDropped {
        name: ObjectName,
    },
    NodeSet(NodeShape),
    NodeDropped {
        name: ObjectName,
    },
    Unsettled {
        more: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t: Option<Instant>,
    },
    TokenCreated(TokenShape),
    TokenRevoked {
        name: ObjectName,
    },
    KeyRotated {
        key: String,
    },
    Anchored {
        record: Whole,
        sha256: Hash,
    },
    Pruned {
        below: Whole,
    },
    Restored {
        generation: Whole,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Whole>,
        #[serde(default, skip_serializing_if = "is_false", rename = "tokensEnded")]
        tokens_ended: bool,
    },
    Keyed {
        key: BookingId,
        body: Hash,
    },
    MarketSet(MarketSetShape),
    MarketLabelled(MarketLabelledShape),
    OriginalTaken(OriginalTakenShape),
    OriginalReturned(OriginalReturnedShape),
    MarketDigested(MarketDigestedShape),
}

/// The events of a record whose time is `time`, on their way out.
pub(super) struct EventsOut<'a> {
    pub(super) time: Instant,
    pub(super) events: &'a [(Instant, Event)],
}

/// The events of a record on their way in, or what stands for them.
pub(super) enum EventsIn {
    Inline(Vec<EventShape>),
    Outside(BlobRef),
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BookingShape {
    pub(super) id: BookingId,
    pub(super) class: Label,
    pub(super) tenant: Label,
    pub(super) slots: Whole,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) cpu_milli: Whole,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) memory_bytes: Whole,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) gpus: Whole,
    #[serde(default, skip_serializing_if = "PriorityShape::is_normal")]
    pub(super) priority: PriorityShape,
    /// Absent from an execution, which has times of its own.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub(super) ttl_ms: Millis,
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub(super) wait_ms: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) execution_id: Option<BookingId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cpu_limit_milli: Option<Whole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) memory_limit_bytes: Option<Whole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fence: Option<Whole>,
}

/// An execution: a booking without a ttl, and what is run under it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExecutionShape {
    pub(super) booking: BookingShape,
    pub(super) order: OrderShape,
}

/// An execution that was found running: what was asked for it, under which fence, and how it is
/// kept apart.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AdoptionShape {
    pub(super) booking: BookingShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) order: Option<OrderShape>,
    pub(super) isolation: IsolationShape,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OrderShape {
    pub(super) work: Hash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pids: Option<u32>,
    pub(super) start_timeout_ms: Millis,
    pub(super) max_time_ms: Millis,
    pub(super) grace_ms: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) retry_of: Option<BookingId>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExitedShape {
    pub(super) id: BookingId,
    pub(super) verdict: VerdictShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<i32>,
    /// Absent means false, as before there was such a field (L8).
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) out_of_memory: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ExitShape {
    Code(i32),
    Signal(i32),
    OutOfMemory {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    Lost,
    NotStarted(String),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum IsolationShape {
    Cgroup,
    None,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CauseShape {
    Cancelled,
    TimedOut,
    NotStarted,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum VerdictShape {
    Completed,
    Failed,
    Lost,
    Cancelled,
    TimedOut,
    WaitOver,
}

/// Where an execution stands, in a snapshot.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProgressShape {
    pub(super) stage: StageShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) started: Option<(Instant, IsolationShape)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stopping: Option<(Instant, CauseShape)>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) adopted: bool,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StageShape {
    Starting,
    Running,
    Stopping(u32),
    Stuck,
}

/// The way of an execution that has ended, in a snapshot.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CourseShape {
    pub(super) verdict: VerdictShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) started: Option<(Instant, IsolationShape)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stopping: Option<(Instant, CauseShape)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<i32>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) out_of_memory: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) adopted: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ReleaseShape {
    pub(super) id: BookingId,
    pub(super) fence: Whole,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<OutcomeShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EndedShape {
    pub(super) id: BookingId,
    pub(super) end: EndShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<OutcomeShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) t: Option<Instant>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EndShape {
    Released,
    Cancelled,
    Expired,
    WaitOver,
    Forced,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OutcomeShape {
    Ok,
    Failed,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PriorityShape {
    Urgent,
    High,
    #[default]
    Normal,
    Low,
    Batch,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LimitShape {
    pub(super) name: ObjectName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) class: Option<ScopeShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<ScopeShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slots: Option<Whole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<BoundShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<BoundShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gpus: Option<Whole>,
    pub(super) max_queue: Whole,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_queue_per_tenant: Option<Whole>,
    pub(super) max_wait_ms: Millis,
    pub(super) max_ttl_ms: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) weight: Option<Whole>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ScopeShape {
    Each,
    Named(Label),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum BoundShape {
    Exactly(Whole),
    Percent(Whole),
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeShape {
    pub(super) name: ObjectName,
    pub(super) cpu_milli: Whole,
    pub(super) memory_bytes: Whole,
    pub(super) gpus: Whole,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum ChangeShape {
    SetLimit(LimitShape),
    DropLimit { name: ObjectName },
    SetNode(NodeShape),
    DropNode { name: ObjectName },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TokenShape {
    pub(super) name: ObjectName,
    pub(super) sha256: Hash,
    pub(super) roles: Vec<RoleShape>,
    pub(super) tenants: Vec<Label>,
    pub(super) expires: Instant,
    /// Only in a snapshot: in an event the record's time says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<Instant>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RoleShape {
    View,
    Use,
    Operate,
}

impl Serialize for EventsOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shapes = self
            .events
            .iter()
            .map(|(at, event)| EventShape::of(self.time, *at, event));
        serializer.collect_seq(shapes)
    }
}

impl<'de> Deserialize<'de> for EventsIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOrReference)
    }
}

struct ListOrReference;

impl<'de> Visitor<'de> for ListOrReference {
    type Value = EventsIn;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of events or the reference to one")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<EventsIn, A::Error> {
        let mut events = Vec::with_capacity(1);
        while let Some(event) = list.next_element()? {
            events.push(event);
        }
        Ok(EventsIn::Inline(events))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EventsIn, A::Error> {
        Deserialize::deserialize(MapAccessDeserializer::new(map)).map(EventsIn::Outside)
    }
}

impl PriorityShape {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde calls it with a reference"
    )]
    fn is_normal(&self) -> bool {
        matches!(self, Self::Normal)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(value: &Whole) -> bool {
    value.0 == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_no_time(value: &Millis) -> bool {
    value.ms() == 0
}
