//! Decisions: each function answers a command and applies its events to the state at once.
//!
//! A refusal leaves the state as it was. The time of an event is that of the command, or of the
//! deadline that caused it (L1).

use bursar_plane::{Decided, Reference, Steps};
use bursar_units::{Amount, BookingId, Dimension, Instant, Millis, ObjectName};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::book::DeadlineKind;
use crate::command::Command;
use crate::execution::{self, Cause, Order};
use crate::limit::{
    Applied, DEFAULT_NAME, Declared, Kind, LimitUse, Limits, Scope, TENANTS_NAME, WAIT_DEFAULT,
};
use crate::request::{End, Fence, Outcome, Request, Submission};
use crate::room::Lane;
use crate::shown::Shown;
use crate::{
    Bookings, Event, Granted, Limit, NOTE_LENGTH_MAX, STEPS_PER_RECORD_MAX, Standing, TTL_MAX,
    TTL_MIN,
};

/// Events of one record, as they are decided.
pub type Events = Decided<Event>;

/// Result of a command that was not refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// The booking is granted, under this fence.
    Granted(Fence),
    /// The booking waits.
    Queued,
    /// The same request was made before; the booking as it is now.
    Repeated(Box<Shown>),
    /// The execution is being stopped.
    Stopping(Box<Shown>),
    /// The report of the executor is recorded.
    Recorded,
    /// The grant is renewed; the renewal is recorded when the old deadline passes (S7).
    Renewed {
        /// New deadline.
        expires: Instant,
    },
    /// The booking has ended by this command.
    Ended(Box<Shown>),
    /// The booking had ended before; its recorded end.
    AlreadyEnded(Box<Shown>),
    /// The remark is on record.
    Noted(Box<Shown>),
}

/// Reason of a refusal.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Refusal {
    /// A limit is full, and the request has no wait.
    #[error("no slot is free")]
    OverLimit {
        /// Limits that are full, headline first.
        limits: Vec<LimitUse>,
    },
    /// The request fits, but others wait before it, and it has no wait.
    #[error("other bookings wait before this one")]
    OthersFirst {
        /// Limits that it shares with them.
        limits: Vec<LimitUse>,
    },
    /// The queue of a limit is full.
    #[error("the queue is full")]
    QueueFull {
        /// Limit.
        limit: ObjectName,
        /// Most bookings that may wait.
        max: u64,
    },
    /// The tenant's share of the queue of a limit is full.
    #[error("the tenant's share of the queue is full")]
    TenantQueueFull {
        /// Limit.
        limit: ObjectName,
        /// Most bookings of one tenant that may wait.
        max: u64,
    },
    /// The amount is above a limit even when nothing is held.
    #[error("the amount exceeds a limit even when nothing is held")]
    NeverFits {
        /// Limits that it exceeds, headline first.
        limits: Vec<LimitUse>,
    },
    /// A time is outside the bounds of a limit or of the program.
    #[error("{field} is out of bounds")]
    TimeOutOfBounds {
        /// Field, by its name in the API.
        field: &'static str,
        /// Smallest value, in milliseconds.
        min_ms: u64,
        /// Largest value, in milliseconds.
        max_ms: u64,
        /// Limit that sets the bound; `None` for a bound of the program.
        limit: Option<ObjectName>,
    },
    /// The number of slots is 0, or above 2³² − 1.
    #[error("slots is out of bounds")]
    Slots,
    /// A note is empty, or longer than [`NOTE_LENGTH_MAX`].
    #[error("the length of the note is out of bounds")]
    NoteLength,
    /// The id was used for another request.
    #[error("the id is in use for another request")]
    IdReused {
        /// First field that differs, by its name in the API.
        field: &'static str,
    },
    /// The id is unknown and older than the remembered ends.
    #[error("the id is too old")]
    IdTooOld {
        /// Ids made at this time or before are refused.
        forgotten_at: Instant,
    },
    /// The booking is not known.
    #[error("no such booking")]
    NotFound,
    /// The fence is not that of the grant, or the booking has ended.
    #[error("the fence is stale")]
    StaleFence {
        /// Kind of end, if the booking has ended.
        end: Option<End>,
    },
    /// A granted booking is released with its fence, not cancelled.
    #[error("it is granted")]
    IsGranted,
    /// A queued booking is cancelled, not released or renewed.
    #[error("it is queued")]
    IsQueued,
    /// An execution is cancelled, not released: its slot is free when its process is gone.
    #[error("it is an execution")]
    IsExecution,
    /// A plain booking has no process.
    #[error("it is not an execution")]
    NotAnExecution,
    /// The execution to retry is not known, or is a plain booking.
    #[error("the execution to retry is not known")]
    RetryOfUnknown,
    /// The execution to retry has not ended.
    #[error("the execution to retry has not ended")]
    RetryOfLive,
    /// The limit is not declared.
    #[error("no such object")]
    NoSuchObject {
        /// Name of the limit.
        name: ObjectName,
    },
    /// Another limit has the same class and tenant.
    #[error("another limit has the same class and tenant")]
    SameScopes {
        /// Declared limit.
        name: ObjectName,
        /// Other limit.
        other: ObjectName,
    },
    /// A shipped limit can be changed, not deleted, and keeps its class and tenant.
    #[error("a shipped limit cannot be deleted or get another class or tenant")]
    ShippedStays {
        /// Limit.
        name: ObjectName,
    },
}

