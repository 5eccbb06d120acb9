//! What is there against what should be (X5).
//!
//! It looks at executions only and touches only what carries our ledger's id. Something is
//! stopped only if the ledger knows its id as ended, or has not known it in two listings that are
//! [`TWICE`] apart; a listing that failed is no listing. A ledger that was ever restored may have
//! lost what it knew: there, what runs and was not started as far as the ledger knows is adopted
//! instead, whether a shim watches it or not, and never killed. That a process is gone is never
//! concluded here: the task of each execution asks the executor for that one.

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

/// How far apart two listings must be that both find something unknown, and how often one is made.
const TWICE: Duration = Duration::from_secs(30);
/// Of how many ended executions the output is kept: the newest. Each has at most twice 10 MiB.
const OUTPUTS_MAX: usize = 10_000;

/// What earlier listings found.
#[derive(Default)]
struct Seen {
    /// What the ledger did not know, and since when.
    unknown: BTreeMap<BookingId, Instant>,
    /// What has ended and was cleaned up.
    cleaned: BTreeSet<BookingId>,
}

/// Looks again and again.
pub(super) async fn for_ever(shared: Arc<Shared>, outbox: Outbox) {
    let mut seen = Seen::default();
    let mut ticks = interval(TWICE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        look(&shared, &outbox, &mut seen).await;
        forget_works(&shared).await;
    }
}

async fn look(shared: &Arc<Shared>, outbox: &Outbox, seen: &mut Seen) {
    let executor = Arc::clone(&shared.executor);
    let listed = match tokio::task::spawn_blocking(move || executor.list()).await {
        Ok(Ok(listed)) => listed,
        Ok(Err(error)) => {
            shared.trouble();
            tracing::warn!(error = chain(&error), "{}", log::EXECUTION_NOT_LISTED);
            return;
        }
        Err(_) => return shared.trouble(),
    };
    let mut listed: BTreeSet<BookingId> = listed.into_iter().collect();
    for id in strays(shared, &listed) {
        if !is_dead(shared, outbox, &id).await {
            listed.remove(&id);
        }
    }
    seen.unknown.retain(|id, _| listed.contains(id));
    seen.cleaned.retain(|id| listed.contains(id));
    for (id, left) in condemned(shared, seen, &listed) {
        if clean(shared, &id, left).await {
            seen.cleaned.insert(id);
        }
    }
}

/// What a restored ledger may have lost: it is there, and its slot is not held (X5). One that has
/// ended without a start may be here too: its process, if it has any, is one of the lost records.
fn strays(shared: &Shared, listed: &BTreeSet<BookingId>) -> Vec<BookingId> {
    let state = shared.ledger.view().read();
    if state.spine.generation == 0 {
        return Vec::new();
    }
    let is_stray = |id: &&BookingId| {
        match state.bookings.standing(id) {
            None | Some(Standing::Queued { .. }) => true,
            // Its own task adopts one that is about to start.
            Some(Standing::Granted(_)) => false,
            Some(Standing::Ended(ended)) => {
                let course = ended.course();
                let has_started = course.is_some_and(|course| course.started.is_some());
                // An operator forced it, so nobody waited for its start.
                !has_started && ended.end() != End::Forced
            }
        }
    };
    listed.iter().filter(is_stray).cloned().collect()
}

/// Whether nothing lives of a stray; what runs is adopted.
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

/// What lives of an execution, if that can be seen.
pub(super) async fn life(shared: &Shared, id: &BookingId) -> Option<Life> {
    let (executor, looked_at) = (Arc::clone(&shared.executor), id.clone());
    match tokio::task::spawn_blocking(move || executor.life(&looked_at)).await {
        Ok(Ok(life)) => Some(life),
        Ok(Err(error)) => {
            shared.trouble();
            tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_SEEN);
            None
        }
        Err(_) => {
            shared.trouble();
            None
        }
    }
}

/// What must go, with what may stay of it.
fn condemned(
    shared: &Shared,
    seen: &mut Seen,
    listed: &BTreeSet<BookingId>,
) -> Vec<(BookingId, Left)> {
    let state = shared.ledger.view().read();
    let mut ended = Vec::new();
    let mut condemned = Vec::new();
    for id in listed {
        match state.bookings.standing(id) {
            Some(Standing::Ended(end)) => ended.push((end.ended_at(), id)),
            // Its own task takes care of it, or it has yet to be started.
            Some(_) => drop(seen.unknown.remove(id)),
            None => {
                let since = *seen.unknown.entry(id.clone()).or_insert_with(Instant::now);
                if TWICE <= since.elapsed() {
                    condemned.push((id.clone(), Left::Nothing));
                }
            }
        }
    }
    ended.sort_unstable_by(|a, b| b.cmp(a));
    for (place, (_, id)) in ended.into_iter().enumerate() {
        if OUTPUTS_MAX <= place {
            condemned.push((id.clone(), Left::Nothing));
        } else if !seen.cleaned.contains(id) {
            condemned.push((id.clone(), Left::Output));
        }
    }
    condemned
}

/// Ends and removes what is left; whether that worked.
pub(super) async fn clean(shared: &Shared, id: &BookingId, left: Left) -> bool {
    let (executor, cleaned) = (Arc::clone(&shared.executor), id.clone());
    match tokio::task::spawn_blocking(move || executor.clean(&cleaned, left)).await {
        Ok(Ok(())) => {
            shared.counts.cleaned.fetch_add(1, Ordering::Relaxed);
            true
        }
        Ok(Err(error)) => {
            shared.trouble();
            tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_CLEANED);
            false
        }
        Err(_) => {
            shared.trouble();
            false
        }
    }
}

/// What is to be run is needed until it has been started.
async fn forget_works(shared: &Arc<Shared>) {
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
    let executor = Arc::clone(&shared.executor);
    let forget = move || executor.forget(&|work| needed.contains(work));
    match tokio::task::spawn_blocking(forget).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            shared.trouble();
            tracing::warn!(
                error = chain(&error),
                "{}",
                log::EXECUTION_WORK_NOT_FORGOTTEN
            );
        }
        Err(_) => shared.trouble(),
    }
}
