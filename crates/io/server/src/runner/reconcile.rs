//! Compares the executions on the machine with those that the ledger knows (X5).
//!
//! It changes only executions with the id of this ledger. One is stopped only if the ledger knows
//! its id as ended, or has not known it in two listings that are [`LISTING_PAUSE`] apart; a listing
//! that failed does not count. A ledger that was restored may have lost records: a running process
//! that it does not know as started is adopted, with or without a shim, and never killed. The end of
//! a process is never decided here: the task of each execution gets it from the executor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bursar_engine::booking::{End, Standing};
use bursar_node::executor::{Left, Life};
use bursar_units::BookingId;
use bursar_units::causes::chain;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::outbox::Outbox;
use super::{Ordering, Shared, adopt};
use crate::log;

/// Pause between two listings; an execution that is unknown for so long is cleaned.
const LISTING_PAUSE: Duration = Duration::from_secs(30);
/// Number of ended executions whose output is kept, the newest. Each has at most twice 10 MiB.
const OUTPUTS_MAX: usize = 10_000;

/// Results of earlier listings.
#[derive(Default)]
struct History {
    /// Executions that the ledger does not know, each with the time of the first listing.
    unknown: BTreeMap<BookingId, Instant>,
    /// Executions that have ended and were cleaned.
    cleaned: BTreeSet<BookingId>,
}

pub(super) async fn for_ever(shared: Arc<Shared>, outbox: Outbox) {
    let mut history = History::default();
    let mut ticks = interval(LISTING_PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        reconcile(&shared, &outbox, &mut history).await;
        forget_works(&shared).await;
    }
}

async fn reconcile(shared: &Shared, outbox: &Outbox, history: &mut History) {
    let listed = match shared.executor.list().await {
        Ok(listed) => listed,
        Err(error) => {
            shared.trouble();
            tracing::warn!(error = chain(&error), "{}", log::EXECUTION_NOT_LISTED);
            return;
        }
    };
    let mut listed: BTreeSet<BookingId> = listed.into_iter().collect();
    for id in strays(shared, &listed) {
        if !is_dead(shared, outbox, &id).await {
            listed.remove(&id);
        }
    }
    history.unknown.retain(|id, _| listed.contains(id));
    history.cleaned.retain(|id| listed.contains(id));
    for (id, left) in condemned(shared, history, &listed) {
        if clean(shared, &id, left).await {
            history.cleaned.insert(id);
        }
    }
}

/// Executions without a slot whose start may be in the records that a restore has lost (X5). One
/// that has ended without a start is among them.
fn strays(shared: &Shared, listed: &BTreeSet<BookingId>) -> Vec<BookingId> {
    let state = shared.ledger.view().read();
    if state.spine.generation == 0 {
        return Vec::new();
    }
    let is_stray = |id: &&BookingId| {
        match state.bookings.standing(id) {
            None | Some(Standing::Queued { .. }) => true,
            // The task of the execution adopts it.
            Some(Standing::Granted(_)) => false,
            Some(Standing::Ended(ended)) => {
                let course = ended.course();
                let has_started = course.is_some_and(|course| course.started.is_some());
                // An operator has forced its end: its process is cleaned, not adopted.
                !has_started && ended.end() != End::Forced
            }
        }
    };
    listed.iter().filter(is_stray).cloned().collect()
}

/// Whether a stray has no live process; one that runs is adopted.
async fn is_dead(shared: &Shared, outbox: &Outbox, id: &BookingId) -> bool {
    match life(shared, id).await {
        None => false,
        Some(Life::Nothing) => true,
        Some(Life::Running {
            note, isolation, ..
        }) => {
            adopt::adopt(outbox, id, &note, isolation).await;
            false
        }
    }
}

/// State of the processes of an execution, if it can be read.
pub(super) async fn life(shared: &Shared, id: &BookingId) -> Option<Life> {
    match shared.executor.life(id).await {
        Ok(life) => Some(life),
        Err(error) => {
            shared.trouble();
            tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_SEEN);
            None
        }
    }
}

/// Executions to clean, each with the rest that stays.
fn condemned(
    shared: &Shared,
    history: &mut History,
    listed: &BTreeSet<BookingId>,
) -> Vec<(BookingId, Left)> {
    let state = shared.ledger.view().read();
    let mut ended = Vec::new();
    let mut condemned = Vec::new();
    for id in listed {
        match state.bookings.standing(id) {
            Some(Standing::Ended(end)) => ended.push((end.ended_at(), id)),
            // It has a task, or has not started.
            Some(_) => drop(history.unknown.remove(id)),
            None => {
                let since = history.unknown.entry(id.clone());
                let since = since.or_insert_with(Instant::now);
                if LISTING_PAUSE <= since.elapsed() {
                    condemned.push((id.clone(), Left::Nothing));
                }
            }
        }
    }
    ended.sort_unstable_by(|a, b| b.cmp(a));
    for (rank, (_, id)) in ended.into_iter().enumerate() {
        if OUTPUTS_MAX <= rank {
            condemned.push((id.clone(), Left::Nothing));
        } else if !history.cleaned.contains(id) {
            condemned.push((id.clone(), Left::Output));
        }
    }
    condemned
}

/// Ends and removes the rest of an execution; returns whether that worked.
pub(super) async fn clean(shared: &Shared, id: &BookingId, left: Left) -> bool {
    match shared.executor.clean(id, left).await {
        Ok(()) => {
            shared.counts.cleaned.fetch_add(1, Ordering::Relaxed);
            true
        }
        Err(error) => {
            shared.trouble();
            tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_CLEANED);
            false
        }
    }
}

/// Removes the stored work of executions that were started or have ended.
async fn forget_works(shared: &Shared) {
    let needed: BTreeSet<_> = {
        let state = shared.ledger.view().read();
        let has_begun = |id: &BookingId| match state.bookings.standing(id) {
            Some(Standing::Granted(granted)) => {
                let progress = granted.progress();
                progress.is_some_and(|progress| progress.started.is_some())
            }
            _ => false,
        };
        let live = state.bookings.live_ids(None).filter(|id| !has_begun(id));
        live.filter_map(|id| Some(state.bookings.order(id)?.work))
            .collect()
    };
    if let Err(error) = shared.executor.forget(needed).await {
        shared.trouble();
        let error = chain(&error);
        tracing::warn!(error, "{}", log::EXECUTION_WORK_NOT_FORGOTTEN);
    }
}
