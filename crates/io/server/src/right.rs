//! Ends lasting answers when the caller's right ends.
//!
//! A token is checked when a request arrives. During a lasting answer (a stream, a long poll, a
//! followed log, a copy) [`Right::hold`] keeps checking it. If the client has stopped reading, the
//! connection checks it ([`Lasting`]). The right of a caller on the Unix socket lasts as long as its
//! connection.

use std::sync::Arc;
use std::time::Duration;

use bursar_client::Problem;
use bursar_ledger::pipeline::Ledger;
use tokio::sync::watch;

use crate::auth::check_right;
use crate::caller::{Caller, Via};

/// Interval of the checks against the committed view. A lasting answer ends within a second, even if
/// the clock was changed.
const CHECKED_EVERY: Duration = Duration::from_millis(250);
/// Time for an answer to end by itself after its connection has seen the right end. Twice the
/// check interval, so that the answer has seen it too.
const ENDS_WITHIN: Duration = Duration::from_millis(500);

/// The right of a caller to use the server, checked against the ledger.
#[derive(Clone)]
pub(crate) struct Right {
    ledger: Ledger,
    caller: Arc<Caller>,
}

impl Right {
    /// Fails if the right has already ended.
    pub(crate) fn new(ledger: &Ledger, caller: Arc<Caller>) -> Result<Self, Problem> {
        let right = Self {
            ledger: ledger.clone(),
            caller,
        };
        right.check()?;
        Ok(right)
    }

    /// Runs `work` unless the right ends before; then `work` is dropped, so it must only read. A
    /// result that arrives after the end is discarded.
    pub(crate) async fn hold<T>(&self, work: impl Future<Output = T>) -> Result<T, Problem> {
        tokio::select! {
            biased;
            problem = self.ended() => Err(problem),
            done = work => self.check().map(|()| done),
        }
    }

    /// Creates the connection's handle of an answer. The answer keeps the sender until it ends.
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

/// A connection's handle of a lasting answer. While the client does not read, the body is not
/// polled and cannot end itself.
#[derive(Clone)]
pub(crate) struct Lasting {
    right: Right,
    /// Closed when the answer has ended.
    ended: watch::Receiver<()>,
}

impl Lasting {
    /// Resolves when the right has ended and the answer did not end in time.
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
