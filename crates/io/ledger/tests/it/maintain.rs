//! Exports, backups, restoring and pruning.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bursar_engine::booking::{self, Fence, Reply};
use bursar_engine::{Answer, spine};
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::hash::{Hash, leaf_hash};
use bursar_journal::merkle::{prove_inclusion, verify_inclusion};
use bursar_journal::tile::{Builder, Path as Name, TileId, Tiles, tile_hashes};
use bursar_ledger::check::{Asked, Report, check};
use bursar_ledger::key::Signer;
use bursar_ledger::maintain::{
    Error, Export, Exported, Restored, Tokens, backup, export, export_tiles, first_at, prunable,
    restore,
};
use bursar_ledger::recover::StoredTiles;
use bursar_ledger::store::memory::MemoryStore;
use bursar_ledger::store::sqlite::{SqliteReader, SqliteStore};
use bursar_ledger::store::{Reader, Store};
use bursar_units::{BookingId, Instant, Millis};

use crate::opening;
use crate::world::{World, examine, label, lines, request};

#[test]
fn an_export_is_the_records_byte_for_byte_and_checks_offline() {
    let mut world = World::memory();
    world.live(10);
    world.large();
    world.live(300);
    world.sign();
    let (file, exported) = exported(world.reader().as_ref(), 0, u64::MAX);
    assert_eq!(
        exported,
        Exported {
            from: 0,
            to: 300,
            unsigned: 0
        }
    );
    let text = fs::read_to_string(file.path()).unwrap();
    let records = text.lines().filter(|line| line.starts_with("{\"v\":"));
    let kept = world.reader().records(0, 300).unwrap();
    assert!(
        records.eq(kept
            .iter()
            .map(|kept| std::str::from_utf8(kept.bytes.as_ref().unwrap()).unwrap()))
    );
    assert!(text.lines().last().unwrap().starts_with("{\"checkpoint\":"));
    let export = Export::open(file.path()).unwrap().unwrap();
    let keys = world.signer.verifiers();
    let asked = Asked {
        keys: &keys,
        redecide: true,
        ..Asked::default()
    };
    let report = check(&export, &asked, |_, _| ()).unwrap();
    assert!(report.is_ok(), "{:?}", report.checks);
    assert_eq!(
        lines(&report)[0],
        "ok hashes: 300 records, 1 checkpoint, one key"
    );
    assert_eq!(lines(&report)[1], "ok state: re-folded from record 0");
}

#[test]
fn a_part_begins_with_a_tile_ends_with_a_checkpoint_and_verifies_by_itself() {
    let mut world = World::memory();
    world.live(500);
    world.sign();
    world.live(800);
    world.sign();
    world.live(830);
    let reader = world.reader();
    let part = |from, to| exported(reader.as_ref(), from, to);
    let (file, middle) = part(300, 600);
    assert_eq!(
        middle,
        Exported {
            from: 256,
            to: 800,
            unsigned: 30
        }
    );
    let export = Export::open(file.path()).unwrap().unwrap();
    let report = examine(&export, &world.signer);
    assert_eq!(
        lines(&report),
        [
            "ok hashes: 800 records, 1 checkpoint, one key",
            "ok state: every record reads well, none to fold them onto",
        ]
    );
    let (file, tail) = part(800, u64::MAX);
    assert_eq!(
        tail,
        Exported {
            from: 768,
            to: 800,
            unsigned: 30
        }
    );
    let export = Export::open(file.path()).unwrap().unwrap();
    let report = examine(&export, &world.signer);
    assert_eq!(
        lines(&report)[0],
        "ok hashes: 800 records, 1 checkpoint, one key",
        "what is not signed is left out"
    );
    assert_eq!(
        part(2_000, 3_000).1,
        Exported {
            from: 768,
            to: 800,
            unsigned: 30
        }
    );
    assert_eq!(
        part(0, 0).1,
        Exported {
            from: 0,
            to: 500,
            unsigned: 30
        }
    );
}

#[test]
fn a_ledger_that_nothing_signs_has_no_export() {
    let mut world = World::memory();
    world.live(20);
    let mut out = Vec::new();
    let error = export(world.reader().as_ref(), 0, u64::MAX, &mut out).unwrap_err();
    assert!(
        matches!(error, Error::Unsigned) && out.is_empty(),
        "{error}"
    );
    world.sign();
    assert_eq!(exported(world.reader().as_ref(), 0, 1).1.to, 20);
}

