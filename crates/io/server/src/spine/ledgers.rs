//! The ledger as its operator sees it: how it stands, its records, copies, pruning and keys.

mod chunks;
mod records;

use bursar_client::api::{
    Checkpoint as ApiCheckpoint, ExportedAnswer, ExportedRequest, LedgerStatus, PruneAnswer,
    PruneRequest, RotateKeyAnswer,
};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::spine;
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_ledger::data::RotateError;
use bursar_ledger::key::BOTH_SIGN;
use bursar_ledger::maintain::{self, Prunable};
use bursar_units::causes::chain;
use bursar_units::{BookingId, INTEGER_MAX};

use crate::caller::Caller;
use crate::service::refusal::of_refusal;
use crate::service::{Answer, Mode, Service, last_record, of_failure, unreadable};

pub use chunks::Chunks;
pub use records::RecordFilter;

/// Payloads that are blanked in one transaction.
const BLANKED_MAX: u64 = 4_096;

impl Service {
    /// How the ledger stands.
    pub async fn status(&self) -> Result<Answer<LedgerStatus>, Problem> {
        let keys = self.verifier_keys();
        let note = self.read_store(|reader| {
            reader
                .checkpoint(INTEGER_MAX)
                .map_err(|error| unreadable(&error))
        });
        let note = note.await?;
        let signed = note.and_then(|note| {
            keys.iter()
                .find_map(|key| Checkpoint::open(&note, key).ok())
        });
        let mut keys = keys.iter().map(ToString::to_string);
        let file = self.info.file.as_ref();
        let bytes = file.and_then(|file| Some(file.metadata().ok()?.len()));
        let state = self.ledger.view().read();
        let record = last_record(&state);
        let body = LedgerStatus {
            ledger: state.spine.ledger.clone(),
            generation: state.spine.generation,
            records: state.spine.head,
            pruned_below: state.spine.pruned_below,
            last_record_at: Some(state.spine.time),
            checkpoint: signed.map(|signed| ApiCheckpoint {
                records: signed.size,
                root: signed.root.to_string(),
                signed_at: None,
            }),
            key: keys.next().unwrap_or_default(),
            former_keys: keys.collect(),
            store: self.info.store.clone(),
            bytes,
            leads_since: Some(self.info.leads_since),
        };
        Ok(Answer {
            status: 200,
            record,
            body,
        })
    }

    /// Notes that whoever exported records has them safe, so that they may be pruned (L13). An
    /// export that begins after what is noted leaves a gap, and is not counted.
    pub async fn exported(
        &self,
        caller: &Caller,
        asked: ExportedRequest,
    ) -> Result<Answer<ExportedAnswer>, Problem> {
        caller.require_operate("say that the ledger was exported")?;
        let record = self.record();
        if asked.below > record.saturating_add(1) {
            let words = format!("is after the last record, {record}");
            return Err(Problem::invalid(vec![FieldError::new("below", words)]));
        }
        let noted = self.ledger.on_store(move |committer| {
            let known = committer.store().reader()?.exported()?;
            if asked.from <= known {
                committer.store().note_exported(asked.below)?;
                return Ok(known.max(asked.below));
            }
            Ok(known)
        });
        let below = noted
            .await
            .map_err(|failure| of_failure(&failure))?
            .map_err(|error: bursar_ledger::store::Error| unreadable(&error))?;
        Ok(Answer {
            status: 200,
            record,
            body: ExportedAnswer { below, record },
        })
    }

