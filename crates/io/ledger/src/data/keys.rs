//! Signing keys of a running ledger, and their rotation.
//!
//! A new key is stored beside the old one, then recorded, then put in its place. After a stop at any
//! point the next start or the next rotation continues from the files.

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

/// Signing keys of an open ledger.
#[derive(Clone)]
pub struct Keys {
    signer: Arc<Mutex<Signer>>,
    ledger: Ledger,
    /// There is one file for a pending key, so one rotation at a time.
    rotating: Arc<tokio::sync::Mutex<()>>,
}

/// Error of a rotation.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The key file could not be read or written.
    #[error("the new key could not be stored")]
    Key(#[from] key::Error),
    /// The new key could not be recorded.
    #[error("the new key could not be recorded")]
    Ledger(#[from] Failure),
}

impl Keys {
    /// Keys of `signer`.
    pub fn new(signer: Arc<Mutex<Signer>>, ledger: Ledger) -> Self {
        Self {
            signer,
            ledger,
            rotating: Arc::default(),
        }
    }

    /// Verifier keys of the keys that sign now, newest first.
    pub fn verifiers(&self) -> Vec<VerifierKey> {
        self.signer().verifiers()
    }

    /// Makes a new key, which signs from now on; the old one signs too for thirty days. The record
    /// comes first: a key that is not in the ledger signs nothing.
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
                // A key may be deleted only if it is not recorded and never will be.
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

    /// Signs with the pending key if it is recorded. Returns true if a key is still pending.
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
            // The key is recorded and has its own file, which the next start finds.
            tracing::warn!(error = chain(&error), "{}", log::KEY_NOT_IN_PLACE);
        }
        *self.signer() = next;
    }

    fn signer(&self) -> MutexGuard<'_, Signer> {
        lock(&self.signer)
    }
}

pub(super) fn lock(signer: &Mutex<Signer>) -> MutexGuard<'_, Signer> {
    signer.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn is_announced(state: &State, signer: &Signer) -> bool {
    let key = signer.verifier().to_string();
    state
        .spine
        .keys
        .iter()
        .any(|(_, announced)| *announced == key)
}

/// Signing function over the present keys of a signer.
pub fn signs_with(signer: Arc<Mutex<Signer>>, clock: Arc<dyn Clock>) -> Sign {
    Box::new(move |size, root| Ok(lock(&signer).sign(clock.wall(), size, root)))
}
