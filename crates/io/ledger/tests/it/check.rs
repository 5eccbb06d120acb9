//! What `ledger check` finds.

use std::fs;

use bursar_engine::booking::{self, End, Event as Booking};
use bursar_engine::{Change, Event, Events, cluster, decide, snapshot, spine};
use bursar_journal::hash::Hash;
use bursar_journal::tile::TileId;
use bursar_ledger::check::{Asked, Damage, Report, check};
use bursar_ledger::snapshots::Snapshots;
use bursar_ledger::store::memory::MemoryStore;
use bursar_ledger::store::{Error, Kept, Reader};
use bursar_units::Millis;

use crate::world::{World, examine, lines, release, request};

/// A reader of records of which one bit is wrong.
struct Flipped {
    inner: MemoryStore,
    seq: u64,
    bit: usize,
}

#[test]
fn a_good_ledger_is_good_in_every_way() {
    let mut world = World::sqlite();
    world.large();
    world.live(300);
    world.sign();
    let snapshots = Snapshots::of(world.directory.path());
    snapshots.write(&world.state, world.builder.edge()).unwrap();
    world.live(700);
    snapshots.write(&world.state, world.builder.edge()).unwrap();
    world.sign();
    let (loaded, skipped) = snapshots.load_all(world.reader().as_ref()).unwrap();
    assert!(skipped.is_empty() && loaded.len() == 2);
    let live = (
        world.state.spine.head,
        snapshot::hash(&world.state).unwrap(),
    );
    let keys = world.signer.verifiers();
    let asked = Asked {
        keys: &keys,
        snapshots: &loaded,
        live: Some(live),
        redecide: true,
        ..Asked::default()
    };
    let mut seen = Vec::new();
    let report = check(world.reader().as_ref(), &asked, |done, all| {
        seen.push((done, all));
    })
    .unwrap();
    let (granted, queued, ended) = world.state.bookings.counts();
    assert!(
        0 < granted && 0 < queued && 100 < ended,
        "a past worth checking"
    );
    let changes = lines(&report)[3]
        .rsplit_once("slot limit, ")
        .unwrap()
        .1
        .to_owned();
    assert_eq!(
        lines(&report),
        [
            "ok hashes: 700 records, 2 checkpoints, one key".to_owned(),
            "ok state: re-folded from record 0, equals 2 snapshots and the live state".to_owned(),
            "ok decisions: 697 commands decided again, byte for byte, 3 up to the record `level` folded only".to_owned(),
            format!("ok limits: no grant above the bound of a slot limit, {changes}"),
            format!(
                "ok bookings: {ended} ended once, {granted} active, {queued} waiting, 0 without an end"
            ),
        ]
    );
    assert_eq!(report.checkpoint.unwrap().size, 700);
    assert_eq!(seen.last(), Some(&(700, 700)));
}

/// Method: a ledger of 200 records, which fill no tile, signed once; in every record two bits are
/// turned, one at a time, at other places each time.
#[test]
fn every_flipped_bit_of_200_records_is_found_with_its_place() {
    let mut world = World::memory();
    world.live(200);
    world.sign();
    assert!(world.check().is_ok());
    for (kept, shift) in world.reader().records(0, 200).unwrap().into_iter().zip(0..) {
        let bits = kept.bytes.unwrap().len() * 8;
        for bit in [0, 1].map(|part| (bits * part / 2 + shift * 37) % bits) {
            let flipped = Flipped {
                inner: world.store.clone(),
                seq: kept.seq,
                bit,
            };
            assert_place(&examine(&flipped, &world.signer), kept.seq);
        }
    }
}

#[test]
fn damage_in_the_file_is_found_with_its_place_in_full_tiles_and_after_them() {
    let mut world = World::sqlite();
    world.live(600);
    world.sign();
    for seq in [0, 255, 256, 300, 511, 512, 599] {
        let bytes = world.reader().records(seq, 1).unwrap()[0]
            .bytes
            .clone()
            .unwrap();
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 4;
        world.put(seq, &damaged);
        let report = world.check();
        assert_place(&report, seq);
        let expected =
            format!("FAIL hashes: record {seq} does not hash to the value its checkpoint signs");
        assert_eq!(lines(&report)[0], expected);
        if 0 < seq {
            assert_eq!(
                lines(&report)[1],
                format!("ok state: records 0 to {} re-fold", seq - 1)
            );
        }
        world.put(seq, &bytes);
    }
    assert!(world.check().is_ok());
    world.tamper("DELETE FROM journal WHERE seq = 400");
    assert_place(&world.check(), 400);
}

