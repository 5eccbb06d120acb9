//! From what the engine knows to what the journal holds, and back.

use std::collections::BTreeSet;

use bursar_booking::decide::Change;
use bursar_booking::execution::{Cause, Digest, Exit, Isolation, Order, Verdict};
use bursar_booking::{
    Bound, End, Event as BookingEvent, Extras, Fence, Limit, Outcome, Priority, Request, Scope,
};
use bursar_journal::hash::Hash;
use bursar_units::{Amount, BookingId, Instant, ObjectName};
use serde::de::Error as _;

use super::market::MarketReportShape;
use super::shapes::{
    AdoptionShape, BookingShape, BoundShape, CauseShape, ChangeShape, CommandShape, EndShape,
    EndedShape, EventShape, ExecutionShape, ExitShape, ExitedShape, IsolationShape, LimitShape,
    NodeShape, OrderShape, OutcomeShape, PriorityShape, ReleaseShape, RoleShape, ScopeShape,
    TokenShape, VerdictShape,
};
use crate::token::{Role, Token};
use crate::{Command, Event};

type JsonError = serde_json::Error;

impl From<&Command> for CommandShape {
    fn from(command: &Command) -> Self {
        match command.clone() {
            Command::Genesis { ledger } => Self::Genesis {
                ledger,
                format: crate::state::FORMAT.into(),
            },
            Command::Level { n } => Self::Level { n: n.into() },
            Command::Resume { wall } => Self::Resume { wall },
            Command::Tick { renewed } => Self::Tick { renewed },
            Command::Reserve { id, request } => match order_and_booking(id, request, None) {
                (Some(order), booking) => Self::Submit(ExecutionShape { booking, order }),
                (None, booking) => Self::Reserve(booking),
            },
            Command::Started { id, isolation } => Self::Started {
                id,
                isolation: isolation.into(),
            },
            Command::Adopt {
                id,
                request,
                fence,
                isolation,
            } => Self::Adopt(AdoptionShape::new(id, request, fence, isolation)),
            Command::Exited { id, exit } => Self::Exited {
                id,
                exit: exit.into(),
            },
            Command::StopFailed { id, attempt } => Self::StopFailed { id, attempt },
            Command::Release {
                id,
                fence,
                outcome,
                exit_code,
            } => Self::Release(ReleaseShape {
                id,
                fence: fence.0.into(),
                outcome: outcome.map(Into::into),
                exit_code,
            }),
            Command::Renew { id, fence, ttl } => Self::Renew {
                id,
                fence: fence.0.into(),
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
            Command::Anchor { record, sha256 } => Self::Anchor {
                record: record.into(),
                sha256,
            },
            Command::Prune { below, idempotency } => Self::Prune {
                below: below.into(),
                idempotency,
            },
            Command::Restore {
                size,
                fence,
                replaces,
                end_tokens,
            } => Self::Restore {
                size: size.into(),
                fence: fence.map(|fence| fence.0.into()),
                replaces: replaces.map(Into::into),
                end_tokens,
            },
            Command::ReportMarket { node, report } => {
                Self::ReportMarket(MarketReportShape::new(node, *report))
            }
        }
    }
}

impl TryFrom<CommandShape> for Command {
    type Error = JsonError;

