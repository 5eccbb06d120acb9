//! Encoding of records as JSON, and back (L7–L9).
//!
//! ```text
//! {"v":1,"seq":7,"t":1794823200000,"by":"ada","cmd":{"reserve":{…}},"ev":[{"reserved":{…}}]}
//! ```
//! Integers only, at most 2⁵³ − 1 (larger ones are decimal strings), no floats, no nulls. The
//! bytes written are the bytes hashed. An event kind never changes its meaning: a new field is
//! optional, and its absence means the old behaviour (L8).

use std::collections::BTreeMap;
use std::fmt;

use bursar_journal::hash::Hash;
use bursar_journal::record::{BlobRef, RECORD_BYTES_MAX};
use bursar_units::{Instant, Label};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use thiserror::Error;

use crate::{Command, Event, Events, FORMAT, LEVEL, booking, spine};

/// Version of the frame of a record.
const VERSION: u64 = 1;

/// One numbered entry of the ledger: a command and its events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Number, from 0.
    pub seq: u64,
    /// Time of the decision.
    pub time: Instant,
    /// Sender of the command.
    pub by: Label,
    /// Command.
    pub command: Command,
    /// Events.
    pub events: Events,
}

/// An encoded record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Encoded {
    /// Number.
    pub seq: u64,
    /// Bytes that are stored and hashed.
    pub bytes: Vec<u8>,
    /// Parts that are stored beside the record because they did not fit.
    pub blobs: Vec<Blob>,
}

/// A part of a record that is stored beside it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Blob {
    /// Hash of the bytes, which is the name of the blob.
    pub sha256: Hash,
    /// Bytes.
    pub bytes: Vec<u8>,
}

/// Error of encoding or decoding a record.
#[derive(Debug, Error)]
pub enum Error {
    /// The bytes are not the JSON of a record.
    #[error("record {seq} cannot be read by this version of bursar")]
    Form {
        /// Number of the expected record.
        seq: u64,
        /// Error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// The kind of a command or event is not known to this version (L8).
    #[error("record {seq} needs a newer bursar: it holds `{kind}`, which this one does not know")]
    UnknownKind {
        /// Number of the record.
        seq: u64,
        /// Kind.
        kind: String,
    },
    /// The version of the frame is not known to this version (L8).
    #[error("record {seq} needs a newer bursar: its frame has version {version}")]
    UnknownVersion {
        /// Number of the record.
        seq: u64,
        /// Version of the frame.
        version: u64,
    },
    /// The level of the rules is not known to this version (L8).
    #[error(
        "record {seq} needs a newer bursar: its level is {level}, this one knows up to {LEVEL}"
    )]
    NewerLevel {
        /// Number of the record.
        seq: u64,
        /// Level that the record begins.
        level: u64,
    },
    /// The number in the record is not its position in the ledger.
    #[error("record {seq} has the number {stated}")]
    WrongPlace {
        /// Position in the ledger.
        seq: u64,
        /// Number in the record.
        stated: u64,
    },
    /// A blob of the record is missing, or its hash is wrong.
    #[error("record {seq} names blob {sha256}, which is missing or damaged")]
    Blob {
        /// Number of the record.
        seq: u64,
        /// Hash of the blob.
        sha256: Hash,
    },
    /// The record is too long, even with its parts in blobs.
    #[error("record {seq} is {size} bytes long, more than the {RECORD_BYTES_MAX} that fit")]
    TooLong {
        /// Number of the record.
        seq: u64,
        /// Length in bytes.
        size: usize,
    },
    /// A value cannot be written as JSON.
    #[error("record {seq} cannot be written")]
    Write {
        /// Number of the record.
        seq: u64,
        /// Error of the writer.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// Whether the record was written by a newer version (L8).
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            Self::UnknownKind { .. } | Self::UnknownVersion { .. } | Self::NewerLevel { .. }
        )
    }
}

#[derive(Serialize)]
struct Frame<'a, C, E> {
    v: u64,
    seq: u64,
    t: Instant,
    by: &'a Label,
    cmd: C,
    ev: E,
}

/// Frame to read; a reader ignores parts with [`IgnoredAny`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrameIn<B, C, E> {
    v: u64,
    seq: u64,
    t: Instant,
    by: B,
    cmd: C,
    ev: E,
}

/// Initial size of the buffer; most records of bookings fit.
const RECORD_BYTES_USUAL: usize = 512;