/// Method: in an export of 200 records one bit of each 197th byte is turned: in records it is found at
/// the record, elsewhere it is found.
#[test]
fn a_flipped_bit_of_an_export_is_found() {
    let mut world = World::memory();
    world.live(200);
    world.sign();
    let (file, _) = exported(world.reader().as_ref(), 0, u64::MAX);
    let good = fs::read(file.path()).unwrap();
    let first_line = good.iter().position(|byte| *byte == b'\n').unwrap();
    let mut seq = 0;
    for place in first_line + 1..good.len() - 1 {
        seq += u64::from(good[place - 1] == b'\n');
        if place % 197 != 0 {
            continue;
        }
        let mut bytes = good.clone();
        bytes[place] ^= 1 << (place % 8);
        fs::write(file.path(), &bytes).unwrap();
        let export = Export::open(file.path()).unwrap().unwrap();
        let report = examine(&export, &world.signer);
        assert!(!report.is_ok(), "byte {place}");
        if seq <= 200 && good[place] != b'\n' {
            assert_eq!(
                report.damage.unwrap().seq,
                seq - 1,
                "byte {place}: {:?}",
                report.checks
            );
        }
    }
}

#[test]
fn what_is_no_export_is_told_from_one() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for text in ["", "garbage", "{\"v\":1,\"seq\":0}\n", "\u{0}\u{1}"] {
        fs::write(file.path(), text).unwrap();
        assert!(Export::open(file.path()).unwrap().is_none());
    }
    let newer = "{\"export\":{\"version\":2,\"edge\":{\"size\":0,\"hashes\":[]}}}\n";
    fs::write(file.path(), newer).unwrap();
    assert!(Export::open(file.path()).is_err());
}

#[test]
fn exported_tiles_prove_records_to_any_reader_of_the_layout() {
    let mut world = World::memory();
    world.live(600);
    world.sign();
    world.live(610);
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(
        export_tiles(world.reader().as_ref(), directory.path()).unwrap(),
        600
    );
    let note = fs::read_to_string(directory.path().join("checkpoint")).unwrap();
    let checkpoint = Checkpoint::open(&note, &world.signer.verifier()).unwrap();
    for seq in [0, 255, 256, 599] {
        let entries = Name::Entries(TileId::in_tree(0, seq / 256, 600).unwrap());
        let bundle = fs::read(directory.path().join(entries.to_string())).unwrap();
        let record = entries_of(&bundle)[usize::try_from(seq % 256).unwrap()];
        let proof = prove_inclusion(&Directory(directory.path()), seq, 600).unwrap();
        verify_inclusion(&leaf_hash(record), seq, 600, &checkpoint.root, &proof).unwrap();
    }
}

/// Method: one thread appends while another copies; each copy must be whole.
#[test]
fn a_backup_and_a_check_beside_a_busy_writer_see_something_whole() {
    let mut world = World::sqlite();
    world.live(50);
    world.sign();
    let (from, signer) = (world.file(), world.signer.clone());
    let copies = tempfile::tempdir().unwrap();
    let is_over = AtomicBool::new(false);
    let sizes: Vec<u64> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                world.live(world.state.spine.head + 5);
                world.sign();
            }
        });
        let copy = |number: u32| {
            let to = copies.path().join(format!("{number}.db"));
            backup(&from, &to).unwrap();
            let report = examine(&SqliteReader::inspect(&to).unwrap(), &signer);
            assert!(report.is_ok(), "{:?}", report.checks);
            // The ledger itself is as good to look at while it grows.
            let live = examine(&SqliteReader::open(&from).unwrap(), &signer);
            assert!(
                live.is_ok() && report.records <= live.records,
                "{:?}",
                live.checks
            );
            report.records
        };
        let sizes = (0..5).map(copy).collect();
        is_over.store(true, Ordering::Relaxed);
        sizes
    });
    assert!(sizes.is_sorted() && 50 <= sizes[0]);
    assert_eq!(
        fs::read_dir(copies.path()).unwrap().count(),
        5,
        "nothing but the copies is left"
    );
    let error = backup(&from, &copies.path().join("0.db")).unwrap_err();
    assert!(matches!(error, Error::Exists { .. }));
}

