//! `bursar audit`: fetches and verifies proofs. Verification never uses the network.

mod history;

use std::path::{Path, PathBuf};
use std::time::Instant;

use bursar_client::nearest;
use bursar_engine::subject::is_about;
use bursar_engine::{Kind, Reference};
use bursar_engine::{codec, words};
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::hash::{Hash, sha256};
use bursar_journal::proof::{Check, Proof, Proven};
use bursar_units::causes::chain;
use serde_json::json;

use super::ledger::{check_export, check_lines, elapsed_ms};
use crate::command::cluster::names;
use crate::command::read_reference;
use crate::config::Config;
use crate::failure::{Failure, Stop, exit};
use crate::grammar::{AuditVerb, Scope};
use crate::layout::Look;
use crate::pins::{Pin, Pins, differ, two_histories};
use crate::session::{Reach, Session};

/// Width of the names of checks.
const NAME: usize = 10;

pub(in crate::command) async fn run(session: &mut Session, verb: AuditVerb) -> Result<(), Stop> {
    match verb {
        AuditVerb::Proof {
            reference,
            scope,
            out,
        } => {
            let reference = named(session, &reference, &scope)?;
            proof(session, &reference.to_string(), out.as_deref()).await
        }
        AuditVerb::Verify { file, key } => verify(session, &file, key.as_deref()),
    }
}

/// A reference as `explain` takes it: without a kind it is a run, and `-n` completes a name.
fn named(session: &Session, text: &str, scope: &Scope) -> Result<Reference, Stop> {
    let is_of_no_kind = !text.contains('/') || text.split('/').count() == 2;
    match names::kind_of(text) {
        Some(kind @ (Kind::Run | Kind::Budget)) => names::reference(session, kind, text, scope),
        None if is_of_no_kind && !is_slip(text) => {
            names::reference(session, Kind::Run, text, scope)
        }
        _ if scope.namespace.is_some() => {
            let message = format!("`-n` applies to runs and budgets only, not to {text}");
            Err(Failure::usage(message).into())
        }
        _ => read_reference(text, &Kind::ALL),
    }
}

/// Whether the first part looks like a mistyped kind.
fn is_slip(text: &str) -> bool {
    let first = text.split_once('/').map(|(first, _)| first);
    first.is_some_and(|first| nearest(first, Kind::ALL.map(Kind::word)).is_some())
}

async fn proof(session: &mut Session, reference: &str, out: Option<&Path>) -> Result<(), Stop> {
    let (kind, name) = reference.split_once('/').unwrap_or_default();
    let client = session.client().await?;
    let text = client.proof(kind, name).await?;
    let parsed = Proof::parse(&text).map_err(|error| {
        Failure::unavailable(format!(
            "the server's proof cannot be read: {}",
            chain(&error)
        ))
    })?;
    if parsed.object != reference {
        let message = format!(
            "the server sent a proof of {}, not of {reference}",
            parsed.object
        );
        return Err(Failure::new(exit::UNVERIFIED, message).into());
    }
    let name = out.map_or_else(
        || PathBuf::from(format!("{}.proof", name.replace('/', "-"))),
        Path::to_owned,
    );
    let path = session.path_out(&name);
    std::fs::write(&path, format!("{}\n", text.trim_end()))
        .map_err(|error| Failure::file("write", name.display(), &error))?;
    let value = json!({"object": reference, "file": name.display().to_string(), "records": parsed.records.len()});
    let count = u64::try_from(parsed.records.len()).unwrap_or(u64::MAX);
    let (file, records) = (name.display(), words::count(count, "record"));
    session.show(&value, reference, |_| {
        format!("{file} proves {records} of {reference}\n")
    })?;
    session.aside(&format!(
        "\nhint: `bursar audit verify {file}` checks it, offline\n"
    ));
    history::join(session, &client, &parsed.checkpoint).await
}

