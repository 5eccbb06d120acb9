//! Store files that go away under a running ledger: nothing is answered that would be lost.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_engine::Node;
use bursar_engine::spine;
use bursar_ledger::clock::{Clock, MachineClock};
use bursar_ledger::data::{self, Data};
use bursar_ledger::intake::Failure;
use bursar_ledger::pipeline::Observe;
use bursar_ledger::store::Reader as _;
use bursar_ledger::store::sqlite::SqliteReader;
use bursar_ledger::writer::Poison;
use bursar_units::{Amount, ObjectName};

use crate::world::label;

/// What somebody does to the files of a store that is in use.
type Loss = fn(&Path);

const LOSSES: [(&str, Loss); 6] = [
    ("all removed", |data| {
        for suffix in ["", "-wal", "-shm"] {
            fs::remove_file(data.join(format!("ledger.db{suffix}"))).unwrap();
        }
    }),
    ("the directory removed", remove_directory),
    ("the directory moved", |data| {
        fs::rename(data, data.with_extension("moved")).unwrap();
    }),
    ("the log removed", |data| {
        fs::remove_file(data.join("ledger.db-wal")).unwrap();
    }),
    ("moved away", |data| {
        fs::rename(data.join("ledger.db"), data.join("elsewhere.db")).unwrap();
    }),
    ("replaced by a copy", |data| {
        fs::copy(data.join("ledger.db"), data.join("copy")).unwrap();
        fs::rename(data.join("copy"), data.join("ledger.db")).unwrap();
    }),
];

#[test]
fn a_write_to_a_store_that_is_gone_is_unknown_then_refused_and_its_records_are_rescued() {
    for (how, lose) in LOSSES {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("data");
        let (data, seen) = open(&directory);
        set_node(&data, "before").unwrap();
        lose(&directory);
        // The batch after the loss may meet it, or the housekeeping before it did.
        let met = set_node(&data, "after").unwrap_err();
        assert!(
            matches!(met, Failure::OutcomeUnknown | Failure::StoreAway),
            "{how}: {met}"
        );
        assert_eq!(set_node(&data, "later"), Err(Failure::StoreAway), "{how}");
        assert_eq!(data.ledger.refuses(), Some(Failure::StoreAway), "{how}");
        let view = data.ledger.view().read().clone();
        assert!(view.spine.inventory.get("before").is_some(), "{how}");
        data.stop();
        let rescued = seen.away.lock().unwrap().clone();
        let rescue = directory.join("ledger.rescue.db");
        assert_eq!(rescued, [Ok(rescue.display().to_string())], "{how}");
        let kept = SqliteReader::open(&rescue).unwrap();
        assert!(kept.head().unwrap() >= view.spine.head, "{how}");
        let bytes = kept
            .records(view.spine.head - 1, 1)
            .unwrap()
            .pop()
            .unwrap()
            .bytes
            .unwrap();
        assert!(
            String::from_utf8(bytes).unwrap().contains("before"),
            "{how}"
        );
    }
}

/// Method: nobody writes; the look once a second finds it.
#[test]
fn an_idle_ledger_notices_within_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let (data, _) = open(directory.path());
    fs::remove_file(directory.path().join("ledger.db")).unwrap();
    let began = std::time::Instant::now();
    while data.ledger.refuses() != Some(Failure::StoreAway) {
        assert!(began.elapsed() < Duration::from_secs(30), "nobody noticed");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    data.stop();
}

/// Method: the file at the path of the log belongs to somebody else by the time we end.
#[test]
fn the_end_of_a_ledger_that_lost_its_store_touches_nothing_at_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let (data, _) = open(directory.path());
    let log = directory.path().join("ledger.db-wal");
    fs::remove_file(&log).unwrap();
    fs::write(&log, "of somebody else").unwrap();
    let _met = set_node(&data, "after");
    data.stop();
    assert_eq!(fs::read_to_string(&log).unwrap(), "of somebody else");
}

