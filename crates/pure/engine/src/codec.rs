//! Records as bytes and back: the only place where events meet JSON (L7–L9).
//!
//! ```text
//! {"v":1,"seq":7,"t":1794823200000,"by":"ada","cmd":{"reserve":{…}},"ev":[{"reserved":{…}}]}
//! ```
//! Integers only, at most 2⁵³ − 1 (larger ones are decimal strings), no floats, no nulls. The
//! bytes written are the bytes hashed. An event kind never changes its meaning: a new field is
//! optional, and its absence means the old behaviour (L8).

mod fact;
mod kinds;
mod shapes;

use bursar_journal::hash::Hash;
use bursar_journal::record::{BlobRef, RECORD_BYTES_MAX};
use bursar_units::{Instant, Label};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::{Command, Events};

pub use fact::{fact_line, read_fact_line};

/// The version of the record's frame.
const VERSION: u64 = 1;

/// Who, when, what was asked, what followed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Its number, from 0.
    pub seq: u64,
    /// When it was decided.
    pub time: Instant,
    /// Who asked.
    pub by: Label,
    /// What was asked.
    pub command: Command,
    /// What followed.
    pub events: Events,
}

/// A record as it is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Encoded {
    /// Its number.
    pub seq: u64,
    /// The bytes that are stored and hashed.
    pub bytes: Vec<u8>,
    /// Parts that did not fit and are stored beside it.
    pub blobs: Vec<Blob>,
}

/// A part of a record that did not fit into it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Blob {
    /// Its name.
    pub sha256: Hash,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Why bytes are not a record.
#[derive(Debug, Error)]
pub enum Error {
    /// Not the JSON of a record.
    #[error("record {seq}: not a record")]
    Form {
        /// Which record was expected.
        seq: u64,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// A kind of command or event that this program does not know (L8).
    #[error("record {seq} needs a newer bursar: it holds `{kind}`, which this one does not know")]
    UnknownKind {
        /// Which record.
        seq: u64,
        /// The kind.
        kind: String,
    },
    /// A frame that this program does not know (L8).
    #[error("record {seq} needs a newer bursar: its frame has version {version}")]
    UnknownVersion {
        /// Which record.
        seq: u64,
        /// The version it states.
        version: u64,
    },
    /// The record states another number than its place.
    #[error("record {seq} says that it is record {stated}")]
    WrongPlace {
        /// Where it stands.
        seq: u64,
        /// What it says.
        stated: u64,
    },
    /// A part that was stored beside the record is not there, or is not what the record names.
    #[error("record {seq} names blob {sha256}, which is missing or damaged")]
    Blob {
        /// Which record.
        seq: u64,
        /// Which blob.
        sha256: Hash,
    },
    /// A record that cannot be made small enough.
    #[error("record {seq} is {size} bytes long")]
    TooLong {
        /// Which record.
        seq: u64,
        /// How long.
        size: usize,
    },
    /// A value that the journal cannot hold.
    #[error("record {seq} cannot be written")]
    Write {
        /// Which record.
        seq: u64,
        /// What the writer said.
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Serialize)]
struct Frame<'a> {
    v: u64,
    seq: u64,
    t: Instant,
    by: &'a Label,
    cmd: &'a RawValue,
    ev: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrameIn<'a> {
    v: u64,
    seq: u64,
    t: Instant,
    by: Label,
    #[serde(borrow)]
    cmd: &'a RawValue,
    #[serde(borrow)]
    ev: &'a RawValue,
}

/// Writes a record; `cmd` and `ev` go into blobs where they would not fit, the larger first.
pub fn encode(record: &Record) -> Result<Encoded, Error> {
    let seq = record.seq;
    let write = |source| Error::Write { seq, source };
    let time = record.time;
    let cmd = shapes::raw(&shapes::CommandShape::from(&record.command)).map_err(write)?;
    let events: Vec<_> = record
        .events
        .iter()
        .map(|(at, event)| shapes::EventShape::of(time, *at, event))
        .collect();
    let ev = shapes::raw(&events).map_err(write)?;
    let mut parts = [Part::Inline(cmd), Part::Inline(ev)];
    let mut blobs = Vec::new();
    loop {
        let [cmd, ev] = &parts;
        let frame = Frame {
            v: VERSION,
            seq,
            t: time,
            by: &record.by,
            cmd: cmd.raw(),
            ev: ev.raw(),
        };
        let bytes = serde_json::to_vec(&frame).map_err(write)?;
        if bytes.len() <= RECORD_BYTES_MAX {
            return Ok(Encoded { seq, bytes, blobs });
        }
        let size = bytes.len();
        let larger = parts
            .iter_mut()
            .filter(|part| matches!(part, Part::Inline(_)));
        let Some(larger) = larger.max_by_key(|part| part.raw().get().len()) else {
            return Err(Error::TooLong { seq, size });
        };
        blobs.push(larger.move_out().map_err(write)?);
    }
}

