//! Opening a data directory after whatever happened to it: what is whole goes on, what was put back
//! or taken away is named.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_engine::{Answer, Command};
use bursar_journal::checkpoint::VerifierKey;
use bursar_ledger::clock::MachineClock;
use bursar_ledger::data::{self, Data, RotateError};
use bursar_ledger::intake::Failure;
use bursar_ledger::key::{self, Signer};
use bursar_ledger::pipeline::Observe;
use bursar_ledger::store::sqlite::SqliteStore;
use bursar_ledger::term::Error;
use bursar_ledger::writer::Poison;
use bursar_units::BookingId;

use crate::world::{LEDGER, World, label};

#[test]
fn a_first_start_that_came_no_further_than_its_key_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(&directory.path().join("ledger.db")).unwrap());
    let key = Signer::create(&directory.path().join("ledger.key"), LEDGER, 0).unwrap();
    let data = open(directory.path()).unwrap();
    assert_eq!(data.ledger.view().read().ledger, LEDGER);
    assert_eq!(data.keys().verifiers(), key.verifiers());
    data.stop();
    open(directory.path()).unwrap().stop();
}

/// Method: the file takes no record, as on a full disk, until it does.
#[test]
fn a_first_record_that_found_no_space_is_written_when_there_is_some() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ledger.db");
    drop(SqliteStore::open(&file).unwrap());
    let sql = |sql: &str| {
        rusqlite::Connection::open(&file)
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    };
    sql("CREATE TRIGGER full BEFORE INSERT ON journal BEGIN SELECT RAISE(ABORT, 'full'); END");
    assert!(matches!(refused(directory.path()), Error::Store(_)));
    let key = fs::read(directory.path().join("ledger.key")).unwrap();
    sql("DROP TRIGGER full");
    let data = open(directory.path()).unwrap();
    assert_eq!(data.records, 0);
    assert_eq!(fs::read(directory.path().join("ledger.key")).unwrap(), key);
    data.stop();
}

#[test]
fn a_key_of_a_later_generation_begins_no_ledger() {
    let directory = tempfile::tempdir().unwrap();
    Signer::create(&directory.path().join("ledger.key"), LEDGER, 1).unwrap();
    let error = refused(directory.path());
    assert!(matches!(error, Error::Key(key::Error::OtherLedger { .. })));
}

#[test]
fn a_lost_key_is_named_and_no_other_is_made() {
    let mut world = World::sqlite();
    world.live(20);
    world.sign();
    let path = world.directory.path().join("ledger.key");
    fs::remove_file(&path).unwrap();
    let error = refused(world.directory.path());
    let Error::Key(error @ key::Error::KeyMissing { .. }) = error else {
        panic!("{error}")
    };
    let words = error.to_string();
    assert!(words.contains(path.to_str().unwrap()), "{words}");
    assert!(words.contains("bursar ledger restore"), "{words}");
    assert!(!path.exists());
}

#[test]
fn a_repeated_rotating_leaves_the_key_file_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let data = open(directory.path()).unwrap();
    let (keys, path) = (data.keys(), directory.path().join("ledger.key"));
    let first = keys.verifiers();
    let rotate = |key: &str| {
        let key = Some(BookingId::new(key).unwrap());
        wait_for(keys.rotate(label("ada"), key)).unwrap()
    };
    let (done, second) = rotate("one");
    assert_eq!(done.result, Ok(Answer::Done));
    assert_eq!(keys.verifiers(), [vec![second.clone()], first].concat());
    let kept = fs::read(&path).unwrap();
    let (repeated, key) = rotate("one");
    assert_eq!((repeated.result, key), (Ok(Answer::Unchanged), second));
    assert_eq!(fs::read(&path).unwrap(), kept);
    assert_eq!(next_key(directory.path()), None);
    data.stop();
    open(directory.path()).unwrap().stop();
    assert_eq!(fs::read(&path).unwrap(), kept);
}

