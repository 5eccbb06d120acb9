//! The beginning of a term: what is stored becomes a writer and a committer, and the first
//! records say so (L5).

use std::sync::Arc;

use bursar_engine::{FORMAT, LEVEL, State, decide, spine};
use bursar_journal::checkpoint::VerifierKey;
use bursar_units::Instant;
use thiserror::Error;

use crate::clock::{Clock, TermClock};
use crate::committer::{Commit, Committer, Sign};
use crate::key;
use crate::recover::{self, Recovered, check_extends, recover};
use crate::store::{self, Reader, Store};
use crate::writer::Writer;

/// A term, ready to run.
pub struct Begun {
    /// The engine's side.
    pub writer: Writer,
    /// The store's side.
    pub committer: Committer,
    /// How many records there were before; zero for a new ledger.
    pub records: u64,
    /// The clock of the term: the one that stamped its first record stamps all others (L5).
    pub time: TermClock,
}

/// Who signs checkpoints, once the ledger's id and generation are known.
pub struct Hand {
    /// The keys that signed or sign.
    pub verifiers: Vec<VerifierKey>,
    /// Signs.
    pub sign: Sign,
}

/// Why a term cannot begin.
#[derive(Debug, Error)]
pub enum Error {
    /// The directory, its lock or the store.
    #[error("the ledger cannot be opened")]
    Store(#[from] store::Error),
    /// What is stored.
    #[error("the stored ledger cannot be resumed")]
    Recover(#[from] recover::Error),
    /// The signing key.
    #[error("the ledger cannot be signed")]
    Key(#[from] key::Error),
    /// A defect in the very first records.
    #[error("the first record of the term could not be decided: {0}")]
    Decide(String),
    /// Somebody else began a term in the same moment.
    #[error("another process leads this ledger")]
    NotLeader,
    /// The files of the store were taken away in the same moment.
    #[error("the files of the store are gone")]
    Away,
    /// A thread could not be started.
    #[error("a thread could not be started")]
    System(#[from] std::io::Error),
}

/// Leads the store, folds what is there on top of `start`, and writes the first records of the
/// term: Genesis and the key where the ledger is new, Level where this program's rules are newer
/// than those of the last records, then Resume.
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

/// The same for a hand that looks at what was recovered before it signs.
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
    let time = TermClock::begin(clock.as_ref(), state.spine.time);
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
    let mut batch = writer.close().unwrap_or_default();
    match committer.commit(&mut batch) {
        Commit::Done => Ok(Begun {
            writer,
            committer,
            records: term.head,
            time,
        }),
        Commit::Refused => Err(Error::NotLeader),
        Commit::Unknown(error) => Err(error.into()),
        Commit::Away => Err(Error::Away),
    }
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
        .open_with(now, begins.into_iter().chain(signs).chain(level))
        .and_then(|()| writer.resume(wall))
        .map_err(|poison| Error::Decide(poison.message))
}
