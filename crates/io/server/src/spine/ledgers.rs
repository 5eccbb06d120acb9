//! Operation of the ledger: status, records, copies, pruning and keys.

mod chunks;
mod records;

use bursar_client::api::{
    Checkpoint as ApiCheckpoint, ExportedAnswer, ExportedRequest, LedgerStatus, PruneAnswer,
    PruneRequest, RotateKeyAnswer,
};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::spine;
use bursar_journal::checkpoint::Checkpoint;
use bursar_ledger::data::RotateError;
use bursar_ledger::intake::Outcome;
use bursar_ledger::key::BOTH_SIGN;
use bursar_ledger::maintain::{self, Prunable};
use bursar_units::causes::chain;
use bursar_units::{BookingId, INTEGER_MAX};

use crate::caller::Caller;
use crate::service::refusal::of_refusal;
use crate::service::{Answer, Service, WriteMode, last_record, of_failure, unreadable};

pub(crate) use chunks::Chunks;
pub(crate) use records::RecordFilter;

const ERASED_MAX: u64 = 4_096;

impl Service {
    pub(crate) async fn status(&self) -> Result<Answer<LedgerStatus>, Problem> {
        let keys = self.keys.verifiers();
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
        Ok(Answer::ok(record, body))
    }

    /// Notes that exported records are stored safely and may be pruned (L13). An export that leaves
    /// a gap after the records noted before is not counted.
    pub(crate) async fn exported(
        &self,
        caller: &Caller,
        request: ExportedRequest,
    ) -> Result<Answer<ExportedAnswer>, Problem> {
        caller.require_operate("confirm an export of the ledger")?;
        let record = self.record();
        if request.below > record.saturating_add(1) {
            let message = format!("is after the last record, {record}");
            return Err(Problem::invalid(vec![FieldError::new("below", message)]));
        }
        let noted = self.ledger.on_store(move |committer| {
            let known = committer.store().reader()?.exported()?;
            if request.from <= known {
                committer.store().note_exported(request.below)?;
                return Ok(known.max(request.below));
            }
            Ok(known)
        });
        let below = noted
            .await
            .map_err(|failure| of_failure(&failure))?
            .map_err(|error: bursar_ledger::store::Error| unreadable(&error))?;
        Ok(Answer::ok(record, ExportedAnswer { below, record }))
    }

    /// Erases the payloads of records made before a time, as far as is allowed (L13).
    pub(crate) async fn prune(
        &self,
        caller: &Caller,
        request: PruneRequest,
        idempotency: Option<BookingId>,
        mode: WriteMode,
    ) -> Result<Answer<PruneAnswer>, Problem> {
        caller.require_operate("prune the ledger")?;
        let ledger = self.ledger.clone();
        let read = self.read_store(move |reader| {
            let below = maintain::first_at(reader, request.before).map_err(|e| unreadable(&e))?;
            let (anchor, pruned_below) = {
                let state = ledger.view().read();
                (state.spine.anchor, state.spine.pruned_below)
            };
            let prunable = maintain::prunable(reader, anchor).map_err(|e| unreadable(&e))?;
            Ok((below, prunable, pruned_below))
        });
        let (wanted, prunable, pruned_below) = read.await?;
        // At least `pruned_below`: payloads recorded as pruned, but not erased then, are erased now.
        let below = wanted.min(prunable.below_max).max(pruned_below);
        if below <= prunable.pruned && below < wanted {
            return Err(nothing_to_prune(wanted, &prunable));
        }
        let command = spine::Command::Prune { below, idempotency };
        let Outcome { record, .. } = self.submit_or_plan(caller, &command.into(), mode).await?;
        let pruned = match mode {
            WriteMode::DryRun => below.saturating_sub(prunable.pruned),
            WriteMode::Real => self.erase(prunable.pruned, below).await?,
        };
        let body = PruneAnswer {
            below,
            pruned,
            record,
            dry_run: (mode == WriteMode::DryRun).then_some(true),
        };
        Ok(Answer::ok(record, body))
    }

    /// Erases payloads in slices, so that batches are committed in between.
    async fn erase(&self, from: u64, below: u64) -> Result<u64, Problem> {
        let (mut next, mut erased) = (from, 0);
        while next < below {
            next = next.saturating_add(ERASED_MAX).min(below);
            let slice = self
                .ledger
                .on_store(move |committer| committer.store().prune(next));
            erased += slice
                .await
                .map_err(|failure| of_failure(&failure))?
                .map_err(|error| unreadable(&error))?;
        }
        Ok(erased)
    }

    /// Signs with a new key from now on (L11).
    pub(crate) async fn rotate_key(
        &self,
        caller: &Caller,
        idempotency: Option<BookingId>,
        mode: WriteMode,
    ) -> Result<Answer<RotateKeyAnswer>, Problem> {
        caller.require_operate("rotate the signing key")?;
        let former = self.keys.verifiers().first().map(ToString::to_string);
        let former = former.unwrap_or_default();
        let both_until = self.ledger.now().after(BOTH_SIGN);
        let answer = |key, record, dry_run| {
            let body = RotateKeyAnswer {
                key,
                former,
                both_until,
                record,
                dry_run,
            };
            Answer::ok(record, body)
        };
        if mode == WriteMode::DryRun {
            let key = "(created by the real run)".to_owned();
            return Ok(answer(key, self.record(), Some(true)));
        }
        let rotated = self
            .keys
            .rotate(caller.name.clone(), idempotency.clone())
            .await;
        let (outcome, key) = rotated.map_err(|error| match error {
            RotateError::Ledger(failure) => of_failure(&failure),
            RotateError::Key(error) => Problem::new(
                Code::Unavailable,
                format!("the new key could not be stored: {}", chain(&error)),
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
        Ok(answer(key, outcome.record, None))
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
        "no further record below {wanted} may be pruned: {anchored} records are in an anchored \
         snapshot, {signed} are signed, {exported} are exported, so {below_max} may be pruned"
    );
    Problem {
        changes: vec![
            "export the ledger first".to_owned(),
            "wait for the daily anchor".to_owned(),
        ],
        ..Problem::new(Code::Conflict, detail)
    }
}
