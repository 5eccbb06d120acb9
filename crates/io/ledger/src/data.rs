//! Opening of a data directory: lock, store, newest snapshot, tail, term, threads.

mod indexing;
mod keeper;
mod keys;
pub(crate) mod newest;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bursar_engine::State;

use crate::clock::Clock;
use crate::durable;
use crate::index::Index;
use crate::key::{self, Signer};
use crate::lock::{self, Lock};
use crate::maintain::UNFINISHED;
use crate::pipeline::{Ledger, Observe, Running};
use crate::recover::{self, Recovered};
use crate::snapshots::{self, Skipped, Snapshots, Wrong, load_anchored};
use crate::store::sqlite::{self, RESCUE, SqliteReader, SqliteStore};
use crate::store::{self, Reader};
use crate::term::{Error, Hand, begin_with};
use indexing::Indexing;
use keeper::Keeper;
use keys::is_announced;

pub use keys::{Keys, RotateError, signs_with};

/// With less free disk space than this, no derived files are written.
const ROOM_BYTES_MIN: u64 = 256 << 20;

/// An open data directory. Dropping it without [`Data::stop`] is a crash, and safe.
pub struct Data {
    /// Running ledger.
    pub ledger: Ledger,
    /// Path of the directory.
    pub path: PathBuf,
    /// Number of records before this term.
    pub records: u64,
    /// Skipped snapshots, with the reason.
    pub skipped: Vec<Skipped>,
    keys: Keys,
    running: Running,
    index: Index,
    keeper: Background,
    indexing: Background,
    _lock: Lock,
}

/// Opens a data directory, creates it if it is missing, and starts the ledger.
pub fn open(
    path: &Path,
    clock: Arc<dyn Clock>,
    observe: Arc<dyn Observe>,
    progress: impl FnMut(u64, u64),
) -> Result<Data, Error> {
    make_directory(path)?;
    check_kinds(path)?;
    let lock = Lock::take(path)?;
    let (file, key_path) = (path.join(sqlite::FILE_NAME), path.join(key::FILE_NAME));
    check_not_lost(path, &file)?;
    let store = SqliteStore::open(&file)?;
    let snapshots = Snapshots::of(path);
    let (start, skipped) = newest_state(&snapshots, &SqliteReader::open(&file)?, &file)?;
    let snapshotted = start.spine.head;
    let mut signer = None;
    let new_id = || uuid::Uuid::now_v7().to_string();
    let hand = |ledger: &str, recovered: &Recovered, reader: &dyn Reader| {
        let loaded = key_of(&key_path, ledger, &recovered.state)?;
        let verifiers = loaded.verifiers();
        check_covered(ledger, recovered, &skipped)?;
        newest::check(path, recovered, reader, &verifiers)?;
        let shared = Arc::new(Mutex::new(loaded));
        signer = Some(Arc::clone(&shared));
        Ok(Hand {
            verifiers,
            sign: newest::kept_in(path, signs_with(shared, Arc::clone(&clock))),
        })
    };
    let mut begun = begin_with(Box::new(store), start, &clock, new_id, hand, progress)?;
    let records = begun.records;
    let signer = signer.ok_or_else(|| Error::Decide("no signing key was loaded".to_owned()))?;
    if records == 0 {
        keys::lock(&signer).promote_new()?;
    }
    // A checkpoint is signed and stored before a client can ask for one.
    begun.committer.checkpoint()?;
    let (ledger, running) = Ledger::start(begun, clock, Arc::clone(&observe))?;
    let mut keeper = Keeper::new(ledger.clone(), path, snapshotted, observe);
    let keeper = Background::spawn("keeper", move |stopped| keeper.run(stopped))?;
    let index = index_of(path, &ledger);
    let mut indexing = Indexing::new(ledger.clone(), path, index.clone());
    let indexing = Background::spawn("index", move |stopped| indexing.run(stopped))?;
    let keys = Keys::new(signer, ledger.clone());
    let path = path.to_owned();
    Ok(Data {
        ledger,
        path,
        records,
        skipped,
        keys,
        running,
        index,
        keeper,
        indexing,
        _lock: lock,
    })
}

impl Data {
    /// Signing keys.
    pub fn keys(&self) -> Keys {
        self.keys.clone()
    }

    /// Index from subjects to records.
    pub fn index(&self) -> Index {
        self.index.clone()
    }

    /// Factory of readers of the store, for any number of threads.
    pub fn readers(
        &self,
    ) -> impl Fn() -> Result<Box<dyn Reader>, store::Error> + Send + Sync + 'static {
        let file = self.path.join(sqlite::FILE_NAME);
        move || Ok(Box::new(SqliteReader::open(&file)?))
    }

    /// Stops intake, drains, signs a last checkpoint, ends the term and releases the lock.
    pub fn stop(self) {
        self.running.stop();
        self.keeper.stop();
        self.indexing.stop();
    }
}

/// Thread that writes derived files, each whole or absent.
struct Background {
    stop: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Background {
    fn spawn(
        name: &str,
        run: impl FnOnce(&Receiver<()>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&stopped))?;
        Ok(Self { stop, thread })
    }

    fn stop(self) {
        // A thread that has already ended left no partial file.
        let _ended = self.stop.send(());
        let _ended = self.thread.join();
    }
}

