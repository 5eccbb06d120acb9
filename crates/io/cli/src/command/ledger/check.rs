//! `bursar ledger check`: everything hashed, folded and counted again (design 80, 2.16); and the
//! record of the market beside it, cleared again (M12).

use std::path::Path;
use std::time::Instant;

use bursar_engine::market::Position;
use bursar_engine::words;
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::proof::Check;
use bursar_ledger::check::{Asked, Report, check};
use bursar_ledger::store::Store as _;
use bursar_node::market::{self, record};
use bursar_units::ObjectName;
use serde_json::json;

use crate::failure::{Failure, Stop, chain, exit};
use crate::grammar::CheckArguments;
use crate::layout::{Look, Meaning};
use crate::progress::Progress;
use crate::session::{Reach, Session};
use crate::store::{self, Opened, data_directory};

/// How wide the names of checks are.
const NAME: usize = 12;
/// The name of the check of the market's record.
const MARKET: &str = "market";

pub(super) fn run(session: &mut Session, arguments: &CheckArguments) -> Result<(), Stop> {
    let began = Instant::now();
    let subject = subject(session, arguments.store.as_deref())?;
    let asked = Asked {
        keys: &subject.keys,
        seen: &[],
        snapshots: &subject.snapshots,
        live: None,
        redecide: arguments.redecide,
    };
    let mut progress = Progress::new(session, "records");
    let report = check(subject.reader.as_ref(), &asked, |done, total| {
        progress.at(done, total);
    });
    drop(progress);
    let mut report = report.map_err(|error| store::unreadable(&subject.shown, &error))?;
    let beside = subject.directory.as_deref();
    report
        .checks
        .extend(beside.and_then(|data| market_check(data, &report.digests)));
    let took = if session.is_virtual() {
        0
    } else {
        began.elapsed().as_millis()
    };
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
        Err(damaged(session, &subject.shown, &report))
    }
}

/// The line on the record that the market's agent keeps in a data directory, if there is one:
/// every line is cleared again, and the last digest in the ledger must be the hash of one of them.
fn market_check(data: &Path, digests: &[(ObjectName, Position)]) -> Option<Check> {
    let directory = data.join(market::DIRECTORY);
    let (mut first, mut last) = (None, 0);
    let mut met = vec![false; digests.len()];
    let read = record::read(&directory, |past| {
        first.get_or_insert(past.line);
        last = past.line;
        for ((_, digest), met) in digests.iter().zip(&mut met) {
            *met |= digest.lines == past.line && digest.head.to_string() == past.hash;
        }
    });
    if let Err(error) = read {
        return directory
            .exists()
            .then(|| Check::failed(MARKET, chain(&error)));
    }
    let first = first?;
    let clearings = words::count(last - first + 1, "clearing");
    // A digest from before the record's first day is of lines that are let go.
    let mut among = digests
        .iter()
        .zip(met)
        .filter(|((_, digest), _)| first <= digest.lines);
    if let Some(((node, digest), _)) = among.clone().find(|(_, met)| !met) {
        let line = words::number(digest.lines);
        let detail = format!("the ledger's digest of {node} is not line {line} of the record");
        return Some(Check::failed(MARKET, detail));
    }
    let digest = among.next().map(|_| ", the ledger's digest is among them");
    let detail = format!(
        "{clearings} give the same again{}",
        digest.unwrap_or_default()
    );
    Some(Check::passed(MARKET, detail))
}

/// One line per check: its verdict, its name, its numbers.
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

fn damaged(session: &Session, shown: &str, report: &Report) -> Stop {
    let message = if let Some(damage) = report.damage {
        let seq = words::number(damage.seq);
        let at = damage
            .time
            .map(|at| format!(" ({})", session.look().absolute(at)));
        let good = match damage.seq {
            0 => "no record before it is good".to_owned(),
            1 => "1 record before it is good".to_owned(),
            _ => format!("{seq} records before it are good"),
        };
        format!(
            "{shown} is damaged from record {seq}{}; {good}",
            at.unwrap_or_default()
        )
    } else {
        let failed = report.checks.iter().filter(|check| !check.ok).count();
        format!(
            "{shown} does not hold, {failed} of {} checks failed",
            report.checks.len()
        )
    };
    let mut failed = report.checks.iter().filter(|check| !check.ok);
    let hint = if failed.all(|check| check.name == MARKET) {
        "the record is of the past only, and limits do not depend on it: set it aside, and the agent begins another"
    } else {
        "`bursar ledger restore BACKUP` starts from a good copy and replays what still verifies"
    };
    Failure::new(exit::UNVERIFIED, message).hint(hint).into()
}

/// Whole megabytes, of a million bytes each; kilobytes below one.
fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", words::number(bytes / 1_000_000)),
    }
}

/// What is meant: in a scenario its own ledger, elsewhere what the path names.
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

