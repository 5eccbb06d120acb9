//! `bursar ledger export`, `backup`, `restore`, `prune`, `key` and `rotate-key`.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar_client::Code;
use bursar_client::api::{ExportLedger, ExportedRequest, PruneRequest, RotateKeyAnswer};
use bursar_client::client::{Download, Error, Mode};
use bursar_engine::words;
use bursar_ledger::key::{self, Signer};
use bursar_ledger::lock::Lock;
use bursar_ledger::maintain::{self, Tokens};
use bursar_ledger::store::sqlite::FILE_NAME;
use bursar_ledger::store::{Reader, Store as _};
use bursar_units::causes::chain;
use bursar_units::{INTEGER_MAX, Instant};
use serde_json::json;

use crate::command::DRY_RUN;
use crate::failure::{Failure, Stop, exit};
use crate::grammar::ExportFormat;
use crate::layout::{REPORT_WORD, details};
use crate::pins::{Pin, Pins};
use crate::progress::Progress;
use crate::session::{Reach, Session};
use crate::store::{self, data_directory};
use crate::time;

/// Arguments of `bursar ledger export`.
pub(super) struct Export {
    pub(super) out: PathBuf,
    pub(super) format: ExportFormat,
    pub(super) from: u64,
    pub(super) to: Option<u64>,
    pub(super) store: Option<PathBuf>,
}

/// Exports through the server, which may prune the records once the file is synced; a store given
/// with `--store` is read directly.
pub(super) async fn export(session: &mut Session, arguments: &Export) -> Result<(), Stop> {
    if arguments.format == ExportFormat::Tiles {
        return tiles(session, arguments);
    }
    if let Some(to) = arguments.to.filter(|to| *to < arguments.from) {
        let (from, to) = (words::number(arguments.from), words::number(to));
        let message = format!("--from {from} comes after --to {to}: there is no record between");
        return Err(Failure::usage(message).into());
    }
    let shown = arguments.out.display().to_string();
    let written = if let Some(store) = &arguments.store {
        export_store(session, arguments, store)?
    } else {
        let client = session.client().await?;
        let records = ExportLedger {
            from: Some(arguments.from),
            to: arguments.to.map(|to| to.saturating_add(1)),
        };
        let download = client.export(&records).await?;
        let written = save(session, &arguments.out, download).await?;
        report_exported(session, &arguments.out).await?;
        written
    };
    note_widened(session, arguments)?;
    let bytes = written.metadata().map_or(0, |data| data.len());
    let value = json!({"file": shown, "bytes": bytes});
    session.show_unnamed(&value, |_| {
        format!("{shown} written, {} bytes\n", words::number(bytes))
    })?;
    session.aside(&format!(
        "\nhint: `bursar audit verify {shown}` checks it, offline\n"
    ));
    Ok(())
}

