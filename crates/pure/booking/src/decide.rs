//! What should happen: each function answers a command, applying its events as it goes.
//!
//! A refusal leaves the state as it was. Events are pushed with the time they carry: the time
//! of the command, or the deadline that caused them (L1).

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
use crate::{Bookings, Event, Granted, Limit, STEPS_PER_RECORD_MAX, Standing, TTL_MAX, TTL_MIN};

/// The events of one record, as they are decided.
pub type Events = Decided<Event>;

/// What a command came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// Granted now, under this fence.
    Granted(Fence),
    /// It waits.
    Queued,
    /// The same request was made before; the booking answers as it stands.
    Repeated(Box<Shown>),
    /// An execution is being stopped and will end.
    Stopping(Box<Shown>),
    /// What the executor found is on record.
    Noted,
    /// Life was shown; it is on record when the deadline comes due (S7).
    Renewed {
        /// The new deadline.
        expires: Instant,
    },
    /// It ended just now.
    Ended(Box<Shown>),
    /// It had ended before; the recorded end answers.
    AlreadyEnded(Box<Shown>),
}

/// Why a command was refused.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Refusal {
    /// A limit is full and no wait was asked for.
    #[error("no slot is free")]
    OverLimit {
        /// The binding limits, headline first.
        limits: Vec<LimitUse>,
    },
    /// It fits, but those who wait come first, and no wait was asked for.
    #[error("others wait before it")]
    OthersFirst {
        /// The limits it shares with them.
        limits: Vec<LimitUse>,
    },
    /// A limit's queue is full.
    #[error("the queue is full")]
    QueueFull {
        /// Whose.
        limit: ObjectName,
        /// How many may wait.
        max: u64,
    },
    /// As many of the tenant wait under a limit as may.
    #[error("the tenant's share of the queue is full")]
    TenantQueueFull {
        /// Whose queue.
        limit: ObjectName,
        /// How many of one tenant may wait.
        max: u64,
    },
    /// It asks for more than a limit will ever allow.
    #[error("it can never fit")]
    NeverFits {
        /// The limits it exceeds even when empty, headline first.
        limits: Vec<LimitUse>,
    },
    /// A time that a limit, or the program, does not allow.
    #[error("{field} is out of bounds")]
    TimeOutOfBounds {
        /// The field, as the API names it.
        field: &'static str,
        /// The least milliseconds allowed.
        min_ms: u64,
        /// The most milliseconds allowed.
        max_ms: u64,
        /// The limit that says so; `None` for the program's own bound.
        limit: Option<ObjectName>,
    },
    /// A booking must ask for at least one slot, and not for more than can be counted.
    #[error("slots is out of bounds")]
    Slots,
    /// The id names another request.
    #[error("the id is in use for another request")]
    IdReused {
        /// The first field that differs, as the API names it.
        field: &'static str,
    },
    /// An unknown id that was made before what is remembered.
    #[error("the id is too old")]
    IdTooOld {
        /// Ids made until then are refused.
        forgotten_at: Instant,
    },
    /// No such booking.
    #[error("no such booking")]
    NotFound,
    /// The fence is not the present one, or the booking has ended.
    #[error("the fence is stale")]
    StaleFence {
        /// How it ended, if it has.
        end: Option<End>,
    },
    /// A granted booking is released with its fence, not cancelled.
    #[error("it is granted")]
    IsGranted,
    /// A queued booking is cancelled, not released or renewed.
    #[error("it is queued")]
    IsQueued,
    /// Its slot is free when its process is gone: an execution is cancelled, not released.
    #[error("it is an execution")]
    IsExecution,
    /// Nothing runs under a plain booking.
    #[error("it is not an execution")]
    NotAnExecution,
    /// The execution to try again is not remembered, or is a plain booking.
    #[error("the execution to retry is not known")]
    RetryOfUnknown,
    /// The execution to try again has not ended.
    #[error("the execution to retry has not ended")]
    RetryOfLive,
    /// No such limit or node.
    #[error("no such object")]
    NoSuchObject {
        /// What was asked for.
        name: ObjectName,
    },
    /// Another limit speaks of the same class and tenant.
    #[error("another limit has the same class and tenant")]
    SameScopes {
        /// The limit asked for.
        name: ObjectName,
        /// The limit that is there.
        other: ObjectName,
    },
    /// A shipped limit can be changed, not deleted, and keeps its class and tenant.
    #[error("a shipped limit stays")]
    ShippedStays {
        /// Which.
        name: ObjectName,
    },
}

/// A change to what is declared.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Change {
    /// Declare a limit or change it.
    SetLimit(Limit),
    /// Remove a limit.
    DropLimit {
        /// Its name.
        name: ObjectName,
    },
}

/// Answers a command.
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
    }
}

/// Joins the waiting room, then settles it; still waiting with no wait asked: leaves, refused.
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

