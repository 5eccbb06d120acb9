//! Opening a data directory after whatever happened to it: what is whole goes on, what was put back
//! or taken away is named.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_engine::{Answer, spine};
use bursar_journal::checkpoint::VerifierKey;
use bursar_ledger::clock::MachineClock;
use bursar_ledger::committer::Committer;
use bursar_ledger::data::{self, Data, RotateError};
use bursar_ledger::intake::Failure;
use bursar_ledger::key::{self, Signer};
use bursar_ledger::maintain::{Tokens, backup, restore};
use bursar_ledger::pipeline::Observe;
use bursar_ledger::recover;
use bursar_ledger::snapshots::Snapshots;
use bursar_ledger::store::sqlite::{SqliteReader, SqliteStore};
use bursar_ledger::store::{Reader as _, Store as _};
use bursar_ledger::term::Error;
use bursar_ledger::writer::Poison;
use bursar_units::{BookingId, Instant};

use crate::world::{LEDGER, World, label, new_key};

/// Method: what a start that was killed between two of its steps leaves behind.
#[test]
fn a_first_start_that_was_cut_short_is_made_again_or_completed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.key");
    // Before its first records.
    drop(SqliteStore::open(&directory.path().join("ledger.db")).unwrap());
    let cut_short = Signer::create_new(&path, LEDGER, 0).unwrap();
    let data = open(directory.path()).unwrap();
    assert_ne!(data.ledger.view().read().spine.ledger, LEDGER);
    let verifiers = data.keys().verifiers();
    assert_ne!(verifiers, cut_short.verifiers());
    data.stop();
    // After them, before the key was in its place.
    fs::rename(&path, directory.path().join("ledger.key.new")).unwrap();
    let data = open(directory.path()).unwrap();
    assert_eq!(data.keys().verifiers(), verifiers);
    data.stop();
    assert!(path.exists() && !directory.path().join("ledger.key.new").exists());
}

/// Method: all that is left of a ledger whose store is gone, one file after the other.
#[test]
fn what_is_left_of_a_ledger_begins_no_second_history() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).unwrap().stop();
    for suffix in ["", "-wal", "-shm"] {
        let _absent = fs::remove_file(directory.path().join(format!("ledger.db{suffix}")));
    }
    for left in ["ledger.rescue.db", "ledger.db.restoring", "ledger.key.new"] {
        fs::write(directory.path().join(left), "").unwrap();
    }
    for left in [
        "ledger.key",
        "ledger.key.new",
        "ledger.checkpoint",
        "ledger.db.restoring",
        "ledger.rescue.db",
    ] {
        let path = directory.path().join(left);
        let error = refused(directory.path());
        let Error::Key(error @ key::Error::LedgerMissing { .. }) = error else {
            panic!("{error}")
        };
        let words = error.to_string();
        assert!(words.contains(path.to_str().unwrap()), "{words}");
        assert!(words.contains("bursar ledger restore"), "{words}");
        assert!(
            !directory.path().join("ledger.db").exists(),
            "a refused start leaves no store"
        );
        fs::remove_file(path).unwrap();
    }
    open(directory.path()).unwrap().stop();
}

#[test]
fn what_is_left_beside_a_store_without_records_begins_no_ledger() {
    for left in ["ledger.key", "ledger.checkpoint"] {
        let directory = tempfile::tempdir().unwrap();
        drop(SqliteStore::open(&directory.path().join("ledger.db")).unwrap());
        let key = directory.path().join("ledger.key");
        new_key(&key, 0);
        fs::rename(&key, directory.path().join(left)).unwrap();
        let error = refused(directory.path());
        assert!(
            matches!(error, Error::Key(key::Error::LedgerMissing { .. })),
            "{left}: {error}"
        );
    }
}

#[test]
fn a_store_that_lost_its_checkpoint_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).unwrap().stop();
    fs::remove_file(directory.path().join("ledger.checkpoint")).unwrap();
    let error = refused(directory.path());
    assert!(
        matches!(error, Error::Recover(recover::Error::Checkpoint { .. })),
        "{error}"
    );
    // A first start that was cut short before its first checkpoint has shown none to anybody.
    let file = directory.path().join("ledger.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.execute("DELETE FROM checkpoint", []).unwrap();
    drop(connection);
    open(directory.path()).unwrap().stop();
}

/// Method: root gives the directory to somebody else.
#[test]
fn a_directory_of_somebody_else_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(4_242), None).unwrap();
    let error = refused(directory.path());
    let Error::Store(error @ bursar_ledger::store::Error::Foreign { owner: 4_242, .. }) = error
    else {
        panic!("{error}")
    };
    assert!(error.to_string().contains("chown"), "{error}");
}

