//! The files beside the store: key, lock and snapshots.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bursar_engine::snapshot;
use bursar_journal::checkpoint::Checkpoint;
use bursar_journal::hash::sha256;
use bursar_ledger::key::{self, Signer};
use bursar_ledger::lock::Lock;
use bursar_ledger::snapshots::Snapshots;
use bursar_ledger::store::Error;
use bursar_units::{Instant, Millis};

use crate::world::{LEDGER, World, new_key};

#[test]
fn a_key_is_made_once_for_its_owner_alone_and_signs_as_the_ledger() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.key");
    assert!(Signer::load(&path).unwrap().is_none());
    let made = new_key(&path, 3);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let loaded = Signer::load_for(&path, LEDGER, 3).unwrap();
    assert_eq!(loaded.verifiers(), made.verifiers());
    assert_eq!(loaded.origin().as_str(), format!("bursar/{LEDGER}/3"));
    let root = sha256(b"a root");
    let note = loaded.sign(Instant::default(), 9, root);
    let opened = Checkpoint::open(&note, &made.verifier()).unwrap();
    assert_eq!(
        (opened.size, opened.root, &opened.origin),
        (9, root, made.origin())
    );
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.key");
    new_key(&path, 0);
    for mode in [0o640, 0o604, 0o620, 0o644] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = Signer::load(&path).unwrap_err();
        assert!(matches!(error, key::Error::Exposed { .. }));
        assert!(
            error
                .to_string()
                .contains(&format!("chmod 600 {}", path.display()))
        );
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(
        Signer::load(&path).unwrap().is_some(),
        "a mounted secret need not be writable"
    );
}

#[test]
fn a_damaged_key_file_and_the_key_of_another_ledger_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.key");
    new_key(&path, 0);
    let whole = fs::read_to_string(&path).unwrap();
    for text in [
        "",
        "\n",
        "garbage\n",
        &whole[..40],
        &whole.replace("PRIVATE", "PUBLIC"),
        &format!("{whole}{whole}x"),
    ] {
        fs::write(&path, text).unwrap();
        assert!(
            matches!(Signer::load(&path).unwrap_err(), key::Error::Form { .. }),
            "{text:?}"
        );
    }
    fs::write(&path, whole).unwrap();
    let error = Signer::load_for(&path, LEDGER, 1).unwrap_err();
    assert!(matches!(error, key::Error::OtherLedger { .. }), "{error}");
}

#[test]
fn a_replaced_key_signs_beside_the_new_one_for_thirty_days() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.key");
    let first = new_key(&path, 0);
    let start = Instant::from_ms(1_000);
    let rotated = first.rotate(start).unwrap();
    assert!(first.load_next().unwrap().is_none(), "nothing was written");
    rotated.keep_next().unwrap();
    let unchanged = Signer::load(&path).unwrap().unwrap();
    assert_eq!(unchanged.verifiers(), first.verifiers());
    rotated.promote_next().unwrap();
    let second = Signer::load(&path).unwrap().unwrap();
    assert_eq!(second.verifiers(), rotated.verifiers());
    assert_eq!(second.verifiers()[1..], [first.verifier()]);
    let signs = |signer: &Signer, key: &Signer, at| {
        Checkpoint::open(&signer.sign(at, 1, sha256(b"")), &key.verifier()).is_ok()
    };
    let last = start
        .after(Millis::from_hours(30 * 24))
        .before(Millis::from_ms(1));
    assert!(signs(&second, &second, last) && signs(&second, &first, last));
    let over = last.after(Millis::from_ms(1));
    assert!(signs(&second, &second, over) && !signs(&second, &first, over));
    let third = second.rotate(over).unwrap();
    assert_eq!(
        third.verifiers().len(),
        2,
        "what no longer signs is forgotten"
    );
}