/// Change of a declared limit.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Change {
    /// Declares or changes a limit.
    SetLimit(Limit),
    /// Removes a limit.
    DropLimit {
        /// Name of the limit.
        name: ObjectName,
    },
}

pub(crate) fn decide(
    bookings: &mut Bookings,
    at: Instant,
    command: &Command,
    events: &mut Events,
) -> Result<Reply, Refusal> {
    match command {
        Command::Reserve(request) => reserve(bookings, at, request, None, events),
        Command::Submit(Submission { booking, order }) => {
            reserve(bookings, at, booking, Some(order), events)
        }
        Command::Release {
            id,
            fence,
            outcome,
            exit_code,
        } => release(bookings, at, id, *fence, (*outcome, *exit_code), events),
        Command::Renew { id, fence, ttl } => {
            let ttl = renewal(bookings, id, *fence, *ttl)?;
            Ok(Reply::Renewed {
                expires: at.after(ttl),
            })
        }
        Command::Started { id, isolation } => {
            execution::started(bookings, at, id, *isolation, events)
        }
        Command::Adopt(found) => execution::adopt(bookings, at, found, events),
        Command::Exited { id, exit } => execution::exited(bookings, at, id, exit, events),
        Command::StopFailed { id, attempt } => {
            execution::stop_failed(bookings, at, id, *attempt, events)
        }
        Command::Cancel { id } => cancel(bookings, at, id, events),
        Command::Force { id, reason } => force(bookings, at, id, reason, events),
        Command::Note { id, text } => note(bookings, at, id, text, events),
    }
}

/// Grants, queues or refuses a request. The same request again gets the booking as it is.
fn reserve(
    bookings: &mut Bookings,
    at: Instant,
    request: &Request,
    order: Option<&Order>,
    events: &mut Events,
) -> Result<Reply, Refusal> {
    let id = &request.id;
    if let Some(present) = bookings.request(id) {
        let differs = present
            .first_difference(request)
            .or_else(|| order_difference(bookings.order(id), order));
        return match differs {
            Some(field) => Err(Refusal::IdReused { field }),
            None => show(bookings, id, Reply::Repeated),
        };
    }
    if let (Some(forgotten_at), Some(made_at)) = (bookings.forgotten_at, id.made_at())
        && made_at <= forgotten_at
    {
        return Err(Refusal::IdTooOld { forgotten_at });
    }
    let fence = bookings.with_lane(request, |bookings, lane| {
        admission(bookings, lane, request, order)
    })?;
    let booking = Request {
        fence,
        ..request.clone()
    };
    let event = match order.cloned() {
        None => Event::Reserved(booking),
        Some(order) => Event::Submitted(Submission { booking, order }),
    };
    emit(bookings, at, event, events);
    Ok(fence.map_or(Reply::Queued, Reply::Granted))
}

