//! Problems of bookings, executions and limits: codes, fields and bounds.

use bursar_client::problem::{FieldError, Range};
use bursar_client::{Code, Problem, nearest};
use bursar_engine::booking::Standing;
use bursar_engine::booking::decide::Refusal as Because;
use bursar_engine::{Command, Refusal, State};
use bursar_units::ObjectName;

use crate::caller::Caller;

/// Checks whether a refusal concerns a booking that the caller may not see. The caller then learns
/// only that the id is taken, but neither its owner nor its request.
pub(crate) fn is_hidden(
    state: &State,
    caller: &Caller,
    command: &Command,
    refusal: &Refusal,
) -> bool {
    let Refusal::Booking(Because::IdReused { .. }) = refusal else {
        return false;
    };
    let id = command.booking_id();
    let known = id.and_then(|id| state.bookings.request(id));
    !known.is_some_and(|request| caller.sees_tenant(&request.tenant))
}

/// Adds the data for programs: the field and its bounds, the end of a booking, and the nearest name.
pub(crate) fn add_facts(
    problem: &mut Problem,
    state: &State,
    command: &Command,
    refusal: &Because,
) {
    if let Some(field) = field_of(refusal) {
        problem.errors = vec![FieldError::new(field, &problem.detail)];
    }
    problem.bounds = bounds(refusal);
    match refusal {
        Because::StaleFence { end: Some(end) } => {
            problem.end = Some(*end);
            let id = command.booking_id();
            if let Some(Standing::Ended(ended)) = id.and_then(|id| state.bookings.standing(id)) {
                problem.ended_at = Some(ended.ended_at());
            }
        }
        Because::NoSuchObject { name } => {
            let limits = state.bookings.limits();
            let names = limits.map(|declared| declared.limit.name.as_str());
            problem.suggestion = nearest(name.as_str(), names).map(str::to_owned);
        }
        _ => {}
    }
}

pub(crate) const fn code(refusal: &Because) -> Code {
    match refusal {
        Because::OverLimit { .. }
        | Because::OthersFirst { .. }
        | Because::QueueFull { .. }
        | Because::TenantQueueFull { .. } => Code::OverLimit,
        Because::NeverFits { .. } => Code::NeverFits,
        Because::TimeOutOfBounds { .. }
        | Because::RetryOfUnknown
        | Because::Slots
        | Because::NoteLength => Code::Invalid,
        Because::IdReused { .. } => Code::IdReused,
        Because::IdTooOld { .. } => Code::IdTooOld,
        Because::NotFound | Because::NoSuchObject { .. } => Code::NotFound,
        Because::StaleFence { .. } => Code::StaleFence,
        Because::IsGranted
        | Because::IsQueued
        | Because::IsExecution
        | Because::NotAnExecution
        | Because::RetryOfLive
        | Because::SameScopes { .. }
        | Because::ShippedStays { .. } => Code::Conflict,
    }
}

const fn field_of(refusal: &Because) -> Option<&'static str> {
    match refusal {
        Because::TimeOutOfBounds { field, .. } => Some(field),
        Because::Slots => Some("slots"),
        Because::NoteLength => Some("text"),
        Because::RetryOfUnknown => Some("retryOf"),
        _ => None,
    }
}

fn bounds(refusal: &Because) -> Option<Range> {
    let named = |field: &str, min, max, limit: Option<&ObjectName>| {
        Some(Range {
            field: field.to_owned(),
            min,
            max,
            limit: limit.cloned(),
        })
    };
    match refusal {
        Because::TimeOutOfBounds {
            field,
            min_ms,
            max_ms,
            limit,
        } => named(field, *min_ms, *max_ms, limit.as_ref()),
        Because::Slots => named("slots", 1, u64::from(u32::MAX), None),
        Because::QueueFull { limit, max } => named("maxQueue", 0, *max, Some(limit)),
        Because::TenantQueueFull { limit, max } => named("maxQueuePerTenant", 0, *max, Some(limit)),
        _ => None,
    }
}
