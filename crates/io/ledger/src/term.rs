//! Beginning of a term: recovery, a writer and a committer, and the first records (L5).

use std::sync::Arc;

use bursar_engine::codec::decode_events;
use bursar_engine::{FORMAT, LEVEL, State, decide, spine};
use bursar_journal::checkpoint::VerifierKey;
use bursar_journal::hash::Hash;
use bursar_units::Instant;
use thiserror::Error;

use crate::clock::{Clock, TermClock};
use crate::committer::{Commit, Committer, Sign};
use crate::key;
use crate::recover::{self, Recovered, check_extends, recover};
use crate::store::{self, Reader, Store};
use crate::writer::Writer;

/// A term that is ready to run.
pub struct Begun {
    /// Engine side.
    pub writer: Writer,
    /// Store side.
    pub committer: Committer,
    /// Number of records before the term; zero for a new ledger.
    pub records: u64,
    /// Clock of the term, which stamps all its records (L5).
    pub time: TermClock,
}

/// Signing of checkpoints, for a known ledger id and generation.
pub struct Hand {
    /// Public keys, newest first.
    pub verifiers: Vec<VerifierKey>,
    /// Signing function.
    pub sign: Sign,
}

/// Error of the beginning of a term.
#[derive(Debug, Error)]
pub enum Error {
    /// The directory, its lock or the store cannot be opened.
    #[error("the ledger cannot be opened")]
    Store(#[from] store::Error),
    /// The stored ledger cannot be recovered.
    #[error("the stored ledger cannot be resumed")]
    Recover(#[from] recover::Error),
    /// The signing key cannot be used.
    #[error("the ledger cannot be signed")]
    Key(#[from] key::Error),
    /// The first records could not be decided: a defect.
    #[error("the first record of the term could not be decided: {0}")]
    Decide(String),
    /// Another process began a term at the same time.
    #[error("another process leads this ledger")]
    NotLeader,
    /// The files of the store were moved or removed at the same time.
    #[error("the files of the store are gone")]
    Away,
    /// A thread could not be started.
    #[error("a thread could not be started")]
    System(#[from] std::io::Error),
}

/// Leads the store, folds its records onto `start`, and writes the first records of the term:
/// Genesis and the key for a new ledger, Level if the rules of this program are newer than those of
/// the last records, then Resume.
pub fn begin(
    store: Box<dyn Store>,
    start: State,
    clock: &Arc<dyn Clock>,
    new_id: impl FnOnce() -> String,
    hand: impl FnOnce(&str, u64) -> Result<Hand, key::Error>,
    progress: impl FnMut(u64, u64),
) -> Result<Begun, Error> {
    let hand = |ledger: &str, recovered: &Recovered, _: &dyn Reader| {
        Ok(hand(ledger, recovered.state.spine.generation)?)
    };
    begin_with(store, start, clock, new_id, hand, progress)
}

/// The same with a `hand` that can check the recovered ledger before it signs.
pub(crate) fn begin_with(
    mut store: Box<dyn Store>,
    start: State,
    clock: &Arc<dyn Clock>,
    new_id: impl FnOnce() -> String,
    hand: impl FnOnce(&str, &Recovered, &dyn Reader) -> Result<Hand, Error>,
    progress: impl FnMut(u64, u64),
) -> Result<Begun, Error> {
    let term = store.lead()?;
    let recovered = recover(store.reader()?, start, progress)?;
    let is_new = recovered.state.spine.ledger.is_empty();
    let ledger = if is_new {
        new_id()
    } else {
        recovered.state.spine.ledger.clone()
    };
    let reader = store.reader()?;
    let Hand { verifiers, sign } = hand(&ledger, &recovered, reader.as_ref())?;
    let Recovered { state, builder } = recovered;
    let signed = check_extends(reader.as_ref(), &builder, &verifiers)?;
    let last = last_record_time(reader.as_ref(), &state)?;
    let time = TermClock::begin(clock.as_ref(), last);
    let newest = verifiers.first().map(ToString::to_string);
    let level = (state.spine.level < LEVEL).then_some(spine::Command::Level { n: LEVEL });
    let mut writer = Writer::new(state, decide);
    let mut committer = Committer::new(store, term, builder, sign, signed);
    first_records(
        &mut writer,
        time.now(clock.as_ref()),
        is_new.then_some((ledger, newest)),
        level,
        clock.wall(),
    )?;
    // After a long absence the deadlines that were missed fill several batches; each is durable by itself.
    loop {
        let mut batch = writer.close().unwrap_or_default();
        match committer.commit(&mut batch) {
            Commit::Done => {}
            Commit::Refused => return Err(Error::NotLeader),
            Commit::Unknown(error) => return Err(error.into()),
            Commit::Away => return Err(Error::Away),
        }
        let goes_on = writer.go_on(time.now(clock.as_ref()));
        if goes_on.map_err(|poison| Error::Decide(poison.message))? {
            return Ok(Begun {
                writer,
                committer,
                records: term.head,
                time,
            });
        }
    }
}

/// Time of the last record. Its events may all be earlier: deadlines that were carried out late.
fn last_record_time(reader: &dyn Reader, state: &State) -> Result<Instant, recover::Error> {
    let seq = state.spine.head.saturating_sub(1);
    let last = reader.records(seq, 1)?.pop();
    let Some(bytes) = last.and_then(|last| last.bytes) else {
        return Ok(state.spine.time);
    };
    let blob = |sha256: &Hash| reader.blob(sha256).ok().flatten();
    let (time, _) = decode_events(seq, &bytes, blob).map_err(recover::Error::Fold)?;
    Ok(time.max(state.spine.time))
}

fn first_records(
    writer: &mut Writer,
    now: Instant,
    genesis: Option<(String, Option<String>)>,
    level: Option<spine::Command>,
    wall: Instant,
) -> Result<(), Error> {
    let (ledger, key) = genesis.map_or((None, None), |(ledger, key)| (Some(ledger), key));
    let begins = ledger.map(|ledger| spine::Command::Genesis {
        ledger,
        format: FORMAT,
    });
    let signs = key.map(|key| spine::Command::RotateKey {
        key,
        idempotency: None,
    });
    writer
        .begin(now, wall, begins.into_iter().chain(signs).chain(level))
        .map_err(|poison| Error::Decide(poison.message))
}
