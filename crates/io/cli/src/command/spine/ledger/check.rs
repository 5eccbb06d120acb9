//! `bursar ledger check`: hashes, folds and counts all records again, and clears the record of the
//! market again (M12).

use std::path::Path;
use std::time::Instant;

use bursar_engine::market::Position;
use bursar_engine::words;
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::proof::Check;
use bursar_ledger::check::{Asked, Report, Unsigned, check};
use bursar_ledger::store::Store as _;
use bursar_node::market;
use bursar_node::market::record::{self, Verified};
use bursar_units::causes::chain;
use bursar_units::{Instant as Time, ObjectName};
use serde_json::json;

use crate::failure::{Failure, Stop, exit};
use crate::grammar::CheckArguments;
use crate::layout::{Look, Meaning};
use crate::pins::{Seen, two_histories};
use crate::progress::Progress;
use crate::session::{Reach, Session};
use crate::store::{self, Opened, data_directory};

/// Width of the names of checks.
const NAME: usize = 12;
/// Name of the check of the market's record.
const MARKET: &str = "market";

pub(super) fn run(session: &mut Session, arguments: &CheckArguments) -> Result<(), Stop> {
    let began = Instant::now();
    let subject = subject(session, arguments.store.as_deref())?;
    let options = Asked {
        keys: &subject.keys,
        snapshots: &subject.snapshots,
        redecide: arguments.redecide,
        data: subject.directory.as_deref(),
        ..Asked::default()
    };
    let mut report = check_with_progress(session, &subject, &options)?;
    let (beside, now) = (subject.directory.as_deref(), session.look().now);
    report
        .checks
        .extend(beside.and_then(|data| market_check(data, &report.digests, now)));
    let took = elapsed_ms(session, began);
    let value = json!({
        "store": subject.shown,
        "records": report.records,
        "ok": report.is_ok(),
        "checks": report.checks,
        "damagedFrom": report.damage.map(|damage| damage.seq),
    });
    session.show_unnamed(&value, |look| {
        let size = subject.bytes.map(|bytes| format!(", {}", megabytes(bytes)));
        let records = words::count(report.records, "record");
        let head = format!("{}, {records}{}\n", subject.shown, size.unwrap_or_default());
        let end = if report.is_ok() {
            format!("checked in {}.{}s\n", took / 1_000, took % 1_000 / 100)
        } else {
            String::new()
        };
        head + &lines(&report.checks, NAME, look) + &end
    })?;
    if report.is_ok() {
        Ok(())
    } else {
        let mut failed = report.checks.iter().filter(|check| !check.ok);
        let hint = if failed.all(|check| check.name == MARKET) {
            "limits do not depend on this record: move it away, and the agent starts a new one"
        } else {
            "`bursar ledger restore BACKUP` starts from a good copy and replays what still verifies"
        };
        Err(damaged(session, &subject.shown, &report).hint(hint).into())
    }
}

fn check_with_progress(
    session: &Session,
    subject: &Opened,
    options: &Asked<'_>,
) -> Result<Report, Stop> {
    let mut progress = Progress::new(session, "records");
    let report = check(subject.reader.as_ref(), options, |done, total| {
        progress.at(done, total);
    });
    report.map_err(|error| store::unreadable(&subject.shown, &error))
}

/// Place of the ledger's digest in the market's record.
#[derive(Clone, Copy, Eq, PartialEq)]
enum DigestPlace {
    /// It is the hash of one of the lines.
    Among,
    /// The record was started after the digest: the old one was moved away.
    BeforeStart,
    /// Its line was deleted, as all lines are after a day.
    Older,
    /// Its line should exist, and does not.
    Missing,
}

