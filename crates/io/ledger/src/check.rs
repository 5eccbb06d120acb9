//! `ledger check`: hashes everything again, folds it again, and counts it again (design 80, 2.16).
//!
//! One pass over the records. It trusts nothing that it can compute: hashes come from the bytes,
//! the state from the events, and what is in use from counting the events naively, not from the
//! engine's counters. The first record that is not what was signed is named. What it deliberately
//! does not do: repair.

mod fold;
mod hashes;

use std::path::Path;

use bursar_engine::market::Position;
use bursar_engine::{State, codec};
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::hash::Hash;
pub use bursar_journal::proof::Check;
use bursar_units::{Instant, ObjectName};

use crate::data::newest;
use crate::snapshots::Loaded;
use crate::store::{Error, Kept, Reader};
use fold::Fold;
use hashes::Hashes;

/// Records that are read at a time.
const CHUNK: usize = 4_096;

/// What to check against.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Keys that are trusted to sign this ledger. Keys that the ledger announces in records below
    /// a checkpoint by one of these are trusted too.
    pub keys: &'a [VerifierKey],
    /// Checkpoints that were seen before: the ledger must extend them.
    pub seen: &'a [Checkpoint],
    /// What is made of records that no signature covers.
    pub unsigned: Unsigned,
    /// The data directory, whose newest checkpoint the ledger must extend.
    pub data: Option<&'a Path>,
    /// Snapshots that the fold must meet.
    pub snapshots: &'a [Loaded],
    /// The head and the hash of a live state that the fold must meet.
    pub live: Option<(u64, Hash)>,
    /// Whether every command is decided again.
    pub redecide: bool,
}

/// What is made of that which no signature covers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Unsigned {
    /// It is named and accepted, and without a trusted key the ledger's own keys are taken: for the
    /// operator, whose store it is.
    #[default]
    Named,
    /// It fails the check, one line for each gap: for auditors, who were given a file.
    Refused,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many records there are.
    pub records: u64,
    /// One line for each thing that was checked.
    pub checks: Vec<Check>,
    /// The first record that is not good.
    pub damage: Option<Damage>,
    /// The newest checkpoint that is signed and fits.
    pub checkpoint: Option<Checkpoint>,
    /// The checkpoints seen before that the records under the newest one extend.
    pub joined: Vec<Checkpoint>,
    /// The checkpoints seen before that those records contradict.
    pub parted: Vec<Checkpoint>,
    /// How far the record of each node's market had come at its last digest, where every record is
    /// good.
    pub digests: Vec<(ObjectName, Position)>,
}

/// Where the good part ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Damage {
    /// The first record that is not good; so many before it are.
    pub seq: u64,
    /// The time of the last good one, if it could be folded.
    pub time: Option<Instant>,
}

impl Report {
    /// Whether all is well.
    pub fn is_ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }
}

/// Checks everything in a store or an export. An error means that it could not be opened at all;
/// what is wrong inside is in the report.
pub fn check(
    reader: &dyn Reader,
    asked: &Asked<'_>,
    mut progress: impl FnMut(u64, u64),
) -> Result<Report, Error> {
    // The checkpoints come before the head: beside a writer, each then covers records below it.
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

/// The state after the first `until` records, all of which a check has found good.
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

/// The time of the record before `seq`, if it can be read.
fn time_before(reader: &dyn Reader, seq: u64) -> Option<Instant> {
    let seq = seq.checked_sub(1)?;
    let kept = reader.records(seq, 1).ok()?.pop()?;
    let blob = |sha256: &Hash| reader.blob(sha256).ok().flatten();
    Some(codec::decode(seq, &kept.bytes?, blob).ok()?.time)
}

/// Some records from `next` on: many, or where they cannot all be read, the first alone.
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
