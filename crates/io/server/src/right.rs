//! How long an answer may go on: no longer than the right of its caller.
//!
//! A token is checked when a request comes in. An answer that lasts (a stream, a long poll, a
//! followed log, a copy) is held to the right of its caller until it ends, by [`Right::hold`], and
//! by its connection where its reader has stopped reading ([`Lasting`]). A right over the local
//! socket lasts as long as its connection.

use std::sync::Arc;
use std::time::Duration;

use bursar_client::Problem;
use bursar_ledger::pipeline::Ledger;
use tokio::sync::watch;

use crate::auth::check_right;
use crate::caller::{Caller, Via};

/// How often the right of a lasting answer is checked against the committed view: it ends within a
/// second, also where the clock was set.
const CHECKED_EVERY: Duration = Duration::from_millis(250);
/// How long an answer has to end by itself once its connection knows that its right has ended. Twice
/// the time between two checks, so that the answer has noticed it too.
const ENDS_WITHIN: Duration = Duration::from_millis(500);

/// The right of a caller, as the ledger knows it now.
#[derive(Clone)]
pub(crate) struct Right {
    ledger: Ledger,
    caller: Arc<Caller>,
}

impl Right {
    /// The right of a caller, if it has not ended.
    pub(crate) fn new(ledger: &Ledger, caller: Arc<Caller>) -> Result<Self, Problem> {
        let right = Self {
            ledger: ledger.clone(),
            caller,
        };
        right.check()?;
        Ok(right)
    }

    /// What `work` comes to, or why the right ended before. The work is dropped then, so it must
    /// only read. Its result is not told either if it came after the end.
    pub(crate) async fn hold<T>(&self, work: impl Future<Output = T>) -> Result<T, Problem> {
        tokio::select! {
            biased;
            problem = self.ended() => Err(problem),
            done = work => self.check().map(|()| done),
        }
    }

    /// An answer of this right for its connection; the answer keeps the sender until it ends.
    pub(crate) fn lasting(&self) -> (watch::Sender<()>, Lasting) {
        let (answer, ended) = watch::channel(());
        let right = self.clone();
        (answer, Lasting { right, ended })
    }

    async fn ended(&self) -> Problem {
        if !matches!(self.caller.via, Via::Token(_)) && self.caller.expires.is_none() {
            return std::future::pending().await;
        }
        loop {
            if let Err(problem) = self.check() {
                return problem;
            }
            let left = self
                .caller
                .expires
                .map(|expires| Duration::from_millis(expires.since(self.ledger.now()).ms()));
            tokio::time::sleep(left.map_or(CHECKED_EVERY, |left| left.min(CHECKED_EVERY))).await;
        }
    }

    fn check(&self) -> Result<(), Problem> {
        check_right(&self.caller, self.ledger.view(), self.ledger.now())
    }
}

/// An answer that lasts, as its connection knows it. A body is not asked for its next piece while
/// its reader takes nothing, so it cannot end by itself then.
#[derive(Clone)]
pub(crate) struct Lasting {
    right: Right,
    /// Closed when the answer has ended.
    ended: watch::Receiver<()>,
}

impl Lasting {
    /// Resolves when the right has ended and the answer has not, although it had time to.
    pub(crate) async fn overrun(self) {
        let Self { right, mut ended } = self;
        let overrun = async {
            let _problem = right.ended().await;
            tokio::time::sleep(ENDS_WITHIN).await;
        };
        tokio::select! {
            biased;
            _closed = ended.changed() => std::future::pending().await,
            () = overrun => {}
        }
    }
}
