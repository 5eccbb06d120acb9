//! A data directory becomes a running ledger: lock, store, newest snapshot, tail, term, threads.

mod keys;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Monotonic};

use bursar_engine::codec::decode;
use bursar_engine::{Command, State, snapshot};
use bursar_journal::hash::sha256;
use bursar_units::{Instant, Millis};

use crate::clock::Clock;
use crate::intake::Submission;
use crate::key::{self, Signer};
use crate::lock::Lock;
use crate::pipeline::{Ledger, Observe, Running};
use crate::recover::Recovered;
use crate::snapshots::{Skipped, Snapshots, edge_at};
use crate::store::sqlite::{self, SqliteReader, SqliteStore};
use crate::store::{self, Reader};
use crate::term::{Begun, Error, Hand, begin_with};
use keys::is_announced;

pub use keys::{Keys, RotateError, signs_with};

/// A snapshot is taken after this many records …
const SNAPSHOT_RECORDS: u64 = 100_000;
/// … or after this long, if anything happened at all (L12) …
const SNAPSHOT_AGE: Duration = Duration::from_mins(10);
/// … but not more often than this: at 200,000 records a second it would be all we do.
const SNAPSHOT_PAUSE: Duration = Duration::from_mins(1);
/// How often a snapshot is anchored (L12).
const ANCHOR_AGE: Millis = Millis::from_hours(24);
/// How often the keeper looks.
const LOOK: Duration = Duration::from_secs(1);

/// An open data directory. Dropping it without [`Data::stop`] is a crash, and safe.
pub struct Data {
    /// The ledger, for every surface.
    pub ledger: Ledger,
    /// Where it is.
    pub path: PathBuf,
    /// How many records there were before this term.
    pub records: u64,
    /// Snapshots that were passed over, with why.
    pub skipped: Vec<Skipped>,
    keys: Keys,
    running: Running,
    keeper: (SyncSender<()>, JoinHandle<()>),
    /// Held until the end.
    _lock: Lock,
}

/// Opens a data directory, making it if it is not there, and starts the ledger.
pub fn open(
    path: &Path,
    clock: Arc<dyn Clock>,
    observe: Arc<dyn Observe>,
    progress: impl FnMut(u64, u64),
) -> Result<Data, Error> {
    make_directory(path)?;
    let lock = Lock::take(path)?;
    let file = path.join(sqlite::FILE_NAME);
    let store = SqliteStore::open(&file)?;
    let snapshots = Snapshots::of(path);
    let (start, skipped) = newest_state(&snapshots, &SqliteReader::open(&file)?)?;
    let snapshotted = start.head;
    let key_path = path.join(key::FILE_NAME);
    let mut signer = None;
    let begun = Signer::load(&key_path)?;
    // A start that came no further than its key goes on with that key.
    let begun = begun.as_ref().and_then(Signer::ledger_begun);
    let new_id = || begun.map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned);
    let hand = |ledger: &str, recovered: &Recovered, _: &dyn Reader| {
        let loaded = key_of(&key_path, ledger, &recovered.state)?;
        let verifiers = loaded.verifiers();
        let shared = Arc::new(Mutex::new(loaded));
        signer = Some(Arc::clone(&shared));
        Ok(Hand {
            verifiers,
            sign: signs_with(shared, Arc::clone(&clock)),
        })
    };
    let begun = begin_with(Box::new(store), start, &clock, new_id, hand, progress)?;
    let Begun {
        writer,
        committer,
        records,
    } = begun;
    let signer = signer.ok_or_else(|| Error::Decide("no key was asked for".to_owned()))?;
    let (ledger, running) = Ledger::start(writer, committer, clock, observe)?;
    let keeper = keep(ledger.clone(), snapshots, file, snapshotted)?;
    let keys = Keys::new(signer, ledger.clone());
    let path = path.to_owned();
    Ok(Data {
        ledger,
        path,
        records,
        skipped,
        keys,
        running,
        keeper,
        _lock: lock,
    })
}

impl Data {
    /// The signing keys.
    pub fn keys(&self) -> Keys {
        self.keys.clone()
    }

    /// Readers of the store, for as many threads as ask.
    pub fn readers(
        &self,
    ) -> impl Fn() -> Result<Box<dyn Reader>, store::Error> + Send + Sync + 'static {
        let file = self.path.join(sqlite::FILE_NAME);
        move || Ok(Box::new(SqliteReader::open(&file)?))
    }

    /// Stops intake, drains, signs a last checkpoint, ends the term and gives the lock back.
    pub fn stop(self) {
        self.running.stop();
        let (stop, keeper) = self.keeper;
        drop(stop);
        // The keeper only writes snapshots, which are whole or absent.
        let _ended = keeper.join();
    }
}

fn make_directory(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|source| {
        let path = path.display().to_string();
        Error::Store(store::Error::File {
            operation: "make the directory",
            path,
            source,
        })
    })
}

