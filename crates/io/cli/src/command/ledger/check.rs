//! `bursar ledger check`: everything hashed, folded and counted again (design 80, 2.16).

use std::path::Path;
use std::time::Instant;

use bursar_engine::words;
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::proof::Check;
use bursar_ledger::check::{Asked, Report, check};
use bursar_ledger::store::Store as _;
use serde_json::json;

use crate::failure::{Failure, Stop, exit};
use crate::grammar::CheckArguments;
use crate::layout::{Look, Meaning};
use crate::progress::Progress;
use crate::session::{Reach, Session};
use crate::store::{self, Opened, data_directory};

/// How wide the names of checks are.
const NAME: usize = 12;

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
    let report = report.map_err(|error| store::unreadable(&subject.shown, &error))?;
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
    let hint =
        "`bursar ledger restore BACKUP` starts from a good copy and replays what still verifies";
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
