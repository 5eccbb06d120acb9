//! New ledger from a copy: verified records are replayed, and the fork is recorded (L11).
//!
//! The copy may be a backup or an export. If it is damaged, the records before the first damaged one
//! are used. The private key is not in a copy, so the new ledger has a new key and signs as the next
//! generation: it cannot be mistaken for the ledger that was copied.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use bursar_engine::codec::{Record, encode};
use bursar_engine::{Command, Events, LEVEL, State, decide, first_fence, spine};
use bursar_journal::checkpoint::{Name, VerifierKey};
use bursar_journal::hash::leaf_hash;
use bursar_journal::record::blob_refs;
use bursar_journal::tile::{Builder, FullTile};
use bursar_units::{Instant, Label, Millis};

use super::{Error, KeptLeaves};
use crate::check::{Asked, Report, check, state_after};
use crate::data::{make_directory, newest, newest_state};
use crate::key::{self, Signer};
use crate::recover::recover;
use crate::snapshots::Snapshots;
use crate::store::sqlite::{FILE_NAME, RESCUE, SqliteReader, SqliteStore};
use crate::store::{self, Append, Reader, Store as _};
use crate::writer::SELF;
use crate::{durable, index, snapshots};

const CHUNK: usize = 1_024;

/// Unfinished ledger; an existing one is left of an interrupted restore.
pub(crate) const UNFINISHED: &str = "ledger.db.restoring";

/// Treatment of the tokens of a copy, some of which may have been revoked later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tokens {
    /// All tokens end.
    End,
    /// All tokens of the copy stay valid.
    Keep,
}

/// Result of a restore.
#[derive(Debug)]
pub struct Restored {
    /// Number of records taken from the copy.
    pub records: u64,
    /// Number of records left out: the first damaged one and all after it.
    pub left: u64,
    /// Number of ended tokens.
    pub tokens_ended: usize,
    /// True if an existing ledger was moved aside.
    pub is_moved: bool,
    /// Origin of the checkpoints of the new ledger.
    pub origin: Name,
    /// Result of the check of the copy.
    pub report: Report,
}

/// Makes a ledger in the directory `data` from the good records of a copy.
///
/// The new ledger is complete under another name before an existing one is moved to the new
/// directory `aside`. No other process may use the directory.
pub fn restore(
    copy: &dyn Reader,
    keys: &[VerifierKey],
    (data, aside): (&Path, &Path),
    now: Instant,
    tokens: Tokens,
    progress: impl FnMut(u64, u64),
) -> Result<Restored, Error> {
    make_directory(data)?;
    let first = copy.excerpt().map_or(0, |edge| edge.size());
    let asked = Asked {
        keys,
        ..Asked::default()
    };
    let report = check(copy, &asked, progress)?;
    let good = report.damage.map_or(report.records, |damage| damage.seq);
    let mut state = match good {
        _ if first != 0 => return Err(Error::NotWhole { first }),
        0 => return Err(Error::NothingGood),
        _ => state_after(copy, good)?,
    };
    if state.spine.head != good {
        // All payloads before it were pruned, without an anchored snapshot.
        return Err(Error::NotWhole { first: good });
    }

    let path = data.join(UNFINISHED);
    for suffix in ["", "-wal", "-shm"] {
        let left = durable::beside(&path, suffix);
        durable::remove(&left).map_err(|source| durable::failed("remove", &left, source))?;
    }
    let mut store = SqliteStore::open(&path)?;
    let mut builder = replay(copy, good, &mut store)?;
    let key_path = data.join(key::FILE_NAME);
    // The replaced ledger has the fences that were granted after the copy was made. And two
    // histories under one origin would look like a forgery.
    let former = replaced_state(data).filter(|former| former.spine.ledger == state.spine.ledger);
    let replaces = former.as_ref().map(|former| former.spine.generation);
    let key = Signer::load(&key_path).ok().flatten();
    let replaces = replaces.max(key.and_then(|key| key.generation_of(&state.spine.ledger)));
    let generation = state.spine.generation.max(replaces.unwrap_or(0)) + 1;
    let signer = Signer::create_new(&key_path, &state.spine.ledger, generation)?;
    let now = now.max(state.spine.time.after(Millis::from_ms(1)));
    let restore = spine::Command::Restore {
        size: good,
        fence: former
            .map(|former| former.bookings.next_fence())
            .max(Some(first_fence(now))),
        replaces,
        end_tokens: tokens == Tokens::End,
    };
    let tokens_ended = match tokens {
        Tokens::End => state.spine.tokens.iter().count(),
        Tokens::Keep => 0,
    };
    record(&mut store, &mut builder, &mut state, now, restore, &signer)?;
    let note = signer.sign(now, builder.size(), builder.root());
    store.put_checkpoint(builder.size(), &note)?;
    store.close()?;
    let is_moved = set_aside(data, aside)?;
    // The new ledger need not extend the newest checkpoint of the replaced one.
    newest::keep(data, &note)?;
    let file = data.join(FILE_NAME);
    durable::rename(&path, &file).map_err(|source| durable::failed("write", &file, source))?;
    signer.promote_new()?;
    let left = report.records - good;
    Ok(Restored {
        records: good,
        left,
        tokens_ended,
        is_moved,
        origin: signer.origin().clone(),
        report,
    })
}

