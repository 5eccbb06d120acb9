//! One table: which code the engine's refusals and the ledger's failures have. The words are the
//! engine's.

use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::booking::Standing;
use bursar_engine::booking::decide::Refusal as BookingRefusal;
use bursar_engine::explain::{held_by, refused};
use bursar_engine::{Command, Refusal, State};
use bursar_ledger::intake::Failure;

use super::nearest::nearest;
use super::{answers, last_record};
use crate::caller::Caller;

/// When to ask again where nothing better is known.
const RETRY_AFTER_MS: u64 = 1_000;

/// The problem that a refusal of `command` is to this caller.
pub(super) fn of_refusal(
    state: &State,
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
        changes: told.changes,
        limits: told.limits.iter().map(answers::limit_use).collect(),
        holders: answers::holders(&held_by(&told.holders, |tenant| caller.sees_tenant(tenant))),
        retry_after_ms: told.when.and_then(|when| when.estimate_ms),
        record: Some(last_record(state)),
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
            let limits = state
                .bookings
                .limits()
                .map(|declared| declared.limit.name.as_str());
            let nodes = state.bookings.nodes().map(|(name, _)| name.as_str());
            problem.suggestion = nearest(name.as_str(), limits.chain(nodes));
        }
        Refusal::NoSuchToken { name } => {
            let names = state.tokens.iter().map(|(token, _)| token.name.as_str());
            problem.suggestion = nearest(name.as_str(), names);
        }
        _ => {}
    }
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
        Refusal::TokenExists { .. }
        | Refusal::NotAnchored { .. }
        | Refusal::AlreadyBegun
        | Refusal::Market(_) => Code::Conflict,
        Refusal::NoSuchToken { .. } => Code::NotFound,
        Refusal::KeyReused => Code::IdReused,
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
