//! A data directory of each earlier version opens, goes on, and is decided again from its level on.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use bursar_engine::booking::{Fence, Standing};
use bursar_engine::summary::notices;
use bursar_engine::{LEVEL, codec, snapshot};
use bursar_ledger::check::{Asked, check};
use bursar_ledger::clock::Clock;
use bursar_ledger::key::Signer;
use bursar_ledger::store::Reader as _;
use bursar_ledger::store::sqlite::SqliteReader;
use bursar_units::{BookingId, Instant, Millis};

use crate::opening::Quiet;

/// Written by the program before there were levels: 17 records with a held, a queued and an ended
/// booking, an execution that ended, a limit, two tokens and a node.
const BEFORE_LEVELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/upgrade/0.1.0");
/// Written by the last program of level 1: 18 records with two held bookings, a queued, an ended and
/// a forced one, a limit, two tokens and a node.
const LEVEL_1: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../tests/upgrade/0.2.0-level-1"
);

#[test]
fn a_directory_of_the_version_before_opens_and_goes_on_with_all_it_held() {
    let directory = copy_of(BEFORE_LEVELS);
    let data = open(directory.path());
    assert_eq!(data.records, 17);
    let state = data.ledger.view().read().clone();
    assert_eq!((state.spine.level, state.spine.generation), (LEVEL, 0));
    let standing = |id: &str| state.bookings.standing(&BookingId::new(id).unwrap());
    assert!(matches!(standing("held"), Some(Standing::Granted(held)) if held.fence == Fence(1)));
    assert!(matches!(standing("queued"), Some(Standing::Queued { .. })));
    assert!(matches!(standing("ended"), Some(Standing::Ended(_))));
    assert!(state.spine.tokens.get("ci").is_some() && state.spine.tokens.get("gone").is_none());
    // The shipped limits came by a record; the operator's own is as it was.
    assert_eq!(
        state.bookings.limit("tenants").unwrap().limit.slots,
        Some(1_000)
    );
    let python = &state.bookings.limit("python").unwrap().limit;
    assert_eq!((python.slots, python.tenant_queue_max), (Some(2), None));
    data.stop();
    // The level is on record once, whatever else begins.
    let data = open(directory.path());
    let levels = kinds(directory.path())
        .iter()
        .filter(|kind| *kind == "level")
        .count();
    assert_eq!(levels, 1);
    data.stop();
}

/// Method: as before, and the sentences of its records say nothing else than the program before did.
#[test]
fn a_directory_of_level_1_opens_and_goes_on_with_level_2() {
    let directory = copy_of(LEVEL_1);
    let data = open(directory.path());
    assert_eq!(data.records, 18);
    let state = data.ledger.view().read().clone();
    assert_eq!((state.spine.level, state.spine.generation), (LEVEL, 0));
    let standing = |id: &str| state.bookings.standing(&BookingId::new(id).unwrap());
    assert!(matches!(standing("held"), Some(Standing::Granted(held)) if held.fence == Fence(2)));
    assert!(matches!(standing("queued"), Some(Standing::Queued { .. })));
    assert!(matches!(standing("ended"), Some(Standing::Ended(_))));
    data.stop();
    let reader = SqliteReader::open(&directory.path().join("ledger.db")).unwrap();
    let mut sentences = Vec::new();
    for kept in reader.records(0, 18).unwrap() {
        let (time, events) =
            codec::decode_events(kept.seq, &kept.bytes.unwrap(), |_| None).unwrap();
        sentences.extend(notices(time, &events).into_iter().map(|one| one.summary));
    }
    let of = |id: &str| {
        let mut about = sentences.iter().filter(|text| text.starts_with(id));
        about.next_back().unwrap().as_str()
    };
    assert_eq!(of("ended "), "ended released");
    assert_eq!(of("forced "), "forced ended by an operator: test");
    check_again(directory.path(), 18);
}

#[test]
fn only_the_records_of_this_level_are_decided_again() {
    let directory = copy_of(BEFORE_LEVELS);
    open(directory.path()).stop();
    check_again(directory.path(), 17);
}

/// Decides the records of a directory again that follow the `old` ones.
fn check_again(data: &Path, old: u64) {
    let reader = SqliteReader::open(&data.join("ledger.db")).unwrap();
    let keys = Signer::load(&data.join("ledger.key"))
        .unwrap()
        .unwrap()
        .verifiers();
    let asked = Asked {
        keys: &keys,
        data: Some(data),
        redecide: true,
        ..Asked::default()
    };
    let report = check(&reader, &asked, |_, _| ()).unwrap();
    assert!(report.is_ok(), "{:?}", report.checks);
    let decisions = report
        .checks
        .iter()
        .find(|check| check.name == "decisions")
        .unwrap();
    // The level itself is folded, too; the term's own records follow.
    let folded = old + 1;
    let after = reader.head().unwrap() - folded;
    assert_eq!(
        decisions.detail,
        format!(
            "{after} command{} decided again, byte for byte, {folded} up to the record `level` folded only",
            if after == 1 { "" } else { "s" }
        )
    );
}

/// Method: the fold of the old records alone, as the program before saw it.
#[test]
fn the_old_records_fold_as_they_did() {
    let directory = copy_of(BEFORE_LEVELS);
    let reader = SqliteReader::open(&directory.path().join("ledger.db")).unwrap();
    let mut state = bursar_engine::State::default();
    for kept in reader.records(0, 100).unwrap() {
        let bytes = kept.bytes.unwrap();
        let (time, events) = codec::decode_events(kept.seq, &bytes, |_| None).unwrap();
        state.apply_record(time, &events);
    }
    assert_eq!((state.spine.head, state.spine.level), (17, 0));
    assert!(state.bookings.limit("tenants").is_none());
    assert!(!snapshot::write(&state).unwrap().contains("level"));
}

fn kinds(data: &Path) -> Vec<String> {
    let reader = SqliteReader::open(&data.join("ledger.db")).unwrap();
    let records = reader.records(0, 1_000).unwrap();
    let kinds = records.into_iter().filter_map(|kept| {
        let record: serde_json::Value = serde_json::from_slice(&kept.bytes.unwrap()).unwrap();
        record["cmd"].as_object().unwrap().keys().next().cloned()
    });
    kinds.collect()
}

/// A copy whose key only its owner can read: a checkout does not keep that.
fn copy_of(fixture: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["ledger.db", "ledger.key", "ledger.checkpoint"] {
        let to = directory.path().join(name);
        fs::copy(Path::new(fixture).join(name), &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
    }
    directory
}

/// A clock that stands at the time of the last record: a day later the wait of the fixture is over,
/// and its end is forgotten.
struct LastRecord(Instant);

impl Clock for LastRecord {
    fn wall(&self) -> Instant {
        self.0
    }

    fn monotonic(&self) -> Millis {
        Millis::ZERO
    }
}

fn open(path: &Path) -> bursar_ledger::data::Data {
    let reader = SqliteReader::open(&path.join("ledger.db")).unwrap();
    let last = reader
        .records(reader.head().unwrap() - 1, 1)
        .unwrap()
        .remove(0);
    let (time, _) = codec::decode_events(last.seq, &last.bytes.unwrap(), |_| None).unwrap();
    drop(reader);
    let clock: Arc<dyn Clock> = Arc::new(LastRecord(time));
    bursar_ledger::data::open(path, clock, Arc::new(Quiet), |_, _| ()).unwrap()
}