#[test]
fn damage_beside_the_records_is_found_and_the_records_are_said_to_be_good() {
    let cases = [
        (
            "UPDATE tile SET bytes = zeroblob(8192) WHERE level = 0 AND idx = 1",
            "tile/0/001 holds other hashes than its records give, its records are good",
        ),
        (
            "DELETE FROM tile WHERE level = 0 AND idx = 0",
            "tile/0/000 is missing, its records are good",
        ),
        (
            "UPDATE checkpoint SET note = replace(note, char(10) || '600' || char(10), char(10) || '601' || char(10))",
            "the checkpoint over 600 records: the signature by",
        ),
        (
            "UPDATE checkpoint SET note = replace(note, '— ', '- ')",
            "the checkpoint over 600 records: ",
        ),
        (
            "UPDATE checkpoint SET size = 700",
            "a checkpoint signs 700 records, only 600 are here: it was cut",
        ),
    ];
    for (sql, expected) in cases {
        let mut world = World::sqlite();
        world.live(600);
        world.sign();
        assert_eq!(world.tamper(sql), 1);
        let report = world.check();
        assert_eq!(report.damage, None, "{sql}");
        assert!(
            !report.checks[0].ok && report.checks[0].detail.starts_with(expected),
            "{:?}",
            report.checks[0]
        );
        assert!(report.checks[1..].iter().all(|check| check.ok));
    }
}

#[test]
fn a_journal_that_was_cut_is_found() {
    let mut world = World::sqlite();
    world.live(600);
    world.sign();
    world.tamper("DELETE FROM journal WHERE 550 <= seq");
    world.tamper("UPDATE meta SET head = 550");
    assert_eq!(
        lines(&world.check())[0],
        "FAIL hashes: a checkpoint signs 600 records, only 550 are here: it was cut"
    );
}

#[test]
fn a_damaged_or_missing_blob_is_found_at_its_record() {
    for sql in ["UPDATE blob SET bytes = x'5b5d'", "DELETE FROM blob"] {
        let mut world = World::sqlite();
        world.live(20);
        world.large();
        world.live(30);
        world.sign();
        assert_eq!(world.tamper(sql), 2);
        let report = world.check();
        assert_eq!(report.damage.unwrap().seq, 20);
        assert!(report.checks[0].ok, "the records themselves are good");
        assert!(lines(&report)[1].starts_with("FAIL state: record 20 names blob "));
    }
}

#[test]
fn records_after_the_last_checkpoint_are_said_to_be_unsigned() {
    let mut world = World::memory();
    world.live(20);
    assert_eq!(
        lines(&world.check())[0],
        "ok hashes: 20 records, no checkpoint"
    );
    world.sign();
    world.live(23);
    assert_eq!(
        lines(&world.check())[0],
        "ok hashes: 23 records, 1 checkpoint, one key, records 20 to 22 are not signed yet"
    );
}

#[test]
fn a_key_is_trusted_if_a_record_below_a_trusted_checkpoint_announces_it() {
    let mut world = World::memory();
    world.live(20);
    world.sign();
    let first = world.signer.clone();
    let month = Millis::from_hours(31 * 24);
    let rotated = first.rotate(world.now).unwrap();
    world.run(spine::Command::RotateKey {
        key: rotated.verifier().to_string(),
        idempotency: None,
    });
    world.signer = rotated.clone();
    world.live(30);
    world.sign();
    world.now = world.now.after(month);
    world.live(40);
    world.sign();
    let all = "ok hashes: 40 records, 3 checkpoints, 2 keys";
    // Forwards from the first key alone, and backwards from the last one alone.
    for key in [first.verifier(), rotated.verifier()] {
        let keys = [key];
        let asked = Asked {
            keys: &keys,
            ..Asked::default()
        };
        let report = check(world.reader().as_ref(), &asked, |_, _| ()).unwrap();
        assert_eq!(lines(&report)[0], all);
    }
    let stranger = World::memory().signer.verifiers();
    let asked = Asked {
        keys: &stranger,
        ..Asked::default()
    };
    let report = check(world.reader().as_ref(), &asked, |_, _| ()).unwrap();
    assert!(
        lines(&report)[0].starts_with("FAIL hashes: the checkpoint over 20 records: not signed by")
    );
}

#[test]
fn a_ledger_that_does_not_extend_a_checkpoint_seen_before_is_found() {
    let mut world = World::memory();
    world.live(40);
    world.sign();
    let seen = world.check().checkpoint.unwrap();
    let mut other = World::memory();
    other.signer = world.signer.clone();
    other.now = other.now.after(Millis::from_ms(1));
    other.live(50);
    other.sign();
    let keys = world.signer.verifiers();
    let asked = |seen| Asked {
        keys: &keys,
        seen,
        ..Asked::default()
    };
    let report =
        |world: &World<_>, seen| check(world.reader().as_ref(), &asked(seen), |_, _| ()).unwrap();
    world.live(60);
    world.sign();
    let seen = std::slice::from_ref(&seen);
    let extended = report(&world, seen);
    assert!(extended.is_ok() && extended.joined == seen);
    let parted = report(&other, seen);
    assert!(parted.joined.is_empty());
    assert!(
        lines(&parted)[1].starts_with("FAIL consistent: two histories: the first 40 records "),
        "{:?}",
        parted.checks
    );
}

