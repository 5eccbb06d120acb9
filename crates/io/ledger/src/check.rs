//! `ledger check`: recomputes the hashes, the state and the counters of a ledger.
//!
//! One pass over the records. Hashes are computed from the bytes, the state from the events, and
//! the amounts in use by a naive count of the events, not from the engine's counters. The report
//! names the first record that differs from the signed one. The check repairs nothing.

mod fold;
mod hashes;

use std::path::Path;

use bursar_engine::State;
use bursar_engine::market::Position;
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::hash::Hash;
pub use bursar_journal::proof::Check;
use bursar_units::{Instant, ObjectName};

use crate::data::newest;
use crate::maintain::time_of;
use crate::snapshots::Loaded;
use crate::store::{Error, Kept, Reader};
use fold::Fold;
use hashes::Hashes;

const CHUNK: usize = 4_096;

/// Options of a check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Trusted keys. Keys announced in records below a checkpoint by a trusted key are trusted too.
    pub keys: &'a [VerifierKey],
    /// Checkpoints seen before, which the ledger must extend.
    pub seen: &'a [Checkpoint],
    /// Treatment of records that no signature covers.
    pub unsigned: Unsigned,
    /// Data directory, whose newest checkpoint the ledger must extend.
    pub data: Option<&'a Path>,
    /// Snapshots that the folded state must equal.
    pub snapshots: &'a [Loaded],
    /// Head and hash of a live state that the folded state must equal.
    pub live: Option<(u64, Hash)>,
    /// Decide every command again.
    pub redecide: bool,
}

/// Treatment of records that no signature covers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Unsigned {
    /// They are reported and accepted, and without a trusted key the ledger's own keys are used. For
    /// the operator of the store.
    #[default]
    Named,
    /// They fail the check, with one line for each gap. For auditors of a file.
    Refused,
}

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// Number of records.
    pub records: u64,
    /// One line for each checked property.
    pub checks: Vec<Check>,
    /// First record that is not good.
    pub damage: Option<Damage>,
    /// Newest checkpoint that is signed and fits.
    pub checkpoint: Option<Checkpoint>,
    /// Checkpoints seen before that the records under the newest one extend.
    pub joined: Vec<Checkpoint>,
    /// Checkpoints seen before that those records contradict.
    pub parted: Vec<Checkpoint>,
    /// Position of each node's market at its last digest, if every record is good.
    pub digests: Vec<(ObjectName, Position)>,
}

/// End of the good part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Damage {
    /// First record that is not good, and the number of good records before it.
    pub seq: u64,
    /// Time of the last good record, if it can be decoded.
    pub time: Option<Instant>,
}

impl Report {
    /// True if all checks passed.
    pub fn is_ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }
}

/// Checks a store or an export. An error means that it could not be opened; damage inside is in the
/// report.
pub fn check(
    reader: &dyn Reader,
    asked: &Asked<'_>,
    mut progress: impl FnMut(u64, u64),
) -> Result<Report, Error> {
    // Checkpoints are read before the head, so that each covers records below it beside a writer.
    let kept = asked.data.map(|data| (data, newest::read(data)));
    let mut hashes = Hashes::start(reader, asked.seen)?;
    let head = reader.head()?;
    let first = hashes.size();
    let mut fold = Fold::start(reader, first, head, asked)?;
    let mut next = first;
    while next < head {
        let chunk = match read(reader, next) {
            Ok(chunk) => chunk,
            Err(error) => {
                hashes.unreadable(next, &error);
                break;
            }
        };
        for kept in chunk.into_iter().take_while(|kept| kept.seq < head) {
            hashes.take(&kept);
            fold.take(reader, &kept);
            next = kept.seq + 1;
        }
        progress(next, head);
    }
    let kept = kept.and_then(|(data, note)| hashes.newest_check(data, note, &fold, asked.keys));
    let verdict = hashes.judge(&fold.announced, asked);
    let damaged_at = verdict
        .damaged_at
        .into_iter()
        .chain(fold.problem_at())
        .min();
    let damage = damaged_at.map(|seq| Damage {
        seq,
        time: time_before(reader, seq),
    });
    let mut checks = vec![verdict.check];
    checks.extend(kept);
    checks.extend(verdict.history);
    checks.extend(verdict.gaps);
    if asked.unsigned == Unsigned::Refused {
        checks.extend(fold.unexplained_blanks());
    }
    if damaged_at.is_none() {
        let wrong = reader.misspelling()?;
        checks.extend(wrong.map(|wrong| Check::failed("form", wrong)));
    }
    checks.push(fold.state_check(verdict.damaged_at));
    let mut digests = Vec::new();
    if damaged_at.is_none() {
        checks.extend(fold.further_checks());
        digests = fold.digests();
    }
    Ok(Report {
        records: head,
        checks,
        damage,
        checkpoint: verdict.newest,
        joined: verdict.joined,
        parted: verdict.parted,
        digests,
    })
}

/// State after the first `until` records, which a check has found good.
pub(crate) fn state_after(reader: &dyn Reader, until: u64) -> Result<State, Error> {
    let mut fold = Fold::start(reader, 0, until, &Asked::default())?;
    let mut next = 0;
    while next < until {
        for kept in read(reader, next)?
            .into_iter()
            .take_while(|kept| kept.seq < until)
        {
            next = kept.seq + 1;
            fold.take(reader, &kept);
        }
    }
    fold.into_state().map_err(|what| Error::Damaged { what })
}

fn time_before(reader: &dyn Reader, seq: u64) -> Option<Instant> {
    let seq = seq.checked_sub(1)?;
    time_of(reader, reader.records(seq, 1).ok()?.pop()?)
}

/// Reads a chunk of records from `next` on, or only the first if the chunk cannot be read.
fn read(reader: &dyn Reader, next: u64) -> Result<Vec<Kept>, Error> {
    let chunk = reader
        .records(next, CHUNK)
        .or_else(|_| reader.records(next, 1))?;
    if chunk.is_empty() {
        return Err(Error::Damaged {
            what: format!("record {next} is missing, so the journal"),
        });
    }
    Ok(chunk)
}
