//! Thread that updates the index of a running ledger after its commits.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant as Monotonic};

use bursar_units::causes::chain;

use super::ROOM_BYTES_MIN;
use crate::durable;
use crate::index::{Error, Index, Indexer, Pace, Progress};
use crate::log;
use crate::pipeline::Ledger;
use crate::store::sqlite::{self, SqliteReader};

const LOOK: Duration = Duration::from_secs(1);
/// Rest after a chunk, as a multiple of the time of the chunk, because commits come first.
const REST: u32 = 3;
/// The wait doubles with every failure in a row, up to 2 to the power of this seconds.
const DOUBLINGS_MAX: u32 = 6;

pub(super) struct Indexing {
    ledger: Ledger,
    data: PathBuf,
    indexer: Indexer,
    failures: u32,
}

impl Indexing {
    pub(super) fn new(ledger: Ledger, data: &Path, index: Index) -> Self {
        Self {
            ledger,
            data: data.to_owned(),
            indexer: Indexer::new(index, Pace::RUNNING),
            failures: 0,
        }
    }

    pub(super) fn run(&mut self, stopped: &Receiver<()>) {
        let mut pause = Duration::ZERO;
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
            pause = self.look();
        }
    }

    /// Indexes a chunk if there is one, and returns the pause before the next.
    fn look(&mut self) -> Duration {
        let began = Monotonic::now();
        match self.step() {
            Ok(Progress::Behind) => began.elapsed().saturating_mul(REST),
            Ok(Progress::CaughtUp) => {
                self.failures = 0;
                LOOK
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "{}", log::RECORDS_NOT_INDEXED);
                self.failures = self.failures.saturating_add(1).min(DOUBLINGS_MAX);
                LOOK.saturating_mul(1 << self.failures)
            }
        }
    }

    fn step(&mut self) -> Result<Progress, Error> {
        if durable::free_bytes(&self.data).is_some_and(|free| free < ROOM_BYTES_MIN) {
            return Ok(Progress::CaughtUp);
        }
        let head = self.ledger.view().read().spine.head;
        let reader = SqliteReader::open(&self.data.join(sqlite::FILE_NAME))?;
        self.indexer.step(&reader, head)
    }
}