/// Reports the records of the synced file to the server: only those may be pruned.
async fn report_exported(session: &mut Session, out: &Path) -> Result<(), Stop> {
    let written = open_written(session, out)?;
    let from = written.excerpt().map_or(0, |edge| edge.size());
    let signed = written.checkpoints().ok().and_then(|mut all| all.pop());
    let below = signed.map_or(from, |(signed, _)| signed);
    let request = ExportedRequest { from, below };
    let client = session.client().await?;
    match client.exported(&request).await {
        Ok(_) => Ok(()),
        Err(Error::Problem(problem)) if problem.code == Code::NotAllowed => {
            session.aside("note: records may be pruned only after an export by an operator\n");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Prints the range of the file if it differs from the requested one: to be verifiable, an export
/// begins at a whole tile and ends at a checkpoint.
fn note_widened(session: &mut Session, arguments: &Export) -> Result<(), Stop> {
    let written = open_written(session, &arguments.out)?;
    let from = written.excerpt().map_or(0, |edge| edge.size());
    let next = written
        .head()
        .map_err(|error| store::unreadable(&arguments.out.display().to_string(), &error))?;
    let last = next.saturating_sub(1);
    if from < arguments.from || arguments.to.is_some_and(|to| to < last) {
        session.aside(&format!(
            "note: widened to records {}..{}, from a whole tile to a checkpoint\n",
            words::number(from),
            words::number(last)
        ));
    }
    Ok(())
}

fn open_written(session: &Session, out: &Path) -> Result<maintain::Export, Stop> {
    let shown = out.display().to_string();
    let written = maintain::Export::open(&session.path_out(out));
    let written = written.map_err(|error| store::unreadable(&shown, &error))?;
    written.ok_or_else(|| Failure::unavailable(format!("{shown} is not an export")).into())
}

fn export_store(session: &mut Session, arguments: &Export, store: &Path) -> Result<File, Stop> {
    let opened = store::open(session, store)?;
    let mut out = BufWriter::new(create(session, &arguments.out)?);
    let to = arguments.to.map_or(INTEGER_MAX, |to| to.saturating_add(1));
    let exported = maintain::export(opened.reader.as_ref(), arguments.from, to, &mut out);
    let exported = match exported {
        Ok(exported) => exported,
        Err(error) => {
            // A useless file would be in the way of the next attempt.
            let _absent = std::fs::remove_file(session.path_out(&arguments.out));
            return Err(Failure::unavailable(chain(&error)).into());
        }
    };
    if arguments.to.is_none_or(|to| exported.to <= to) {
        note_left_out(session, exported.unsigned);
    }
    out.into_inner()
        .map_err(|error| Failure::file("write", arguments.out.display(), error.error()).into())
}

/// Prints the number of records that an export leaves out because no signature covers them.
fn note_left_out(session: &mut Session, unsigned: u64) {
    if 0 < unsigned {
        let left_out = match unsigned {
            1 => "the last record is left out, no checkpoint signs it yet".to_owned(),
            _ => format!(
                "the last {} are left out, no checkpoint signs them yet",
                words::count(unsigned, "record")
            ),
        };
        session.aside(&format!(
            "note: {left_out}; an export through the server signs one first\n"
        ));
    }
}

fn tiles(session: &mut Session, arguments: &Export) -> Result<(), Stop> {
    let reader = reader(session, arguments.store.as_deref())?;
    let directory = session.path_out(&arguments.out);
    let shown = arguments.out.display().to_string();
    let head = reader
        .head()
        .map_err(|error| store::unreadable(&shown, &error))?;
    let size = maintain::export_tiles(reader.as_ref(), &directory)
        .map_err(|error| Failure::unavailable(chain(&error)))?;
    note_left_out(session, head.saturating_sub(size));
    let value = json!({"directory": shown, "records": size});
    let records = words::count(size, "record");
    session.show_unnamed(&value, |_| format!("{shown} has the tiles of {records}\n"))
}

pub(super) async fn backup(
    session: &mut Session,
    out: &Path,
    store: Option<&Path>,
) -> Result<(), Stop> {
    let shown = out.display().to_string();
    if let Some(store) = store {
        let file = session.path(store).join(FILE_NAME);
        maintain::backup(&file, &session.path_out(out))
            .map_err(|error| Failure::unavailable(chain(&error)))?;
    } else {
        let client = session.client().await?;
        let download = client.backup().await?;
        save(session, out, download).await?;
    }
    let value = json!({"file": shown});
    session.show_unnamed(&value, |_| {
        format!("{shown} is a whole copy of the store\n")
    })?;
    session.aside("note: the signing key is not in it, keep `ledger.key` where you keep secrets\n");
    Ok(())
}

/// Replaces the ledger by the valid records of a copy, and keeps the old ledger beside it.
pub(super) async fn restore(
    session: &mut Session,
    backup: &Path,
    store: Option<&Path>,
    tokens: Tokens,
    dry_run: bool,
    yes: bool,
) -> Result<(), Stop> {
    let data = data_directory(session, store)?;
    let shown = session.environment.shown(&data);
    let copy = store::open(session, backup)?;
    let records = copy
        .reader
        .head()
        .map_err(|error| store::unreadable(&copy.shown, &error))?;
    let plan = format!(
        "{shown} would be restored from {}, {}\n",
        copy.shown,
        words::count(records, "record")
    );
    if dry_run {
        let value = json!({"store": shown, "records": records, "dryRun": true});
        return session.show_unnamed(&value, |_| plan.clone() + DRY_RUN);
    }
    session.confirm(yes, &plan)?;
    let replaced = signer_of(&data);
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&data);
    made.map_err(|error| Failure::file("make", &shown, &error))?;
    let lock = Lock::take(&data)
        .map_err(|error| Failure::unavailable(chain(&error)).hint("stop the server first"))?;
    let now = session.now();
    next_second(now).await;
    let mut aside = data.as_os_str().to_owned();
    aside.push(format!(".before-{}", now.ms()));
    let aside = PathBuf::from(aside);
    let kept = session.environment.shown(&aside);
    let mut progress = Progress::new(session, "records");
    let restored = maintain::restore(
        copy.reader.as_ref(),
        &copy.keys,
        (&data, &aside),
        now,
        tokens,
        |done, total| progress.at(done, total),
    );
    drop((progress, lock));
    let restored = restored.map_err(|error| {
        let message = format!("{} was not restored: {}", copy.shown, chain(&error));
        let failure = Failure::new(exit::UNVERIFIED, message);
        if aside.exists() {
            failure.hint(format!("the previous ledger is in {kept}"))
        } else {
            failure
        }
    })?;
    let kept = restored.is_moved.then_some(kept);
    let trust = pin_restored(session, &data, replaced.as_ref());
    let signed = restored.report.checkpoint.as_ref();
    let signed = signed.map_or(0, |signed| signed.size);
    let unsigned = restored.records.saturating_sub(signed);
    let value = json!({"store": shown, "records": restored.records, "leftBehind": restored.left, "tokensEnded": restored.tokens_ended, "unsigned": unsigned, "before": kept, "origin": restored.origin.as_str()});
    session.show_unnamed(&value, |_| {
        let mut lines = vec![("origin".to_owned(), restored.origin.short())];
        if restored.left > 0 {
            let left = words::count(restored.left, "record");
            lines.push(("left".to_owned(), format!("{left} that do not verify")));
        }
        if restored.tokens_ended > 0 {
            let ended = u64::try_from(restored.tokens_ended).unwrap_or(u64::MAX);
            let ended = words::count(ended, "token");
            let ended = format!("{ended}: some may have been revoked after the copy was made");
            lines.push(("ended".to_owned(), ended));
        }
        if signed < restored.records {
            let last = words::number(restored.records.saturating_sub(1));
            let first = words::number(signed);
            let unsigned = format!("records {first} to {last}, no checkpoint signs them");
            lines.push(("unsigned".to_owned(), unsigned));
        }
        lines.extend(kept.clone().map(|kept| ("before".to_owned(), kept)));
        format!(
            "{shown} restored, {}\n{}",
            words::count(restored.records, "record"),
            details(&lines, REPORT_WORD)
        )
    })?;
    if let Some(trust) = trust {
        session.aside(&trust);
    }
    if restored.tokens_ended > 0 {
        session.aside(
            "note: no token is valid; a server that listens beyond loopback needs one to start: \
             start it on 127.0.0.1 first and run `bursar token create`\n",
        );
    }
    Ok(())
}

/// Waits until the second of `now` is over. The first fence of a generation is derived from the second
/// of the restore (S5), so two restores need different seconds, even if the first store is lost.
async fn next_second(now: Instant) {
    let past_ms = now.ms() % 1_000;
    tokio::time::sleep(Duration::from_millis(1_000 - past_ms)).await;
}

/// Pins the new key of a ledger that was restored in its place. A copy elsewhere is not the ledger
/// that commands go to, whose key stays pinned; then returns a note on how to trust the copy.
fn pin_restored(session: &mut Session, data: &Path, replaced: Option<&Signer>) -> Option<String> {
    let (pins, signer) = (Pins::of(&session.environment)?, signer_of(data)?);
    let ledger = signer.origin().as_str().split('/').nth(1)?.to_owned();
    let known = pins.of_ledger(&ledger);
    let is_replaced = known.as_ref().is_some_and(|known| {
        replaced.is_some_and(|replaced| replaced.verifiers().contains(&known.key))
    });
    let default = session.environment.data_home.as_ref();
    let is_default =
        default.is_some_and(|home| home.canonicalize().ok() == data.canonicalize().ok());
    if !is_replaced && !is_default {
        return Some(format!(
            "note: this copy has its own key; the key of the original ledger stays trusted\n\
             \nhint: to use the copy, give its context `log-key = \"{}\"`\n",
            signer.verifier()
        ));
    }
    let kept = pins.put(&Pin {
        ledger,
        key: signer.verifier(),
        at: session.now(),
        server: known.and_then(|pin| pin.server),
    });
    session.warn_unless(kept);
    None
}

fn signer_of(data: &Path) -> Option<Signer> {
    Signer::load(&data.join(key::FILE_NAME)).ok().flatten()
}

pub(super) async fn prune(
    session: &mut Session,
    before: &str,
    dry_run: bool,
    yes: bool,
) -> Result<(), Stop> {
    let before = time::parse(before, session.now(), &session.zone).map_err(Failure::usage)?;
    let client = session.client().await?;
    let key = session.new_id()?;
    let request = PruneRequest { before };
    let plan = client.prune(&key, &request, Mode::DryRun).await?;
    let count = words::count(plan.pruned, "payload");
    let below = words::number(plan.below);
    if dry_run {
        return session.show_unnamed(&plan, |_| {
            format!("{count} would be deleted, records from {below} on keep theirs\n{DRY_RUN}")
        });
    }
    session.confirm(
        yes,
        &format!("{count} would be deleted for ever, every proof would still verify\n"),
    )?;
    let done = client.prune(&key, &request, Mode::Do).await?;
    let record = words::number(done.record);
    session.show_unnamed(&done, |_| {
        format!(
            "{} deleted (record {record}), records from {below} on keep theirs\n",
            words::count(done.pruned, "payload")
        )
    })
}

pub(super) async fn show_key(session: &mut Session) -> Result<(), Stop> {
    let client = session.client().await?;
    let status = client.ledger().await?;
    let value = json!({"key": status.key, "formerKeys": status.former_keys});
    session.show(&value, &status.key, |_| format!("{}\n", status.key))
}

pub(super) async fn rotate_key(
    session: &mut Session,
    dry_run: bool,
    yes: bool,
) -> Result<(), Stop> {
    let client = session.client().await?;
    let key = session.new_id()?;
    let plan = client.rotate_key(&key, Mode::DryRun).await?;
    if dry_run {
        return session.show_unnamed(&plan, |look| {
            let until = look.absolute(plan.both_until);
            format!("a new key would sign beside the current one until {until}\n{DRY_RUN}")
        });
    }
    session.confirm(
        yes,
        "a new key would sign from now on, the current one for 30 days more\n",
    )?;
    let done: RotateKeyAnswer = client.rotate_key(&key, Mode::Do).await?;
    let record = words::number(done.record);
    session.show_unnamed(&done, |look| {
        let until = look.absolute(done.both_until);
        let before = format!("{}, signs until {until}", done.former);
        let lines = [("key", done.key.clone()), ("before", before)];
        let lines = lines.map(|(word, text)| (word.to_owned(), text));
        let lines = details(&lines, REPORT_WORD);
        format!("a new key signs the ledger (record {record})\n{lines}")
    })?;
    session.aside(
        "note: give the new key to everyone who verifies offline: `bursar ledger key` prints it\n",
    );
    Ok(())
}

/// Reader of the store; in a scenario, without `--store`, of its own ledger.
fn reader(session: &Session, store: Option<&Path>) -> Result<Box<dyn Reader>, Stop> {
    if let (Reach::Within(within), None) = (&session.reach, store) {
        let reader = within.store.reader();
        return reader.map_err(|error| store::unreadable("the ledger", &error));
    }
    let path = data_directory(session, store)?;
    Ok(store::open(session, store.unwrap_or(&path))?.reader)
}

/// Creates a file; refuses to overwrite one.
fn create(session: &Session, path: &Path) -> Result<File, Stop> {
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(session.path_out(path));
    opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::usage(format!(
            "{} exists already; name another file",
            path.display()
        ))
        .into(),
        _ => Failure::file("write", path.display(), &error).into(),
    })
}

/// Writes a download to a new file; deletes the file on failure.
async fn save(session: &Session, out: &Path, download: Download) -> Result<File, Stop> {
    let saved = write_all(create(session, out)?, out, download).await;
    if saved.is_err() {
        // An incomplete file could pass for a whole one, and would block the next attempt.
        let _left = std::fs::remove_file(session.path_out(out));
    }
    saved
}

async fn write_all(mut file: File, out: &Path, mut download: Download) -> Result<File, Stop> {
    let failure = |error: std::io::Error| Failure::file("write", out.display(), &error);
    while let Some(chunk) = download.chunk().await? {
        file.write_all(&chunk).map_err(failure)?;
    }
    file.sync_all().map_err(failure)?;
    Ok(file)
}