/// A key to verify with.
struct Trusted {
    key: VerifierKey,
    /// Origin of the key, for messages.
    from: String,
    /// Another key is pinned for the ledger.
    is_foreign: bool,
}

impl Trusted {
    /// True if a signature of the key is evidence about the ledger of the checkpoint: not with the
    /// key of another ledger, or if another key is pinned for this ledger.
    fn is_of(&self, checkpoint: &Checkpoint) -> bool {
        let ledger = |name: &str| name.split('/').nth(1).map(str::to_owned);
        ledger(self.key.name().as_str()) == ledger(checkpoint.origin.as_str()) && !self.is_foreign
    }

    fn warn_if_foreign(&self, session: &mut Session) {
        if !self.is_foreign {
            return;
        }
        let pins = Pins::of(&session.environment).map(|pins| pins.path());
        let pins = pins.map(|path| session.environment.shown(&path));
        session.aside(&format!(
            "warning: the {} is not the key pinned for this ledger in {}; this checkpoint is not remembered\n",
            self.from,
            pins.unwrap_or_default()
        ));
    }
}

fn verify(session: &mut Session, file: &Path, key: Option<&Path>) -> Result<(), Stop> {
    let began = Instant::now();
    let path = session.path(file);
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => Failure::new(
            exit::UNVERIFIED,
            format!("{shown} is not UTF-8, so it is neither a proof nor an export"),
        ),
        _ => Failure::file("read", &shown, &error),
    })?;
    if !looks_like_a_proof(&text) {
        return verify_export(session, file, key);
    }
    let proof = Proof::parse(&text).map_err(|error| {
        let code = if matches!(error, bursar_journal::proof::Error::Version { .. }) {
            exit::USAGE
        } else {
            exit::UNVERIFIED
        };
        Failure::new(code, format!("{shown} does not verify: {}", chain(&error)))
    })?;
    let trusted = trusted(session, &proof.checkpoint, key)?;
    trusted.warn_if_foreign(session);
    let mut checks = proof.verify(&trusted.key);
    if let Some(signed) = checks.first_mut().filter(|check| check.ok) {
        signed.detail = format!("{}, {}", signed.detail, trusted.from);
    }
    let checkpoint = Checkpoint::open(&proof.checkpoint, &trusted.key).ok();
    let signed = checkpoint.as_ref();
    checks.extend(signed.and_then(|checkpoint| consistent(session, checkpoint)));
    checks.push(about(&proof));
    let is_ok = checks.iter().all(|check| check.ok);
    // A signed checkpoint is evidence even if other checks fail.
    if let Some(checkpoint) = checkpoint.filter(|seen| trusted.is_of(seen)) {
        history::remember(session, &checkpoint, &[], &[]);
    }
    let took = elapsed_ms(session, began);
    let value = json!({"object": proof.object, "verified": is_ok, "checks": checks, "checkpoint": proof.checkpoint});
    session.show(&value, &proof.object, |look| {
        report(&proof, &checks, took, look)
    })?;
    if is_ok {
        session.aside(NOTES);
        return Ok(());
    }
    let failed = checks.iter().filter(|check| !check.ok).count();
    let first = checks.iter().find(|check| !check.ok);
    let reason = first.map(|check| match check.name {
        "signed" => "it is not signed by the trusted key",
        "consistent" => "two histories of this ledger were seen",
        "about" => check.detail.as_str(),
        _ => "the record was edited after signing",
    });
    let message = format!(
        "{shown} does not verify, {failed} of {} checks failed: {}",
        checks.len(),
        reason.unwrap_or_default()
    );
    let hint = match first.map(|check| check.name) {
        Some("consistent") => history::hint(session),
        Some("about") => "get a proof with `bursar audit proof REF`".to_owned(),
        _ => format!(
            "get the original with `bursar audit proof {}`",
            proof.object
        ),
    };
    Err(Failure::new(exit::UNVERIFIED, message).hint(hint).into())
}