#[test]
fn a_second_holder_of_the_lock_is_told_who_the_first_is() {
    let directory = tempfile::tempdir().unwrap();
    let lock = Lock::take(directory.path()).unwrap();
    let error = Lock::take(directory.path()).unwrap_err();
    let pid = std::process::id().to_string();
    assert!(
        matches!(&error, Error::InUse { pid: holder, .. } if *holder == pid),
        "{error}"
    );
    drop(lock);
    drop(Lock::take(directory.path()).unwrap());
    let missing = directory.path().join("missing");
    assert!(matches!(
        Lock::take(&missing).unwrap_err(),
        Error::NoDirectory { .. }
    ));
}

#[test]
fn the_newest_snapshot_is_loaded_and_two_are_kept() {
    let mut world = World::memory();
    let snapshots = Snapshots::of(world.directory.path());
    assert!(snapshots.load(world.reader().as_ref()).unwrap().0.is_none());
    for records in [20, 270, 300] {
        world.live(records);
        snapshots.write(&world.state, world.builder.edge()).unwrap();
    }
    world.live(310);
    let (loaded, skipped) = snapshots.load(world.reader().as_ref()).unwrap();
    let loaded = loaded.unwrap();
    assert!(skipped.is_empty());
    assert_eq!((loaded.header.head, loaded.state.spine.head), (300, 300));
    assert_eq!(loaded.header.sha256, snapshot::hash(&loaded.state).unwrap());
    assert_eq!(files(world.directory.path()), ["270.jsonl", "300.jsonl"]);
}

/// Method: one bit of every third byte of a snapshot is turned, it is cut at every third length,
/// and replaced by garbage; the older snapshot is loaded each time.
#[test]
fn a_wrong_snapshot_is_reported_and_passed_over() {
    let mut world = World::memory();
    let snapshots = Snapshots::of(world.directory.path());
    world.live(6);
    snapshots.write(&world.state, world.builder.edge()).unwrap();
    world.live(9);
    snapshots.write(&world.state, world.builder.edge()).unwrap();
    let path = world.directory.path().join("snapshots/9.jsonl");
    let good = fs::read(&path).unwrap();
    let flipped = (0..good.len()).step_by(3).map(|place| {
        let mut wrong = good.clone();
        wrong[place] ^= 1 << (place % 8);
        wrong
    });
    let cut = (0..good.len()).step_by(3).map(|size| good[..size].to_vec());
    let reader = world.reader();
    for wrong in flipped
        .chain(cut)
        .chain([b"garbage".to_vec(), vec![0xff; 100]])
    {
        fs::write(&path, &wrong).unwrap();
        let (loaded, skipped) = snapshots.load(reader.as_ref()).unwrap();
        assert_eq!(
            loaded.unwrap().header.head,
            6,
            "{}",
            String::from_utf8_lossy(&wrong)
        );
        assert_eq!(skipped.len(), 1);
        assert_eq!(skipped[0].path, path);
    }
    fs::write(&path, &good).unwrap();
    assert_eq!(
        snapshots
            .load(reader.as_ref())
            .unwrap()
            .0
            .unwrap()
            .header
            .head,
        9
    );
}

#[test]
fn a_snapshot_of_more_or_other_records_is_passed_over() {
    let mut world = World::memory();
    world.live(300);
    let snapshots = Snapshots::of(world.directory.path());
    snapshots.write(&world.state, world.builder.edge()).unwrap();
    for records in [290, 310] {
        let mut other = World::memory();
        other.now = other.now.after(Millis::from_ms(1));
        other.live(records);
        let (loaded, skipped) = snapshots.load(other.reader().as_ref()).unwrap();
        assert!(loaded.is_none());
        let reason = if records < 300 {
            "it covers 300 records, the ledger has 290"
        } else {
            "it covers other records than those of the ledger"
        };
        assert_eq!(skipped[0].reason.to_string(), reason);
    }
}

fn files(data: &Path) -> Vec<String> {
    let entries = fs::read_dir(data.join("snapshots")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
