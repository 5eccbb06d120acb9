//! Thread that takes snapshots of the view, so that a start is quick, and anchors one a day (L12).
//!
//! A failed snapshot is tried again. Snapshots are optional: with little free disk space none is
//! taken, and the space is left to records.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant as Monotonic};

use bursar_engine::codec::decode;
use bursar_engine::invariants::{self, Broken};
use bursar_engine::{Answer, State, snapshot, spine};
use bursar_journal::hash::sha256;
use bursar_units::causes::chain;
use bursar_units::{Instant, Millis};

use super::ROOM_BYTES_MIN;
use crate::durable;
use crate::intake::{Failure, Submission};
use crate::log;
use crate::pipeline::{Ledger, Observe};
use crate::snapshots::{Snapshots, Wrong, edge_at};
use crate::store::sqlite::{self, SqliteReader};
use crate::store::{self, Reader as _};

/// Number of records after which a snapshot is taken (L12).
const SNAPSHOT_RECORDS: u64 = 100_000;
/// Time after which a snapshot is taken if there are new records (L12).
const SNAPSHOT_AGE: Duration = Duration::from_mins(10);
/// Minimum time between two tries: at 200,000 records a second snapshots would never stop.
const SNAPSHOT_PAUSE: Duration = Duration::from_mins(1);
const ANCHOR_AGE: Millis = Millis::from_hours(24);
const LOOK: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the ledger cannot be read")]
    Read(#[from] store::Error),
    #[error("the snapshot cannot be written")]
    Snapshot(#[from] Wrong),
    #[error("the state cannot be written")]
    State(#[from] snapshot::Error),
    #[error("the anchor could not be recorded")]
    Record(#[from] Failure),
}

/// Takes snapshots. Times count from the start of the thread.
pub(super) struct Keeper {
    ledger: Ledger,
    data: PathBuf,
    free_bytes: fn(&Path) -> Option<u64>,
    check: fn(&State) -> Result<(), Broken>,
    observe: Arc<dyn Observe>,
    snapshotted: u64,
    taken: Duration,
    tried: Duration,
    anchored_at: Instant,
}

impl Keeper {
    /// `snapshotted` is the number of records under the snapshot from which the ledger started.
    pub(super) fn new(
        ledger: Ledger,
        data: &Path,
        snapshotted: u64,
        observe: Arc<dyn Observe>,
    ) -> Self {
        let anchored_at = last_anchor(&ledger, data);
        Self {
            ledger,
            data: data.to_owned(),
            free_bytes: durable::free_bytes,
            check: invariants::check,
            observe,
            snapshotted,
            taken: Duration::ZERO,
            tried: Duration::ZERO,
            anchored_at,
        }
    }

    pub(super) fn run(&mut self, stopped: &Receiver<()>) {
        let started = Monotonic::now();
        loop {
            match stopped.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => self.look(started.elapsed()),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn look(&mut self, at: Duration) {
        if (self.free_bytes)(&self.data).is_some_and(|free| free < ROOM_BYTES_MIN) {
            return;
        }
        let (head, now) = (self.ledger.view().read().spine.head, self.ledger.now());
        let anchor_due = self.anchored_at.after(ANCHOR_AGE) <= now;
        let fresh = head.saturating_sub(self.snapshotted);
        let is_due = fresh >= SNAPSHOT_RECORDS || at.saturating_sub(self.taken) >= SNAPSHOT_AGE;
        let is_early = at.saturating_sub(self.tried) < SNAPSHOT_PAUSE;
        if fresh == 0 || !is_due && !anchor_due || is_early {
            return;
        }
        self.tried = at;
        // The state is cloned under the lock, and checked and written outside of it.
        let state = self.ledger.view().read().clone();
        if let Err(broken) = (self.check)(&state) {
            self.observe.invariant_broken(&broken);
        }
        match self.snapshot(&state) {
            Ok(()) => (self.snapshotted, self.taken) = (state.spine.head, at),
            Err(error) => return warn(log::SNAPSHOT_NOT_TAKEN, &error),
        }
        if anchor_due {
            match self.anchor(&state) {
                Ok(()) => self.anchored_at = now,
                Err(error) => warn(log::SNAPSHOT_NOT_ANCHORED, &error),
            }
        }
    }

    fn snapshot(&self, state: &State) -> Result<(), Error> {
        let edge = edge_at(&self.reader()?, state.spine.head)?;
        Snapshots::of(&self.data).write(state, &edge)?;
        Ok(())
    }

    /// Stores the lines before the record with their hash, so that a recorded anchor always has its
    /// lines.
    fn anchor(&self, state: &State) -> Result<(), Error> {
        let lines = snapshot::write(state)?;
        let (head, sha256) = (state.spine.head, sha256(lines.as_bytes()));
        let (sender, receiver) = sync_channel(1);
        let is_taken = self.ledger.run_on_store(move |committer| {
            // The receiver is gone after a timeout.
            let _gone = sender.send(committer.store().put_anchor(head, &lines));
        });
        if !is_taken {
            return Err(Failure::Busy.into());
        }
        receiver
            .recv_timeout(ANSWER)
            .map_err(|_| Failure::Unavailable)??;
        let (sender, receiver) = sync_channel(1);
        let record = head.saturating_sub(1);
        self.ledger.push(Submission {
            reply: Box::new(move |outcome| {
                let _gone = sender.send(outcome);
            }),
            ..Submission::own(spine::Command::Anchor { record, sha256 }.into())
        });
        let answered = receiver
            .recv_timeout(ANSWER)
            .map_err(|_| Failure::OutcomeUnknown)?;
        match answered?.pop().map(|outcome| outcome.result) {
            Some(Ok(Answer::Done)) => Ok(()),
            _ => Err(Failure::Internal.into()),
        }
    }

    fn reader(&self) -> Result<SqliteReader, store::Error> {
        SqliteReader::open(&self.data.join(sqlite::FILE_NAME))
    }
}

fn warn(event: &str, error: &Error) {
    tracing::warn!(error = chain(error), "{event}");
}

/// Time of the last record under an anchored snapshot, or of the first record.
fn last_anchor(ledger: &Ledger, data: &Path) -> Instant {
    let record = ledger
        .view()
        .read()
        .spine
        .anchor
        .map_or(0, |(record, _)| record);
    let file = data.join(sqlite::FILE_NAME);
    let kept = SqliteReader::open(&file).and_then(|reader| reader.records(record, 1));
    let bytes = kept.ok().and_then(|kept| kept.into_iter().next()?.bytes);
    let time = bytes.and_then(|bytes| decode(record, &bytes, |_| None).ok());
    time.map_or_else(Instant::default, |record| record.time)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::{ANCHOR_AGE, Broken, Keeper, SNAPSHOT_AGE, SNAPSHOT_PAUSE};
    use crate::clock::{Clock, MachineClock};
    use crate::data::{Data, open};
    use crate::pipeline::Observe;
    use crate::snapshots::DIRECTORY_NAME;
    use crate::store::Reader as _;
    use crate::writer::Poison;

    /// Method: a file is in place of the directory of snapshots, and is removed later.
    #[test]
    fn a_failed_snapshot_is_tried_again_after_a_pause() {
        let (directory, data, mut keeper) = kept();
        let blocked = directory.path().join(DIRECTORY_NAME);
        std::fs::write(&blocked, "").unwrap();
        keeper.look(SNAPSHOT_AGE);
        assert_eq!((keeper.snapshotted, keeper.taken), (0, Duration::ZERO));
        std::fs::remove_file(&blocked).unwrap();
        keeper.look(SNAPSHOT_AGE + SNAPSHOT_PAUSE / 2);
        assert_eq!(keeper.snapshotted, 0, "too early");
        let later = SNAPSHOT_AGE + SNAPSHOT_PAUSE;
        keeper.look(later);
        let head = data.ledger.view().read().spine.head;
        assert_eq!((keeper.snapshotted, keeper.taken), (head, later));
        data.stop();
    }

    /// Method: a trigger refuses anchors, and is removed later.
    #[test]
    fn a_failed_anchor_stays_due_and_a_successful_one_is_recorded() {
        let (directory, data, mut keeper) = kept();
        let due = data.ledger.now().before(ANCHOR_AGE);
        keeper.anchored_at = due;
        let file = directory.path().join("ledger.db");
        let sql = |sql: &str| {
            let connection = rusqlite::Connection::open(&file).unwrap();
            connection.busy_timeout(Duration::from_secs(5)).unwrap();
            connection.execute_batch(sql).unwrap();
        };
        sql("CREATE TRIGGER full BEFORE INSERT ON anchor BEGIN SELECT RAISE(ABORT, 'full'); END");
        let head = data.ledger.view().read().spine.head;
        keeper.look(SNAPSHOT_PAUSE);
        assert_eq!((keeper.snapshotted, keeper.anchored_at), (head, due));
        assert_eq!(data.ledger.view().read().spine.anchor, None);
        sql("DROP TRIGGER full");
        // The next snapshot needs new records.
        keeper.snapshotted = 0;
        keeper.look(SNAPSHOT_PAUSE * 2);
        assert!(due < keeper.anchored_at);
        let anchor = data.ledger.view().read().spine.anchor;
        assert_eq!(anchor.map(|(record, _)| record), head.checked_sub(1));
        assert_eq!(keeper.reader().unwrap().anchors().unwrap(), [head]);
        data.stop();
    }

    #[test]
    fn with_little_disk_space_no_snapshot_is_taken() {
        let (directory, data, mut keeper) = kept();
        keeper.free_bytes = |_| Some((256 << 20) - 1);
        keeper.look(SNAPSHOT_AGE);
        assert_eq!(keeper.snapshotted, 0);
        assert!(!directory.path().join(DIRECTORY_NAME).exists());
        keeper.free_bytes = |_| Some(256 << 20);
        keeper.look(SNAPSHOT_AGE);
        assert_eq!(keeper.snapshotted, data.ledger.view().read().spine.head);
        data.stop();
    }

    /// Method: the check is replaced by one that fails.
    #[test]
    fn a_broken_invariant_is_reported_once_for_each_snapshot() {
        let (_directory, data, mut keeper) = kept();
        let counting = Arc::<Counting>::default();
        keeper.observe = counting.clone();
        keeper.look(SNAPSHOT_AGE);
        assert_eq!(counting.0.load(Ordering::Relaxed), 0);
        keeper.check = |state| {
            let (below, covered) = (state.spine.head, 0);
            Err(Broken::Spine(bursar_engine::spine::Broken::Pruned {
                below,
                covered,
            }))
        };
        keeper.snapshotted = 0;
        keeper.look(SNAPSHOT_AGE * 2);
        assert_eq!(counting.0.load(Ordering::Relaxed), 1);
        // The snapshot is taken all the same.
        assert_eq!(keeper.snapshotted, data.ledger.view().read().spine.head);
        data.stop();
    }

    fn kept() -> (tempfile::TempDir, Data, Keeper) {
        let directory = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(MachineClock::default());
        let data = open(
            directory.path(),
            clock,
            Arc::<Counting>::default(),
            |_, _| (),
        )
        .unwrap();
        let observe = Arc::<Counting>::default();
        let keeper = Keeper::new(data.ledger.clone(), directory.path(), 0, observe);
        (directory, data, keeper)
    }

    #[derive(Default)]
    struct Counting(AtomicU64);

    impl Observe for Counting {
        fn poisoned(&self, _: &Poison) {}

        fn store_failed(&self, _: &crate::store::Error) {}

        fn not_leader(&self) {}

        fn store_away(&self, _: &Result<String, crate::store::Error>) {}

        fn committed(&self, _: usize, _: Duration) {}

        fn signed(&self, _: u64) {}

        fn invariant_broken(&self, _: &Broken) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