fn order_difference(mine: Option<&Order>, theirs: Option<&Order>) -> Option<&'static str> {
    match (mine, theirs) {
        (None, None) => None,
        (Some(mine), Some(theirs)) => mine.first_difference(theirs),
        (Some(_), None) | (None, Some(_)) => Some("command"),
    }
}

/// Releases a booking; a release of an ended one returns the recorded end.
fn release(
    bookings: &mut Bookings,
    at: Instant,
    id: &BookingId,
    fence: Fence,
    (outcome, exit_code): (Option<Outcome>, Option<i32>),
    events: &mut Events,
) -> Result<Reply, Refusal> {
    match bookings.standing(id) {
        None => Err(Refusal::NotFound),
        Some(Standing::Queued { .. }) => Err(Refusal::IsQueued),
        Some(Standing::Granted(granted)) if granted.fence != fence => {
            Err(Refusal::StaleFence { end: None })
        }
        Some(Standing::Granted(granted)) if granted.progress().is_some() => {
            Err(Refusal::IsExecution)
        }
        Some(Standing::Granted(_)) => {
            let event = Event::Ended {
                id: id.clone(),
                end: End::Released,
                outcome,
                exit_code,
                reason: None,
                of: None,
                t: None,
            };
            finish(bookings, at, event, events);
            show(bookings, id, Reply::Ended)
        }
        Some(Standing::Ended(ended)) => match ended.granted() {
            Some((_, held)) if held != fence => Err(Refusal::StaleFence {
                end: Some(ended.end()),
            }),
            _ => show(bookings, id, Reply::AlreadyEnded),
        },
    }
}

fn cancel(
    bookings: &mut Bookings,
    at: Instant,
    id: &BookingId,
    events: &mut Events,
) -> Result<Reply, Refusal> {
    match bookings.standing(id) {
        None => Err(Refusal::NotFound),
        Some(Standing::Granted(granted)) if granted.progress().is_some() => {
            let is_new = execution::stop(bookings, at, id, Cause::Cancelled, events);
            let reply = if is_new {
                Reply::Stopping
            } else {
                Reply::Repeated
            };
            show(bookings, id, reply)
        }
        Some(Standing::Granted(_)) => Err(Refusal::IsGranted),
        Some(Standing::Ended(_)) => show(bookings, id, Reply::AlreadyEnded),
        Some(Standing::Queued { .. }) => {
            finish(bookings, at, ended(id, End::Cancelled, None), events);
            show(bookings, id, Reply::Ended)
        }
    }
}

fn force(
    bookings: &mut Bookings,
    at: Instant,
    id: &BookingId,
    reason: &str,
    events: &mut Events,
) -> Result<Reply, Refusal> {
    match bookings.standing(id) {
        None => Err(Refusal::NotFound),
        Some(Standing::Ended(_)) => show(bookings, id, Reply::AlreadyEnded),
        Some(_) => {
            finish(
                bookings,
                at,
                ended(id, End::Forced, Some(reason.to_owned())),
                events,
            );
            show(bookings, id, Reply::Ended)
        }
    }
}

/// Puts a remark on record; the same remark again leaves no trace.
fn note(
    bookings: &mut Bookings,
    at: Instant,
    id: &BookingId,
    text: &str,
    events: &mut Events,
) -> Result<Reply, Refusal> {
    if !(1..=NOTE_LENGTH_MAX).contains(&text.chars().count()) {
        return Err(Refusal::NoteLength);
    }
    if bookings.standing(id).is_none() {
        return Err(Refusal::NotFound);
    }
    if bookings.note(id) == Some(text) {
        return show(bookings, id, Reply::Repeated);
    }
    let (noted, text, of) = (id.clone(), text.to_owned(), None);
    emit(
        bookings,
        at,
        Event::Noted {
            id: noted,
            text,
            of,
        },
        events,
    );
    show(bookings, id, Reply::Noted)
}

