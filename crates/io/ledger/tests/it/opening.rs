//! Opening a data directory after whatever happened to it: what is whole goes on, what was put back
//! or taken away is named.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_ledger::clock::MachineClock;
use bursar_ledger::data::{self, Data};
use bursar_ledger::key::{self, Signer};
use bursar_ledger::pipeline::Observe;
use bursar_ledger::store::sqlite::SqliteStore;
use bursar_ledger::term::Error;
use bursar_ledger::writer::Poison;

use crate::world::{LEDGER, World};

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