/// The first field in which two orders differ; a plain booking has none.
fn order_difference(mine: Option<&Order>, theirs: Option<&Order>) -> Option<&'static str> {
    match (mine, theirs) {
        (None, None) => None,
        (Some(mine), Some(theirs)) => mine.first_difference(theirs),
        (Some(_), None) | (None, Some(_)) => Some("command"),
    }
}

/// Gives a slot back. Of an ended booking the recorded end answers.
fn release(
    bookings: &mut Bookings,
    at: Instant,
    id: &BookingId,
    fence: Fence,
    said: (Option<Outcome>, Option<i32>),
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
            let (outcome, exit_code) = said;
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

/// Gives up a wait, or has an execution stopped.
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

/// An operator ends a booking, whatever it is doing.
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

/// Whether a renewal is good, and the ttl it renews for: at most the booking's own. Evidence, not
/// a fact: no event (S7).
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
            // After a crash a holder gets its own ttl again (L5), so a longer one would be a
            // promise that the ledger does not know of. A limit lowered since evicts nobody.
            let longest = granted.terms.ttl;
            match ttl.unwrap_or(longest) {
                ttl if (TTL_MIN..=longest).contains(&ttl) => Ok(ttl),
                _ => Err(ttl_out_of_bounds(longest, None)),
            }
        }
    }
}

/// Processes deadlines up to `until`, in order, each stamped with its own time; `alive_until` says
/// until when a holder has shown life.
pub(crate) fn tick(
    bookings: &mut Bookings,
    until: Instant,
    alive_until: &dyn Fn(&Reference) -> Option<Instant>,
    steps: &mut Steps,
    events: &mut Events,
) {
    // The time at which the pump stopped, not `now`: how ticks fall must change nothing (L1).
    if let Some(since) = bookings.unsettled {
        settle(bookings, since, &mut steps.grants, events);
    }
    while steps.deadlines > 0 {
        // A deadline that frees slots must be able to grant them.
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

/// Describes the booking in an event, applies it at its time, and notes that time where it is not
/// the record's.
pub(crate) fn emit(bookings: &mut Bookings, at: Instant, mut event: Event, events: &mut Events) {
    bookings.describe(at, &mut event);
    bookings.apply(at, &event);
    let is_of_record = at == events.time();
    events.push(if is_of_record { event } else { event.at(at) });
}

/// A reply that shows the booking as it stands now.
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

/// Ends a booking and grants what that frees, as a record of its own.
pub(crate) fn finish(bookings: &mut Bookings, at: Instant, event: Event, events: &mut Events) {
    emit(bookings, at, event, events);
    settle(bookings, at, &mut { STEPS_PER_RECORD_MAX }, events);
}

/// Grants while anyone can be granted; what does not fit the record goes on as a tick (L9).
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

/// Grant under a fence, queue (`None`), or refuse.
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

/// Why nobody more may wait under a limit, or nobody more of the tenant, if that is so.
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

/// What can be said of a request without looking at who holds and who waits.
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

/// The limits that an amount exceeds even when nothing is held. A bound of zero pauses: one may
/// wait for it to rise (S1).
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

/// All or none: every change is checked against what the ones before it would leave.
pub(crate) fn check_changes(bookings: &Bookings, changes: &[&Change]) -> Result<(), Refusal> {
    let mut limits = bookings.limits.clone();
    // Scopes may be swapped within one apply, so they are compared at the end.
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

/// Whether a limit is one of the two that ship, whatever its bounds are by now.
fn is_shipped(declared: &Declared) -> bool {
    let scopes = (&declared.limit.class, &declared.limit.tenant);
    match declared.limit.name.as_str() {
        DEFAULT_NAME => true,
        TENANTS_NAME => scopes == (&None, &Some(Scope::Each)),
        _ => false,
    }
}

/// The end of the shipped limit on each tenant, where the changes declare another of that scope and
/// nobody has changed the shipped one.
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

/// Whether another limit takes the place of a shipped one in the same change.
fn replaces(present: &Declared, changes: &[&Change]) -> bool {
    present.limit.name.as_str() == TENANTS_NAME
        && changes.iter().any(|change| sets_each_tenant(change))
}

/// Whether a change declares a limit on each tenant under a name of its own.
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

/// What a ledger of before level 1 lacks of the shipped limits: the share of a tenant in the queue
/// of `default`, where that is as it was shipped, and `tenants`, where no limit is for each tenant
/// and none has that name.
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

/// The shipped limit on each tenant, where the changes end the last limit on each tenant and its
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

/// Whether some limit is for each tenant.
fn bounds_each_tenant(limits: &Limits) -> bool {
    let is_each = |limit: &Limit| limit.class.is_none() && limit.tenant == Some(Scope::Each);
    limits.iter().any(|declared| is_each(&declared.limit))
}

/// The shipped limit on each tenant, unless its name is taken.
fn shipped_for_tenants(limits: &Limits) -> Option<Change> {
    let is_free = limits.get(TENANTS_NAME).is_none();
    is_free.then(|| Change::SetLimit(Limit::shipped_for_tenants()))
}

/// The event of a change; `None` where it would change nothing.
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