/// Ttl of a renewal: at most the booking's own. A renewal is evidence that a later tick uses; it
/// has no event (S7).
fn renewal(
    bookings: &Bookings,
    id: &BookingId,
    fence: Fence,
    ttl: Option<Millis>,
) -> Result<Millis, Refusal> {
    match bookings.standing(id) {
        None => Err(Refusal::NotFound),
        Some(Standing::Queued { .. }) => Err(Refusal::IsQueued),
        Some(Standing::Ended(ended)) => Err(Refusal::StaleFence {
            end: Some(ended.end()),
        }),
        Some(Standing::Granted(granted)) if granted.fence != fence => {
            Err(Refusal::StaleFence { end: None })
        }
        Some(Standing::Granted(granted)) if granted.progress().is_some() => {
            Err(Refusal::IsExecution)
        }
        Some(Standing::Granted(granted)) => {
            // After a crash a holder gets its own ttl again (L5): a longer one could not be kept.
            // A limit that was lowered since evicts nobody.
            let longest = granted.terms.ttl;
            match ttl.unwrap_or(longest) {
                ttl if (TTL_MIN..=longest).contains(&ttl) => Ok(ttl),
                _ => Err(ttl_out_of_bounds(longest, None)),
            }
        }
    }
}

/// Processes deadlines up to `until`, in order, each at its own time; `alive_until` has the
/// renewals.
pub(crate) fn tick(
    bookings: &mut Bookings,
    until: Instant,
    alive_until: &dyn Fn(&Reference) -> Option<Instant>,
    steps: &mut Steps,
    events: &mut Events,
) {
    // At the time at which grants stopped, so that the times of ticks change nothing (L1).
    if let Some(since) = bookings.unsettled {
        settle(bookings, since, &mut steps.grants, events);
    }
    while steps.deadlines > 0 {
        // The record needs room for the grants that follow a deadline.
        if bookings.is_unsettled() || steps.grants == 0 {
            return;
        }
        let Some(deadline) = bookings.due(until).next().cloned() else {
            return;
        };
        steps.deadlines -= 1;
        let (at, id) = (deadline.at, &deadline.id);
        let alive_until = alive_until(&Reference::Booking(id.clone()));
        match (deadline.kind, alive_until.filter(|until| *until > at)) {
            (DeadlineKind::Expiry, Some(expires)) => {
                emit(
                    bookings,
                    at,
                    Event::Renewed {
                        id: id.clone(),
                        expires,
                        t: None,
                    },
                    events,
                );
            }
            (DeadlineKind::Expiry, None) => {
                emit(bookings, at, ended(id, End::Expired, None), events);
                settle(bookings, at, &mut steps.grants, events);
            }
            (DeadlineKind::Overdue, _) => {
                let stage = bookings.granted.get(id).and_then(Granted::progress);
                let cause = stage.map_or(Cause::TimedOut, |progress| {
                    execution::overdue(progress.stage)
                });
                execution::stop(bookings, at, id, cause, events);
            }
            (DeadlineKind::WaitOver, _) => {
                emit(bookings, at, ended(id, End::WaitOver, None), events);
                settle(bookings, at, &mut steps.grants, events);
            }
        }
    }
}

/// Describes the booking in an event and applies it. The event carries its time if that is not
/// the time of the record.
pub(crate) fn emit(bookings: &mut Bookings, at: Instant, mut event: Event, events: &mut Events) {
    bookings.describe(at, &mut event);
    bookings.apply(at, &event);
    let is_of_record = at == events.time();
    events.push(if is_of_record { event } else { event.at(at) });
}

