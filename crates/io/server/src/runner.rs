//! Carries out what the ledger says of executions: start, watch, stop, clean (X2, X5).
//!
//! Effects are a function of the committed state, not a queue: at the start the whole set is
//! taken, then the differences after each commit. Every execution that holds a slot has one task;
//! at most [`STARTING_MAX`] of them start something at a time. What is found goes back to
//! the ledger as commands, and only their records free slots. Nothing is decided here.
//!
//! A runner may end at any moment: the next one takes the set from the state again, and the
//! executor starts an id at most once, whoever asks.

mod adopt;
mod attend;
mod outbox;
mod reconcile;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_engine::Event;
use bursar_engine::booking::execution::Wanted;
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::writer::Fact;
use bursar_node::executor::Executor;
use bursar_units::BookingId;
use futures_util::FutureExt as _;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use outbox::Outbox;

use crate::log;

/// How many executions are started at a time: more would only wait for each other. Whoever stops
/// one mostly waits for its grace to pass, and must not keep another from being started.
pub const STARTING_MAX: usize = 64;

/// How long an execution is left alone whose task panicked.
const AFTER_PANIC: Duration = Duration::from_secs(30);

/// What a runner has done, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Executions that were found at the start of a term and taken over.
    pub adopted: AtomicU64,
    /// Stops after which a process was still there.
    pub stops_failed: AtomicU64,
    /// What was cleaned up after an execution that had ended, or that nobody knew.
    pub cleaned: AtomicU64,
    /// Listings, cleanings and forgettings that failed.
    pub troubles: AtomicU64,
}

/// Carries out what the ledger says.
#[derive(Clone)]
pub struct Runner(Arc<Shared>);

struct Shared {
    ledger: Ledger,
    executor: Arc<dyn Executor>,
    counts: Arc<Counts>,
    starting: Semaphore,
    /// The executions that have a task, and how to tell it that something has changed.
    attended: Mutex<BTreeMap<BookingId, Arc<Notify>>>,
}

impl Runner {
    /// A runner over a ledger and whatever runs its work.
    pub fn new(ledger: Ledger, executor: Arc<dyn Executor>, counts: Arc<Counts>) -> Self {
        Self(Arc::new(Shared {
            ledger,
            executor,
            counts,
            starting: Semaphore::new(STARTING_MAX),
            attended: Mutex::default(),
        }))
    }

    /// Runs until it is dropped. Processes go on without it, and the next runner adopts them.
    pub async fn run(self) {
        let shared = &self.0;
        let mut tasks = JoinSet::new();
        let (outbox, delivery) = Outbox::new(shared.ledger.clone());
        tasks.spawn(delivery.run());
        // Whoever listens before it looks misses nothing.
        let mut stream = shared.ledger.view().stream();
        self.take_all(&outbox, &mut tasks);
        let adopted = u64::try_from(shared.attended().len()).unwrap_or(u64::MAX);
        shared.counts.adopted.fetch_add(adopted, Ordering::Relaxed);
        tasks.spawn(reconcile::for_ever(Arc::clone(shared), outbox.clone()));
        loop {
            tokio::select! {
                published = stream.recv() => match published {
                    Ok(facts) => self.take_changes(&facts, &outbox, &mut tasks),
                    Err(RecvError::Lagged(_)) => self.take_all(&outbox, &mut tasks),
                    Err(RecvError::Closed) => return,
                },
                Some(ended) = tasks.join_next() => if ended.is_err_and(|error| error.is_panic()) {
                    // Without its results, or without the reconciler, slots would leak in silence:
                    // end here. The next start finds every execution where it is.
                    tracing::error!("{}", log::RUNNER_PANICKED);
                    std::process::abort();
                },
            }
        }
    }

    /// The whole set: each execution that has no task gets one, all others look again.
    fn take_all(&self, outbox: &Outbox, tasks: &mut JoinSet<()>) {
        let wanted: Vec<BookingId> = {
            let state = self.0.ledger.view().read();
            state
                .bookings
                .all_wanted()
                .map(|(id, _)| id.clone())
                .collect()
        };
        for notify in self.0.attended().values() {
            notify.notify_one();
        }
        for id in wanted {
            self.attend(id, outbox, tasks);
        }
    }

    /// The differences that a commit made.
    fn take_changes(&self, facts: &[Fact], outbox: &Outbox, tasks: &mut JoinSet<()>) {
        let touched = facts
            .iter()
            .flat_map(|fact| fact.events.iter())
            .filter_map(|event| match event {
                Event::Booking(event) => event.booking(),
                _ => None,
            });
        let mut begun = Vec::new();
        {
            let state = self.0.ledger.view().read();
            let attended = self.0.attended();
            for id in touched {
                match attended.get(id) {
                    Some(notify) => notify.notify_one(),
                    None if state.bookings.wanted(id).is_some() => begun.push(id.clone()),
                    None => {}
                }
            }
        }
        for id in begun {
            self.attend(id, outbox, tasks);
        }
    }

    fn attend(&self, id: BookingId, outbox: &Outbox, tasks: &mut JoinSet<()>) {
        let mut attended = self.0.attended();
        if attended.contains_key(&id) {
            return;
        }
        let notify = Arc::new(Notify::new());
        attended.insert(id.clone(), Arc::clone(&notify));
        drop(attended);
        let (shared, outbox) = (Arc::clone(&self.0), outbox.clone());
        tasks.spawn(async move {
            let attend = || attend::attend(&shared, &outbox, &id, &notify);
            while AssertUnwindSafe(attend()).catch_unwind().await.is_err() {
                // A defect that one execution meets must not cost the others theirs.
                shared.trouble();
                tracing::error!(%id, "{}", log::EXECUTION_TASK_PANICKED);
                tokio::time::sleep(AFTER_PANIC).await;
            }
            // What has ended is never wanted again, so nobody can have asked for it meanwhile.
            shared.attended().remove(&id);
        });
    }
}

impl Shared {
    fn attended(&self) -> MutexGuard<'_, BTreeMap<BookingId, Arc<Notify>>> {
        self.attended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wanted(&self, id: &BookingId) -> Option<Wanted> {
        self.ledger.view().read().bookings.wanted(id)
    }

    fn trouble(&self) {
        self.counts.troubles.fetch_add(1, Ordering::Relaxed);
    }
}
