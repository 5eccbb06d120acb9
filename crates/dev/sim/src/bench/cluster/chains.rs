//! Callers in process: each submits a run, reports its end, and submits the next one.
//!
//! A chain has one outstanding command at any time and sends the next one in the reply to it. A run is
//! two records: submitted and started, exited and ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use bursar_cluster::Event;
use bursar_engine::{Command, Event as AnyEvent};
use bursar_ledger::intake::{Failure, Outcome, Submission};
use bursar_ledger::pipeline::Ledger;
use bursar_units::Label;

use super::super::world::label;
use super::site;

/// Number of outstanding commands, one for each chain.
pub(super) const OUTSTANDING: u64 = 1_024;
/// Number of principals of the chains: the ledger bounds the waiting commands of each.
const PRINCIPALS: u64 = 4;

/// Fate of the runs of chains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    /// Each run ends before its chain submits the next one.
    End,
    /// All runs go on.
    GoOn,
}

/// Running chains.
pub(super) struct Chains {
    ledger: Ledger,
    fate: Fate,
    principals: Vec<Label>,
    /// Number of the next run, and the number after the last one.
    next: AtomicU64,
    end: u64,
    refused: AtomicU64,
    live: Mutex<u64>,
    ended: Condvar,
}

impl Chains {
    /// Submits the runs with these numbers and waits for the last answer; fails if it takes longer
    /// than `time_max`, or if a run does not start at once.
    pub(super) fn run(
        ledger: &Ledger,
        numbers: std::ops::Range<u64>,
        fate: Fate,
        time_max: Duration,
    ) -> anyhow::Result<()> {
        let principals = (0..PRINCIPALS).map(|number| label(&format!("caller-{number}")));
        let chains = Arc::new(Self {
            ledger: ledger.clone(),
            fate,
            principals: principals.collect::<anyhow::Result<_>>()?,
            next: AtomicU64::new(numbers.start),
            end: numbers.end,
            refused: AtomicU64::new(0),
            live: Mutex::new(OUTSTANDING),
            ended: Condvar::new(),
        });
        for _ in 0..OUTSTANDING {
            Arc::clone(&chains).submit();
        }
        let live = chains.live.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = chains
            .ended
            .wait_timeout_while(live, time_max, |live| *live > 0);
        let live = waited.map_or_else(|poisoned| *poisoned.into_inner().0, |(live, _)| *live);
        let refused = chains.refused.load(Ordering::Relaxed);
        if live > 0 || refused > 0 {
            bail!("{live} chains did not end and {refused} commands were refused");
        }
        Ok(())
    }

    fn submit(self: Arc<Self>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.end {
            return self.leave();
        }
        let Ok(command) = site::submission(number) else {
            return self.refuse();
        };
        let fate = self.fate;
        self.send(number, command.into(), move |chains, outcome| {
            match (has_started(&outcome), fate) {
                (false, _) => chains.refuse(),
                (true, Fate::End) => chains.exit(number, outcome.record),
                (true, Fate::GoOn) => chains.submit(),
            }
        });
    }

    fn exit(self: Arc<Self>, number: u64, record: u64) {
        let Ok(uid) = site::submitted(record) else {
            return self.refuse();
        };
        self.send(number, site::exited(uid).into(), |chains, _| {
            chains.submit();
        });
    }

    fn send(
        self: Arc<Self>,
        number: u64,
        command: Command,
        then: impl FnOnce(Arc<Self>, Outcome) + Send + 'static,
    ) {
        let principal = usize::try_from(number % PRINCIPALS).unwrap_or(0);
        let Some(by) = self.principals.get(principal).cloned() else {
            return self.refuse();
        };
        let chains = Arc::clone(&self);
        let reply = Box::new(move |result: Result<Vec<Outcome>, Failure>| {
            let outcome = result.ok().and_then(|mut outcomes| outcomes.pop());
            match outcome.filter(|outcome| outcome.result.is_ok()) {
                Some(outcome) => then(chains, outcome),
                None => chains.refuse(),
            }
        });
        self.ledger.push(Submission {
            by,
            commands: vec![command],
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

fn has_started(outcome: &Outcome) -> bool {
    let is_lease =
        |event: &AnyEvent| matches!(event, AnyEvent::Cluster(Event::LeasesOpened { .. }));
    outcome.events.iter().any(is_lease)
}