#[test]
fn a_checkpoint_is_kept_before_anybody_can_ask_for_one_and_follows_each_signature() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.checkpoint");
    let data = open(directory.path()).unwrap();
    let newest = || {
        let reader = SqliteReader::open(&directory.path().join("ledger.db")).unwrap();
        reader.checkpoint(u64::MAX >> 11).unwrap().unwrap()
    };
    let first = fs::read_to_string(&path).unwrap();
    assert_eq!(first, newest());
    let keys = data.keys();
    wait_for(keys.rotate(label("ada"), None)).unwrap();
    let signed = wait_for(data.ledger.on_store(Committer::checkpoint));
    assert!(signed.unwrap().unwrap().is_some() || newest() != first);
    assert_eq!(fs::read_to_string(&path).unwrap(), newest());
    data.stop();
}

/// Method: a directory stands where the file should be, so that it cannot be written.
#[test]
fn no_checkpoint_is_seen_that_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.checkpoint");
    let data = open(directory.path()).unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let count = || {
        let reader = SqliteReader::open(&directory.path().join("ledger.db")).unwrap();
        reader.checkpoints().unwrap().len()
    };
    let before = count();
    wait_for(data.keys().rotate(label("ada"), None)).unwrap();
    let signed = wait_for(data.ledger.on_store(Committer::checkpoint));
    assert!(signed.unwrap().is_err());
    assert_eq!(count(), before);
    fs::remove_dir(&path).unwrap();
    data.stop();
}

#[test]
fn a_directory_that_others_can_write_to_is_refused_with_the_way_out() {
    use std::os::unix::fs::PermissionsExt as _;
    for mode in [0o770, 0o707, 0o777] {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        let error = refused(directory.path());
        let Error::Store(error @ bursar_ledger::store::Error::Shared { .. }) = error else {
            panic!("{error}")
        };
        let shown = directory.path().display();
        assert!(
            error.to_string().contains(&format!("chmod go-w {shown}")),
            "{error}"
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        open(directory.path()).unwrap().stop();
    }
}

#[test]
fn something_else_in_place_of_a_file_is_refused_with_the_way_out() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).unwrap().stop();
    let names = [
        "lock",
        "ledger.db-wal",
        "ledger.db-shm",
        "ledger.db-journal",
        "ledger.key",
        "ledger.checkpoint",
        "snapshots",
    ];
    for name in names {
        let place = directory.path().join(name);
        let aside = directory.path().join("aside");
        let was_there = fs::rename(&place, &aside).is_ok();
        if name == "snapshots" {
            fs::write(&place, "no directory").unwrap();
        } else {
            fs::create_dir(&place).unwrap();
        }
        let error = refused(directory.path());
        let Error::Store(error @ bursar_ledger::store::Error::WrongKind { .. }) = error else {
            panic!("{name}: {error}")
        };
        let shown = error.to_string();
        assert!(shown.contains(&place.display().to_string()), "{shown}");
        assert!(
            shown.contains("; move away what is in its place"),
            "{shown}"
        );
        if name == "snapshots" {
            fs::remove_file(&place).unwrap();
        } else {
            fs::remove_dir(&place).unwrap();
        }
        if was_there {
            fs::rename(&aside, &place).unwrap();
        }
        open(directory.path()).unwrap().stop();
    }
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
    assert!(!directory.path().join("ledger.key").exists());
    sql("DROP TRIGGER full");
    let data = open(directory.path()).unwrap();
    assert_eq!(data.records, 0);
    assert!(directory.path().join("ledger.key").exists());
    data.stop();
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
    let announced = data.ledger.view().read().spine.keys.clone();
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
    world.sign();
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
    world.run(spine::Command::RotateKey {
        key,
        idempotency: None,
    });
    world.live(10);
    world.sign();
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

