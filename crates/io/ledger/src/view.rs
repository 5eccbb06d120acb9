//! The committed state for readers, with its subscribers and watchers (L1, step 8; L3).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use bursar_engine::{Event, Reference, State};
use tokio::sync::{broadcast, oneshot, watch};

use crate::log;
use crate::writer::{Batch, Evidence, Fact};

/// The most published batches that a subscriber may lag behind; then it must read the store. A
/// batch may have 4,096 records, and a subscriber that lags keeps them in memory.
const STREAM_LAG_MAX: usize = 128;
/// Number of watched objects from which those without a watcher are removed.
const WATCHED_MIN: usize = 1_024;

/// Records that were published together.
pub type Published = Arc<Vec<Fact>>;

/// The committed state, for all readers.
pub struct View {
    state: RwLock<State>,
    head: watch::Sender<u64>,
    stream: broadcast::Sender<Published>,
    watchers: Mutex<Watchers>,
    pub(crate) evidence: Evidence,
}

#[derive(Default)]
struct Watchers {
    by_object: BTreeMap<Reference, Vec<oneshot::Sender<()>>>,
    /// Number of entries from which those without a watcher are removed.
    sweep_at: usize,
}

impl View {
    /// A view of a committed state. It removes the evidence of life of objects that have ended.
    pub(crate) fn new(state: State, evidence: Evidence) -> Self {
        let head = state.spine.head;
        Self {
            state: RwLock::new(state),
            head: watch::Sender::new(head),
            stream: broadcast::Sender::new(STREAM_LAG_MAX),
            watchers: Mutex::default(),
            evidence,
        }
    }

    /// The state. Hold the guard briefly: publishing waits for it.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of published records, as it grows.
    pub fn head(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    /// Records as they are published.
    pub fn stream(&self) -> broadcast::Receiver<Published> {
        self.stream.subscribe()
    }

    /// Resolves when something happens to an object after this call.
    pub fn changed(&self, object: Reference) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if watchers.by_object.len() >= watchers.sweep_at {
            let is_watched = |list: &[oneshot::Sender<()>]| list.iter().any(|one| !one.is_closed());
            watchers.by_object.retain(|_, list| is_watched(list));
            watchers.sweep_at = WATCHED_MIN.max(2 * watchers.by_object.len());
        }
        watchers.by_object.entry(object).or_default().push(sender);
        receiver
    }

    /// Publishes a durable batch: applies its events, answers its callers, notifies subscribers.
    pub(crate) fn publish(&self, batch: Batch) {
        self.fold(&batch.facts);
        for (reply, outcomes) in batch.pending {
            reply(Ok(outcomes));
        }
        let Some(last) = batch.facts.last() else {
            return;
        };
        self.head.send_replace(last.seq + 1);
        self.wake_watchers(&batch.facts);
        self.forget_evidence(&batch.facts);
        if self.stream.receiver_count() > 0 {
            // The last receiver may be gone meanwhile.
            let _nobody = self.stream.send(Arc::new(batch.facts));
        }
    }

    fn fold(&self, facts: &[Fact]) {
        if facts.is_empty() {
            return;
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for fact in facts {
            let fold = AssertUnwindSafe(|| state.apply_record(fact.time, &fact.events));
            if catch_unwind(fold).is_err() {
                // A commit is final, and a state that is half folded must not be read: end here.
                // The next start names the record too (L2).
                tracing::error!(record = fact.seq, "{}", log::RECORD_NOT_FOLDED);
                std::process::abort();
            }
        }
    }

    fn wake_watchers(&self, facts: &[Fact]) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if watchers.by_object.is_empty() {
            return;
        }
        for object in events(facts).flat_map(Event::subjects) {
            for watcher in watchers.by_object.remove(&object).unwrap_or_default() {
                // The watcher may be gone.
                let _gone = watcher.send(());
            }
        }
    }

    /// Evidence of life is needed until the end of an object is durable.
    fn forget_evidence(&self, facts: &[Fact]) {
        let mut evidence = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
        if evidence.is_empty() {
            return;
        }
        for object in events(facts).filter_map(Event::ends) {
            evidence.remove(&object);
        }
    }
}

fn events(facts: &[Fact]) -> impl Iterator<Item = &Event> {
    facts.iter().flat_map(|fact| fact.events.iter())
}
