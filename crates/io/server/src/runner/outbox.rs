//! Queue of the results of executions: they are gathered, and sent to the ledger until it accepts
//! them.
//!
//! A result may be sent twice: the engine counts it once. A lost result would be a lost slot.

use std::panic::resume_unwind;
use std::time::Duration;

use bursar_engine::booking::Command;
use bursar_engine::{Answer, Refusal};
use bursar_ledger::intake::Outcome;
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::writer::own_principal;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};

use crate::log;

/// The most results in one batch.
const BATCH_MAX: usize = 256;
/// The most batches in flight: together they stay within the bound of one principal (L4).
const BATCHES_MAX: usize = 3;
/// The most results that may wait; with one more, its task waits.
const WAITING_MAX: usize = 4_096;
/// The first pause before a batch is sent again; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A result, and the sender of the decision on it.
type Report = (
    bursar_engine::Command,
    oneshot::Sender<Result<Answer, Refusal>>,
);

/// The queue of results.
#[derive(Clone)]
pub(super) struct Outbox(mpsc::Sender<Report>);

/// The task that sends queued results.
pub(super) struct Delivery {
    ledger: Ledger,
    reports: mpsc::Receiver<Report>,
}

impl Outbox {
    pub(super) fn new(ledger: Ledger) -> (Self, Delivery) {
        let (send, reports) = mpsc::channel(WAITING_MAX);
        (Self(send), Delivery { ledger, reports })
    }

    /// Resolves when the result is durable or refused; `None` when the runner ends.
    pub(super) async fn send(&self, command: Command) -> Option<Result<Answer, Refusal>> {
        let (decide, decided) = oneshot::channel();
        self.0.send((command.into(), decide)).await.ok()?;
        decided.await.ok()
    }
}

impl Delivery {
    /// Runs until it is dropped, and its deliveries with it.
    pub(super) async fn run(mut self) {
        let mut deliveries = JoinSet::new();
        loop {
            let mut reports = Vec::new();
            if self.reports.recv_many(&mut reports, BATCH_MAX).await == 0 {
                return;
            }
            let ledger = self.ledger.clone();
            deliveries.spawn(async move { deliver(&ledger, reports).await });
            while let Some(done) = deliveries.try_join_next() {
                pass_on_panic(done);
            }
            if deliveries.len() == BATCHES_MAX
                && let Some(done) = deliveries.join_next().await
            {
                pass_on_panic(done);
            }
        }
    }
}

/// A panic of a delivery would lose its results in silence; the runner ends the process instead.
fn pass_on_panic(done: Result<(), JoinError>) {
    if let Err(error) = done
        && error.is_panic()
    {
        resume_unwind(error.into_panic());
    }
}

async fn deliver(ledger: &Ledger, reports: Vec<Report>) {
    let (commands, senders): (Vec<_>, Vec<_>) = reports.into_iter().unzip();
    let mut pause = PAUSE;
    let outcomes = loop {
        // All tasks have ended with their runner; the next runner finds the results again.
        if senders.iter().all(oneshot::Sender::is_closed) {
            return;
        }
        match ledger.submit(own_principal(), commands.clone()).await {
            Ok(outcomes) => break outcomes,
            Err(failure) => {
                tracing::warn!(%failure, results = commands.len(), "{}", log::EXECUTION_RESULTS_NOT_TAKEN);
                tokio::time::sleep(pause).await;
                pause = PAUSE_MAX.min(pause * 2);
            }
        }
    };
    for (sender, Outcome { result, .. }) in senders.into_iter().zip(outcomes) {
        // The task may be gone.
        let _gone = sender.send(result);
    }
}