/// The key of what was recovered. One is made only where there is nothing that it signed.
fn key_of(path: &Path, ledger: &str, state: &State) -> Result<Signer, key::Error> {
    if state.head == 0 {
        return Signer::load_or_create(path, ledger, state.generation);
    }
    let signer = Signer::load_for(path, ledger, state.generation)?;
    match signer.load_next()? {
        None => Ok(signer),
        Some(next) if is_announced(state, &next) => {
            next.promote_next()?;
            Ok(next)
        }
        Some(_) => {
            signer.forget_next()?;
            Ok(signer)
        }
    }
}

/// The newest good snapshot, or the newest anchored one where records below it were pruned, or
/// the beginning.
fn newest_state(
    snapshots: &Snapshots,
    reader: &dyn Reader,
) -> Result<(State, Vec<Skipped>), store::Error> {
    let (loaded, skipped) = snapshots.load(reader)?;
    if let Some(loaded) = loaded {
        return Ok((loaded.state, skipped));
    }
    let is_pruned = reader
        .records(0, 1)?
        .first()
        .is_some_and(|first| first.bytes.is_none());
    let anchored = if is_pruned {
        reader.anchor(reader.head()?)?
    } else {
        None
    };
    let state = anchored.and_then(|(_, lines)| snapshot::read(&lines).ok());
    Ok((state.unwrap_or_default(), skipped))
}

/// The thread that takes snapshots of the view and anchors one a day.
fn keep(
    ledger: Ledger,
    snapshots: Snapshots,
    file: PathBuf,
    snapshotted: u64,
) -> std::io::Result<(SyncSender<()>, JoinHandle<()>)> {
    let (stop, stopped) = sync_channel(0);
    let anchored_at = last_anchor(&ledger, &file);
    let taken_at = Monotonic::now();
    let keeper = Keeper {
        ledger,
        snapshots,
        file,
        snapshotted,
        taken_at,
        anchored_at,
    };
    let thread = std::thread::Builder::new()
        .name("keeper".to_owned())
        .spawn(move || keeper.run(&stopped))?;
    Ok((stop, thread))
}

struct Keeper {
    ledger: Ledger,
    snapshots: Snapshots,
    file: PathBuf,
    snapshotted: u64,
    taken_at: Monotonic,
    anchored_at: Instant,
}

/// The time of the last record that an anchored snapshot covers, or of the first of all.
fn last_anchor(ledger: &Ledger, file: &Path) -> Instant {
    let record = ledger.view().read().anchor.map_or(0, |(record, _)| record);
    let kept = SqliteReader::open(file).and_then(|reader| reader.records(record, 1));
    let bytes = kept.ok().and_then(|kept| kept.into_iter().next()?.bytes);
    let time = bytes.and_then(|bytes| decode(record, &bytes, |_| None).ok());
    time.map_or_else(Instant::default, |record| record.time)
}

impl Keeper {
    fn run(mut self, stopped: &Receiver<()>) {
        while matches!(stopped.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout)) {
            let (head, now) = (self.ledger.view().read().head, self.ledger.now());
            let anchor_due = self.anchored_at.after(ANCHOR_AGE) <= now;
            let fresh = head.saturating_sub(self.snapshotted);
            let age = self.taken_at.elapsed();
            let is_due = fresh >= SNAPSHOT_RECORDS || age >= SNAPSHOT_AGE;
            if fresh == 0 || !is_due && !anchor_due || age < SNAPSHOT_PAUSE {
                continue;
            }
            // Cloned under the lock, written outside of it.
            let state = self.ledger.view().read().clone();
            if let Err(error) = self.take(&state, anchor_due) {
                tracing::warn!(%error, "no snapshot was taken");
            }
            self.snapshotted = state.head;
            self.taken_at = Monotonic::now();
            self.anchored_at = if anchor_due { now } else { self.anchored_at };
        }
    }

    fn take(&self, state: &State, anchor: bool) -> Result<(), String> {
        let words = |error: &dyn std::error::Error| error.to_string();
        let reader = SqliteReader::open(&self.file).map_err(|error| words(&error))?;
        let edge = edge_at(&reader, state.head).map_err(|error| words(&error))?;
        self.snapshots
            .write(state, &edge)
            .map_err(|error| words(&error))?;
        if anchor {
            self.anchor(state).map_err(|error| words(&error))?;
        }
        Ok(())
    }

    /// Keeps the lines in the store, then binds their hash into the ledger: an anchor on record
    /// always has its lines.
    fn anchor(&self, state: &State) -> Result<(), snapshot::Error> {
        let lines = snapshot::write(state)?;
        let (head, hash) = (state.head, sha256(lines.as_bytes()));
        let ledger = self.ledger.clone();
        self.ledger.run_on_store(move |committer| {
            match committer.store().put_anchor(head, &lines) {
                Ok(()) => {
                    let command = Command::Anchor {
                        record: head.saturating_sub(1),
                        sha256: hash,
                    };
                    ledger.push(Submission::own(command));
                }
                Err(error) => tracing::warn!(%error, "no snapshot was anchored"),
            }
        });
        Ok(())
    }
}