/// Method: a file stands where the directory was, until it does not.
#[test]
fn a_rescue_that_failed_is_tried_again_and_said_once() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let (data, seen) = open(&directory);
    set_node(&data, "before").unwrap();
    remove_directory(&directory);
    fs::write(&directory, "in the way").unwrap();
    let told = |count: usize| {
        let began = std::time::Instant::now();
        while seen.away.lock().unwrap().len() < count {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "nothing was said"
            );
            std::thread::park_timeout(Duration::from_millis(10));
        }
    };
    told(1);
    fs::remove_file(&directory).unwrap();
    told(2);
    data.stop();
    let away = seen.away.lock().unwrap().clone();
    let rescue = directory.join("ledger.rescue.db").display().to_string();
    assert!(
        matches!(away.as_slice(), [Err(_), Ok(path)] if *path == rescue),
        "{away:?}"
    );
}

#[test]
fn a_second_rescue_keeps_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let (data, seen) = open(directory.path());
    fs::write(directory.path().join("ledger.rescue.db"), "the first").unwrap();
    fs::remove_file(directory.path().join("ledger.db")).unwrap();
    let _met = set_node(&data, "after");
    data.stop();
    let second = directory.path().join("ledger.rescue.1.db");
    assert_eq!(
        *seen.away.lock().unwrap(),
        [Ok(second.display().to_string())]
    );
    let first = fs::read_to_string(directory.path().join("ledger.rescue.db")).unwrap();
    assert_eq!(first, "the first");
}

/// Method: a write fails while the files are in their place; they go before the store is opened
/// again.
#[test]
fn a_store_that_goes_after_a_write_has_failed_is_rescued_too() {
    let directory = tempfile::tempdir().unwrap();
    let (data, seen) = open(directory.path());
    set_node(&data, "before").unwrap();
    let file = directory.path().join("ledger.db");
    let full = "CREATE TRIGGER full BEFORE INSERT ON journal
        BEGIN SELECT RAISE(ABORT, 'no room'); END";
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch(full).unwrap();
    *seen.taken.lock().unwrap() = Some(file);
    assert_eq!(set_node(&data, "after"), Err(Failure::OutcomeUnknown));
    data.stop();
    let rescue = directory.path().join("ledger.rescue.db");
    assert_eq!(
        *seen.away.lock().unwrap(),
        [Ok(rescue.display().to_string())]
    );
}

fn remove_directory(data: &Path) {
    // The server writes its index there meanwhile.
    while let Err(error) = fs::remove_dir_all(data) {
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
    }
}

fn set_node(data: &Data, name: &str) -> Result<(), Failure> {
    let name = ObjectName::new(name).unwrap();
    let changes = vec![spine::Change::SetNode(Node::new(name, &Amount::default()))];
    let submitted = data
        .ledger
        .submit(label("ada"), vec![spine::Command::change(changes).into()]);
    crate::opening::wait_for(submitted).map(drop)
}

fn open(path: &Path) -> (Data, Arc<Seen>) {
    let (clock, seen): (Arc<dyn Clock>, _) = (Arc::new(MachineClock::default()), Arc::default());
    let opened = data::open(
        path,
        clock,
        Arc::clone(&seen) as Arc<dyn Observe>,
        |_, _| (),
    );
    (opened.unwrap(), seen)
}

#[derive(Default)]
struct Seen {
    away: Mutex<Vec<Result<String, String>>>,
    /// A file that somebody moves away when a write has failed.
    taken: Mutex<Option<std::path::PathBuf>>,
}

impl Observe for Seen {
    fn poisoned(&self, _: &Poison) {}

    fn store_failed(&self, _: &bursar_ledger::store::Error) {
        if let Some(file) = self.taken.lock().unwrap().take() {
            fs::rename(&file, file.with_extension("taken")).unwrap();
        }
    }

    fn not_leader(&self) {}

    fn store_away(&self, rescued: &Result<String, bursar_ledger::store::Error>) {
        let rescued = match rescued {
            Ok(path) => Ok(path.clone()),
            Err(error) => Err(error.to_string()),
        };
        self.away.lock().unwrap().push(rescued);
    }

    fn committed(&self, _: usize, _: Duration) {}

    fn signed(&self, _: u64) {}

    fn invariant_broken(&self, _: &bursar_engine::invariants::Broken) {}
}