    fn try_from(shape: CommandShape) -> Result<Self, JsonError> {
        Ok(match shape {
            CommandShape::Genesis { ledger, format } => {
                check_format(format.into())?;
                Self::Genesis { ledger }
            }
            CommandShape::Level { n } => Self::Level { n: n.into() },
            CommandShape::Resume { wall } => Self::Resume { wall },
            CommandShape::Tick { renewed } => Self::Tick { renewed },
            CommandShape::Reserve(booking) => {
                let (id, request, _) = booking.into_parts();
                Self::Reserve { id, request }
            }
            CommandShape::Submit(execution) => {
                let (id, request, _) = execution.into_parts();
                Self::Reserve { id, request }
            }
            CommandShape::Started { id, isolation } => Self::Started {
                id,
                isolation: isolation.into(),
            },
            CommandShape::Adopt(adoption) => {
                let (id, request, fence, isolation) = adoption.into_parts();
                Self::Adopt {
                    id,
                    request,
                    fence,
                    isolation,
                }
            }
            CommandShape::Exited { id, exit } => Self::Exited {
                id,
                exit: exit.into(),
            },
            CommandShape::StopFailed { id, attempt } => Self::StopFailed { id, attempt },
            CommandShape::Release(ReleaseShape {
                id,
                fence,
                outcome,
                exit_code,
            }) => Self::Release {
                id,
                fence: Fence(fence.into()),
                outcome: outcome.map(Into::into),
                exit_code,
            },
            CommandShape::Renew { id, fence, ttl } => Self::Renew {
                id,
                fence: Fence(fence.into()),
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
            CommandShape::Anchor { record, sha256 } => Self::Anchor {
                record: record.into(),
                sha256,
            },
            CommandShape::Prune { below, idempotency } => Self::Prune {
                below: below.into(),
                idempotency,
            },
            CommandShape::Restore {
                size,
                fence,
                replaces,
                end_tokens,
            } => Self::Restore {
                size: size.into(),
                fence: fence.map(|fence| Fence(fence.into())),
                replaces: replaces.map(Into::into),
                end_tokens,
            },
            CommandShape::ReportMarket(shape) => {
                let (node, report) = shape.into_parts()?;
                let report = Box::new(report);
                Self::ReportMarket { node, report }
            }
        })
    }
}

impl EventShape {
    /// The shape of an event of a record whose time is `time`.
    pub(super) fn of(time: Instant, at: Instant, event: &Event) -> Self {
        let t = (at != time).then_some(at);
        debug_assert!(
            t.is_none() || carries_time(event),
            "only time itself acts at another time"
        );
        match event.clone() {
            Event::Genesis { ledger } => Self::Genesis {
                ledger,
                format: crate::state::FORMAT.into(),
            },
            Event::Level { n } => Self::Level { n: n.into() },
            Event::Resumed { wall } => Self::Resumed { wall },
            Event::Booking(event) => Self::of_booking(t, event),
            Event::Market(event) => event.into(),
            Event::TokenCreated { token } => Self::TokenCreated(TokenShape::new(token, None)),
            Event::TokenRevoked { name } => Self::TokenRevoked { name },
            Event::KeyRotated { key } => Self::KeyRotated { key },
            Event::Anchored { record, sha256 } => Self::Anchored {
                record: record.into(),
                sha256,
            },
            Event::Pruned { below } => Self::Pruned {
                below: below.into(),
            },
            Event::Restored {
                generation,
                fence,
                tokens_ended,
            } => Self::Restored {
                generation: generation.into(),
                fence: fence.map(|fence| fence.0.into()),
                tokens_ended,
            },
            Event::Keyed { key, body } => Self::Keyed { key, body },
        }
    }

