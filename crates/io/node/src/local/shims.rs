//! The shims that this server has started: its own children, reaped by a task each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_units::BookingId;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Closes when a shim is reaped; nothing is ever sent.
pub(super) type Gone = watch::Receiver<()>;

/// The shims that are not reaped yet, by execution.
#[derive(Debug, Default)]
pub(super) struct Shims {
    alive: Arc<Mutex<BTreeMap<BookingId, Gone>>>,
}

impl Shims {
    /// Reaps a shim when it ends, whether or not anybody waits for its execution.
    pub(super) fn adopt(&self, id: &BookingId, mut child: Child) -> Gone {
        let (sender, gone) = watch::channel(());
        lock(&self.alive).insert(id.clone(), gone.clone());
        let alive = Arc::clone(&self.alive);
        let (id, own) = (id.clone(), gone.clone());
        tokio::spawn(async move {
            let _ = child.wait().await;
            let mut alive = lock(&alive);
            // A newer shim of the same execution may be registered by now.
            if alive.get(&id).is_some_and(|gone| gone.same_channel(&own)) {
                alive.remove(&id);
            }
            drop(sender);
        });
        gone
    }

    /// Resolves when the shim of an execution is gone, at once if this server did not start it.
    pub(super) async fn gone(&self, id: &BookingId) {
        let gone = lock(&self.alive).get(id).cloned();
        if let Some(gone) = gone {
            wait(gone).await;
        }
    }

    /// Waits until the shim is gone, or until `pause` has passed.
    pub(super) async fn pause(&self, id: &BookingId, pause: Duration) {
        let gone = lock(&self.alive).get(id).cloned();
        match gone {
            Some(gone) => drop(timeout(pause, wait(gone)).await),
            None => sleep(pause).await,
        }
    }
}

pub(super) async fn wait(mut gone: Gone) {
    while gone.changed().await.is_ok() {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
