//! What was found, on its way to the ledger: gathered, sent, and sent again until it is taken.
//!
//! A result may be sent twice: the engine counts it once. It must not be lost, or a slot would be.

use std::time::Duration;

use bursar_engine::booking::Command;
use bursar_engine::{Answer, Refusal};
use bursar_ledger::intake::Outcome;
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::writer::SELF;
use bursar_units::Label;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::log;

/// How many results travel together.
const BATCH_MAX: usize = 256;
/// How many batches may be on their way: together they stay within what one principal may have
/// waiting (L4).
const BATCHES_MAX: usize = 3;
/// How many results may wait to travel; a task that has one more waits itself.
const WAITING_MAX: usize = 4_096;
/// How long the first pause is before a batch is sent again; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A result and whom to tell what it came to.
type Letter = (
    bursar_engine::Command,
    oneshot::Sender<Result<Answer, Refusal>>,
);

/// Where results are put.
#[derive(Clone)]
pub(super) struct Outbox(mpsc::Sender<Letter>);

/// Whoever carries them.
pub(super) struct Delivery {
    ledger: Ledger,
    letters: mpsc::Receiver<Letter>,
}

impl Outbox {
    pub(super) fn new(ledger: Ledger) -> (Self, Delivery) {
        let (send, letters) = mpsc::channel(WAITING_MAX);
        (Self(send), Delivery { ledger, letters })
    }

    /// Resolves when the result is durable or refused; `None` when the runner ends.
    pub(super) async fn send(&self, command: Command) -> Option<Result<Answer, Refusal>> {
        let (tell, told) = oneshot::channel();
        self.0.send((command.into(), tell)).await.ok()?;
        told.await.ok()
    }
}

impl Delivery {
    pub(super) async fn run(mut self) {
        let on_their_way = std::sync::Arc::new(Semaphore::new(BATCHES_MAX));
        loop {
            let Ok(permit) = std::sync::Arc::clone(&on_their_way).acquire_owned().await else {
                return;
            };
            let mut letters = Vec::new();
            if self.letters.recv_many(&mut letters, BATCH_MAX).await == 0 {
                return;
            }
            let ledger = self.ledger.clone();
            tokio::spawn(async move {
                deliver(&ledger, letters).await;
                drop(permit);
            });
        }
    }
}

async fn deliver(ledger: &Ledger, letters: Vec<Letter>) {
    let (commands, tells): (Vec<_>, Vec<_>) = letters.into_iter().unzip();
    let mut pause = PAUSE;
    let outcomes = loop {
        // Whoever found it has gone with the runner; the next runner will find it again.
        if tells.iter().all(oneshot::Sender::is_closed) {
            return;
        }
        #[expect(clippy::expect_used, reason = "a constant that is a label")]
        let by = Label::new(SELF).expect("the program's own name is a label");
        match ledger.submit(by, commands.clone()).await {
            Ok(outcomes) => break outcomes,
            Err(failure) => {
                tracing::warn!(%failure, results = commands.len(), "{}", log::EXECUTION_RESULTS_NOT_TAKEN);
                tokio::time::sleep(pause).await;
                pause = PAUSE_MAX.min(pause * 2);
            }
        }
    };
    for (tell, Outcome { result, .. }) in tells.into_iter().zip(outcomes) {
        // A task that went away needs no word.
        let _gone = tell.send(result);
    }
}