/// Encodes a record. If it is too long, `cmd` and `ev` become blobs, the larger one first.
pub fn encode(record: &Record) -> Result<Encoded, Error> {
    let seq = record.seq;
    let (cmd, ev) = (&record.command, &record.events);
    let write = |source| Error::Write { seq, source };
    let bytes = frame_bytes(record, cmd, ev).map_err(write)?;
    if bytes.len() <= RECORD_BYTES_MAX {
        return Ok(Encoded {
            seq,
            bytes,
            blobs: Vec::new(),
        });
    }
    encode_with_blobs(
        record,
        [
            to_raw_value(cmd).map_err(write)?,
            to_raw_value(ev).map_err(write)?,
        ],
    )
}

/// Moves the larger part into a blob, then the other if needed.
fn encode_with_blobs(record: &Record, mut parts: [Box<RawValue>; 2]) -> Result<Encoded, Error> {
    let seq = record.seq;
    let write = |source| Error::Write { seq, source };
    let [cmd, ev] = &parts;
    let order = if cmd.get().len() > ev.get().len() {
        [0, 1]
    } else {
        [1, 0]
    };
    let mut encoded = Encoded {
        seq,
        bytes: Vec::new(),
        blobs: Vec::new(),
    };
    for index in order {
        if let Some(part) = parts.get_mut(index) {
            encoded.blobs.push(move_out(part).map_err(write)?);
        }
        let [cmd, ev] = &parts;
        encoded.bytes = frame_bytes(record, cmd, ev).map_err(write)?;
        if encoded.bytes.len() <= RECORD_BYTES_MAX {
            return Ok(encoded);
        }
    }
    Err(Error::TooLong {
        seq,
        size: encoded.bytes.len(),
    })
}

/// Replaces a part by a reference, and returns the part as a blob.
fn move_out(part: &mut Box<RawValue>) -> Result<Blob, serde_json::Error> {
    let bytes = part.get().as_bytes().to_vec();
    let reference = BlobRef::to(&bytes);
    *part = to_raw_value(&reference)?;
    Ok(Blob {
        sha256: reference.sha256,
        bytes,
    })
}

fn frame_bytes<C: Serialize, E: Serialize>(
    record: &Record,
    cmd: &C,
    ev: &E,
) -> Result<Vec<u8>, serde_json::Error> {
    let Record { seq, time, by, .. } = record;
    let mut bytes = Vec::with_capacity(RECORD_BYTES_USUAL);
    let frame = Frame {
        v: VERSION,
        seq: *seq,
        t: *time,
        by,
        cmd,
        ev,
    };
    serde_json::to_writer(&mut bytes, &frame)?;
    Ok(bytes)
}

/// Decodes a whole record.
pub fn decode(
    seq: u64,
    bytes: &[u8],
    blob: impl Fn(&Hash) -> Option<Vec<u8>>,
) -> Result<Record, Error> {
    let frame: FrameIn<Label, &RawValue, EventsIn> = frame(seq, bytes)?;
    let command = match BlobRef::read(frame.cmd) {
        None => read(seq, frame.cmd.get().as_bytes(), Command::kind)?,
        Some(reference) => read(seq, &fetch(seq, &reference, &blob)?, Command::kind)?,
    };
    if let Command::Spine(spine::Command::Genesis { format, .. }) = command {
        check_format(seq, format)?;
    }
    let events = read_events(seq, frame.ev, &blob)?;
    Ok(Record {
        seq,
        time: frame.t,
        by: frame.by,
        command,
        events,
    })
}

/// A command as JSON, to be stored outside the ledger.
pub fn command_text(command: &Command) -> Result<String, serde_json::Error> {
    serde_json::to_string(command)
}

/// Reads a command that was stored outside the ledger.
pub fn read_command_text(text: &str) -> Result<Command, serde_json::Error> {
    serde_json::from_str(text)
}

/// Decodes only the time and the events, which are enough for the state.
pub fn decode_events(
    seq: u64,
    bytes: &[u8],
    blob: impl Fn(&Hash) -> Option<Vec<u8>>,
) -> Result<(Instant, Events), Error> {
    let frame: FrameIn<IgnoredAny, IgnoredAny, EventsIn> = frame(seq, bytes)?;
    Ok((frame.t, read_events(seq, frame.ev, &blob)?))
}