    /// Forgets payloads of records made before a time, as far as that may be (L13).
    pub async fn prune(
        &self,
        caller: &Caller,
        asked: PruneRequest,
        idempotency: Option<BookingId>,
        mode: Mode,
    ) -> Result<Answer<PruneAnswer>, Problem> {
        caller.require_operate("prune the ledger")?;
        let ledger = self.ledger.clone();
        let found = self.read_store(move |reader| {
            let below = maintain::first_at(reader, asked.before).map_err(|e| unreadable(&e))?;
            let (anchor, pruned_below) = {
                let state = ledger.view().read();
                (state.spine.anchor, state.spine.pruned_below)
            };
            let prunable = maintain::prunable(reader, anchor).map_err(|e| unreadable(&e))?;
            Ok((below, prunable, pruned_below))
        });
        let (wanted, prunable, pruned_below) = found.await?;
        let below = wanted.min(prunable.below_max).max(pruned_below);
        // What is on record as pruned but could not be blanked is blanked now.
        if below <= prunable.pruned && below < wanted {
            return Err(nothing_to_prune(wanted, &prunable));
        }
        let command = spine::Command::Prune { below, idempotency };
        let record = self
            .submit_or_plan(caller, &command.into(), mode)
            .await?
            .record;
        let pruned = match mode {
            Mode::DryRun => below.saturating_sub(prunable.pruned),
            Mode::Real => self.blank(prunable.pruned, below).await?,
        };
        let dry_run = (mode == Mode::DryRun).then_some(true);
        Ok(Answer {
            status: 200,
            record,
            body: PruneAnswer {
                below,
                pruned,
                record,
                dry_run,
            },
        })
    }

    /// Blanks payloads in slices, so that batches of others come in between.
    async fn blank(&self, from: u64, below: u64) -> Result<u64, Problem> {
        let (mut next, mut blanked) = (from, 0);
        while next < below {
            next = next.saturating_add(BLANKED_MAX).min(below);
            let slice = self
                .ledger
                .on_store(move |committer| committer.store().prune(next));
            blanked += slice
                .await
                .map_err(|failure| of_failure(&failure))?
                .map_err(|error| unreadable(&error))?;
        }
        Ok(blanked)
    }

    /// Signs with a further key from now on (L11).
    pub async fn rotate_key(
        &self,
        caller: &Caller,
        idempotency: Option<BookingId>,
        mode: Mode,
    ) -> Result<Answer<RotateKeyAnswer>, Problem> {
        caller.require_operate("rotate the signing key")?;
        let former = self
            .verifier_keys()
            .first()
            .map(ToString::to_string)
            .unwrap_or_default();
        let both_until = self.ledger.now().after(BOTH_SIGN);
        if mode == Mode::DryRun {
            let record = self.record();
            let key = "(made when it is done)".to_owned();
            let body = RotateKeyAnswer {
                key,
                former,
                both_until,
                record,
                dry_run: Some(true),
            };
            return Ok(Answer {
                status: 200,
                record,
                body,
            });
        }
        let rotated = self
            .keys
            .rotate(caller.name.clone(), idempotency.clone())
            .await;
        let (outcome, key) = rotated.map_err(|error| match error {
            RotateError::Ledger(failure) => of_failure(&failure),
            RotateError::Key(error) => Problem::new(
                Code::Unavailable,
                format!("the new key could not be kept: {}", chain(&error)),
            ),
        })?;
        let key = key.to_string();
        if let Err(refusal) = outcome.result {
            let command = spine::Command::RotateKey { key, idempotency };
            return Err(of_refusal(
                &self.ledger.view().read(),
                outcome.record,
                caller,
                &command.into(),
                &refusal,
            ));
        }
        let record = outcome.record;
        let body = RotateKeyAnswer {
            key,
            former,
            both_until,
            record,
            dry_run: None,
        };
        Ok(Answer {
            status: 200,
            record,
            body,
        })
    }

    /// The keys that sign, newest first.
    pub(crate) fn verifier_keys(&self) -> Vec<VerifierKey> {
        self.keys.verifiers()
    }
}

fn nothing_to_prune(wanted: u64, prunable: &Prunable) -> Problem {
    let Prunable {
        below_max,
        anchored,
        signed,
        exported,
        pruned: _,
    } = prunable;
    let detail = format!(
        "nothing may be pruned below record {wanted}: {anchored} records are in an anchored \
         snapshot, {signed} are signed, {exported} are exported, so {below_max} may go"
    );
    Problem {
        changes: vec![
            "export the ledger first".to_owned(),
            "wait for the daily anchor".to_owned(),
        ],
        ..Problem::new(Code::Conflict, detail)
    }
}
