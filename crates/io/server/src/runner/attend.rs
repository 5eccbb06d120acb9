//! One execution, from its grant to its end.

use std::time::Duration;

use bursar_engine::booking::execution::{
    Exit, GRACE_DEFAULT, Isolation, STOPS_UNTIL_STUCK, Wanted,
};
use bursar_engine::booking::{Command, End, Standing};
use bursar_node::executor::{Begun, Job, Left, Life};
use bursar_units::BookingId;
use bursar_units::causes::chain;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::outbox::Outbox;
use super::reconcile::life;
use super::{Ordering, Shared, adopt};
use crate::log;

/// Pause between two checks of an adopted execution without a shim.
const UNWATCHED_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a check that failed.
const UNSEEN_PAUSE: Duration = Duration::from_secs(5);
/// The longest time from a successful stop until its result is known.
const RESULT_WITHIN: Duration = Duration::from_secs(10);
/// Pause after the first failed stop; it doubles up to [`STOP_PAUSE_MAX`].
const STOP_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two stops of a stuck execution.
const STOP_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Does everything that the ledger wants for an execution, until it wants nothing.
pub(super) async fn attend(shared: &Shared, outbox: &Outbox, id: &BookingId, changed: &Notify) {
    while let Some(wanted) = shared.wanted(id) {
        let acted = match wanted {
            Wanted::Start => start(shared, outbox, id, changed).await,
            Wanted::Watch => watch(shared, outbox, id, changed).await,
            Wanted::Stop { failed } => stop(shared, outbox, id, failed).await,
        };
        if acted.is_none() {
            return;
        }
    }
    if is_left_alive(shared, id) {
        clean(shared, id).await;
    }
}

/// `Some` after an act: the state may have changed. `None` ends the task with the runner.
type Acted = Option<()>;

async fn start(shared: &Shared, outbox: &Outbox, id: &BookingId, changed: &Notify) -> Acted {
    let Some(job) = job(shared, id) else {
        // It ended between the two reads of the state.
        return Some(());
    };
    let begun = {
        let _permit = shared.starting.acquire().await.ok()?;
        if shared.wanted(id) != Some(Wanted::Start) {
            return Some(());
        }
        let start = async {
            match unwatched(shared, id).await {
                Some(running) => Err(running),
                None => Ok(shared.executor.start(id, &job).await),
            }
        };
        tokio::select! {
            biased;
            begun = start => begun,
            // Cancelled or overdue: the next step is a stop, which also prevents a later start.
            () = no_longer(shared, id, Wanted::Start, changed) => return Some(()),
        }
    };
    match begun {
        Ok(Begun::Running(isolation)) => report_started(outbox, id, isolation).await,
        Ok(Begun::Gone(exit)) => report_exit(outbox, id, exit).await,
        Err((note, isolation)) => adopt::adopt(outbox, id, &note, isolation).await,
    }
}

async fn watch(shared: &Shared, outbox: &Outbox, id: &BookingId, changed: &Notify) -> Acted {
    let exit = async {
        if is_adopted(shared, id) {
            while unwatched(shared, id).await.is_some() {
                sleep(UNWATCHED_PAUSE).await;
            }
        }
        shared.executor.exit(id).await
    };
    tokio::select! {
        biased;
        exit = exit => report_exit(outbox, id, exit).await,
        () = no_longer(shared, id, Wanted::Watch, changed) => Some(()),
    }
}

/// Note and isolation of a running process without a shim, in a ledger that was restored: the
/// executor would kill it as lost, but its start may be in the lost records (X5).
async fn unwatched(shared: &Shared, id: &BookingId) -> Option<(String, Isolation)> {
    if shared.ledger.view().read().spine.generation == 0 {
        return None;
    }
    loop {
        match life(shared, id).await {
            Some(Life::Running {
                note,
                isolation,
                has_shim: false,
            }) => return Some((note, isolation)),
            Some(_) => return None,
            // It may run: nothing is done until this is known.
            None => sleep(UNSEEN_PAUSE).await,
        }
    }
}

