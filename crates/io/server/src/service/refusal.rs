//! One table: which code the engine's refusals and the ledger's failures have. The words are the
//! engine's.

use bursar_client::problem::{Bounds, FieldError};
use bursar_client::{Code, Problem};
use bursar_engine::booking::Standing;
use bursar_engine::booking::decide::Refusal as BookingRefusal;
use bursar_engine::explain::{held_by, refused};
use bursar_engine::spine::Refusal as SpineRefusal;
use bursar_engine::{Command, Refusal, State};
use bursar_ledger::intake::Failure;

use super::answers;
use super::nearest::nearest;
use crate::caller::Caller;

/// When to ask again where nothing better is known.
const RETRY_AFTER_MS: u64 = 1_000;

/// The problem that a refusal of `command`, as of a record, is to this caller. Who holds and the
/// nearest name are no part of the decision: they are read from `state`, which has that record.
pub(super) fn of_refusal(
    state: &State,
    record: u64,
    caller: &Caller,
    command: &Command,
    refusal: &Refusal,
) -> Problem {
    let mut told = refused(state, command, refusal);
    if is_hidden(state, caller, command, refusal) {
        told.detail.clear();
        told.changes.truncate(1);
    }
    let detail = match told.detail.as_str() {
        "" => told.headline,
        detail => format!("{}: {detail}", told.headline),
    };
    let mut problem = Problem {
        errors: field_of(refusal)
            .map(|field| FieldError::new(field, &detail))
            .into_iter()
            .collect(),
        bounds: bounds(refusal),
        changes: told.changes,
        limits: told.limits.iter().map(answers::limit_use).collect(),
        holders: answers::holders(&held_by(&told.holders, |tenant| caller.sees_tenant(tenant))),
        retry_after_ms: told.when.and_then(|when| when.estimate_ms),
        record: Some(record),
        ..Problem::new(code(refusal), detail)
    };
    add_facts(&mut problem, state, command, refusal);
    problem
}

/// Whether a refusal tells of a booking that the caller may not see. That the id is taken is all
/// it learns: neither whose it is nor what was asked under it.
fn is_hidden(state: &State, caller: &Caller, command: &Command, refusal: &Refusal) -> bool {
    let Refusal::Booking(BookingRefusal::IdReused { .. }) = refusal else {
        return false;
    };
    let id = command.booking_id();
    let known = id.and_then(|id| state.bookings.request(id));
    !known.is_some_and(|request| caller.sees_tenant(&request.tenant))
}

/// What programs want to know beyond the words: how a booking ended, and the nearest name.
fn add_facts(problem: &mut Problem, state: &State, command: &Command, refusal: &Refusal) {
    match refusal {
        Refusal::Booking(BookingRefusal::StaleFence { end: Some(end) }) => {
            problem.end = Some(*end);
            let id = command.booking_id();
            if let Some(Standing::Ended(ended)) = id.and_then(|id| state.bookings.standing(id)) {
                problem.ended_at = Some(ended.ended_at());
            }
        }
        Refusal::Booking(BookingRefusal::NoSuchObject { name }) => {
            let limits = state.bookings.limits();
            let names = limits.map(|declared| declared.limit.name.as_str());
            problem.suggestion = nearest(name.as_str(), names);
        }
        Refusal::Spine(SpineRefusal::NoSuchNode { name }) => {
            let names = state.spine.inventory.iter().map(|node| node.name.as_str());
            problem.suggestion = nearest(name.as_str(), names);
        }
        Refusal::Spine(SpineRefusal::NoSuchToken { name }) => {
            let tokens = state.spine.tokens.iter();
            let names = tokens.map(|(token, _)| token.name.as_str());
            problem.suggestion = nearest(name.as_str(), names);
        }
        Refusal::Spine(SpineRefusal::Version { present, .. }) => {
            problem.resource_version.clone_from(present);
        }
        _ => {}
    }
}