#[test]
fn a_restored_ledger_goes_on_as_an_honest_fork() {
    let mut world = World::sqlite();
    world.live(20);
    world.large();
    world.live(300);
    world.sign();
    let copy = world.directory.path().join("copy.db");
    backup(&world.file(), &copy).unwrap();
    let data = world.directory.path().join("restored");
    let keys = world.signer.verifiers();
    let reader = SqliteReader::inspect(&copy).unwrap();
    let restored = restore_to(&reader, &keys, &data, world.now).unwrap();
    assert_eq!((restored.records, restored.left), (300, 0));
    assert!(restored.report.is_ok());
    assert_eq!(
        restored.origin.as_str(),
        format!("bursar/{}/1", world.state.spine.ledger)
    );

    let report = report_on(&data, &world.signer);
    assert_eq!(
        lines(&report)[0],
        "ok hashes: 302 records, 2 checkpoints, 2 keys"
    );
    assert!(report.is_ok(), "{:?}", report.checks);
    let reader = SqliteReader::open(&data.join("ledger.db")).unwrap();
    let last = reader
        .records(300, 2)
        .unwrap()
        .into_iter()
        .map(|kept| String::from_utf8(kept.bytes.unwrap()).unwrap());
    let last: Vec<String> = last.collect();
    assert!(
        last[0].contains("\"restored\":{\"generation\":1,\"fence\":"),
        "{}",
        last[0]
    );
    assert!(last[1].contains("keyRotated"), "{}", last[1]);
    // Proofs against the checkpoint of the old ledger still verify.
    assert_proofs(&reader, &world.signer, 300, &[0, 20, 255, 299]);
    assert!(!data.join("ledger.db.restoring").exists());
    // And it is led and appended to like any other.
    let mut store = SqliteStore::open(&data.join("ledger.db")).unwrap();
    assert_eq!(store.lead().unwrap().head, 302);
}

#[test]
fn what_still_verifies_of_a_damaged_copy_is_restored() {
    for (sql, good) in [
        ("UPDATE journal SET bytes = x'00' WHERE seq = 290", 290),
        ("DELETE FROM journal WHERE seq = 100", 100),
        ("UPDATE blob SET bytes = x'00'", 4),
    ] {
        let mut world = World::sqlite();
        world.large();
        world.live(300);
        world.sign();
        world.tamper(sql);
        let data = world.directory.path().join("restored");
        let reader = SqliteReader::open(&world.file()).unwrap();
        let keys = world.signer.verifiers();
        let restored = restore_to(&reader, &keys, &data, world.now).unwrap();
        assert_eq!(
            (restored.records, restored.left),
            (good, 300 - good),
            "{sql}"
        );
        assert!(!restored.report.is_ok());
        let report = report_on(&data, &world.signer);
        assert!(
            report.is_ok() && report.records == good + 2,
            "{sql}: {:?}",
            report.checks
        );
    }
}

/// Method: a good copy, a bad one, and a part, each restored over a ledger that is in the way.
#[test]
fn the_ledger_that_is_there_is_touched_only_when_the_new_one_is_whole() {
    let mut world = World::sqlite();
    world.live(20);
    world.sign();
    let copy = world.directory.path().join("copy.db");
    backup(&world.file(), &copy).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (data, aside) = (
        directory.path().join("data"),
        directory.path().join("aside"),
    );
    fs::create_dir_all(data.join("executions/e-1")).unwrap();
    for name in [
        "ledger.db",
        "ledger.key",
        "ledger.checkpoint",
        "config.toml",
    ] {
        fs::write(data.join(name), name).unwrap();
    }
    let there = || {
        let names = ["ledger.db", "ledger.key", "ledger.checkpoint"];
        names.map(|name| fs::read_to_string(data.join(name)).is_ok_and(|text| text == name))
    };

    // What cannot be restored leaves all as it was.
    let empty = directory.path().join("empty.db");
    drop(SqliteStore::open(&empty).unwrap());
    let bad = SqliteReader::open(&empty).unwrap();
    let refused = restore(
        &bad,
        &[],
        (&data, &aside),
        world.now,
        Tokens::End,
        |_, _| (),
    );
    assert!(matches!(refused, Err(Error::NothingGood)));
    assert_eq!((there(), aside.exists()), ([true; 3], false));

    let good = SqliteReader::open(&copy).unwrap();
    let restored = restore(
        &good,
        &[],
        (&data, &aside),
        world.now,
        Tokens::End,
        |_, _| (),
    )
    .unwrap();
    assert!(restored.is_moved);
    assert_eq!(there(), [false; 3]);
    for name in ["ledger.db", "ledger.key", "ledger.checkpoint"] {
        assert_eq!(fs::read_to_string(aside.join(name)).unwrap(), name);
    }
    // What is no part of the ledger stays.
    assert!(data.join("executions/e-1").exists());
    assert_eq!(
        fs::read_to_string(data.join("config.toml")).unwrap(),
        "config.toml"
    );
    let reader = SqliteReader::open(&data.join("ledger.db")).unwrap();
    assert_eq!(reader.head().unwrap(), 22);
}