fn index_of(path: &Path, ledger: &Ledger) -> Index {
    let state = ledger.view().read();
    Index::of(path, &state.spine.ledger, state.spine.generation)
}

/// Creates a data directory if it is missing, and refuses one that others can write to.
pub(crate) fn make_directory(path: &Path) -> Result<(), store::Error> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|source| {
        let path = path.display().to_string();
        store::Error::File {
            operation: "make the directory",
            path,
            source,
        }
    })?;
    check_private(path)
}

/// Refuses a directory that users other than this one and root can write: they could replace the
/// ledger.
fn check_private(path: &Path) -> Result<(), store::Error> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let found = std::fs::metadata(path).map_err(|source| durable::failed("read", path, source))?;
    let mode = found.permissions().mode() & 0o7777;
    let ours = rustix::process::geteuid().as_raw();
    let path = path.display().to_string();
    match found.uid() {
        _ if mode & 0o022 != 0 => Err(store::Error::Shared { path, mode }),
        owner if owner != ours && owner != 0 => Err(store::Error::Foreign { path, owner }),
        _ => Ok(()),
    }
}

/// Refuses a directory in which one of our files is not a file, or one of our directories not a
/// directory: the errors of the system and of SQLite would not name the cause. The ledger file
/// itself is checked when it is opened.
fn check_kinds(path: &Path) -> Result<(), store::Error> {
    let beside = ["wal", "shm", "journal"];
    let [log, shared, old_log] = beside.map(|suffix| format!("{}-{suffix}", sqlite::FILE_NAME));
    for (name, expected) in [
        (lock::FILE_NAME, "file"),
        (log.as_str(), "file"),
        (shared.as_str(), "file"),
        (old_log.as_str(), "file"),
        (key::FILE_NAME, "file"),
        (newest::FILE_NAME, "file"),
        (snapshots::DIRECTORY_NAME, "directory"),
    ] {
        let path = path.join(name);
        let metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(source) => return Err(durable::failed("read", &path, source)),
        };
        let is_expected = match expected {
            "directory" => metadata.is_dir(),
            _ => metadata.is_file(),
        };
        if !is_expected {
            let path = path.display().to_string();
            return Err(store::Error::WrongKind { path, expected });
        }
    }
    Ok(())
}

/// Refuses to begin a ledger in place of a lost one, of which a key or a checkpoint is left.
fn check_not_lost(path: &Path, file: &Path) -> Result<(), Error> {
    let is_there = |file: &Path| {
        let is_there = file.try_exists();
        is_there.map_err(|source| Error::Store(durable::failed("read", file, source)))
    };
    if is_there(file)? {
        return Ok(());
    }
    let left = [
        key::FILE_NAME.to_owned(),
        key::NEW_FILE_NAME.to_owned(),
        newest::FILE_NAME.to_owned(),
        UNFINISHED.to_owned(),
        format!("{RESCUE}.db"),
    ];
    for left in left.map(|name| path.join(name)) {
        if is_there(&left)? {
            return Err(key::Error::ledger_missing(&left).into());
        }
    }
    Ok(())
}

/// Key of the recovered ledger. A key is created only for an empty ledger.
fn key_of(path: &Path, ledger: &str, state: &State) -> Result<Signer, key::Error> {
    if state.spine.head == 0 {
        let note = path.with_file_name(newest::FILE_NAME);
        return match Signer::load(path)? {
            Some(_) => Err(key::Error::ledger_missing(path)),
            None if note.exists() => Err(key::Error::ledger_missing(&note)),
            None => Signer::create_new(path, ledger, state.spine.generation),
        };
    }
    // A start that was interrupted after its first records has not put its key in place.
    if let Some(new) = Signer::load_new(path)?
        && Signer::load(path)?.is_none()
        && is_announced(state, &new)
    {
        new.promote_new()?;
    }
    let signer = Signer::load_for(path, ledger, state.spine.generation)?;
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

/// Refuses a journal with fewer records than a snapshot covers: an older file replaced a newer one
/// (L11).
fn check_covered(
    ledger: &str,
    recovered: &Recovered,
    skipped: &[Skipped],
) -> Result<(), recover::Error> {
    let covered = skipped.iter().filter_map(|skipped| match &skipped.reason {
        Wrong::Ahead { covered, of, .. } if of.0 == ledger => Some((of.1, *covered)),
        _ => None,
    });
    match covered.max() {
        Some((generation, signed)) if generation >= recovered.state.spine.generation => {
            let records = recovered.builder.size();
            Err(recover::Error::Rollback { records, signed })
        }
        _ => Ok(()),
    }
}

/// State of the newest good snapshot, or of the newest anchored one if records below it were
/// pruned, or the initial state.
pub(crate) fn newest_state(
    snapshots: &Snapshots,
    reader: &dyn Reader,
    file: &Path,
) -> Result<(State, Vec<Skipped>), store::Error> {
    let (loaded, mut skipped) = snapshots.load(reader)?;
    if let Some(loaded) = loaded {
        return Ok((loaded.state, skipped));
    }
    let first = reader.records(0, 1)?;
    if first.first().is_none_or(|first| first.bytes.is_some()) {
        return Ok((State::default(), skipped));
    }
    let (anchored, wrong) = load_anchored(reader, file)?;
    skipped.extend(wrong);
    Ok((anchored.unwrap_or_default(), skipped))
}