/// The bounds that a refusal names.
fn bounds(refusal: &Refusal) -> Option<Bounds> {
    let (field, min, max, limit) = match refusal {
        Refusal::Booking(BookingRefusal::TimeOutOfBounds {
            field,
            min_ms,
            max_ms,
            limit,
        }) => (*field, *min_ms, *max_ms, limit.as_ref()),
        Refusal::Booking(BookingRefusal::Slots) => ("slots", 1, u64::from(u32::MAX), None),
        Refusal::Booking(BookingRefusal::QueueFull { limit, max }) => {
            ("maxQueue", 0, *max, Some(limit))
        }
        Refusal::Booking(BookingRefusal::TenantQueueFull { limit, max }) => {
            ("maxQueuePerTenant", 0, *max, Some(limit))
        }
        Refusal::Spine(SpineRefusal::NotAnchored { below_max }) => ("below", 0, *below_max, None),
        _ => return None,
    };
    Some(Bounds {
        field: field.to_owned(),
        min,
        max,
        limit: limit.cloned(),
    })
}

/// The field of the request that a refusal is about.
const fn field_of(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::Booking(BookingRefusal::TimeOutOfBounds { field, .. }) => Some(field),
        Refusal::Booking(BookingRefusal::Slots) => Some("slots"),
        Refusal::Booking(BookingRefusal::RetryOfUnknown) => Some("retryOf"),
        _ => None,
    }
}

/// The problem that a failure of the ledger is.
pub fn of_failure(failure: &Failure) -> Problem {
    let (code, retry_after_ms) = match failure {
        Failure::Busy => (Code::Busy, Some(RETRY_AFTER_MS)),
        Failure::SlowDown => (Code::SlowDown, Some(RETRY_AFTER_MS)),
        Failure::DiskLow => (Code::DiskLow, None),
        Failure::NotLeader => (Code::NotLeader, Some(RETRY_AFTER_MS)),
        Failure::Unavailable => (Code::Unavailable, Some(RETRY_AFTER_MS)),
        Failure::StoreAway => (Code::StoreAway, None),
        Failure::OutcomeUnknown => (Code::OutcomeUnknown, None),
        Failure::Internal => (Code::Internal, None),
    };
    let hint = match code {
        Code::OutcomeUnknown => "; repeat the request with the same id, that is safe",
        Code::StoreAway => "; the log of the server says where its records are",
        Code::DiskLow => "; only requests that free resources are accepted until there is space",
        _ => "",
    };
    Problem {
        retry_after_ms,
        ..Problem::new(code, format!("{failure}{hint}"))
    }
}

/// Which code a refusal has.
const fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Booking(refusal) => booking_code(refusal),
        Refusal::Spine(refusal) => spine_code(refusal),
        Refusal::Market(_) => Code::Conflict,
    }
}

const fn spine_code(refusal: &SpineRefusal) -> Code {
    match refusal {
        SpineRefusal::TokenExists { .. }
        | SpineRefusal::NotAnchored { .. }
        | SpineRefusal::Version { .. }
        | SpineRefusal::AlreadyBegun => Code::Conflict,
        SpineRefusal::NoSuchToken { .. } | SpineRefusal::NoSuchNode { .. } => Code::NotFound,
        SpineRefusal::KeyReused => Code::IdReused,
    }
}

const fn booking_code(refusal: &BookingRefusal) -> Code {
    match refusal {
        BookingRefusal::OverLimit { .. }
        | BookingRefusal::OthersFirst { .. }
        | BookingRefusal::QueueFull { .. }
        | BookingRefusal::TenantQueueFull { .. } => Code::OverLimit,
        BookingRefusal::NeverFits { .. } => Code::NeverFits,
        BookingRefusal::TimeOutOfBounds { .. }
        | BookingRefusal::RetryOfUnknown
        | BookingRefusal::Slots => Code::Invalid,
        BookingRefusal::IdReused { .. } => Code::IdReused,
        BookingRefusal::IdTooOld { .. } => Code::IdTooOld,
        BookingRefusal::NotFound | BookingRefusal::NoSuchObject { .. } => Code::NotFound,
        BookingRefusal::StaleFence { .. } => Code::StaleFence,
        BookingRefusal::IsGranted
        | BookingRefusal::IsQueued
        | BookingRefusal::IsExecution
        | BookingRefusal::NotAnExecution
        | BookingRefusal::RetryOfLive
        | BookingRefusal::SameScopes { .. }
        | BookingRefusal::ShippedStays { .. } => Code::Conflict,
    }
}