#[test]
fn a_state_that_is_not_the_fold_of_the_records_is_found() {
    let mut world = World::memory();
    world.live(40);
    let wrong = Hash([7; 32]);
    let asked = Asked {
        live: Some((40, wrong)),
        ..Asked::default()
    };
    let report = check(world.reader().as_ref(), &asked, |_, _| ()).unwrap();
    assert_eq!(
        lines(&report)[1],
        "FAIL state: the live state after 40 records is not what they fold to"
    );
}

#[test]
fn forged_decisions_are_found_by_counting_and_by_deciding_again() {
    // A grant above the limit of seven, that nobody decided.
    let mut world = World::memory();
    for _ in 0..8 {
        let request = request(world.next_id(), "python", "blue", 60_000);
        let forged = Event::Booking(Booking::Reserved(booking::Request {
            fence: Some(booking::Fence(1)),
            ..request.clone()
        }));
        world.state.apply(world.now, &forged);
        world.record(booking::Command::Reserve(request).into(), vec![forged]);
    }
    world.commit();
    let asked = Asked {
        redecide: true,
        ..Asked::default()
    };
    let report = check(world.reader().as_ref(), &asked, |_, _| ()).unwrap();
    let expected = [
        "FAIL decisions: record 5 has other events when it is decided again",
        "FAIL limits: record 11: limit python has 8 slots in use, its bound is 7",
        "ok bookings: 0 ended once, 8 active, 0 without an end",
    ];
    assert_eq!(lines(&report)[2..], expected);

    // An end of a booking that has ended.
    let mut world = World::memory();
    let id = world.next_id();
    world.run(booking::Command::Reserve(request(
        id.clone(),
        "python",
        "blue",
        0,
    )));
    let fence = world.state.bookings.last_fence();
    world.run(release(id.clone(), fence));
    let end = End::Released;
    let ended = Booking::Ended {
        id: id.clone(),
        end,
        outcome: None,
        exit_code: None,
        reason: None,
        of: None,
        t: None,
    };
    world.record(release(id, fence).into(), vec![Event::Booking(ended)]);
    world.commit();
    let report = check(world.reader().as_ref(), &asked, |_, _| ()).unwrap();
    assert_eq!(
        lines(&report)[4],
        "FAIL bookings: record 6: booking job-1 ends when it is not active"
    );
}

#[test]
fn a_payload_that_is_missing_behind_others_is_damage() {
    let mut world = World::sqlite();
    world.live(40);
    world.sign();
    assert_eq!(
        world.tamper("UPDATE journal SET bytes = NULL WHERE seq = 30"),
        1
    );
    assert_place(&world.check(), 30);
}

/// Method: the data directory of a server is rolled back by putting back its store of before, then
/// the file that tells is damaged, then it is taken away.
#[test]
fn a_store_that_was_rolled_back_is_named_and_so_is_a_damaged_checkpoint_beside_it() {
    let mut world = World::sqlite();
    world.live(40);
    world.sign();
    let data = world.directory.path().to_owned();
    let beside = data.join("ledger.checkpoint");
    let newest = |size: u64| world.reader().checkpoint(size).unwrap().unwrap();
    fs::write(&beside, newest(40)).unwrap();
    let keys = world.signer.verifiers();
    let found = |world: &World<_>, keys: &[_]| {
        let asked = Asked {
            keys,
            data: Some(&data),
            ..Asked::default()
        };
        let report = check(world.reader().as_ref(), &asked, |_, _| ()).unwrap();
        let failed = report.checks.iter().filter(|check| !check.ok);
        failed
            .map(|check| format!("{}: {}", check.name, check.detail))
            .collect::<Vec<_>>()
    };
    assert_eq!(found(&world, &keys), [""; 0]);
    assert_eq!(found(&world, &[]), [""; 0], "by the keys it announces");

    let later = world.signer.sign(world.now, 50, Hash([7; 32]));
    fs::write(&beside, &later).unwrap();
    for keys in [&keys[..], &[]] {
        let said = found(&world, keys);
        let expected =
            "newest: the ledger was rolled back: ledger.db holds 40 records, but 50 were signed";
        assert!(said.len() == 1 && said[0].starts_with(expected), "{said:?}");
    }
    let changed = world.signer.sign(world.now, 40, Hash([7; 32]));
    fs::write(&beside, &changed).unwrap();
    let said = found(&world, &keys);
    let expected =
        "newest: a record was changed: ledger.db holds 40, but not those that were signed";
    assert!(said.len() == 1 && said[0].starts_with(expected), "{said:?}");

    for damaged in ["", "garbage", &later.replace("\n50\n", "\n40\n"), "\u{0}"] {
        fs::write(&beside, damaged).unwrap();
        let said = found(&world, &keys);
        assert!(
            said.len() == 1 && said[0].contains("ledger.checkpoint cannot be verified: "),
            "{damaged:?}: {said:?}"
        );
    }
    fs::write(&beside, [0xff, 0xfe]).unwrap();
    assert!(found(&world, &keys)[0].contains("cannot be verified"));
    fs::remove_file(&beside).unwrap();
    assert!(found(&world, &keys)[0].contains("it is missing"));
}