/// Method: one time of day for all restores, and a grant after each.
#[test]
fn restores_of_one_copy_in_one_second_share_no_fence() {
    let mut world = World::sqlite();
    world.live(20);
    world.sign();
    let copy = world.directory.path().join("copy.db");
    backup(&world.file(), &copy).unwrap();
    let copy = SqliteReader::inspect(&copy).unwrap();
    let data = world.directory.path().join("restored");
    let mut last = Fence(0);
    for turn in 0..3 {
        let aside = world.directory.path().join(format!("before-{turn}"));
        let (keys, now) = (world.signer.verifiers(), world.now);
        restore(&copy, &keys, (&data, &aside), now, Tokens::End, |_, _| ()).unwrap();
        let fence = granted(&data);
        assert!(last < fence, "{last:?} {fence:?}");
        last = fence;
    }
}

/// The fence of a grant by the ledger in a directory.
fn granted(data: &Path) -> Fence {
    let data = opening::open(data).unwrap();
    let request = request(BookingId::new("next").unwrap(), "next", "acme", 0);
    let reserve = booking::Command::Reserve(request).into();
    let outcome = opening::wait_for(data.ledger.submit(label("ada"), vec![reserve]));
    data.stop();
    match &outcome.unwrap()[0].result {
        Ok(Answer::Booking(Reply::Granted(fence))) => *fence,
        other => panic!("{other:?}"),
    }
}

/// Restores where nothing is in the way.
fn restore_to(
    copy: &dyn Reader,
    keys: &[VerifierKey],
    data: &Path,
    now: Instant,
) -> Result<Restored, Error> {
    let aside = data.with_extension("before");
    restore(copy, keys, (data, &aside), now, Tokens::End, |_, _| ())
}

/// Method: each of the three steps is left out, and made up for.
#[test]
fn only_what_is_anchored_signed_and_exported_may_be_pruned() {
    let steps: [fn(&mut World<MemoryStore>); 3] = [World::anchor, World::sign, |world| {
        world.store.note_exported(601).unwrap();
    }];
    let below = |world: &World<_>| {
        prunable(world.reader().as_ref(), world.state.spine.anchor)
            .unwrap()
            .below_max
    };
    for left_out in 0..3 {
        let mut world = World::memory();
        world.live(600);
        (0..3)
            .filter(|step| *step != left_out)
            .for_each(|step| steps[step](&mut world));
        assert_eq!(below(&world), 0, "without step {left_out}");
        steps[left_out](&mut world);
        assert_eq!(below(&world), 512, "whole tiles only");
    }
}

#[test]
fn proofs_and_checks_hold_after_pruning_and_a_pruned_ledger_can_be_restored() {
    let mut world = World::sqlite();
    world.large();
    world.live(600);
    world.anchor();
    world.sign();
    world.store.note_exported(601).unwrap();
    let below = prunable(world.reader().as_ref(), world.state.spine.anchor)
        .unwrap()
        .below_max;
    world.run(spine::Command::Prune {
        below,
        idempotency: None,
    });
    world.commit();
    // A prune that was cut short is seen, and can be completed.
    assert_eq!(world.store.prune(100).unwrap(), 100);
    let pruned = |world: &World<_>| {
        prunable(world.reader().as_ref(), world.state.spine.anchor)
            .unwrap()
            .pruned
    };
    assert_eq!(pruned(&world), 100);
    assert_eq!(world.store.prune(below).unwrap(), 412);
    assert_eq!(pruned(&world), 512);
    world.live(700);
    world.sign();

    let reader = world.reader();
    assert_proofs(
        reader.as_ref(),
        &world.signer,
        601,
        &[0, 255, 256, 511, 512, 600],
    );
    assert_proofs(reader.as_ref(), &world.signer, 700, &[0, 511, 600, 699]);
    let report = world.check();
    assert_eq!(
        lines(&report)[0],
        "ok hashes: 700 records (512 pruned), 2 checkpoints, one key"
    );
    assert_eq!(
        lines(&report)[1],
        "ok state: re-folded from the anchored snapshot over 600 records"
    );
    assert!(report.is_ok(), "{:?}", report.checks);

    // Both ways out and in again.
    let (file, _) = exported(reader.as_ref(), 0, u64::MAX);
    let export = Export::open(file.path()).unwrap().unwrap();
    assert!(examine(&export, &world.signer).is_ok());
    for (name, copy) in [
        ("export", &export as &dyn Reader),
        ("store", reader.as_ref()),
    ] {
        let data = world.directory.path().join(name);
        let keys = world.signer.verifiers();
        let restored = restore_to(copy, &keys, &data, world.now).unwrap();
        assert_eq!((restored.records, restored.left), (700, 0));
        let report = report_on(&data, &world.signer);
        assert!(report.is_ok(), "{name}: {:?}", report.checks);
    }

    // An anchored snapshot that is not the one on record is found, and so is a damaged one.
    for (sql, expected) in [
        (
            "UPDATE anchor SET lines = replace(lines, '\"python\"', '\"perl\"')",
            "FAIL state: no record states the hash of the anchored snapshot over 600 records",
        ),
        (
            "UPDATE anchor SET lines = 'garbage'",
            "FAIL state: the anchored snapshot over 600 records is damaged",
        ),
    ] {
        assert_eq!(world.tamper(sql), 1);
        assert_eq!(lines(&world.check())[1], expected);
    }
}