fn frame<'a, B, C, E>(seq: u64, bytes: &'a [u8]) -> Result<FrameIn<B, C, E>, Error>
where
    B: Deserialize<'a>,
    C: Deserialize<'a>,
    E: Deserialize<'a>,
{
    let frame: FrameIn<B, C, E> =
        serde_json::from_slice(bytes).map_err(|source| parse_error(seq, bytes, source))?;
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

/// Error for bytes that cannot be read: damaged, or written by a newer version (L8).
fn parse_error(seq: u64, bytes: &[u8], source: serde_json::Error) -> Error {
    #[derive(Deserialize)]
    struct Version {
        v: u64,
    }
    #[derive(Deserialize)]
    struct Events<'a> {
        #[serde(borrow)]
        ev: &'a RawValue,
    }
    if let Ok(Version { v: version }) = serde_json::from_slice(bytes)
        && version != VERSION
    {
        return Error::UnknownVersion { seq, version };
    }
    let events: Option<Events<'_>> = serde_json::from_slice(bytes).ok();
    let unknown = events.and_then(|events| first_unknown(events.ev.get().as_bytes(), Event::kind));
    match unknown {
        Some(kind) => Error::UnknownKind { seq, kind },
        None => Error::Form { seq, source },
    }
}

fn read_events(
    seq: u64,
    events: EventsIn,
    blob: &impl Fn(&Hash) -> Option<Vec<u8>>,
) -> Result<Events, Error> {
    let events = match events {
        EventsIn::Inline(events) => events,
        EventsIn::Blob(reference) => read(seq, &fetch(seq, &reference, blob)?, Event::kind)?,
    };
    for event in &events {
        match event {
            Event::Spine(spine::Event::Genesis { format, .. }) => check_format(seq, *format)?,
            Event::Spine(spine::Event::Level { n }) if LEVEL < *n => {
                return Err(Error::NewerLevel { seq, level: *n });
            }
            Event::Booking(booking::Event::Adopted(found)) if found.booking.fence.is_none() => {
                let source = serde_json::Error::custom("`adopted` has no fence");
                return Err(Error::Form { seq, source });
            }
            _ => {}
        }
    }
    Ok(events)
}

fn check_format(seq: u64, format: u64) -> Result<(), Error> {
    if format == FORMAT {
        return Ok(());
    }
    let source = serde_json::Error::custom(format_args!(
        "the ledger has format {format} and needs a newer bursar"
    ));
    Err(Error::Form { seq, source })
}

fn fetch(
    seq: u64,
    reference: &BlobRef,
    blob: &impl Fn(&Hash) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, Error> {
    blob(&reference.sha256)
        .filter(|bytes| BlobRef::to(bytes) == *reference)
        .ok_or(Error::Blob {
            seq,
            sha256: reference.sha256,
        })
}

fn read<'a, T: Deserialize<'a>>(
    seq: u64,
    bytes: &'a [u8],
    known: fn(&str) -> Option<&'static str>,
) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|source| match first_unknown(bytes, known) {
        Some(kind) => Error::UnknownKind { seq, kind },
        None => Error::Form { seq, source },
    })
}

/// First unknown kind in `bytes`, which is an object or a list of objects (L8).
fn first_unknown(bytes: &[u8], known: fn(&str) -> Option<&'static str>) -> Option<String> {
    type Tagged<'a> = BTreeMap<String, &'a RawValue>;
    let objects: Vec<Tagged<'_>> = serde_json::from_slice(bytes)
        .or_else(|_| serde_json::from_slice(bytes).map(|object| vec![object]))
        .ok()?;
    objects
        .into_iter()
        .flat_map(BTreeMap::into_keys)
        .find(|kind| known(kind).is_none())
}

/// Events to read, inline or in a blob.
enum EventsIn {
    Inline(Events),
    Blob(BlobRef),
}

impl<'de> Deserialize<'de> for EventsIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOrReference)
    }
}

struct ListOrReference;

impl<'de> Visitor<'de> for ListOrReference {
    type Value = EventsIn;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of events or a reference to a blob")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<EventsIn, A::Error> {
        let mut events = Vec::with_capacity(1);
        while let Some(event) = list.next_element()? {
            events.push(event);
        }
        Ok(EventsIn::Inline(events))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EventsIn, A::Error> {
        Deserialize::deserialize(MapAccessDeserializer::new(map)).map(EventsIn::Blob)
    }
}