/// Reply with the booking as it is now.
pub(crate) fn show(
    bookings: &Bookings,
    id: &BookingId,
    reply: fn(Box<Shown>) -> Reply,
) -> Result<Reply, Refusal> {
    bookings.shown(id).map(reply).ok_or(Refusal::NotFound)
}

fn ended(id: &BookingId, end: End, reason: Option<String>) -> Event {
    Event::Ended {
        id: id.clone(),
        end,
        outcome: None,
        exit_code: None,
        reason,
        of: None,
        t: None,
    }
}

/// Emits an event that frees slots, then grants them, in a record of its own.
pub(crate) fn finish(bookings: &mut Bookings, at: Instant, event: Event, events: &mut Events) {
    emit(bookings, at, event, events);
    settle(bookings, at, &mut { STEPS_PER_RECORD_MAX }, events);
}

/// Grants while a booking can be granted; a tick goes on when the record is full (L9).
pub(crate) fn settle(
    bookings: &mut Bookings,
    at: Instant,
    grants_left: &mut usize,
    events: &mut Events,
) {
    while let Some(id) = bookings.next_grant(at) {
        if *grants_left == 0 {
            if !bookings.is_unsettled() {
                let event = Event::Unsettled {
                    more: true,
                    t: None,
                };
                emit(bookings, at, event, events);
            }
            return;
        }
        let fence = bookings.next_fence();
        let (of, t) = (None, None);
        emit(bookings, at, Event::Granted { id, fence, of, t }, events);
        *grants_left -= 1;
    }
    if bookings.is_unsettled() {
        let event = Event::Unsettled {
            more: false,
            t: None,
        };
        emit(bookings, at, event, events);
    }
}

/// Fence of a grant, `None` to queue, or a refusal.
fn admission(
    bookings: &Bookings,
    lane: Lane,
    request: &Request,
    order: Option<&Order>,
) -> Result<Option<Fence>, Refusal> {
    let applied = bookings.applied_of(lane.class, lane.tenant);
    let amount = request.amount();
    check_terms(bookings, lane, &applied, request, order)?;
    if bookings.would_grant(lane, &applied, &amount) {
        return Ok(Some(bookings.next_fence()));
    }
    if request.wait.ms() == 0 {
        let limits = bookings.binding(lane, &applied, &amount);
        return Err(if limits.is_empty() {
            Refusal::OthersFirst {
                limits: bookings.shared_use(lane, &applied),
            }
        } else {
            Refusal::OverLimit { limits }
        });
    }
    match applied.iter().find_map(|of| queue_full(bookings, lane, of)) {
        Some(full) => Err(full),
        None => Ok(None),
    }
}

/// Refusal if the queue of a limit, or the tenant's share of it, is full.
fn queue_full(bookings: &Bookings, lane: Lane, declared: &Declared) -> Option<Refusal> {
    let limit = &declared.limit;
    let waiting = |kind| bookings.counter(kind, lane.class, lane.tenant).waiting;
    let of_tenant = match limit.kind() {
        Kind::Everything | Kind::Tenant => Kind::Tenant,
        Kind::Class | Kind::ClassTenant => Kind::ClassTenant,
    };
    if waiting(limit.kind()) >= limit.queue_max {
        return Some(Refusal::QueueFull {
            limit: declared.limit.name.clone(),
            max: limit.queue_max,
        });
    }
    let max = limit
        .tenant_queue_max
        .filter(|max| waiting(of_tenant) >= *max)?;
    Some(Refusal::TenantQueueFull {
        limit: declared.limit.name.clone(),
        max,
    })
}