/// Method: two anchors, everything below the first pruned, no snapshot file. Then a digit of the
/// newer one's lines is another, and then of both.
#[test]
fn a_pruned_ledger_starts_from_the_anchored_snapshot_that_is_on_record() {
    let mut world = World::sqlite();
    for records in [300, 700] {
        world.live(records);
        world.anchor();
    }
    world.live(730);
    world.sign();
    world.store.prune(256).unwrap();
    let path = world.directory.path();
    let records = |data: &Data| (data.records, data.skipped.len());
    let data = open(path).unwrap();
    assert_eq!(records(&data), (730, 0));
    let view = data.ledger.view();
    // Found, not live: the clock goes on from the start, and a wait may be over by now.
    for id in world.state.bookings.live_ids(None) {
        assert!(view.read().bookings.standing(id).is_some(), "{id}");
    }
    assert_eq!(view.read().spine.anchor, world.state.spine.anchor);
    data.stop();

    let flip = |head: u64| {
        let sql = format!(
            "UPDATE anchor SET lines = replace(lines, '\"slots\":7', '\"slots\":8')
                WHERE head = {head} AND instr(lines, '\"slots\":7') > 0"
        );
        assert_eq!(world.tamper(&sql), 1);
    };
    flip(700);
    let data = open(path).unwrap();
    let [skipped] = data.skipped.as_slice() else {
        panic!("{:?}", data.skipped)
    };
    assert_eq!(
        skipped.reason.to_string(),
        "the hash of the anchored snapshot over 700 records is not the recorded one"
    );
    data.stop();
    flip(300);
    let error = refused(path);
    assert!(
        matches!(error, Error::Recover(recover::Error::Pruned { seq: 0 })),
        "{error}"
    );
}

#[test]
fn an_older_ledger_in_the_place_of_a_newer_one_is_refused_until_it_is_restored() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ledger.db");
    let older = directory.path().join("older.db");
    open(directory.path()).unwrap().stop();
    backup(&file, &older).unwrap();
    let data = open(directory.path()).unwrap();
    let keys = data.keys().verifiers();
    data.stop();
    open(directory.path()).unwrap().stop();
    put_back(&older, &file);
    let error = refused(directory.path());
    let Error::Recover(error @ recover::Error::Rollback { .. }) = error else {
        panic!("{error}")
    };
    let words = error.to_string();
    assert!(words.contains("`bursar ledger restore`"), "{words}");

    // The way out: a new generation, which must extend nothing that the old one signed.
    let restored = tempfile::tempdir().unwrap();
    fs::copy(
        directory.path().join("ledger.checkpoint"),
        restored.path().join("ledger.checkpoint"),
    )
    .unwrap();
    let copy = SqliteReader::inspect(&older).unwrap();
    restore(
        &copy,
        &keys,
        (restored.path(), &restored.path().join("before")),
        Instant::default(),
        Tokens::End,
        |_, _| (),
    )
    .unwrap();
    open(restored.path()).unwrap().stop();
    open(restored.path()).unwrap().stop();
}

#[test]
fn an_older_ledger_beside_a_snapshot_of_a_newer_one_is_refused() {
    let mut world = World::sqlite();
    let older = world.directory.path().join("older.db");
    world.live(10);
    world.sign();
    backup(&world.file(), &older).unwrap();
    world.live(20);
    let snapshots = Snapshots::of(world.directory.path());
    snapshots.write(&world.state, world.builder.edge()).unwrap();
    let (file, directory) = (world.file(), world.directory);
    drop(world.store);
    put_back(&older, &file);
    let error = refused(directory.path());
    let rollback = recover::Error::Rollback {
        records: 10,
        signed: 20,
    };
    let Error::Recover(error) = error else {
        panic!("{error}")
    };
    assert_eq!(error.to_string(), rollback.to_string());
}

fn put_back(older: &Path, file: &Path) {
    for suffix in ["-wal", "-shm"] {
        let left = format!("{}{suffix}", file.display());
        // A ledger that was closed has left none.
        let _none = fs::remove_file(left);
    }
    fs::copy(older, file).unwrap();
}

fn next_key(data: &Path) -> Option<VerifierKey> {
    let next = Signer::load(&data.join("ledger.key.next")).unwrap();
    next.map(|next| next.verifier())
}

pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

pub(crate) fn open(path: &Path) -> Result<Data, Error> {
    let clock = Arc::new(MachineClock::default());
    data::open(path, clock, Arc::new(Quiet), |_, _| ())
}

fn refused(path: &Path) -> Error {
    match open(path) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

pub(crate) struct Quiet;

impl Observe for Quiet {
    fn poisoned(&self, _: &Poison) {}

    fn store_failed(&self, _: &bursar_ledger::store::Error) {}

    fn not_leader(&self) {}

    fn store_away(&self, _: &Result<String, bursar_ledger::store::Error>) {}

    fn committed(&self, _: usize, _: Duration) {}

    fn signed(&self, _: u64) {}

    fn invariant_broken(&self, _: &bursar_engine::invariants::Broken) {}
}
