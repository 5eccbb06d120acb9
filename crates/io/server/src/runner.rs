//! Starts, watches, stops and cleans executions as the ledger decides (X2, X5).
//!
//! Effects are a function of the committed state, not a queue: the runner reads all wanted
//! executions at its start, then the changes of each commit. Every execution that holds a slot has
//! one task; at most [`STARTING_MAX`] of them start something at a time. Results go back to the
//! ledger as commands, and only their records free slots. Nothing is decided here.
//!
//! A runner may end at any moment: the next one reads the state again, and the executor starts an
//! id at most once, for any number of callers. All tasks of a runner end with it. Every `select!` is `biased`, so that the same events in the same order have the same
//! effects: the simulator runs this code, and its seeds must repeat.

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

/// The most executions that are started at a time: more would only wait for each other. Stops are
/// not counted: they mostly wait for the end of a grace period, and must not delay a start.
pub const STARTING_MAX: usize = 64;

/// Pause after the task of an execution panicked.
const AFTER_PANIC: Duration = Duration::from_secs(30);

/// Counters of a runner, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Executions that were taken over at the start of a term.
    pub adopted: AtomicU64,
    /// Stops after which a process was still alive.
    pub stops_failed: AtomicU64,
    /// Executions that were cleaned: they had ended, or the ledger did not know them.
    pub cleaned: AtomicU64,
    /// Operations of the executor that failed, and tasks that panicked.
    pub troubles: AtomicU64,
}

/// The runner of a term.
#[derive(Clone)]
pub struct Runner(Arc<Shared>);

struct Shared {
    ledger: Ledger,
    executor: Arc<dyn Executor>,
    counts: Arc<Counts>,
    starting: Semaphore,
    /// Executions with a task; each is notified when its state changes.
    attended: Mutex<BTreeMap<BookingId, Arc<Notify>>>,
}

impl Runner {
    /// A runner of the executions of a ledger.
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
        // Subscribed before the state is read, so that no change is missed.
        let mut stream = shared.ledger.view().stream();
        self.take_all(&outbox, &mut tasks);
        let adopted = u64::try_from(shared.attended().len()).unwrap_or(u64::MAX);
        shared.counts.adopted.fetch_add(adopted, Ordering::Relaxed);
        tasks.spawn(reconcile::for_ever(Arc::clone(shared), outbox.clone()));
        loop {
            tokio::select! {
                biased;
                Some(ended) = tasks.join_next() => if ended.is_err_and(|error| error.is_panic()) {
                    // Without the outbox or the reconciler, slots would leak unnoticed: end here.
                    // The next start finds every execution again.
                    tracing::error!("{}", log::RUNNER_PANICKED);
                    std::process::abort();
                },
                published = stream.recv() => match published {
                    Ok(facts) => self.take_changes(&facts, &outbox, &mut tasks),
                    Err(RecvError::Lagged(_)) => self.take_all(&outbox, &mut tasks),
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }

    /// Gives a task to each wanted execution without one; all other tasks read the state again.
    fn take_all(&self, outbox: &Outbox, tasks: &mut JoinSet<()>) {
        let wanted: Vec<BookingId> = {
            let state = self.0.ledger.view().read();
            let wanted = state.bookings.all_wanted();
            wanted.map(|(id, _)| id.clone()).collect()
        };
        for notify in self.0.attended().values() {
            notify.notify_one();
        }
        for id in wanted {
            self.attend(id, outbox, tasks);
        }
    }

    /// Notifies the tasks of executions that a commit changed, and starts missing tasks.
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
                // A defect in one execution must not stop the others.
                shared.trouble();
                tracing::error!(%id, "{}", log::EXECUTION_TASK_PANICKED);
                tokio::time::sleep(AFTER_PANIC).await;
            }
            // An execution that has ended is never wanted again.
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
