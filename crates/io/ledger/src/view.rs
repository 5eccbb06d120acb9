//! The committed read state, and whoever waits for it (L1, step 8; L3).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use bursar_engine::{Event, Reference, State};
use tokio::sync::{broadcast, oneshot, watch};

use crate::log;
use crate::writer::{Batch, Evidence, Fact, Pending};

/// How many published batches a slow subscriber may lag behind before it must read the store. A
/// batch may have 4,096 records, and whoever lags keeps them in memory.
const STREAM_LAG_MAX: usize = 128;
/// Number of watched objects from which those without a watcher are removed.
const WATCHED_MIN: usize = 1_024;

/// Records that were published together.
pub type Published = Arc<Vec<Fact>>;

/// What is committed, for everyone to read.
pub struct View {
    state: RwLock<State>,
    head: watch::Sender<u64>,
    stream: broadcast::Sender<Published>,
    watchers: Mutex<Watchers>,
    evidence: Evidence,
}

#[derive(Default)]
struct Watchers {
    by_object: BTreeMap<Reference, Vec<oneshot::Sender<()>>>,
    /// At how many entries those are dropped that nobody watches any more.
    sweep_at: usize,
}

impl View {
    /// A view of a committed state, which forgets the evidence of life of whatever has ended.
    pub fn new(state: State, evidence: Evidence) -> Self {
        let head = state.spine.head;
        Self {
            state: RwLock::new(state),
            head: watch::Sender::new(head),
            stream: broadcast::Sender::new(STREAM_LAG_MAX),
            watchers: Mutex::default(),
            evidence,
        }
    }

    /// The state. Hold it shortly: publishing waits for it.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many records it covers, as it grows.
    pub fn head(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    /// Records as they are published.
    pub fn stream(&self) -> broadcast::Receiver<Published> {
        self.stream.subscribe()
    }

    /// Resolves when something happens to an object after this call.
    pub fn changed(&self, object: Reference) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if watchers.by_object.len() >= watchers.sweep_at {
            watchers
                .by_object
                .retain(|_, list| list.iter().any(|other| !other.is_closed()));
            watchers.sweep_at = WATCHED_MIN.max(2 * watchers.by_object.len());
        }
        watchers.by_object.entry(object).or_default().push(tell);
        told
    }

    /// Publishes a durable batch: the view applies, all answers leave, subscribers are told.
    pub fn publish(&self, batch: Batch) {
        self.fold(&batch.facts);
        for Pending { reply, outcomes } in batch.pending {
            reply(Ok(outcomes));
        }
        self.tell(batch.facts);
    }

    /// Folds records that turned out to be committed although nobody was told (L2).
    pub fn catch_up(&self, facts: Vec<Fact>) {
        self.fold(&facts);
        self.tell(facts);
    }

    fn fold(&self, facts: &[Fact]) {
        if facts.is_empty() {
            return;
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for fact in facts {
            let fold = AssertUnwindSafe(|| state.apply_record(fact.time, &fact.events));
            if catch_unwind(fold).is_err() {
                // What is committed cannot be taken back, and a state that is half folded must
                // not be read: end here. The start that follows names the record too (L2).
                tracing::error!(record = fact.seq, "{}", log::RECORD_NOT_FOLDED);
                std::process::abort();
            }
        }
    }

    fn tell(&self, facts: Vec<Fact>) {
        let Some(last) = facts.last() else { return };
        self.head.send_replace(last.seq + 1);
        self.wake_watchers(&facts);
        self.forget_evidence(&facts);
        if self.stream.receiver_count() > 0 {
            // Without a receiver there is nobody to tell.
            let _nobody = self.stream.send(Arc::new(facts));
        }
    }

    fn wake_watchers(&self, facts: &[Fact]) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if watchers.by_object.is_empty() {
            return;
        }
        for object in events(facts).flat_map(Event::subjects) {
            for watcher in watchers.by_object.remove(&object).unwrap_or_default() {
                // A watcher that went away needs no word.
                let _gone = watcher.send(());
            }
        }
    }

    /// Only what is durably over needs no evidence of life any more.
    fn forget_evidence(&self, facts: &[Fact]) {
        let mut evidence = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
        if evidence.is_empty() {
            return;
        }
        for event in events(facts) {
            if let Some(object) = event.ends() {
                evidence.remove(&object);
            }
        }
    }
}

fn events(facts: &[Fact]) -> impl Iterator<Item = &Event> {
    facts.iter().flat_map(|fact| fact.events.iter())
}