/// Checks that need no other booking.
fn check_terms(
    bookings: &Bookings,
    lane: Lane,
    applied: &Applied,
    request: &Request,
    order: Option<&Order>,
) -> Result<(), Refusal> {
    if !(1..=u64::from(u32::MAX)).contains(&request.slots) {
        return Err(Refusal::Slots);
    }
    match order {
        Some(order) => execution::check_order(bookings, order)?,
        None => check_ttl(applied, request.ttl)?,
    }
    let strictest = applied
        .iter()
        .min_by_key(|declared| declared.limit.wait_max);
    let longest = strictest.map_or(WAIT_DEFAULT, |declared| declared.limit.wait_max);
    if longest < request.wait {
        return Err(Refusal::TimeOutOfBounds {
            field: "waitMs",
            min_ms: 0,
            max_ms: longest.ms(),
            limit: strictest.map(|declared| declared.limit.name.clone()),
        });
    }
    let limits = never_fits(bookings, lane, applied, &request.amount());
    if limits.is_empty() {
        Ok(())
    } else {
        Err(Refusal::NeverFits { limits })
    }
}

fn check_ttl(applied: &Applied, ttl: Millis) -> Result<(), Refusal> {
    let strictest = applied.iter().min_by_key(|declared| declared.limit.ttl_max);
    let strictest = strictest.filter(|declared| declared.limit.ttl_max < TTL_MAX);
    let longest = strictest.map_or(TTL_MAX, |declared| declared.limit.ttl_max);
    if (TTL_MIN..=longest).contains(&ttl) {
        Ok(())
    } else {
        Err(ttl_out_of_bounds(longest, strictest))
    }
}

/// Limits that an amount exceeds even when nothing is held. A bound of zero is a pause, in which
/// bookings may wait (S1).
fn never_fits(
    bookings: &Bookings,
    lane: Lane,
    applied: &Applied,
    amount: &Amount,
) -> Vec<LimitUse> {
    let exceeds = |declared: &Declared, dimension: Dimension| {
        declared
            .bounds
            .of(dimension)
            .is_some_and(|max| 0 < max && max < amount.of(dimension))
    };
    applied
        .iter()
        .flat_map(|declared| Dimension::ALL.map(|dimension| (declared, dimension)))
        .filter(|(declared, dimension)| exceeds(declared, *dimension))
        .map(|(declared, dimension)| bookings.limit_use(declared, dimension, lane))
        .collect()
}

fn ttl_out_of_bounds(longest: Millis, limit: Option<&Declared>) -> Refusal {
    Refusal::TimeOutOfBounds {
        field: "ttlMs",
        min_ms: TTL_MIN.ms(),
        max_ms: longest.ms(),
        limit: limit.map(|declared| declared.limit.name.clone()),
    }
}

/// Checks each change against the result of those before it.
pub(crate) fn check_changes(bookings: &Bookings, changes: &[&Change]) -> Result<(), Refusal> {
    let mut limits = bookings.limits.clone();
    // Two limits may swap their scopes in one command, so scopes are compared at the end.
    for change in changes {
        match change {
            Change::SetLimit(limit) => {
                let present = limits.get(limit.name.as_str());
                if present
                    .is_some_and(|present| is_shipped(present) && !has_scopes_of(present, limit))
                {
                    let name = limit.name.clone();
                    return Err(Refusal::ShippedStays { name });
                }
                limits.declare(limit);
            }
            Change::DropLimit { name } => match limits.get(name.as_str()) {
                None => return Err(Refusal::NoSuchObject { name: name.clone() }),
                Some(present) if is_shipped(present) && !replaces(present, changes) => {
                    return Err(Refusal::ShippedStays { name: name.clone() });
                }
                Some(_) => limits.undeclare(name),
            },
        }
    }
    match limits.same_scopes() {
        Some((name, other)) => Err(Refusal::SameScopes { name, other }),
        None => Ok(()),
    }
}

/// Whether a limit is one of the two shipped ones, with any bounds.
fn is_shipped(declared: &Declared) -> bool {
    let scopes = (&declared.limit.class, &declared.limit.tenant);
    match declared.limit.name.as_str() {
        DEFAULT_NAME => true,
        TENANTS_NAME => scopes == (&None, &Some(Scope::Each)),
        _ => false,
    }
}