/// Verifies a whole export: hashes and folds all records again, and checks that they extend the
/// checkpoints seen before.
fn verify_export(session: &mut Session, file: &Path, key: Option<&Path>) -> Result<(), Stop> {
    let pins = Pins::of(&session.environment);
    let seen = |origin: &str| {
        let seen = pins.as_ref().map(|pins| pins.seen(origin));
        seen.unwrap_or_default()
    };
    let mut used = None;
    let trusting = |session: &Session, note: &str| {
        let trusted = trusted(session, note, key)?;
        let (key, from) = (trusted.key.clone(), trusted.from.clone());
        used = Some(trusted);
        Ok((key, from))
    };
    let (report, failure) = check_export(session, file, trusting, seen)?;
    if let Some(used) = &used {
        used.warn_if_foreign(session);
    }
    let checkpoint = report.checkpoint.filter(|_| report.damage.is_none());
    let before = checkpoint.as_ref().and_then(|checkpoint| {
        let seen = seen(checkpoint.origin.as_str()).into_iter();
        let size = seen.map(|seen| seen.checkpoint.size).max()?;
        (checkpoint.size < size && failure.is_none()).then_some((checkpoint.size, size))
    });
    if let Some((here, size)) = before {
        session.aside(&format!(
            "not checked: later records; the file ends at record {} and the ledger had {} when last seen\n",
            words::number(here.saturating_sub(1)),
            words::count(size, "record")
        ));
    }
    let is_of = |seen: &Checkpoint| used.as_ref().is_some_and(|used| used.is_of(seen));
    if let Some(checkpoint) = checkpoint.filter(is_of) {
        history::remember(session, &checkpoint, &report.joined, &report.parted);
    }
    if let Some(failure) = failure {
        let mut failed = report.checks.iter().filter(|check| !check.ok);
        let hint = if failed.any(|check| check.name == "consistent") {
            history::hint(session)
        } else {
            "ask the operator for a signed export: `bursar ledger export --out FILE` writes one"
                .to_owned()
        };
        return Err(failure.hint(hint).into());
    }
    session.aside("note: unwitnessed: order rests on the operator's word\n");
    Ok(())
}

fn report(proof: &Proof, checks: &[Check], took: u128, look: &Look) -> String {
    let last = proof.records.last();
    let last = last.and_then(|record| decode(record).ok());
    let time = last.map(|record| format!(", {}", look.absolute(record.time)));
    let time = time.unwrap_or_default();
    let count = u64::try_from(proof.records.len()).unwrap_or(u64::MAX);
    let records = words::count(count, "record");
    let head = format!("{}, {records}{time}\n", proof.object);
    let is_ok = checks.iter().all(|check| check.ok);
    let end = if is_ok {
        format!("verified in {took} ms, offline\n")
    } else {
        String::new()
    };
    head + &check_lines(checks, NAME, look) + &end
}

const NOTES: &str = "\
not checked: whether other records exist (needs an export: `bursar audit verify EXPORT`)
note: unwitnessed: order rests on the operator's word
";

/// Checks that each record is about the object of the proof, with the function by which the server
/// selects records.
fn about(proof: &Proof) -> Check {
    let wanted = &proof.object;
    let subject: Reference = match wanted.parse() {
        Ok(subject) => subject,
        Err(error) => return Check::failed("about", error.to_string()),
    };
    for proven in &proof.records {
        let seq = words::number(proven.seq);
        match decode(proven) {
            Ok(record) if is_about(&record, &subject) => {}
            Ok(_) => {
                let detail =
                    format!("the file claims {wanted}, but record {seq} is about something else");
                return Check::failed("about", detail);
            }
            Err(error) => return Check::failed("about", chain(&error)),
        }
    }
    Check::passed("about", format!("each record is about {wanted}"))
}

