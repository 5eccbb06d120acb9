//! Records as bytes and back: the only place where events meet JSON (L7–L9).
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
    #[error("record {seq} is not one that this bursar can read")]
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
    /// A level of the rules that this program does not know (L8).
    #[error(
        "record {seq} needs a newer bursar: its level is {level}, this one knows up to {LEVEL}"
    )]
    NewerLevel {
        /// Which record.
        seq: u64,
        /// The level it begins.
        level: u64,
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

impl Error {
    /// Whether the record is good, and only of a newer program (L8).
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            Self::UnknownKind { .. } | Self::UnknownVersion { .. } | Self::NewerLevel { .. }
        )
    }
}

/// A record's frame on its way out.
#[derive(Serialize)]
struct Frame<'a, C, E> {
    v: u64,
    seq: u64,
    t: Instant,
    by: &'a Label,
    cmd: C,
    ev: E,
}

/// A record's frame on its way in; what a reader has no use for, it ignores.
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

/// Most records of bookings fit; a longer one grows the buffer once or twice.
const RECORD_BYTES_USUAL: usize = 512;

/// Writes a record; `cmd` and `ev` go into blobs where they would not fit, the larger first.
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

/// Moves the larger part out, then the other.
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
    for place in order {
        if let Some(part) = parts.get_mut(place) {
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

/// Puts a reference where a part stood, and gives the part.
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

/// Reads a whole record, command and events.
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

/// A command as its record has it, to be kept outside the ledger.
pub fn command_text(command: &Command) -> Result<String, serde_json::Error> {
    serde_json::to_string(command)
}

/// Reads a command that was kept outside the ledger.
pub fn read_command_text(text: &str) -> Result<Command, serde_json::Error> {
    serde_json::from_str(text)
}

/// Reads only what a fold needs: the time and the events.
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
        serde_json::from_slice(bytes).map_err(|source| diagnosed(seq, bytes, source))?;
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

/// Whether bytes that do not read are damaged or only newer than this program (L8).
fn diagnosed(seq: u64, bytes: &[u8], source: serde_json::Error) -> Error {
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
        EventsIn::Outside(reference) => read(seq, &fetch(seq, &reference, blob)?, Event::kind)?,
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

/// The bytes of a part that is stored beside its record.
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

/// The first kind in `bytes`, one object of a kind or a list of them, that is not known (L8).
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

/// The events of a record on their way in, or what stands for them.
enum EventsIn {
    Inline(Events),
    Outside(BlobRef),
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
        formatter.write_str("a list of events or the reference to one")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<EventsIn, A::Error> {
        let mut events = Vec::with_capacity(1);
        while let Some(event) = list.next_element()? {
            events.push(event);
        }
        Ok(EventsIn::Inline(events))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EventsIn, A::Error> {
        Deserialize::deserialize(MapAccessDeserializer::new(map)).map(EventsIn::Outside)
    }
}