/// Removal of the shipped limit on each tenant, if the changes declare another one of that scope
/// and the shipped one is unchanged.
pub(crate) fn replaces_shipped(bookings: &Bookings, changes: &[&Change]) -> Option<Change> {
    let present = bookings.limit(TENANTS_NAME)?;
    let name = present.limit.name.clone();
    let is_named = |change: &Change| match change {
        Change::SetLimit(Limit { name: named, .. }) | Change::DropLimit { name: named } => {
            *named == name
        }
    };
    let is_untouched = present.limit == Limit::shipped_for_tenants()
        && !changes.iter().any(|change| is_named(change));
    let is_replaced = is_untouched && changes.iter().any(|change| sets_each_tenant(change));
    is_replaced.then_some(Change::DropLimit { name })
}

/// Whether the same changes replace a shipped limit.
fn replaces(present: &Declared, changes: &[&Change]) -> bool {
    present.limit.name.as_str() == TENANTS_NAME
        && changes.iter().any(|change| sets_each_tenant(change))
}

/// Whether a change declares a limit on each tenant under another name.
fn sets_each_tenant(change: &Change) -> bool {
    let Change::SetLimit(limit) = change else {
        return false;
    };
    let is_each = limit.class.is_none() && limit.tenant == Some(Scope::Each);
    is_each && limit.name.as_str() != TENANTS_NAME
}

fn has_scopes_of(declared: &Declared, limit: &Limit) -> bool {
    declared.limit.class == limit.class && declared.limit.tenant == limit.tenant
}

/// Shipped limits that a ledger from before level 1 lacks: the share of a tenant in the queue of
/// `default`, if that limit is unchanged, and `tenants`, if no limit is for each tenant and none
/// has that name.
pub fn missing_shipped(bookings: &Bookings) -> Vec<Change> {
    let default = bookings.limit(DEFAULT_NAME).and_then(|present| {
        let limit = Limit {
            tenant_queue_max: Some(Limit::tenant_queue_default_ceil(present.limit.queue_max)),
            ..Limit::shipped()
        };
        (present.limit == Limit::shipped()).then_some(Change::SetLimit(limit))
    });
    let is_bounded = bounds_each_tenant(&bookings.limits);
    let tenants = shipped_for_tenants(&bookings.limits).filter(|_| !is_bounded);
    default.into_iter().chain(tenants).collect()
}

/// The shipped limit on each tenant, if the changes remove the last limit on each tenant and its
/// name is free after them.
pub(crate) fn brings_back_shipped(bookings: &Bookings, changes: &[&Change]) -> Option<Change> {
    let mut after = bookings.limits.clone();
    for change in changes {
        match change {
            Change::SetLimit(limit) => after.declare(limit),
            Change::DropLimit { name } => after.undeclare(name),
        }
    }
    let is_missing = bounds_each_tenant(&bookings.limits) && !bounds_each_tenant(&after);
    shipped_for_tenants(&after).filter(|_| is_missing)
}

fn bounds_each_tenant(limits: &Limits) -> bool {
    let is_each = |limit: &Limit| limit.class.is_none() && limit.tenant == Some(Scope::Each);
    limits.iter().any(|declared| is_each(&declared.limit))
}

/// The shipped limit on each tenant, unless its name is taken.
fn shipped_for_tenants(limits: &Limits) -> Option<Change> {
    let is_free = limits.get(TENANTS_NAME).is_none();
    is_free.then(|| Change::SetLimit(Limit::shipped_for_tenants()))
}

/// Event of a change; `None` if it would change nothing.
pub(crate) fn change_event(bookings: &Bookings, change: &Change) -> Option<Event> {
    match change.clone() {
        Change::SetLimit(limit) => {
            let same = bookings
                .limit(limit.name.as_str())
                .is_some_and(|present| present.limit == limit);
            (!same).then_some(Event::LimitSet(limit))
        }
        Change::DropLimit { name } => Some(Event::LimitDropped { name }),
    }
}
