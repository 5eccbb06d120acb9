//! The JSON shapes of commands and events. They stay still while the inside moves.

use std::collections::BTreeSet;

use bursar_booking::decide::Change;
use bursar_booking::{
    Bound, End, Event as BookingEvent, Extras, Fence, Limit, Outcome, Priority, Request, Scope,
};
use bursar_journal::hash::Hash;
use bursar_units::{Amount, BookingId, INTEGER_MAX, Instant, Label, Millis, ObjectName};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::token::{Role, Token};
use crate::{Command, Event};

type JsonError = serde_json::Error;

pub(super) fn raw<T: Serialize>(value: &T) -> Result<Box<RawValue>, JsonError> {
    serde_json::value::to_raw_value(value)
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum CommandShape {
    Genesis {
        ledger: String,
        format: u64,
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
        fence: u64,
        #[serde(default, skip_serializing_if = "Option::is_none", rename = "ttlMs")]
        ttl: Option<Millis>,
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
        record: u64,
        sha256: Hash,
    },
    Prune {
        below: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency: Option<BookingId>,
    },
    Restore {
        size: u64,
    },
}

/// `t` stands in an event only where it differs from the record's own.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum EventShape {
    Genesis {
        ledger: String,
        format: u64,
    },
    Resumed {
        wall: Instant,
    },
    Reserved(BookingShape),
    Granted {
        id: BookingId,
        fence: u64,
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
        record: u64,
        sha256: Hash,
    },
    Pruned {
        below: u64,
    },
    Restored {
        generation: u64,
    },
    Keyed {
        key: BookingId,
        body: Hash,
    },
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BookingShape {
    pub(super) id: BookingId,
    pub(super) class: Label,
    pub(super) tenant: Label,
    pub(super) slots: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) cpu_milli: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) memory_bytes: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) gpus: u64,
    #[serde(default, skip_serializing_if = "PriorityShape::is_normal")]
    pub(super) priority: PriorityShape,
    pub(super) ttl_ms: Millis,
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub(super) wait_ms: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) execution_id: Option<BookingId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cpu_limit_milli: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) memory_limit_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fence: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ReleaseShape {
    id: BookingId,
    fence: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EndedShape {
    id: BookingId,
    end: EndShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<Instant>,
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
    class: Option<ScopeShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<ScopeShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slots: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu: Option<BoundShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<BoundShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpus: Option<u64>,
    max_queue: u64,
    max_wait_ms: Millis,
    max_ttl_ms: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u64>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ScopeShape {
    Each,
    Named(Label),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum BoundShape {
    Exactly(u64),
    Percent(u64),
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeShape {
    pub(super) name: ObjectName,
    cpu_milli: u64,
    memory_bytes: u64,
    gpus: u64,
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
    name: ObjectName,
    sha256: Hash,
    roles: Vec<RoleShape>,
    tenants: Vec<Label>,
    expires: Instant,
    /// Only in a snapshot: in an event the record's time says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<Instant>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RoleShape {
    View,
    Use,
    Operate,
}

impl From<&Command> for CommandShape {
    fn from(command: &Command) -> Self {
        match command.clone() {
            Command::Genesis { ledger } => Self::Genesis {
                ledger,
                format: crate::state::FORMAT,
            },
            Command::Resume { wall } => Self::Resume { wall },
            Command::Tick { renewed } => Self::Tick { renewed },
            Command::Reserve { id, request } => Self::Reserve(BookingShape::new(id, request, None)),
            Command::Release {
                id,
                fence,
                outcome,
                exit_code,
            } => Self::Release(ReleaseShape {
                id,
                fence: fence.0,
                outcome: outcome.map(Into::into),
                exit_code,
            }),
            Command::Renew { id, fence, ttl } => Self::Renew {
                id,
                fence: fence.0,
                ttl,
            },
            Command::Cancel { id } => Self::Cancel { id },
            Command::Force { id, reason } => Self::Force { id, reason },
            Command::Change { changes } => Self::Change {
                changes: changes.into_iter().map(Into::into).collect(),
            },
            Command::CreateToken { token } => Self::CreateToken(TokenShape::new(token, None)),
            Command::RevokeToken { name } => Self::RevokeToken { name },
            Command::RotateKey { key, idempotency } => Self::RotateKey { key, idempotency },
            Command::Anchor { record, sha256 } => Self::Anchor { record, sha256 },
            Command::Prune { below, idempotency } => Self::Prune { below, idempotency },
            Command::Restore { size } => Self::Restore { size },
        }
    }
}

impl TryFrom<CommandShape> for Command {
    type Error = JsonError;

    fn try_from(shape: CommandShape) -> Result<Self, JsonError> {
        Ok(match shape {
            CommandShape::Genesis { ledger, format } => {
                check_format(format)?;
                Self::Genesis { ledger }
            }
            CommandShape::Resume { wall } => Self::Resume { wall },
            CommandShape::Tick { renewed } => Self::Tick { renewed },
            CommandShape::Reserve(booking) => {
                let (id, request, _) = booking.into_parts()?;
                Self::Reserve { id, request }
            }
            CommandShape::Release(ReleaseShape {
                id,
                fence,
                outcome,
                exit_code,
            }) => Self::Release {
                id,
                fence: Fence(fence),
                outcome: outcome.map(Into::into),
                exit_code,
            },
            CommandShape::Renew { id, fence, ttl } => Self::Renew {
                id,
                fence: Fence(fence),
                ttl,
            },
            CommandShape::Cancel { id } => Self::Cancel { id },
            CommandShape::Force { id, reason } => Self::Force { id, reason },
            CommandShape::Change { changes } => Self::Change {
                changes: changes.into_iter().map(Into::into).collect(),
            },
            CommandShape::CreateToken(token) => Self::CreateToken {
                token: token.into(),
            },
            CommandShape::RevokeToken { name } => Self::RevokeToken { name },
            CommandShape::RotateKey { key, idempotency } => Self::RotateKey { key, idempotency },
            CommandShape::Anchor { record, sha256 } => Self::Anchor { record, sha256 },
            CommandShape::Prune { below, idempotency } => Self::Prune { below, idempotency },
            CommandShape::Restore { size } => Self::Restore { size },
        })
    }
}

impl EventShape {
    pub(super) fn of(time: Instant, at: Instant, event: &Event) -> Self {
        let t = (at != time).then_some(at);
        match event.clone() {
            Event::Genesis { ledger } => Self::Genesis {
                ledger,
                format: crate::state::FORMAT,
            },
            Event::Resumed { wall } => Self::Resumed { wall },
            Event::Booking(event) => Self::of_booking(t, event),
            Event::TokenCreated { token } => Self::TokenCreated(TokenShape::new(token, None)),
            Event::TokenRevoked { name } => Self::TokenRevoked { name },
            Event::KeyRotated { key } => Self::KeyRotated { key },
            Event::Anchored { record, sha256 } => Self::Anchored { record, sha256 },
            Event::Pruned { below } => Self::Pruned { below },
            Event::Restored { generation } => Self::Restored { generation },
            Event::Keyed { key, body } => Self::Keyed { key, body },
        }
    }

    fn of_booking(t: Option<Instant>, event: BookingEvent) -> Self {
        match event {
            BookingEvent::Reserved { id, request, fence } => {
                Self::Reserved(BookingShape::new(id, request, fence))
            }
            BookingEvent::Granted { id, fence } => Self::Granted {
                id,
                fence: fence.0,
                t,
            },
            BookingEvent::Renewed { id, expires } => Self::Renewed { id, expires, t },
            BookingEvent::Ended {
                id,
                end,
                outcome,
                exit_code,
                reason,
            } => {
                let (end, outcome) = (end.into(), outcome.map(Into::into));
                Self::Ended(EndedShape {
                    id,
                    end,
                    outcome,
                    exit_code,
                    reason,
                    t,
                })
            }
            BookingEvent::LimitSet { name, limit } => Self::LimitSet(LimitShape::new(name, limit)),
            BookingEvent::LimitDropped { name } => Self::LimitDropped { name },
            BookingEvent::NodeSet { name, capacity } => {
                Self::NodeSet(NodeShape::new(name, capacity))
            }
            BookingEvent::NodeDropped { name } => Self::NodeDropped { name },
            BookingEvent::Unsettled { more } => Self::Unsettled { more, t },
            // The spine's own `resumed` carries it.
            BookingEvent::Resumed => Self::Resumed {
                wall: t.unwrap_or_default(),
            },
        }
    }

    pub(super) fn into_event(self, time: Instant) -> Result<(Instant, Event), JsonError> {
        let mut at = time;
        let event = match self {
            Self::Genesis { ledger, format } => {
                check_format(format)?;
                Event::Genesis { ledger }
            }
            Self::Resumed { wall } => Event::Resumed { wall },
            Self::Reserved(booking) => {
                let (id, request, fence) = booking.into_parts()?;
                BookingEvent::Reserved { id, request, fence }.into()
            }
            Self::Granted { id, fence, t } => {
                at = t.unwrap_or(time);
                BookingEvent::Granted {
                    id,
                    fence: Fence(fence),
                }
                .into()
            }
            Self::Renewed { id, expires, t } => {
                at = t.unwrap_or(time);
                BookingEvent::Renewed { id, expires }.into()
            }
            Self::Ended(EndedShape {
                id,
                end,
                outcome,
                exit_code,
                reason,
                t,
            }) => {
                at = t.unwrap_or(time);
                let (end, outcome) = (end.into(), outcome.map(Into::into));
                BookingEvent::Ended {
                    id,
                    end,
                    outcome,
                    exit_code,
                    reason,
                }
                .into()
            }
            Self::LimitSet(limit) => {
                let (name, limit) = limit.into();
                BookingEvent::LimitSet { name, limit }.into()
            }
            Self::LimitDropped { name } => BookingEvent::LimitDropped { name }.into(),
            Self::NodeSet(node) => {
                let (name, capacity) = node.into();
                BookingEvent::NodeSet { name, capacity }.into()
            }
            Self::NodeDropped { name } => BookingEvent::NodeDropped { name }.into(),
            Self::Unsettled { more, t } => {
                at = t.unwrap_or(time);
                BookingEvent::Unsettled { more }.into()
            }
            Self::TokenCreated(token) => Event::TokenCreated {
                token: token.into(),
            },
            Self::TokenRevoked { name } => Event::TokenRevoked { name },
            Self::KeyRotated { key } => Event::KeyRotated { key },
            Self::Anchored { record, sha256 } => Event::Anchored { record, sha256 },
            Self::Pruned { below } => Event::Pruned { below },
            Self::Restored { generation } => Event::Restored { generation },
            Self::Keyed { key, body } => Event::Keyed { key, body },
        };
        Ok((at, event))
    }
}

impl BookingShape {
    pub(super) fn new(id: BookingId, request: Request, fence: Option<Fence>) -> Self {
        let extras = request.extras.map(|extras| *extras).unwrap_or_default();
        Self {
            id,
            class: request.class,
            tenant: request.tenant,
            slots: request.amount.slots,
            cpu_milli: request.amount.cpu_milli,
            memory_bytes: request.amount.memory_bytes,
            gpus: request.amount.gpus,
            priority: request.priority.into(),
            ttl_ms: request.ttl,
            wait_ms: request.wait,
            execution_id: extras.execution,
            cpu_limit_milli: extras.cpu_limit_milli,
            memory_limit_bytes: extras.memory_limit_bytes,
            fence: fence.map(|fence| fence.0),
        }
    }

    pub(super) fn into_parts(self) -> Result<(BookingId, Request, Option<Fence>), JsonError> {
        let amount = Amount {
            slots: self.slots,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            gpus: self.gpus,
        };
        if bursar_units::Dimension::ALL
            .iter()
            .any(|d| amount.of(*d) > INTEGER_MAX)
        {
            return Err(JsonError::custom("an amount is above 2^53 - 1"));
        }
        let extras = Extras {
            execution: self.execution_id,
            cpu_limit_milli: self.cpu_limit_milli,
            memory_limit_bytes: self.memory_limit_bytes,
        };
        let request = Request {
            class: self.class,
            tenant: self.tenant,
            amount,
            priority: self.priority.into(),
            ttl: self.ttl_ms,
            wait: self.wait_ms,
            extras: (extras != Extras::default()).then(|| Box::new(extras)),
        };
        Ok((self.id, request, self.fence.map(Fence)))
    }
}

impl LimitShape {
    pub(super) fn new(name: ObjectName, limit: Limit) -> Self {
        Self {
            name,
            class: limit.class.map(Into::into),
            tenant: limit.tenant.map(Into::into),
            slots: limit.slots,
            cpu: limit.cpu.map(Into::into),
            memory: limit.memory.map(Into::into),
            gpus: limit.gpus,
            max_queue: limit.queue_max,
            max_wait_ms: limit.wait_max,
            max_ttl_ms: limit.ttl_max,
            weight: limit.weight,
        }
    }
}

impl From<LimitShape> for (ObjectName, Limit) {
    fn from(shape: LimitShape) -> Self {
        let limit = Limit {
            class: shape.class.map(Into::into),
            tenant: shape.tenant.map(Into::into),
            slots: shape.slots,
            cpu: shape.cpu.map(Into::into),
            memory: shape.memory.map(Into::into),
            gpus: shape.gpus,
            queue_max: shape.max_queue,
            wait_max: shape.max_wait_ms,
            ttl_max: shape.max_ttl_ms,
            weight: shape.weight,
        };
        (shape.name, limit)
    }
}

impl NodeShape {
    pub(super) fn new(name: ObjectName, capacity: Amount) -> Self {
        let Amount {
            cpu_milli,
            memory_bytes,
            gpus,
            ..
        } = capacity;
        Self {
            name,
            cpu_milli,
            memory_bytes,
            gpus,
        }
    }
}

impl From<NodeShape> for (ObjectName, Amount) {
    fn from(shape: NodeShape) -> Self {
        let NodeShape {
            name,
            cpu_milli,
            memory_bytes,
            gpus,
        } = shape;
        (
            name,
            Amount {
                slots: 0,
                cpu_milli,
                memory_bytes,
                gpus,
            },
        )
    }
}

impl From<Change> for ChangeShape {
    fn from(change: Change) -> Self {
        match change {
            Change::SetLimit { name, limit } => Self::SetLimit(LimitShape::new(name, limit)),
            Change::DropLimit { name } => Self::DropLimit { name },
            Change::SetNode { name, capacity } => Self::SetNode(NodeShape::new(name, capacity)),
            Change::DropNode { name } => Self::DropNode { name },
        }
    }
}

impl From<ChangeShape> for Change {
    fn from(shape: ChangeShape) -> Self {
        match shape {
            ChangeShape::SetLimit(limit) => {
                let (name, limit) = limit.into();
                Self::SetLimit { name, limit }
            }
            ChangeShape::DropLimit { name } => Self::DropLimit { name },
            ChangeShape::SetNode(node) => {
                let (name, capacity) = node.into();
                Self::SetNode { name, capacity }
            }
            ChangeShape::DropNode { name } => Self::DropNode { name },
        }
    }
}

impl TokenShape {
    pub(super) fn new(token: Token, created: Option<Instant>) -> Self {
        Self {
            name: token.name,
            sha256: token.sha256,
            roles: token.roles.into_iter().map(Into::into).collect(),
            tenants: token.tenants.into_iter().collect(),
            expires: token.expires,
            created,
        }
    }
}

impl From<TokenShape> for Token {
    fn from(shape: TokenShape) -> Self {
        Self {
            name: shape.name,
            sha256: shape.sha256,
            roles: shape
                .roles
                .into_iter()
                .map(Role::from)
                .collect::<BTreeSet<_>>(),
            tenants: shape.tenants.into_iter().collect(),
            expires: shape.expires,
        }
    }
}

/// Pairs of words that mean the same inside and in the journal.
macro_rules! same_words {
    ($inside:ident, $shape:ident, $($word:ident $(($field:ident))?),+) => {
        impl From<$inside> for $shape {
            fn from(inside: $inside) -> Self {
                match inside { $($inside::$word $(($field))? => Self::$word $(($field))?),+ }
            }
        }
        impl From<$shape> for $inside {
            fn from(shape: $shape) -> Self {
                match shape { $($shape::$word $(($field))? => Self::$word $(($field))?),+ }
            }
        }
    };
}

same_words!(
    End, EndShape, Released, Cancelled, Expired, WaitOver, Forced
);
same_words!(Outcome, OutcomeShape, Ok, Failed);
same_words!(Priority, PriorityShape, Urgent, High, Normal, Low, Batch);
same_words!(Role, RoleShape, View, Use, Operate);
same_words!(Scope, ScopeShape, Each, Named(label));
same_words!(Bound, BoundShape, Exactly(value), Percent(value));

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
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_no_time(value: &Millis) -> bool {
    value.ms() == 0
}

fn check_format(format: u64) -> Result<(), JsonError> {
    match format {
        crate::state::FORMAT => Ok(()),
        _ => Err(JsonError::custom(format!(
            "the ledger has format {format} and needs a newer bursar"
        ))),
    }
}
