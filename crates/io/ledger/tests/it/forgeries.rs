//! Forgeries of exports: what no signature covers does not verify.

use std::fs;
use std::path::Path;

use bursar_engine::spine;
use bursar_journal::checkpoint::VerifierKey;
use bursar_journal::hash::leaf_hash;
use bursar_ledger::check::{Asked, Report, Unsigned, check};
use bursar_ledger::maintain::{Export, export, prunable};
use bursar_ledger::store::{Reader, Store};

use crate::world::{World, examine, lines};

/// A file that pretends to be an export.
struct Forgery {
    what: String,
    text: Vec<u8>,
}

#[test]
fn no_line_of_an_export_can_be_dropped_doubled_moved_or_changed() {
    let mut world = World::memory();
    world.live(8);
    world.large();
    world.live(14);
    world.sign();
    let good = exported(world.reader().as_ref(), 0);
    let lines = good.lines().count();
    assert_unverified(&world, &good, &line_by_line(&good, 0..lines));
}

/// Method: the export begins with pruned records, so it has lines of every kind; forged is one line
/// of each kind, and those at the edges.
#[test]
fn no_line_of_a_pruned_export_can_be_dropped_doubled_moved_or_changed() {
    let mut world = World::memory();
    world.live(270);
    world.anchor();
    world.sign();
    world.store.note_exported(271).unwrap();
    let below = prunable(world.reader().as_ref(), world.state.spine.anchor)
        .unwrap()
        .below_max;
    world.run(spine::Command::Prune {
        below,
        idempotency: None,
    });
    world.commit();
    assert_eq!(world.store.prune(below).unwrap(), 256);
    world.live(280);
    world.sign();
    let good = exported(world.reader().as_ref(), 0);
    let all: Vec<&str> = good.lines().collect();
    let place = |start: &str| all.iter().position(|line| line.starts_with(start)).unwrap();
    let last = all.len() - 1;
    let picked = [
        0,
        place("{\"anchor\""),
        place("{\"pruned\""),
        place("{\"leaves\"") - 1,
        place("{\"leaves\""),
        place("{\"v\":"),
        last - 2,
        last - 1,
        last,
    ];
    let mut forged = line_by_line(&good, picked);
    let blank = |from: usize, to: usize| {
        let mut lines: Vec<String> = all.iter().map(|line| (*line).to_owned()).collect();
        for line in &mut lines[from..to] {
            *line = pruned(line).unwrap();
        }
        text(&lines)
    };
    let first = place("{\"v\":");
    forged.push(Forgery {
        what: "more is pruned than the ledger says".to_owned(),
        text: blank(first, first + 1),
    });
    assert_unverified(&world, &good, &forged);
}

#[test]
fn the_tree_before_a_part_is_signed_too() {
    let mut world = World::memory();
    world.live(270);
    world.sign();
    let good = exported(world.reader().as_ref(), 256);
    assert!(good.starts_with("{\"export\":{\"version\":1,\"edge\":{\"size\":256,"));
    assert_unverified(&world, &good, &line_by_line(&good, [0, 1]));
}