/// Method: two at once, and each comes to a key of its own that is on record.
#[test]
fn rotatings_go_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let data = open(directory.path()).unwrap();
    let keys = data.keys();
    let both = async {
        let one = keys.rotate(label("ada"), None);
        let other = keys.rotate(label("ben"), None);
        tokio::join!(one, other)
    };
    let (one, other) = wait_for(both);
    let (one, other) = (one.unwrap().1, other.unwrap().1);
    assert_ne!(one, other);
    let signing = keys.verifiers();
    assert_eq!(signing.len(), 3);
    let announced = data.ledger.view().read().keys.clone();
    for key in signing {
        assert!(
            announced
                .iter()
                .any(|(_, on_record)| *on_record == key.to_string())
        );
    }
    data.stop();
}

/// Method: the key waits beside the file as a stop between two steps would leave it.
#[test]
fn a_key_that_waits_is_taken_at_the_start_if_it_is_on_record_and_forgotten_otherwise() {
    let mut world = World::sqlite();
    world.live(10);
    let next = world.signer.rotate(world.now).unwrap();
    next.keep_next().unwrap();
    open(world.directory.path()).unwrap().stop();
    assert_eq!(next_key(world.directory.path()), None);
    let loaded = Signer::load(&world.directory.path().join("ledger.key")).unwrap();
    assert_eq!(loaded.unwrap().verifiers(), world.signer.verifiers());

    let mut world = World::sqlite();
    let next = world.signer.rotate(world.now).unwrap();
    next.keep_next().unwrap();
    let key = next.verifier().to_string();
    world.run(Command::RotateKey {
        key,
        idempotency: None,
    });
    world.live(10);
    let data = open(world.directory.path()).unwrap();
    assert_eq!(data.keys().verifiers(), next.verifiers());
    data.stop();
    assert_eq!(next_key(world.directory.path()), None);
    let loaded = Signer::load(&world.directory.path().join("ledger.key")).unwrap();
    assert_eq!(loaded.unwrap().verifiers(), next.verifiers());
}

/// Method: the file takes no record while the key is rotated.
#[test]
fn a_rotating_whose_outcome_is_unknown_is_repeated_with_the_same_key() {
    let directory = tempfile::tempdir().unwrap();
    let data = open(directory.path()).unwrap();
    let (keys, first) = (data.keys(), data.keys().verifiers());
    let file = directory.path().join("ledger.db");
    let sql = |sql: &str| {
        let connection = rusqlite::Connection::open(&file).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection.execute_batch(sql).unwrap();
    };
    sql("CREATE TRIGGER full BEFORE INSERT ON journal BEGIN SELECT RAISE(ABORT, 'full'); END");
    let error = wait_for(keys.rotate(label("ada"), None)).unwrap_err();
    assert!(matches!(
        error,
        RotateError::Ledger(Failure::OutcomeUnknown)
    ));
    assert_eq!(keys.verifiers(), first, "it signs nothing yet");
    let waits = next_key(directory.path()).unwrap();
    sql("DROP TRIGGER full");
    let key = loop {
        match wait_for(keys.rotate(label("ada"), None)) {
            Ok((_, key)) => break key,
            Err(RotateError::Ledger(Failure::Unavailable | Failure::OutcomeUnknown)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(key, waits);
    assert_eq!(keys.verifiers().first(), Some(&key));
    assert_eq!(next_key(directory.path()), None);
    data.stop();
}

fn next_key(data: &Path) -> Option<VerifierKey> {
    let next = Signer::load(&data.join("ledger.key.next")).unwrap();
    next.map(|next| next.verifier())
}

fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

fn open(path: &Path) -> Result<Data, Error> {
    let clock = Arc::new(MachineClock::default());
    data::open(path, clock, Arc::new(Quiet), |_, _| ())
}

fn refused(path: &Path) -> Error {
    match open(path) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

struct Quiet;

impl Observe for Quiet {
    fn poisoned(&self, _: &Poison) {}

    fn store_failed(&self, _: &bursar_ledger::store::Error) {}

    fn not_leader(&self) {}

    fn committed(&self, _: usize, _: Duration) {}

    fn signed(&self, _: u64) {}
}