fn assert_place(report: &Report, seq: u64) {
    assert_eq!(
        report.damage.map(|Damage { seq, .. }| seq),
        Some(seq),
        "{:?}",
        report.checks
    );
    assert!(!report.is_ok());
    assert_eq!(report.damage.unwrap().time.is_some(), 0 < seq);
}

impl Reader for Flipped {
    fn records(&self, from: u64, max: usize) -> Result<Vec<Kept>, Error> {
        let mut records = self.inner.records(from, max)?;
        for kept in records.iter_mut().filter(|kept| kept.seq == self.seq) {
            kept.bytes.as_mut().unwrap()[self.bit / 8] ^= 1 << (self.bit % 8);
        }
        Ok(records)
    }

    fn head(&self) -> Result<u64, Error> {
        self.inner.head()
    }

    fn blob(&self, sha256: &Hash) -> Result<Option<Vec<u8>>, Error> {
        self.inner.blob(sha256)
    }

    fn full_tile(&self, id: TileId) -> Result<Option<Vec<Hash>>, Error> {
        self.inner.full_tile(id)
    }

    fn leaves(&self, index: u64) -> Result<Vec<Hash>, Error> {
        self.inner.leaves(index)
    }

    fn checkpoint(&self, size: u64) -> Result<Option<String>, Error> {
        self.inner.checkpoint(size)
    }

    fn checkpoints(&self) -> Result<Vec<(u64, String)>, Error> {
        self.inner.checkpoints()
    }

    fn anchors(&self) -> Result<Vec<u64>, Error> {
        self.inner.anchors()
    }

    fn anchor(&self, head: u64) -> Result<Option<(u64, String)>, Error> {
        self.inner.anchor(head)
    }

    fn exported(&self) -> Result<u64, Error> {
        self.inner.exported()
    }
}

/// Method: the hash, the proof and the fold of the record are good; only the counts know the hours.
#[test]
fn a_forged_epoch_is_found_without_a_second_decision() {
    let mut world = World::memory();
    let envelope = cluster::budget::EnvelopeId::new("a/b/e").unwrap();
    let budget = r#"{"namespace":"a","name":"b","owner":"a","envelopes":[
        {"name":"e","flavor":"h100","concurrency":4,"maxGPUHours":9}]}"#;
    let run = r#"{"namespace":"a","name":"r","owner":"a","flavor":"h100","totalGPUs":4}"#;
    let node = r#"{"name":"n","cpuMilli":1,"memoryBytes":1,"gpus":4,"labels":{
        "topology.kubernetes.io/region":"us","bursar.dev/cluster":"west",
        "bursar.dev/domain":"d","bursar.dev/flavor":"h100"}}"#;
    world.run(spine::Command::change([
        Change::from(spine::Change::SetNode(serde_json::from_str(node).unwrap())),
        cluster::Change::SetBudget(serde_json::from_str(budget).unwrap()).into(),
        cluster::Change::SetRun(serde_json::from_str(run).unwrap()).into(),
    ]));
    world.now = world.now.after(Millis::from_secs(60));
    let rotate = cluster::Command::RotateEnvelope {
        envelope,
        idempotency: None,
        reason: None,
    };
    let mut events = Events::new();
    decide(
        &mut world.state,
        world.now,
        &rotate.clone().into(),
        &mut events,
    )
    .unwrap();
    for event in &mut events {
        if let Event::Cluster(cluster::Event::EpochClosed { epoch, .. }) = event {
            epoch.accrued -= 1;
        }
    }
    world.record(rotate.into(), events);
    world.commit();
    world.sign();
    let found = lines(&world.check());
    let forged = "FAIL conservation: record 5: envelope a/b/e closes epoch 0 with 239,999 GPU-ms, \
                  the records add up to 240,000 in epoch 0";
    assert!(found.iter().any(|line| line == forged), "{found:#?}");
}
