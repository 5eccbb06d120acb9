//! The signing keys of a running ledger: who signs now, and how another key comes to.
//!
//! A new key is kept beside the old one, then put on record, then put into its place. A stop at any
//! point leaves files from which the next start, or the next rotating, goes on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bursar_engine::{Answer, State, spine};
use bursar_journal::checkpoint::VerifierKey;
use bursar_units::causes::chain;
use bursar_units::{BookingId, Label};

use crate::clock::Clock;
use crate::committer::Sign;
use crate::intake::{Failure, Outcome};
use crate::key::{self, Signer};
use crate::log;
use crate::pipeline::Ledger;

/// The signing keys of an open ledger, shared with whoever shows or rotates them.
#[derive(Clone)]
pub struct Keys {
    signer: Arc<Mutex<Signer>>,
    ledger: Ledger,
    /// There is one file for a key that waits, so one rotating at a time.
    rotating: Arc<tokio::sync::Mutex<()>>,
}

/// Why a key was not rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The key file.
    #[error("the new key could not be kept")]
    Key(#[from] key::Error),
    /// The ledger.
    #[error("the ledger did not take it")]
    Ledger(#[from] Failure),
}

impl Keys {
    /// The keys that `signer` holds.
    pub fn new(signer: Arc<Mutex<Signer>>, ledger: Ledger) -> Self {
        Self {
            signer,
            ledger,
            rotating: Arc::default(),
        }
    }

    /// The keys that sign now, newest first.
    pub fn verifiers(&self) -> Vec<VerifierKey> {
        self.signer().verifiers()
    }

    /// Signs with a further key from now on; the old one accompanies it for thirty days. The
    /// record comes first: a key that is not in the ledger signs nothing.
    pub async fn rotate(
        &self,
        by: Label,
        idempotency: Option<BookingId>,
    ) -> Result<(Outcome, VerifierKey), RotateError> {
        let _alone = self.rotating.lock().await;
        let is_waiting = self.take_up()?;
        let next = self.signer().rotate(self.ledger.now())?;
        next.keep_next()?;
        let command = spine::Command::RotateKey {
            key: next.verifier().to_string(),
            idempotency,
        };
        let outcome = match self.ledger.submit(by, vec![command.into()]).await {
            Ok(mut outcomes) => outcomes.pop().ok_or(Failure::OutcomeUnknown)?,
            Err(failure) => {
                // Only what surely is not on record, and never will be, may be forgotten.
                if failure != Failure::OutcomeUnknown && !is_waiting {
                    next.forget_next()?;
                }
                return Err(failure.into());
            }
        };
        if outcome.result == Ok(Answer::Done) || is_announced(&self.ledger.view().read(), &next) {
            self.sign_with(next);
        } else {
            next.forget_next()?;
        }
        Ok((outcome, self.signer().verifier()))
    }

    /// Signs with a key that waits, if its record has come; whether one waits still.
    fn take_up(&self) -> Result<bool, key::Error> {
        let waiting = self.signer().load_next()?;
        match waiting {
            Some(next) if is_announced(&self.ledger.view().read(), &next) => {
                self.sign_with(next);
                Ok(false)
            }
            waiting => Ok(waiting.is_some()),
        }
    }

    fn sign_with(&self, next: Signer) {
        if let Err(error) = next.promote_next() {
            // It is on record and in a file of its own, where the next start finds it.
            tracing::warn!(error = chain(&error), "{}", log::KEY_NOT_IN_PLACE);
        }
        *self.signer() = next;
    }

    fn signer(&self) -> MutexGuard<'_, Signer> {
        lock(&self.signer)
    }
}

/// The signer, whatever became of the thread that last held it.
pub(super) fn lock(signer: &Mutex<Signer>) -> MutexGuard<'_, Signer> {
    signer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a key is on record.
pub(super) fn is_announced(state: &State, signer: &Signer) -> bool {
    let key = signer.verifier().to_string();
    state
        .spine
        .keys
        .iter()
        .any(|(_, announced)| *announced == key)
}

/// Signs with whatever the signer holds at that moment.
pub fn signs_with(signer: Arc<Mutex<Signer>>, clock: Arc<dyn Clock>) -> Sign {
    Box::new(move |size, root| Ok(lock(&signer).sign(clock.wall(), size, root)))
}
