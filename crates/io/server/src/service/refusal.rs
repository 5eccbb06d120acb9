//! Problem codes of the engine's refusals and of the ledger's failures. The texts are the engine's.

use bursar_client::{Code, Problem};
use bursar_engine::explain::{held_by, refused};
use bursar_engine::{Command, Refusal, State};
use bursar_ledger::intake::Failure;

use crate::booking::answers;
use crate::caller::Caller;
use crate::{booking, cluster, spine};

/// Time before a retry where no estimate is known.
const RETRY_AFTER_MS: u64 = 1_000;

/// Creates the problem of a refusal, as the caller may see it. Holders and the nearest name are not
/// part of the decision; they come from `state`, which includes `record`.
pub(crate) fn of_refusal(
    state: &State,
    record: u64,
    caller: &Caller,
    command: &Command,
    refusal: &Refusal,
) -> Problem {
    let mut why = refused(state, command, refusal);
    let is_hidden = match refusal {
        Refusal::Cluster(refusal) => cluster::refusal::is_hidden(state, caller, refusal),
        refusal => booking::refusal::is_hidden(state, caller, command, refusal),
    };
    if is_hidden {
        why.detail.clear();
        why.changes.truncate(1);
    }
    let detail = match why.detail.as_str() {
        "" => why.headline,
        detail => format!("{}: {detail}", why.headline),
    };
    let mut problem = Problem {
        changes: why.changes,
        limits: why.limits.iter().map(answers::limit_use).collect(),
        holders: answers::holders(&held_by(&why.holders, |tenant| caller.sees_tenant(tenant))),
        retry_after_ms: why.when.and_then(|when| when.estimate_ms),
        record: Some(record),
        ..Problem::new(code(refusal), detail)
    };
    match refusal {
        Refusal::Booking(refusal) => {
            booking::refusal::add_facts(&mut problem, state, command, refusal);
        }
        Refusal::Market(_) => {}
        Refusal::Cluster(refusal) => {
            cluster::refusal::add_facts(&mut problem, state, caller, command, refusal);
        }
        Refusal::Spine(refusal) => spine::refusal::add_facts(&mut problem, state, refusal),
    }
    problem
}

/// Creates the problem of a failure of the ledger.
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
        Code::OutcomeUnknown => "; repeat the request with the same id, which is safe",
        Code::StoreAway => "; the server's log names the file of its records",
        Code::DiskLow => "; only requests that free resources are accepted until there is space",
        _ => "",
    };
    Problem {
        retry_after_ms,
        ..Problem::new(code, format!("{failure}{hint}"))
    }
}

const fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Booking(refusal) => booking::refusal::code(refusal),
        Refusal::Market(_) => Code::Conflict,
        Refusal::Cluster(refusal) => cluster::refusal::code(refusal),
        Refusal::Spine(refusal) => spine::refusal::code(refusal),
    }
}
