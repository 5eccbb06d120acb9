//! The committed read state, and whoever waits for it (L1, step 8; L3).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use bursar_engine::booking::Event as BookingEvent;
use bursar_engine::{Event, State};
use bursar_units::BookingId;
use tokio::sync::{broadcast, oneshot, watch};

use crate::writer::{Batch, Fact, Pending};

/// How many published batches a slow subscriber may lag behind before it must read the store.
const STREAM_LAG_MAX: usize = 1_024;

/// Records that were published together.
pub type Published = Arc<Vec<Fact>>;

/// What is committed, for everyone to read.
pub struct View {
    state: RwLock<State>,
    head: watch::Sender<u64>,
    stream: broadcast::Sender<Published>,
    watchers: Mutex<BTreeMap<BookingId, Vec<oneshot::Sender<()>>>>,
}

impl View {
    /// A view of a committed state.
    pub fn new(state: State) -> Self {
        let head = state.head;
        Self {
            state: RwLock::new(state),
            head: watch::Sender::new(head),
            stream: broadcast::Sender::new(STREAM_LAG_MAX),
            watchers: Mutex::default(),
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

    /// Resolves when something happens to a booking after this call.
    pub fn changed(&self, id: &BookingId) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        let list = watchers.entry(id.clone()).or_default();
        list.retain(|other| !other.is_closed());
        list.push(tell);
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
            let fold = AssertUnwindSafe(|| state.apply_record(&fact.events));
            if catch_unwind(fold).is_err() {
                // What is committed cannot be taken back, and a state that is half folded must
                // not be read: end here. The start that follows names the record too (L2).
                tracing::error!(record = fact.seq, "a committed record cannot be folded");
                std::process::abort();
            }
        }
    }

    fn tell(&self, facts: Vec<Fact>) {
        let Some(last) = facts.last() else { return };
        self.head.send_replace(last.seq + 1);
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if !watchers.is_empty() {
            for id in facts
                .iter()
                .flat_map(|fact| &fact.events)
                .filter_map(|(_, e)| subject(e))
            {
                for watcher in watchers.remove(id).unwrap_or_default() {
                    // A watcher that went away needs no word.
                    let _gone = watcher.send(());
                }
            }
        }
        drop(watchers);
        if self.stream.receiver_count() > 0 {
            // Without a receiver there is nobody to tell.
            let _nobody = self.stream.send(Arc::new(facts));
        }
    }
}

fn subject(event: &Event) -> Option<&BookingId> {
    match event {
        Event::Booking(
            BookingEvent::Reserved { id, .. }
            | BookingEvent::Granted { id, .. }
            | BookingEvent::Renewed { id, .. }
            | BookingEvent::Ended { id, .. },
        ) => Some(id),
        _ => None,
    }
}