#[test]
fn the_first_record_at_a_time_is_found() {
    let mut world = World::memory();
    let start = world.now;
    world.live(50);
    let reader = world.reader();
    let at = |time| first_at(reader.as_ref(), time).unwrap();
    assert_eq!(at(start), 0);
    assert_eq!(
        at(start.after(Millis::from_ms(1))),
        4,
        "the first four are of the same time"
    );
    assert_eq!(at(world.now), 49);
    assert_eq!(at(world.now.after(Millis::from_ms(1))), 50);
}

/// The tiles of an export in a directory.
struct Directory<'a>(&'a Path);

impl Tiles for Directory<'_> {
    type Error = std::io::Error;

    fn tile(&self, id: TileId) -> Result<Vec<Hash>, std::io::Error> {
        let bytes = fs::read(self.0.join(Name::Tile(id).to_string()))?;
        tile_hashes(&bytes).map_err(std::io::Error::other)
    }
}

fn exported(reader: &dyn Reader, from: u64, to: u64) -> (tempfile::NamedTempFile, Exported) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let exported = export(reader, from, to, &mut file).unwrap();
    (file, exported)
}

/// Checks a restored ledger with its own key and that of the ledger it comes from.
fn report_on(data: &Path, old: &Signer) -> Report {
    let mut keys = Signer::load(&data.join("ledger.key"))
        .unwrap()
        .unwrap()
        .verifiers();
    keys.extend(old.verifiers());
    let reader = SqliteReader::open(&data.join("ledger.db")).unwrap();
    let asked = Asked {
        keys: &keys,
        redecide: true,
        ..Asked::default()
    };
    check(&reader, &asked, |_, _| ()).unwrap()
}

/// Proves records, pruned or not, against the checkpoint over `size` records.
fn assert_proofs(reader: &dyn Reader, signer: &Signer, size: u64, records: &[u64]) {
    let note = reader.checkpoint(size).unwrap().unwrap();
    let checkpoint = Checkpoint::open(&note, &signer.verifier()).unwrap();
    assert_eq!(checkpoint.size, size);
    let stored = StoredTiles(reader);
    let mut builder = Builder::resume(&stored, size / 256).unwrap();
    for kept in reader
        .records(size / 256 * 256, usize::try_from(size % 256).unwrap())
        .unwrap()
    {
        builder.push(leaf_hash(&kept.bytes.unwrap()), &mut Vec::new());
    }
    for seq in records {
        let leaf = match reader.records(*seq, 1).unwrap().remove(0).bytes {
            Some(bytes) => leaf_hash(&bytes),
            None => reader.leaves(seq / 256).unwrap()[usize::try_from(seq % 256).unwrap()],
        };
        let proof = prove_inclusion(&builder.over(&stored), *seq, size).unwrap();
        verify_inclusion(&leaf, *seq, size, &checkpoint.root, &proof).unwrap();
    }
}

/// The records of a bundle of entries, each behind its size in two bytes.
fn entries_of(mut bundle: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some((size, rest)) = bundle.split_first_chunk::<2>() {
        let (record, rest) = rest.split_at(usize::from(u16::from_be_bytes(*size)));
        records.push(record);
        bundle = rest;
    }
    records
}