fn replaced_state(data: &Path) -> Option<State> {
    let file = data.join(FILE_NAME);
    let reader = SqliteReader::open(&file).ok()?;
    let (start, _) = newest_state(&Snapshots::of(data), &reader, &file).ok()?;
    let recovered = recover(Box::new(reader), start, |_, _| ());
    recovered.ok().map(|recovered| recovered.state)
}

/// Moves the ledger of a directory to the new directory `aside`; other files, such as `executions/`,
/// stay. Returns false if there was no ledger.
fn set_aside(data: &Path, aside: &Path) -> Result<bool, store::Error> {
    let names = names_in(data).map_err(|source| durable::failed("read", data, source))?;
    let is_moved = |name: &String| {
        !is_left_alone(name) && (name.starts_with("ledger.") || name == snapshots::DIRECTORY_NAME)
    };
    let moved: Vec<String> = names.into_iter().filter(is_moved).collect();
    if moved.is_empty() {
        return Ok(false);
    }
    let made = std::fs::DirBuilder::new().mode(0o700).create(aside);
    made.map_err(|source| durable::failed("make the directory", aside, source))?;
    for name in moved {
        let from = data.join(&name);
        let moved = durable::rename(&from, &aside.join(&name));
        moved.map_err(|source| durable::failed("move", &from, source))?;
    }
    Ok(true)
}

/// True for files of this restore, rescued stores, and the index, which the next start makes anew.
fn is_left_alone(name: &str) -> bool {
    let is_of = |left: &&str| name.starts_with(*left);
    [UNFINISHED, RESCUE, index::FILE_NAME].iter().any(is_of) || name == key::NEW_FILE_NAME
}

fn names_in(directory: &Path) -> std::io::Result<Vec<String>> {
    let names = std::fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<std::io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Writes the first `good` records of a copy, with their blobs, tiles, checkpoints and anchors.
fn replay(copy: &dyn Reader, good: u64, store: &mut SqliteStore) -> Result<Builder, Error> {
    let (mut builder, mut pruned) = (Builder::new(), KeptLeaves::default());
    while builder.size() < good {
        let mut tiles: Vec<FullTile> = Vec::new();
        let chunk = copy
            .records(builder.size(), CHUNK)
            .or_else(|_| copy.records(builder.size(), 1));
        let chunk: Vec<_> = chunk?
            .into_iter()
            .take_while(|kept| kept.seq < good)
            .collect();
        let mut blobs = Vec::new();
        for kept in &chunk {
            let leaf = match &kept.bytes {
                Some(bytes) => leaf_hash(bytes),
                None => pruned.get(copy, kept.seq)?,
            };
            builder.push(leaf, &mut tiles);
            let record = kept.bytes.as_deref().unwrap_or_default();
            for reference in blob_refs(record).unwrap_or_default() {
                let bytes = copy.blob(&reference.sha256)?;
                blobs.extend(bytes.map(|bytes| (kept.seq, reference.sha256, bytes)));
            }
        }
        store.adopt(&chunk, &blobs, &tiles)?;
    }
    let mut notes = copy.checkpoints()?;
    notes.retain(|(size, _)| *size <= good);
    store.adopt_notes(&notes)?;
    for head in copy.anchors()?.into_iter().filter(|head| *head <= good) {
        if let Some((head, lines)) = copy.anchor(head)? {
            store.put_anchor(head, &lines)?;
        }
    }
    store.note_exported(copy.exported()?.min(good))?;
    Ok(builder)
}

fn record(
    store: &mut SqliteStore,
    builder: &mut Builder,
    state: &mut State,
    now: Instant,
    restore: spine::Command,
    signer: &Signer,
) -> Result<(), Error> {
    let failed = |source| Error::Record { source };
    let by = Label::new(SELF).map_err(|error| failed(error.into()))?;
    let key = signer.verifier().to_string();
    let level = (state.spine.level < LEVEL).then_some(spine::Command::Level { n: LEVEL });
    let rotate = spine::Command::RotateKey {
        key,
        idempotency: None,
    };
    let commands = level
        .into_iter()
        .chain([restore, rotate])
        .map(Command::Spine);
    let mut append = Append::default();
    for command in commands {
        let mut events = Events::new();
        decide(state, now, &command, &mut events).map_err(|refusal| failed(refusal.into()))?;
        let record = Record {
            seq: state.spine.head,
            time: now,
            by: by.clone(),
            command,
            events,
        };
        let encoded = encode(&record).map_err(|error| failed(error.into()))?;
        builder.push(leaf_hash(&encoded.bytes), &mut append.tiles);
        append.records.push(encoded);
        state.spine.head += 1;
    }
    let term = store.lead()?;
    match store.append(term, &append)? {
        store::Appended::Done => Ok(()),
        store::Appended::Refused => Err(failed("another process writes to the new ledger".into())),
    }
}