/// An export as an auditor checks it: offline, with a trusted key and what was seen before.
pub(in crate::command) fn export(
    session: &mut Session,
    file: &Path,
    trusted: impl FnOnce(&Session, &str) -> Result<(VerifierKey, String), Stop>,
    seen: impl FnOnce(&str) -> Option<Checkpoint>,
) -> Result<Option<Checkpoint>, Stop> {
    let began = Instant::now();
    let subject = store::open(session, file)?;
    let notes = subject
        .reader
        .checkpoints()
        .map_err(|error| store::unreadable(&subject.shown, &error))?;
    let (signed, note) = notes.last().cloned().unwrap_or_default();
    let (key, from) = trusted(session, &note)?;
    // An export of the first records is whole as far as it goes: its own note says how far. What
    // was seen beyond that can be held only against a longer one.
    let seen = seen(note.lines().next().unwrap_or_default());
    let seen = seen.filter(|seen| seen.size <= signed);
    let (keys, seen) = ([key], Vec::from_iter(seen));
    let asked = Asked {
        keys: &keys,
        seen: &seen,
        snapshots: &[],
        live: None,
        redecide: false,
    };
    let mut progress = Progress::new(session, "records");
    let report = check(subject.reader.as_ref(), &asked, |done, total| {
        progress.at(done, total);
    });
    drop(progress);
    let mut report = report.map_err(|error| store::unreadable(&subject.shown, &error))?;
    if let Some(first) = report.checks.first_mut().filter(|check| check.ok) {
        first.detail = format!("{}, {from}", first.detail);
    }
    let took = if session.is_virtual() {
        0
    } else {
        began.elapsed().as_millis().max(1)
    };
    let value = json!({
        "export": subject.shown,
        "records": report.records,
        "verified": report.is_ok(),
        "checks": report.checks,
        "damagedFrom": report.damage.map(|damage| damage.seq),
    });
    session.show_unnamed(&value, |look| {
        let head = format!(
            "{}, {}\n",
            subject.shown,
            words::count(report.records, "record")
        );
        let end = if report.is_ok() {
            format!("verified in {took} ms, offline\n")
        } else {
            String::new()
        };
        head + &lines(&report.checks, NAME, look) + &end
    })?;
    if report.is_ok() {
        Ok(report.checkpoint)
    } else {
        Err(damaged(session, &subject.shown, &report))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::path::Path;
    use std::time::Duration;

    use bursar_engine::market::Position;
    use bursar_market::node::{Node, Settings, Supply};
    use bursar_node::market::record::Record;
    use bursar_node::market::{DIRECTORY, Mode, Options, Rules, Unmanaged};
    use bursar_units::{Instant, ObjectName};

    use super::market_check;

    /// A record of three clearings; the digest after the second.
    fn record(data: &Path) -> Position {
        let directory = data.join(DIRECTORY);
        std::fs::create_dir(&directory).unwrap();
        let mut record = Record::open(&directory).unwrap();
        let mut node = Node::new(Settings::default());
        let rules = Rules::of(&Options {
            node: "w-17".to_owned(),
            directory,
            mode: Mode::Act,
            settings: Settings::default(),
            sense: Duration::from_secs(1),
            clear: Duration::from_secs(5),
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
        let mut digest = None;
        for at_ms in [1, 2, 3] {
            let clearing = node.clear(at_ms, supply);
            record.add(at_ms, &rules, clearing, Vec::new()).unwrap();
            digest = digest.or(record.position().filter(|position| position.lines == 2));
        }
        let digest = digest.unwrap();
        Position {
            at: Instant::from_ms(digest.at_ms),
            lines: digest.lines,
            writes: digest.writes,
            head: digest.head.parse().unwrap(),
        }
    }

    #[test]
    fn the_markets_record_is_cleared_again_and_holds_the_ledgers_digest() {
        let data = tempfile::tempdir().unwrap();
        let told = |digests: &[Position]| {
            let node = ObjectName::new("w-17").unwrap();
            let digests: Vec<_> = digests.iter().map(|one| (node.clone(), *one)).collect();
            market_check(data.path(), &digests).map(|check| (check.ok, check.detail))
        };
        assert_eq!(told(&[]), None);
        let digest = record(data.path());
        let passed = |detail: &str| Some((true, detail.to_owned()));
        assert_eq!(told(&[]), passed("3 clearings give the same again"));
        let among = "3 clearings give the same again, the ledger's digest is among them";
        assert_eq!(told(&[digest]), passed(among));
        let failed = |line| {
            let detail = format!("the ledger's digest of w-17 is not line {line} of the record");
            Some((false, detail))
        };
        let other = Position { lines: 3, ..digest };
        assert_eq!(told(&[other]), failed(3));
        let lost = Position { lines: 4, ..digest };
        assert_eq!(told(&[lost]), failed(4));

        let file = data.path().join(DIRECTORY).join("record.jsonl");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replacen("\"atMs\":2", "\"atMs\":4", 1)).unwrap();
        let (ok, detail) = told(&[]).unwrap();
        assert!(!ok && detail.contains("line 3 of "), "{detail}");
    }
}