/// Checks the record that the market's agent keeps in a data directory, if the directory or the ledger
/// has one: clears every line again, and expects the last digest of the ledger to be the hash of one
/// of them, unless its line may be deleted already.
fn market_check(data: &Path, digests: &[(ObjectName, Position)], now: Time) -> Option<Check> {
    let directory = data.join(market::DIRECTORY);
    let mut first = None;
    let mut found = vec![false; digests.len()];
    let read = record::read(&directory, |past| {
        first.get_or_insert(past.line);
        for ((_, digest), found) in digests.iter().zip(&mut found) {
            *found |= digest.lines == past.line && digest.head == past.hash;
        }
    });
    let verified = match read {
        Ok(verified) => verified,
        Err(_) if !directory.exists() => Verified::default(),
        Err(error) => return Some(Check::failed(MARKET, chain(&error))),
    };
    let places = digests.iter().zip(found).map(|((node, digest), is_found)| {
        let place = if is_found {
            DigestPlace::Among
        } else {
            place_without_line(digest, first, &verified, now)
        };
        (node, digest, place)
    });
    let places: Vec<_> = places.collect();
    let mut all = places.iter();
    if let Some((node, digest, _)) = all.find(|(_, _, place)| *place == DigestPlace::Missing) {
        let line = words::number(digest.lines);
        let detail = format!("the ledger's digest of {node} is not line {line} of the record");
        return Some(Check::failed(MARKET, detail));
    }
    let newest = places.iter().max_by_key(|(_, digest, _)| digest.at);
    if first.is_none() {
        let detail = "no clearing is kept, the ledger's digest is older than a day";
        return newest.map(|_| Check::passed(MARKET, detail.to_owned()));
    }
    let clearings = words::count(verified.lines, "clearing");
    let digest = newest.map_or("", |(_, _, place)| match place {
        DigestPlace::Among => ", the ledger's digest is among them",
        DigestPlace::BeforeStart => ", started after the ledger's digest",
        DigestPlace::Older | DigestPlace::Missing => ", the ledger's digest is older",
    });
    let detail = format!("{clearings} reproduced{digest}");
    Some(Check::passed(MARKET, detail))
}

/// Place of a digest that is not the hash of a line.
fn place_without_line(
    digest: &Position,
    first: Option<u64>,
    kept: &Verified,
    now: Time,
) -> DigestPlace {
    let at_ms = digest.at.ms();
    let newest_ms = first.map_or(now.ms(), |_| kept.to_ms);
    let day_ms = u64::try_from(record::KEPT_FOR.as_millis()).unwrap_or(u64::MAX);
    let is_past = at_ms < newest_ms.saturating_sub(day_ms) || kept.is_full;
    match first {
        Some(_) if kept.from_ms <= at_ms => DigestPlace::Missing,
        Some(1) => DigestPlace::BeforeStart,
        _ if is_past => DigestPlace::Older,
        _ => DigestPlace::Missing,
    }
}

/// One line per check: verdict, name and detail.
pub(in crate::command) fn lines(checks: &[Check], width: usize, look: &Look) -> String {
    let lines = checks.iter().map(|check| {
        let verdict = if check.ok {
            look.paint(Meaning::Good, "ok  ")
        } else {
            look.paint(Meaning::Bad, "FAIL")
        };
        format!("  {verdict}  {:<width$}  {}\n", check.name, check.detail)
    });
    lines.collect()
}

/// Time since `began`, at least 1 ms; 0 in a scenario.
pub(in crate::command) fn elapsed_ms(session: &Session, began: Instant) -> u128 {
    if session.is_virtual() {
        return 0;
    }
    began.elapsed().as_millis().max(1)
}

fn damaged(session: &Session, shown: &str, report: &Report) -> Failure {
    let message = if let Some(damage) = report.damage {
        let seq = words::number(damage.seq);
        let at = damage.time.map(|at| session.look().absolute(at));
        let at = at.map(|at| format!(" ({at})")).unwrap_or_default();
        let good = match damage.seq {
            0 => "no record before it is good".to_owned(),
            1 => "1 record before it is good".to_owned(),
            _ => format!("{seq} records before it are good"),
        };
        format!("{shown} is damaged from record {seq}{at}; {good}")
    } else {
        let failed = report.checks.iter().filter(|check| !check.ok).count();
        let checks = report.checks.len();
        format!("{shown} does not verify, {failed} of {checks} checks failed")
    };
    Failure::new(exit::UNVERIFIED, message)
}

/// Decimal megabytes, or kilobytes below one.
fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", words::number(bytes / 1_000_000)),
    }
}