    fn of_booking(t: Option<Instant>, event: BookingEvent) -> Self {
        match event {
            BookingEvent::Reserved { id, request, fence } => {
                match order_and_booking(id, request, fence) {
                    (Some(order), booking) => Self::Submitted(ExecutionShape { booking, order }),
                    (None, booking) => Self::Reserved(booking),
                }
            }
            BookingEvent::Started { id, isolation } => Self::Started {
                id,
                isolation: isolation.into(),
            },
            BookingEvent::Adopted {
                id,
                request,
                fence,
                isolation,
            } => Self::Adopted(AdoptionShape::new(id, request, Some(fence), isolation)),
            BookingEvent::Stopping { id, cause } => Self::Stopping {
                id,
                cause: cause.into(),
                t,
            },
            BookingEvent::StopFailed { id, attempt } => Self::StopFailed { id, attempt },
            BookingEvent::Exited {
                id,
                verdict,
                exit_code,
                signal,
                is_out_of_memory,
                reason,
            } => Self::Exited(ExitedShape {
                id,
                verdict: verdict.into(),
                exit_code,
                signal,
                out_of_memory: is_out_of_memory,
                reason,
            }),
            BookingEvent::Granted { id, fence } => Self::Granted {
                id,
                fence: fence.0.into(),
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
        }
    }

    pub(super) fn into_event(self, time: Instant) -> Result<(Instant, Event), JsonError> {
        let mut at = time;
        let event = match self {
            Self::Genesis { ledger, format } => {
                check_format(format.into())?;
                Event::Genesis { ledger }
            }
            Self::Level { n } => Event::Level { n: n.into() },
            Self::Resumed { wall } => Event::Resumed { wall },
            Self::Reserved(booking) => {
                let (id, request, fence) = booking.into_parts();
                BookingEvent::Reserved { id, request, fence }.into()
            }
            Self::Submitted(execution) => {
                let (id, request, fence) = execution.into_parts();
                BookingEvent::Reserved { id, request, fence }.into()
            }
            Self::Started { id, isolation } => BookingEvent::Started {
                id,
                isolation: isolation.into(),
            }
            .into(),
            Self::Adopted(adoption) => {
                let (id, request, fence, isolation) = adoption.into_parts();
                BookingEvent::Adopted {
                    id,
                    request,
                    fence: fence.ok_or_else(|| JsonError::custom("`adopted` has no fence"))?,
                    isolation,
                }
                .into()
            }
            Self::Stopping { id, cause, t } => {
                at = t.unwrap_or(time);
                let cause = cause.into();
                BookingEvent::Stopping { id, cause }.into()
            }
            Self::StopFailed { id, attempt } => BookingEvent::StopFailed { id, attempt }.into(),
            Self::Exited(exited) => BookingEvent::Exited {
                id: exited.id,
                verdict: exited.verdict.into(),
                exit_code: exited.exit_code,
                signal: exited.signal,
                is_out_of_memory: exited.out_of_memory,
                reason: exited.reason,
            }
            .into(),
            Self::Granted { id, fence, t } => {
                at = t.unwrap_or(time);
                BookingEvent::Granted {
                    id,
                    fence: Fence(fence.into()),
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
            Self::Anchored { record, sha256 } => Event::Anchored {
                record: record.into(),
                sha256,
            },
            Self::Pruned { below } => Event::Pruned {
                below: below.into(),
            },
            Self::Restored {
                generation,
                fence,
                tokens_ended,
            } => Event::Restored {
                generation: generation.into(),
                fence: fence.map(|fence| Fence(fence.into())),
                tokens_ended,
            },
            Self::Keyed { key, body } => Event::Keyed { key, body },
            Self::MarketSet(shape) => Event::Market(shape.into()),
            Self::MarketLabelled(shape) => Event::Market(shape.into()),
            Self::OriginalTaken(shape) => Event::Market(shape.into()),
            Self::OriginalReturned(shape) => Event::Market(shape.into()),
            Self::MarketDigested(shape) => Event::Market(shape.into()),
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
            slots: request.amount.slots.into(),
            cpu_milli: request.amount.cpu_milli.into(),
            memory_bytes: request.amount.memory_bytes.into(),
            gpus: request.amount.gpus.into(),
            priority: request.priority.into(),
            ttl_ms: request.ttl,
            wait_ms: request.wait,
            execution_id: extras.execution,
            cpu_limit_milli: extras.cpu_limit_milli.map(Into::into),
            memory_limit_bytes: extras.memory_limit_bytes.map(Into::into),
            fence: fence.map(|fence| fence.0.into()),
        }
    }

    pub(super) fn into_parts(self) -> (BookingId, Request, Option<Fence>) {
        let amount = Amount {
            slots: self.slots.into(),
            cpu_milli: self.cpu_milli.into(),
            memory_bytes: self.memory_bytes.into(),
            gpus: self.gpus.into(),
        };
        let extras = Extras {
            execution: self.execution_id,
            cpu_limit_milli: self.cpu_limit_milli.map(Into::into),
            memory_limit_bytes: self.memory_limit_bytes.map(Into::into),
            order: None,
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
        (
            self.id,
            request,
            self.fence.map(|fence| Fence(fence.into())),
        )
    }
}

impl ExecutionShape {
    pub(super) fn into_parts(self) -> (BookingId, Request, Option<Fence>) {
        let (id, request, fence) = self.booking.into_parts();
        (id, with_order(request, Some(self.order)), fence)
    }
}

impl AdoptionShape {
    fn new(id: BookingId, request: Request, fence: Option<Fence>, isolation: Isolation) -> Self {
        let (order, booking) = order_and_booking(id, request, fence);
        Self {
            booking,
            order,
            isolation: isolation.into(),
        }
    }

    fn into_parts(self) -> (BookingId, Request, Option<Fence>, Isolation) {
        let (id, request, fence) = self.booking.into_parts();
        let request = with_order(request, self.order);
        (id, request, fence, self.isolation.into())
    }
}

/// A request and what is run under it, apart.
fn order_and_booking(
    id: BookingId,
    request: Request,
    fence: Option<Fence>,
) -> (Option<OrderShape>, BookingShape) {
    let order = request.order().map(OrderShape::from);
    (order, BookingShape::new(id, request, fence))
}

/// A request with what is run under it.
pub(super) fn with_order(mut request: Request, order: Option<OrderShape>) -> Request {
    if let Some(order) = order {
        request.extras.get_or_insert_default().order = Some(order.into());
    }
    request
}

impl From<&Order> for OrderShape {
    fn from(order: &Order) -> Self {
        Self {
            work: Hash(order.work.0),
            pids: order.pids,
            start_timeout_ms: order.start_timeout,
            max_time_ms: order.max_time,
            grace_ms: order.grace,
            retry_of: order.retry_of.clone(),
        }
    }
}

impl From<OrderShape> for Order {
    fn from(shape: OrderShape) -> Self {
        Self {
            work: Digest(shape.work.0),
            pids: shape.pids,
            start_timeout: shape.start_timeout_ms,
            max_time: shape.max_time_ms,
            grace: shape.grace_ms,
            retry_of: shape.retry_of,
        }
    }
}

impl From<Exit> for ExitShape {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::Code(code),
            Exit::Signal(signal) => Self::Signal(signal),
            Exit::OutOfMemory { code, signal } => Self::OutOfMemory { code, signal },
            Exit::Lost => Self::Lost,
            Exit::NotStarted { reason } => Self::NotStarted(reason),
        }
    }
}

impl From<ExitShape> for Exit {
    fn from(shape: ExitShape) -> Self {
        match shape {
            ExitShape::Code(code) => Self::Code(code),
            ExitShape::Signal(signal) => Self::Signal(signal),
            ExitShape::OutOfMemory { code, signal } => Self::OutOfMemory { code, signal },
            ExitShape::Lost => Self::Lost,
            ExitShape::NotStarted(reason) => Self::NotStarted { reason },
        }
    }
}

impl LimitShape {
    pub(super) fn new(name: ObjectName, limit: Limit) -> Self {
        Self {
            name,
            class: limit.class.map(Into::into),
            tenant: limit.tenant.map(Into::into),
            slots: limit.slots.map(Into::into),
            cpu: limit.cpu.map(Into::into),
            memory: limit.memory.map(Into::into),
            gpus: limit.gpus.map(Into::into),
            max_queue: limit.queue_max.into(),
            max_queue_per_tenant: limit.tenant_queue_max.map(Into::into),
            max_wait_ms: limit.wait_max,
            max_ttl_ms: limit.ttl_max,
            weight: limit.weight.map(Into::into),
        }
    }
}

impl From<LimitShape> for (ObjectName, Limit) {
    fn from(shape: LimitShape) -> Self {
        let limit = Limit {
            class: shape.class.map(Into::into),
            tenant: shape.tenant.map(Into::into),
            slots: shape.slots.map(Into::into),
            cpu: shape.cpu.map(Into::into),
            memory: shape.memory.map(Into::into),
            gpus: shape.gpus.map(Into::into),
            queue_max: shape.max_queue.into(),
            tenant_queue_max: shape.max_queue_per_tenant.map(Into::into),
            wait_max: shape.max_wait_ms,
            ttl_max: shape.max_ttl_ms,
            weight: shape.weight.map(Into::into),
        };
        (shape.name, limit)
    }
}

impl NodeShape {
    pub(super) fn new(name: ObjectName, capacity: Amount) -> Self {
        Self {
            name,
            cpu_milli: capacity.cpu_milli.into(),
            memory_bytes: capacity.memory_bytes.into(),
            gpus: capacity.gpus.into(),
        }
    }
}

impl From<NodeShape> for (ObjectName, Amount) {
    fn from(shape: NodeShape) -> Self {
        let capacity = Amount {
            slots: 0,
            cpu_milli: shape.cpu_milli.into(),
            memory_bytes: shape.memory_bytes.into(),
            gpus: shape.gpus.into(),
        };
        (shape.name, capacity)
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
                match inside { $($inside::$word $(($field))? => Self::$word $(($field.into()))?),+ }
            }
        }
        impl From<$shape> for $inside {
            fn from(shape: $shape) -> Self {
                match shape { $($shape::$word $(($field))? => Self::$word $(($field.into()))?),+ }
            }
        }
    };
}

pub(super) use same_words;

same_words!(
    End, EndShape, Released, Cancelled, Expired, WaitOver, Forced
);
same_words!(Outcome, OutcomeShape, Ok, Failed);
same_words!(Isolation, IsolationShape, Cgroup, None);
same_words!(Cause, CauseShape, Cancelled, TimedOut, NotStarted);
same_words!(
    Verdict,
    VerdictShape,
    Completed,
    Failed,
    Lost,
    Cancelled,
    TimedOut,
    WaitOver
);
same_words!(Priority, PriorityShape, Urgent, High, Normal, Low, Batch);
same_words!(Role, RoleShape, View, Use, Operate);
same_words!(Scope, ScopeShape, Each, Named(label));
same_words!(Bound, BoundShape, Exactly(value), Percent(value));

fn check_format(format: u64) -> Result<(), JsonError> {
    match format {
        crate::state::FORMAT => Ok(()),
        _ => Err(JsonError::custom(format!(
            "the ledger has format {format} and needs a newer bursar"
        ))),
    }
}

/// Whether an event has room for a time of its own.
fn carries_time(event: &Event) -> bool {
    matches!(
        event,
        Event::Booking(
            BookingEvent::Granted { .. }
                | BookingEvent::Renewed { .. }
                | BookingEvent::Ended { .. }
                | BookingEvent::Stopping { .. }
                | BookingEvent::Unsettled { .. }
        )
    )
}
