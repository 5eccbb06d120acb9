//! One table: which code the engine's refusals and the ledger's failures have. The words are the
//! engine's.

use bursar_client::{Code, Problem};
use bursar_engine::explain::{held_by, refused};
use bursar_engine::{Command, Refusal, State};
use bursar_ledger::intake::Failure;

use crate::booking::answers;
use crate::caller::Caller;
use crate::{booking, spine};

/// When to ask again where nothing better is known.
const RETRY_AFTER_MS: u64 = 1_000;

/// The problem that a refusal of `command`, as of a record, is to this caller. Who holds and the
/// nearest name are no part of the decision: they are read from `state`, which has that record.
pub(crate) fn of_refusal(
    state: &State,
    record: u64,
    caller: &Caller,
    command: &Command,
    refusal: &Refusal,
) -> Problem {
    let mut told = refused(state, command, refusal);
    if booking::refusal::is_hidden(state, caller, command, refusal) {
        told.detail.clear();
        told.changes.truncate(1);
    }
    let detail = match told.detail.as_str() {
        "" => told.headline,
        detail => format!("{}: {detail}", told.headline),
    };
    let mut problem = Problem {
        changes: told.changes,
        limits: told.limits.iter().map(answers::limit_use).collect(),
        holders: answers::holders(&held_by(&told.holders, |tenant| caller.sees_tenant(tenant))),
        retry_after_ms: told.when.and_then(|when| when.estimate_ms),
        record: Some(record),
        ..Problem::new(code(refusal), detail)
    };
    match refusal {
        Refusal::Booking(refusal) => {
            booking::refusal::add_facts(&mut problem, state, command, refusal);
        }
        Refusal::Market(_) => {}
        Refusal::Spine(refusal) => spine::refusal::add_facts(&mut problem, state, refusal),
    }
    problem
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
        Refusal::Booking(refusal) => booking::refusal::code(refusal),
        Refusal::Market(_) => Code::Conflict,
        Refusal::Spine(refusal) => spine::refusal::code(refusal),
    }
}