fn is_adopted(shared: &Shared, id: &BookingId) -> bool {
    let state = shared.ledger.view().read();
    match state.bookings.standing(id) {
        Some(Standing::Granted(granted)) => granted
            .progress()
            .is_some_and(|progress| progress.is_adopted),
        _ => false,
    }
}

/// Makes one attempt to stop; returns after the pause before the next, or when the process is gone.
async fn stop(shared: &Shared, outbox: &Outbox, id: &BookingId, failed: u32) -> Acted {
    let within = match shared.executor.stop(id, grace(shared, id)).await {
        Ok(()) => RESULT_WITHIN,
        Err(error) => {
            tracing::warn!(%id, failed, error = chain(&error), "{}", log::EXECUTION_NOT_STOPPED);
            Duration::ZERO
        }
    };
    // Called after the stop: before it, an execution without a start could still start.
    let exit = shared.executor.exit(id);
    tokio::pin!(exit);
    if let Ok(exit) = tokio::time::timeout(within, &mut exit).await {
        return report_exit(outbox, id, exit).await;
    }
    shared.counts.stops_failed.fetch_add(1, Ordering::Relaxed);
    if failed < STOPS_UNTIL_STUCK {
        let (id, attempt) = (id.clone(), failed + 1);
        outbox.send(Command::StopFailed { id, attempt }).await?.ok();
    }
    let doubled = STOP_PAUSE.saturating_mul(1 << failed.min(STOPS_UNTIL_STUCK));
    match tokio::time::timeout(STOP_PAUSE_MAX.min(doubled), exit).await {
        Ok(exit) => report_exit(outbox, id, exit).await,
        Err(_) => Some(()),
    }
}

async fn report_started(outbox: &Outbox, id: &BookingId, isolation: Isolation) -> Acted {
    let id = id.clone();
    // A refusal means that the execution is over; the next read of the state shows it.
    let _refused = outbox.send(Command::Started { id, isolation }).await?;
    Some(())
}

async fn report_exit(outbox: &Outbox, id: &BookingId, exit: Exit) -> Acted {
    let id = id.clone();
    let _refused = outbox.send(Command::Exited { id, exit }).await?;
    Some(())
}

/// Resolves when the ledger wants something else.
async fn no_longer(shared: &Shared, id: &BookingId, wanted: Wanted, changed: &Notify) {
    while shared.wanted(id) == Some(wanted) {
        changed.notified().await;
    }
}

fn job(shared: &Shared, id: &BookingId) -> Option<Job> {
    let state = shared.ledger.view().read();
    let Some(Standing::Granted(granted)) = state.bookings.standing(id) else {
        return None;
    };
    let request = state.bookings.request(id)?;
    let order = state.bookings.order(id)?;
    let charged = |amount: u64| (amount > 0).then_some(amount);
    Some(Job {
        work: order.work,
        fence: granted.fence.0,
        note: adopt::note(&request, order, granted.fence),
        cpu_milli: request.cpu_limit_milli.or(charged(request.cpu_milli)),
        memory_bytes: request.memory_limit_bytes.or(charged(request.memory_bytes)),
        pids: order.pids,
    })
}

fn grace(shared: &Shared, id: &BookingId) -> Duration {
    let state = shared.ledger.view().read();
    let grace = state.bookings.order(id).map(|order| order.grace);
    Duration::from_millis(grace.unwrap_or(GRACE_DEFAULT).ms())
}

/// Whether an execution has ended while its process may be alive: an operator forced its end.
fn is_left_alive(shared: &Shared, id: &BookingId) -> bool {
    let state = shared.ledger.view().read();
    matches!(state.bookings.standing(id), Some(Standing::Ended(ended)) if ended.end() == End::Forced)
}

/// Stops and cleans an execution that has ended. After a failure the reconciler tries again.
async fn clean(shared: &Shared, id: &BookingId) {
    if let Err(error) = shared.executor.stop(id, grace(shared, id)).await {
        shared.trouble();
        tracing::warn!(%id, error = chain(&error), "{}", log::EXECUTION_NOT_STOPPED);
    }
    super::reconcile::clean(shared, id, Left::Output).await;
}