/// The store to check; in a scenario, without `--store`, its own ledger.
fn subject(session: &Session, store: Option<&Path>) -> Result<Opened, Stop> {
    let Reach::Within(within) = &session.reach else {
        let path = data_directory(session, store)?;
        return store::open(session, store.unwrap_or(&path));
    };
    if let Some(store) = store {
        return store::open(session, store);
    }
    let shown = "~/.local/share/bursar/ledger.db".to_owned();
    let reader = within
        .store
        .reader()
        .map_err(|error| store::unreadable(&shown, &error))?;
    Ok(Opened {
        shown,
        directory: None,
        reader,
        bytes: None,
        snapshots: Vec::new(),
        keys: within.keys.clone(),
    })
}

/// Checks an export offline, with a trusted key and the checkpoints seen before. Prints the report;
/// returns a failure if the export does not verify.
pub(in crate::command) fn export(
    session: &mut Session,
    file: &Path,
    trusted: impl FnOnce(&Session, &str) -> Result<(VerifierKey, String), Stop>,
    seen: impl FnOnce(&str) -> Vec<Seen>,
) -> Result<(Report, Option<Failure>), Stop> {
    let began = Instant::now();
    let subject = store::open(session, file)?;
    let notes = subject
        .reader
        .checkpoints()
        .map_err(|error| store::unreadable(&subject.shown, &error))?;
    // An export without a checkpoint needs no key: it does not verify.
    let trusted = notes.last().map(|(_, note)| trusted(session, note));
    let (keys, from): (Vec<_>, Vec<_>) = trusted.transpose()?.into_iter().unzip();
    let origin = notes.last().and_then(|(_, note)| note.lines().next());
    let seen = origin.map(seen).unwrap_or_default();
    let checkpoints: Vec<Checkpoint> = seen.iter().map(|seen| seen.checkpoint.clone()).collect();
    let options = Asked {
        keys: &keys,
        seen: &checkpoints,
        unsigned: Unsigned::Refused,
        ..Asked::default()
    };
    let mut report = check_with_progress(session, &subject, &options)?;
    if report.parted.is_empty() {
        let known = two_histories(&seen, &report.joined);
        report.checks.extend(known);
    }
    if let (Some(first), Some(from)) = (report.checks.first_mut(), from.first())
        && first.ok
    {
        first.detail = format!("{}, {from}", first.detail);
    }
    let took = elapsed_ms(session, began);
    let value = json!({
        "export": subject.shown,
        "records": report.records,
        "verified": report.is_ok(),
        "checks": report.checks,
        "damagedFrom": report.damage.map(|damage| damage.seq),
    });
    session.show_unnamed(&value, |look| {
        let records = words::count(report.records, "record");
        let head = format!("{}, {records}\n", subject.shown);
        let end = if report.is_ok() {
            format!("verified in {took} ms, offline\n")
        } else {
            String::new()
        };
        head + &lines(&report.checks, NAME, look) + &end
    })?;
    let failure = (!report.is_ok()).then(|| damaged(session, &subject.shown, &report));
    Ok((report, failure))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeMap;
    use std::path::Path;
    use std::time::Duration;

    use bursar_engine::market::Position;
    use bursar_market::node::{Node, Settings, Supply};
    use bursar_node::market::record::Record;
    use bursar_node::market::{DIRECTORY, Mode, Options, Rules, Unmanaged};
    use bursar_units::{Instant, ObjectName};

    use super::market_check;

    const DAY_MS: u64 = 86_400_000;

    /// Adds a clearing at each of these times; returns the position of the record after each.
    fn record(data: &Path, times: &[u64]) -> Vec<Position> {
        let directory = data.join(DIRECTORY);
        std::fs::create_dir_all(&directory).unwrap();
        let mut record = Record::open(&directory).unwrap();
        let mut node = Node::new(Settings::default());
        let rules = Rules::of(&Options {
            node: "w-17".to_owned(),
            directory,
            mode: Mode::Act,
            settings: Settings::default(),
            interval: Duration::from_secs(1),
            reserve_milli: None,
            unmanaged: Unmanaged::Measured,
            cgroups: Vec::new(),
            executions: None,
            process: "/nowhere".into(),
        });
        let supply = Supply {
            allocatable_milli: 2_000,
            unmanaged_milli: None,
        };
        let added = times.iter().map(|at_ms| {
            node.clear(*at_ms, supply);
            let (clearing, inputs) = (node.last().unwrap(), BTreeMap::new());
            record
                .add(*at_ms, &rules, (&clearing, &inputs), Vec::new())
                .unwrap();
            let position = record.position().unwrap();
            Position {
                at: Instant::from_ms(position.at_ms),
                lines: position.lines,
                writes: position.writes,
                head: position.head,
            }
        });
        added.collect()
    }

    /// Result of the check one minute after the first clearing.
    fn checked(data: &Path, digests: &[Position]) -> Option<(bool, String)> {
        checked_at(data, digests, 60_000)
    }

    fn checked_at(data: &Path, digests: &[Position], now_ms: u64) -> Option<(bool, String)> {
        let node = ObjectName::new("w-17").unwrap();
        let digests: Vec<_> = digests.iter().map(|one| (node.clone(), *one)).collect();
        let check = market_check(data, &digests, Instant::from_ms(now_ms));
        check.map(|check| (check.ok, check.detail))
    }

    fn passed(detail: &str) -> (bool, String) {
        (true, detail.to_owned())
    }

    fn failed(line: u64) -> (bool, String) {
        let detail = format!("the ledger's digest of w-17 is not line {line} of the record");
        (false, detail)
    }

    #[test]
    fn the_markets_record_is_cleared_again_and_holds_the_ledgers_digest() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        assert_eq!(checked(data, &[]), None);
        let digest = record(data, &[1, 2, 3]).remove(1);
        assert_eq!(checked(data, &[]), Some(passed("3 clearings reproduced")));
        let among = "3 clearings reproduced, the ledger's digest is among them";
        assert_eq!(checked(data, &[digest]), Some(passed(among)));
        let other = Position { lines: 3, ..digest };
        assert_eq!(checked(data, &[other]), Some(failed(3)));
        let lost = Position { lines: 4, ..digest };
        assert_eq!(checked(data, &[lost]), Some(failed(4)));

        let file = data.join(DIRECTORY).join("record.jsonl");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replacen("\"atMs\":2", "\"atMs\":4", 1)).unwrap();
        let (ok, detail) = checked(data, &[]).unwrap();
        assert!(!ok && detail.contains("line 3 of "), "{detail}");
    }

    #[test]
    fn a_deleted_record_is_missed_for_a_day() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let digest = record(data, &[1, 2, 3]).remove(1);
        let is_missed = || {
            assert_eq!(checked_at(data, &[digest], DAY_MS + 2), Some(failed(2)));
            let kept = "no clearing is kept, the ledger's digest is older than a day";
            assert_eq!(checked_at(data, &[digest], DAY_MS + 3), Some(passed(kept)));
            assert_eq!(checked(data, &[]), None);
        };
        std::fs::remove_file(data.join(DIRECTORY).join("record.jsonl")).unwrap();
        is_missed();
        std::fs::remove_dir(data.join(DIRECTORY)).unwrap();
        is_missed();
    }

    /// Method: deletes the file of the digest, within a day after it and a day after it.
    #[test]
    fn lines_deleted_within_a_day_are_missed() {
        for (last_ms, expected) in [
            (DAY_MS + 2, failed(2)),
            (
                DAY_MS + 3,
                passed("1 clearing reproduced, the ledger's digest is older"),
            ),
        ] {
            let data = tempfile::tempdir().unwrap();
            let digest = record(data.path(), &[1, 2, 3, last_ms]).remove(1);
            let closed = format!("record-{last_ms:016}.jsonl");
            std::fs::remove_file(data.path().join(DIRECTORY).join(closed)).unwrap();
            assert_eq!(checked(data.path(), &[digest]), Some(expected));
        }
    }

    #[test]
    fn a_record_started_after_the_digest_is_not_damaged() {
        for (first_ms, expected) in [
            (2, failed(2)),
            (
                3,
                passed("1 clearing reproduced, started after the ledger's digest"),
            ),
        ] {
            let data = tempfile::tempdir().unwrap();
            let digest = record(data.path(), &[1, 2, 3]).remove(1);
            std::fs::remove_dir_all(data.path().join(DIRECTORY)).unwrap();
            record(data.path(), &[first_ms]);
            assert_eq!(checked(data.path(), &[digest]), Some(expected));
        }
    }
}