#[test]
fn what_is_not_signed_is_refused_with_a_line_for_each_gap() {
    let mut world = World::memory();
    world.live(10);
    world.large();
    world.live(20);
    world.sign();
    let good = exported(world.reader().as_ref(), 0);
    let all: Vec<String> = good.lines().map(str::to_owned).collect();
    let (checkpoint, leaves) = (all.len() - 1, all.len() - 2);
    let record = all[leaves - 1].replace("\"seq\":19", "\"seq\":20");
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = all.clone();
        change(&mut lines);
        text(&lines)
    };
    let invented = with(&|lines| {
        lines.insert(leaves, record.clone());
        let records = lines.iter().filter(|line| line.starts_with("{\"v\":"));
        let hashes: Vec<_> = records.map(|line| leaf_hash(line.as_bytes())).collect();
        lines[leaves + 1] = serde_json::json!({ "leaves": hashes }).to_string();
    });
    let blob = "{\"blob\":{\"sha256\":\"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\",\"text\":\"{}\"}}";
    let cases: Vec<(&str, Vec<u8>, &[&str])> = vec![
        (
            "a header alone",
            with(&|lines| lines.truncate(1)),
            &[
                "signed: there is no record",
                "signed: no checkpoint signs it",
            ],
        ),
        (
            "a header and a checkpoint",
            with(&|lines| {
                lines.drain(1..checkpoint);
            }),
            &["hashes: a checkpoint signs 20 records, only 0 are here: it was cut"],
        ),
        (
            "no checkpoint",
            with(&|lines| {
                lines.pop();
            }),
            &["signed: no checkpoint signs it"],
        ),
        (
            "neither checkpoint nor leaves, and other names",
            with(&|lines| {
                lines.truncate(leaves);
                for line in lines {
                    *line = line.replace("job-", "lob-");
                }
            }),
            &[
                "signed: no checkpoint signs it",
                "form: the file ends before the end of line 24, the hashes of the records before it",
            ],
        ),
        (
            "an invented record at the end",
            invented,
            &["signed: record 20 is not signed", "bookings: record 20"],
        ),
        (
            "no leaves",
            with(&|lines| {
                lines.remove(leaves);
            }),
            &[
                "form: line 24 is a checkpoint, where an export has the hashes of the records before it",
            ],
        ),
        (
            "two checkpoints",
            with(&|lines| lines.push(lines[checkpoint].clone())),
            &["form: line 26 is a checkpoint, where the export has ended"],
        ),
        (
            "two lines of leaves",
            with(&|lines| lines.insert(leaves, lines[leaves].clone())),
            &[
                "form: line 25 is the hashes of the records before it, where an export has a checkpoint",
            ],
        ),
        (
            "a blob that no record names",
            with(&|lines| lines.insert(1, blob.to_owned())),
            &["form: line 2 is a blob, where an export has a record"],
        ),
        (
            "an anchored snapshot that no record names",
            with(&|lines| {
                lines.insert(1, "{\"anchor\":{\"head\":5,\"lines\":\"\"}}".to_owned());
            }),
            &["form: line 2 is an anchored snapshot, where an export has a record"],
        ),
        (
            "no end of the last line",
            {
                let mut text = good.clone().into_bytes();
                text.pop();
                text
            },
            &["form: the file ends before the end of line 25, a checkpoint"],
        ),
        (
            "the payload of the first record hidden",
            with(&|lines| lines[1] = pruned(&lines[1]).unwrap()),
            &[
                "signed: the payload of record 0 is missing, and no record says",
                "signed: the payload of record 0 is missing, and no anchored snapshot",
            ],
        ),
        (
            "the payload of a record hidden",
            with(&|lines| lines[5] = pruned(&lines[5]).unwrap()),
            &["state: record 4 has no payload, but records before it have one"],
        ),
    ];
    let file = tempfile::NamedTempFile::new().unwrap();
    let keys = world.signer.verifiers();
    for (what, text, expected) in cases {
        fs::write(file.path(), text).unwrap();
        let report = audited(file.path(), &keys).unwrap();
        let failed = lines(&report).into_iter();
        let failed: Vec<_> = failed
            .filter_map(|line| line.strip_prefix("FAIL ").map(str::to_owned))
            .collect();
        assert_eq!(failed.len(), expected.len(), "{what}: {failed:?}");
        for (said, expected) in failed.iter().zip(expected) {
            assert!(said.starts_with(expected), "{what}: {failed:?}");
        }
    }
}

#[test]
fn records_after_the_last_checkpoint_are_an_operators_business_and_no_auditors() {
    let mut world = World::memory();
    world.live(20);
    world.sign();
    world.live(23);
    assert!(world.check().is_ok());
    let keys = world.signer.verifiers();
    let asked = Asked {
        keys: &keys,
        unsigned: Unsigned::Refused,
        ..Asked::default()
    };
    let report = check(world.reader().as_ref(), &asked, |_, _| ()).unwrap();
    assert_eq!(
        lines(&report)[1],
        "FAIL signed: records 20 to 22 are not signed"
    );
}

