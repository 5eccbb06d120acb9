//! Callers in process: each reserves, releases, and reserves again.
//!
//! A chain has one outstanding operation at any time and sends the next one in the reply to it. There
//! is no task and no channel between a chain and the ledger.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use bursar_booking::decide::Reply;
use bursar_booking::{Command, Fence};
use bursar_engine::Answer;
use bursar_ledger::intake::{Failure, Outcome, Submission};
use bursar_ledger::pipeline::Ledger;
use bursar_units::{BookingId, Label};

use super::world::{Ids, RequestTemplate, label};

/// Number of outstanding operations, one for each chain.
pub(super) const OUTSTANDING: usize = 1_024;
/// Number of principals of the chains: the ledger bounds the waiting commands of each.
const PRINCIPALS: usize = 4;
/// Time limit of the last answers.
const END_MAX: Duration = Duration::from_secs(30);

/// Running chains.
pub(super) struct Chains {
    ledger: Ledger,
    ids: Ids,
    template: RequestTemplate,
    principals: Vec<Label>,
    /// Pairs that may still be started.
    budget: AtomicU64,
    pairs: AtomicU64,
    refused: AtomicU64,
    is_stopped: AtomicBool,
    live: Mutex<usize>,
    ended: Condvar,
}

impl Chains {
    /// Starts all chains; they end after `pairs_max` pairs in total.
    pub(super) fn start(ledger: &Ledger, seed: u64, pairs_max: u64) -> anyhow::Result<Arc<Self>> {
        let principals = (0..PRINCIPALS).map(|number| label(&format!("caller-{number}")));
        let chains = Arc::new(Self {
            ledger: ledger.clone(),
            ids: Ids::new(seed),
            template: RequestTemplate::usual()?,
            principals: principals.collect::<anyhow::Result<_>>()?,
            budget: AtomicU64::new(pairs_max),
            pairs: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            live: Mutex::new(OUTSTANDING),
            ended: Condvar::new(),
        });
        for chain in 0..OUTSTANDING {
            Arc::clone(&chains).reserve(chain);
        }
        Ok(chains)
    }

    /// Number of completed pairs.
    pub(super) fn pairs(&self) -> u64 {
        self.pairs.load(Ordering::Relaxed)
    }

    /// Waits for a time, or until all chains have ended.
    pub(super) fn wait(&self, time: Duration) {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_timeout_while(live, time, |live| *live > 0));
    }

    /// Lets every chain finish its pair; fails after a refusal.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.finish(END_MAX)
    }

    /// Waits until all chains have ended; fails if they do not, or after a refusal.
    pub(super) fn finish(&self, time_max: Duration) -> anyhow::Result<()> {
        self.wait(time_max);
        let live = *self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = self.refused.load(Ordering::Relaxed);
        if live > 0 || refused > 0 {
            bail!("{live} chains did not end and {refused} operations were refused");
        }
        Ok(())
    }

    fn reserve(self: Arc<Self>, chain: usize) {
        let take = |left: u64| left.checked_sub(1);
        let has_budget = self
            .budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if self.is_stopped.load(Ordering::Relaxed) || has_budget.is_err() {
            return self.leave();
        }
        let Some(id) = self.ids.next(self.ledger.now().ms()) else {
            return self.refuse();
        };
        let command = Command::Reserve(self.template.request(id.clone()));
        self.send(chain, command, move |chains, answer| match answer {
            Some(Answer::Booking(Reply::Granted(fence))) => chains.release(chain, id, fence),
            _ => chains.refuse(),
        });
    }

    fn release(self: Arc<Self>, chain: usize, id: BookingId, fence: Fence) {
        let command = Command::Release {
            id,
            fence,
            outcome: None,
            exit_code: None,
        };
        self.send(chain, command, move |chains, answer| match answer {
            Some(Answer::Booking(Reply::Ended(_))) => {
                chains.pairs.fetch_add(1, Ordering::Relaxed);
                chains.reserve(chain);
            }
            _ => chains.refuse(),
        });
    }

    fn send(
        self: Arc<Self>,
        chain: usize,
        command: Command,
        then: impl FnOnce(Arc<Self>, Option<Answer>) + Send + 'static,
    ) {
        let Some(by) = self.principals.get(chain % PRINCIPALS).cloned() else {
            return;
        };
        let chains = Arc::clone(&self);
        let reply = Box::new(move |result: Result<Vec<Outcome>, Failure>| {
            let outcome = result.ok().and_then(|mut outcomes| outcomes.pop());
            then(chains, outcome.and_then(|outcome| outcome.result.ok()));
        });
        self.ledger.push(Submission {
            by,
            commands: vec![command.into()],
            reply,
        });
    }

    fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.leave();
    }

    fn leave(&self) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.ended.notify_all();
    }
}