/// Reads a whole record, command and events.
pub fn decode(
    seq: u64,
    bytes: &[u8],
    blob: impl Fn(&Hash) -> Option<Vec<u8>>,
) -> Result<Record, Error> {
    let frame = frame(seq, bytes)?;
    let command: shapes::CommandShape = part(seq, frame.cmd, &blob, kinds::COMMANDS)?;
    let events = read_events(seq, &frame, &blob)?;
    let command = command
        .try_into()
        .map_err(|source| Error::Form { seq, source })?;
    Ok(Record {
        seq,
        time: frame.t,
        by: frame.by,
        command,
        events,
    })
}

/// Reads only what a fold needs: the events.
pub fn decode_events(
    seq: u64,
    bytes: &[u8],
    blob: impl Fn(&Hash) -> Option<Vec<u8>>,
) -> Result<Events, Error> {
    read_events(seq, &frame(seq, bytes)?, &blob)
}

/// The blobs that a record names.
pub fn blob_refs(seq: u64, bytes: &[u8]) -> Result<Vec<BlobRef>, Error> {
    let frame = frame(seq, bytes)?;
    Ok([frame.cmd, frame.ev]
        .into_iter()
        .filter_map(blob_ref)
        .collect())
}

enum Part {
    Inline(Box<RawValue>),
    Outside(Box<RawValue>),
}

impl Part {
    fn raw(&self) -> &RawValue {
        match self {
            Self::Inline(raw) | Self::Outside(raw) => raw,
        }
    }

    fn move_out(&mut self) -> Result<Blob, serde_json::Error> {
        let bytes = self.raw().get().as_bytes().to_vec();
        let reference = BlobRef::to(&bytes);
        *self = Self::Outside(shapes::raw(&reference)?);
        Ok(Blob {
            sha256: reference.sha256,
            bytes,
        })
    }
}

fn frame(seq: u64, bytes: &[u8]) -> Result<FrameIn<'_>, Error> {
    let frame: FrameIn<'_> =
        serde_json::from_slice(bytes).map_err(|source| Error::Form { seq, source })?;
    if frame.v != VERSION {
        return Err(Error::UnknownVersion {
            seq,
            version: frame.v,
        });
    }
    if frame.seq != seq {
        return Err(Error::WrongPlace {
            seq,
            stated: frame.seq,
        });
    }
    Ok(frame)
}

fn read_events(
    seq: u64,
    frame: &FrameIn<'_>,
    blob: &impl Fn(&Hash) -> Option<Vec<u8>>,
) -> Result<Events, Error> {
    let shapes: Vec<shapes::EventShape> = part(seq, frame.ev, blob, kinds::EVENTS)?;
    shapes
        .into_iter()
        .map(|shape| shape.into_event(frame.t))
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Form { seq, source })
}

/// Reads `cmd` or `ev`, from the record or from the blob it names.
fn part<T: for<'de> Deserialize<'de>>(
    seq: u64,
    raw: &RawValue,
    blob: &impl Fn(&Hash) -> Option<Vec<u8>>,
    known: &[&str],
) -> Result<T, Error> {
    let Some(reference) = blob_ref(raw) else {
        return read(seq, raw.get().as_bytes(), known);
    };
    let damaged = || Error::Blob {
        seq,
        sha256: reference.sha256,
    };
    let bytes = blob(&reference.sha256).ok_or_else(damaged)?;
    if BlobRef::to(&bytes) != reference {
        return Err(damaged());
    }
    read(seq, &bytes, known)
}

fn read<T: for<'de> Deserialize<'de>>(seq: u64, bytes: &[u8], known: &[&str]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|source| match kinds::first_unknown(bytes, known) {
        Some(kind) => Error::UnknownKind { seq, kind },
        None => Error::Form { seq, source },
    })
}

fn blob_ref(raw: &RawValue) -> Option<BlobRef> {
    let text = raw.get();
    text.starts_with("{\"blob\"")
        .then(|| serde_json::from_str(text).ok())
        .flatten()
}