fn decode(proven: &Proven) -> Result<codec::Record, codec::Error> {
    let blob = |wanted: &Hash| {
        let mut blobs = proven.blobs.iter().map(String::as_bytes);
        blobs
            .find(|blob| sha256(blob) == *wanted)
            .map(<[u8]>::to_vec)
    };
    codec::decode(proven.seq, proven.bytes.as_bytes(), blob)
}

/// Compares the checkpoint with those seen of the same ledger, as far as one file allows.
fn consistent(session: &Session, checkpoint: &Checkpoint) -> Option<Check> {
    let pins = Pins::of(&session.environment)?;
    let seen = pins.seen(checkpoint.origin.as_str());
    let mut checkpoints = seen.iter().map(|seen| &seen.checkpoint);
    if let Some(other) = checkpoints.clone().find(|other| differ(checkpoint, other)) {
        return Some(Check::failed(
            "consistent",
            history::conflict(other, checkpoint),
        ));
    }
    let known = two_histories(&seen, &[]);
    if known.is_some() {
        return known;
    }
    checkpoints.any(|seen| seen == checkpoint).then(|| {
        let size = words::number(checkpoint.size);
        let detail = format!("checkpoint {size} is the one seen before");
        Check::passed("consistent", detail)
    })
}

/// The key for a checkpoint: from the given file, the context, or the pins. Of several pins, the one
/// that signed it, or the newest if none did.
fn trusted(session: &Session, note: &str, file: Option<&Path>) -> Result<Trusted, Stop> {
    // `bursar/<uuid>/<generation>`: a pin belongs to the uuid.
    let origin = note.lines().next().unwrap_or_default();
    let ledger = origin.split('/').nth(1).unwrap_or_default();
    let pins = Pins::of(&session.environment).map(|pins| pins.all_of_ledger(ledger));
    let pins = pins.unwrap_or_default();
    if let Some(file) = file {
        let text = std::fs::read_to_string(session.path(file))
            .map_err(|error| Failure::file("read", file.display(), &error))?;
        let key: VerifierKey = text.trim().parse().map_err(|error| {
            Failure::usage(format!(
                "{} does not contain a key: {error}",
                file.display()
            ))
        })?;
        return Ok(Trusted {
            is_foreign: !pins.is_empty() && pins.iter().all(|pin| pin.key != key),
            key,
            from: format!("key of {}", file.display()),
        });
    }
    if let Reach::Within(within) = &session.reach
        && let Some(key) = within.keys.first()
    {
        let from = format!("pinned {}", session.look().date(within.began));
        return Ok(Trusted {
            key: key.clone(),
            from,
            is_foreign: false,
        });
    }
    let config = Config::read(session.environment.config.as_deref())?;
    let name = session
        .common
        .context
        .clone()
        .or_else(|| session.environment.context.clone())
        .or_else(|| config.current.clone());
    if let Some(text) = name
        .as_ref()
        .and_then(|name| config.context.get(name))
        .and_then(|context| context.log_key.as_ref())
    {
        let key = text
            .trim()
            .parse()
            .map_err(|error| Failure::usage(format!("`log-key` is not a valid key: {error}")))?;
        return Ok(Trusted {
            key,
            from: format!("stated in context {}", name.unwrap_or_default()),
            is_foreign: false,
        });
    }
    let signed = |pin: &&Pin| Checkpoint::open(note, &pin.key).is_ok();
    let Some(pin) = pins.iter().find(signed).or(pins.first()) else {
        let message = format!("there is no key to verify with: ledger {ledger} is not pinned here");
        return Err(Failure::usage(message)
            .hint("ask its operator for the output of `bursar ledger key`, and pass that file with `--key FILE`")
            .into());
    };
    Ok(Trusted {
        from: format!("pinned {}", session.look().date(pin.at)),
        key: pin.key.clone(),
        is_foreign: false,
    })
}

fn looks_like_a_proof(text: &str) -> bool {
    text.lines().filter(|line| !line.trim().is_empty()).count() == 1
        && text.contains("\"checkpoint\"")
        && text.contains("\"inclusion\"")
}