#[test]
fn a_file_that_names_its_own_key_is_not_verified_by_it() {
    let mut world = World::memory();
    world.live(20);
    world.sign();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), exported(world.reader().as_ref(), 0)).unwrap();
    let stranger = World::memory().signer.verifiers();
    for keys in [&stranger[..], &[]] {
        assert!(!audited(file.path(), keys).unwrap().is_ok());
    }
    let export = Export::open(file.path()).unwrap().unwrap();
    assert!(examine(&export, &world.signer).is_ok());
}

/// Every way to forge each of some lines.
fn line_by_line(good: &str, picked: impl IntoIterator<Item = usize>) -> Vec<Forgery> {
    let all: Vec<String> = good.lines().map(str::to_owned).collect();
    let mut forgeries = Vec::new();
    for place in picked {
        let mut forge = |how: &str, change: &dyn Fn(&mut Vec<String>)| {
            let mut lines = all.clone();
            change(&mut lines);
            if lines != all {
                let start: String = all[place].chars().take(20).collect();
                let what = format!("line {place} ({start}) {how}");
                let text = text(&lines);
                forgeries.push(Forgery { what, text });
            }
        };
        forge("dropped", &|lines| {
            lines.remove(place);
        });
        forge("doubled", &|lines| {
            lines.insert(place, lines[place].clone());
        });
        forge("repeated at the end", &|lines| {
            lines.push(lines[place].clone());
        });
        forge("changed places with the next", &|lines| {
            if place + 1 < lines.len() {
                lines.swap(place, place + 1);
            }
        });
        forge("made blank", &|lines| lines[place].clear());
        forge("replaced by its hash", &|lines| {
            if let Some(pruned) = pruned(&lines[place]) {
                lines[place] = pruned;
            }
        });
        forge("with a space at its end", &|lines| lines[place].push(' '));
        let length = all[place].len();
        for at in [1, length / 2, length - 2] {
            let mut text = text(&all);
            let start: usize = all[..place].iter().map(|line| line.len() + 1).sum();
            text[start + at] ^= 1;
            let what = format!("line {place}, byte {at} changed");
            forgeries.push(Forgery { what, text });
        }
    }
    forgeries
}

/// The line that would stand for a pruned record.
fn pruned(line: &str) -> Option<String> {
    let record: serde_json::Value = serde_json::from_str(line).ok()?;
    let (seq, leaf) = (record.get("seq")?, leaf_hash(line.as_bytes()));
    Some(format!(
        "{{\"pruned\":{{\"seq\":{seq},\"leaf\":\"{leaf}\"}}}}"
    ))
}

fn text(lines: &[String]) -> Vec<u8> {
    let lines = lines.iter().map(|line| format!("{line}\n"));
    lines.collect::<String>().into_bytes()
}

fn exported(reader: &dyn Reader, from: u64) -> String {
    let mut out = Vec::new();
    export(reader, from, u64::MAX, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// What an auditor finds; `None` where the file is no export at all.
fn audited(path: &Path, keys: &[VerifierKey]) -> Option<Report> {
    let export = Export::open(path).ok().flatten()?;
    let asked = Asked {
        keys,
        unsigned: Unsigned::Refused,
        ..Asked::default()
    };
    Some(check(&export, &asked, |_, _| ()).unwrap())
}

fn assert_unverified<S: Store>(world: &World<S>, good: &str, forgeries: &[Forgery]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let keys = world.signer.verifiers();
    fs::write(file.path(), good).unwrap();
    let report = audited(file.path(), &keys).unwrap();
    assert!(report.is_ok(), "{:?}", report.checks);
    for Forgery { what, text } in forgeries {
        fs::write(file.path(), text).unwrap();
        let report = audited(file.path(), &keys);
        assert!(report.is_none_or(|report| !report.is_ok()), "{what}");
    }
}
