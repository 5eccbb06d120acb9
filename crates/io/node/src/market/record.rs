//! The inputs and results of every clearing, kept for a day in a hash chain (M12).
//!
//! One line of JSON per clearing. Each line holds the SHA-256 of the previous one, so a changed or
//! removed line is found, and the hash of its settings. A line holds the readings of the pods that
//! differ from the previous line; the first line of a file holds all pods with their whole state. So
//! does the first line of a pod. [`read`] replays the record: it repeats every clearing with the node
//! of the agent, and reports the first difference. [`read_at`] replays one file only. Lines of other
//! versions are checked by their hashes only.
//!
//! Bounded: segments of [`SEGMENT_SIZE`], or of one longer line; at most [`TOTAL_SIZE_MAX`] together,
//! none older than a day.
//! Durable only up to the last [`sync`]: a line that a crash tore is cut off.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bursar_journal::hash::{HASH_BYTES, Hash, sha256};
use bursar_market::bidder::Bidder;
use bursar_market::clear::{Cleared, Mode};
use bursar_market::ladder::{Memory, Recent, Size};
use bursar_market::node::{Clearing, Node, Standing, Supply};
use bursar_market::params::Params;
use bursar_market::sense::{Reading, Throttled};
use serde::{Deserialize, Serialize};

use super::rules::{Rules, Run};
use super::{Error, failed};

/// Maximum size of a segment; a line is never split.
pub const SEGMENT_SIZE: u64 = 4 << 20;
/// Maximum size of all segments together.
pub const TOTAL_SIZE_MAX: u64 = 64 << 20;
/// Maximum age of a segment.
pub const KEPT_FOR: Duration = Duration::from_hours(24);
/// Maximum time that a segment covers, so that old ones can be deleted.
const SEGMENT_TIME_MS: u64 = 3_600_000;
const FILE: &str = "record.jsonl";
/// Prefix and suffix of closed segments; the time of the last line is between, so that they sort.
const CLOSED: (&str, &str) = ("record-", ".jsonl");
/// The previous hash in the very first line.
const NOTHING: Hash = Hash([0; HASH_BYTES]);
/// Maximum size of a readable line; 100,000 pods need less.
const LINE_SIZE_MAX: u64 = 64 << 20;
/// The version of the lines that are written and replayed.
const VERSION: u64 = 2;
/// The denominator of a recorded share of throttled periods.
const PERMILLE: u64 = 1_000;

/// An event beside the clearing itself; an absent limit means no limit.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    tag = "what",
    rename_all_fields = "camelCase"
)]
pub enum Event {
    /// A limit was written and read back.
    Wrote {
        /// The pod's name.
        pod: String,
        /// The old limit.
        from_milli: Option<u64>,
        /// The new limit.
        to_milli: Option<u64>,
    },
    /// The kernel refused a limit.
    Refused {
        /// The pod's name.
        pod: String,
        /// The error.
        reason: String,
    },
    /// Somebody else changed a limit.
    Conflict {
        /// The pod's name.
        pod: String,
        /// The new limit.
        to_milli: Option<u64>,
    },
    /// An original was stored.
    Taken {
        /// The pod's name.
        pod: String,
        /// The original.
        milli: Option<u64>,
    },
    /// An original was restored.
    Restored {
        /// The pod's name.
        pod: String,
        /// The original.
        milli: Option<u64>,
    },
}

/// The input of one pod to a clearing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Input {
    /// Its state before, with the limit of this clearing.
    pub before: Bidder,
    /// Its headroom in this clearing.
    pub headroom_permille: u64,
    /// Its reading.
    pub reading: Reading,
}

/// A checked line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Past {
    /// Time, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its number, from 1, since the very first line.
    pub line: u64,
    /// Its hash.
    pub hash: Hash,
    /// The clearing, computed again; `None` for a line of another version.
    pub replayed: Option<Replayed>,
}

/// A clearing, computed again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Replayed {
    /// Inputs of the node, and results.
    pub clearing: Clearing,
    /// The state of the pods; only where one line is asked for.
    pub standings: Vec<Standing>,
    /// The hash of its settings.
    pub settings: Hash,
    /// Its settings.
    pub run: Run,
    /// Events since the previous line.
    pub events: Vec<Event>,
}

/// End of a record, counted from its very first line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Position {
    /// Time of the last line, in milliseconds since 1970.
    pub at_ms: u64,
    /// Number of lines.
    pub lines: u64,
    /// Number of limits written.
    pub writes: u64,
    /// The hash of the last line.
    pub head: Hash,
}

/// Summary of a record that was verified.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verified {
    /// Number of lines.
    pub lines: u64,
    /// Time of the first line, in milliseconds since 1970.
    pub from_ms: u64,
    /// Time of the last line.
    pub to_ms: u64,
    /// Whether the size limit may have deleted a segment younger than a day.
    pub is_full: bool,
}

/// The record of one agent.
#[derive(Debug)]
pub struct Record {
    directory: PathBuf,
    /// The current segment; `None` between closing one and opening the next.
    file: Option<File>,
    size: u64,
    began_ms: Option<u64>,
    head: Hash,
    last: Option<LineSummary>,
    /// The settings of the last line, if this process wrote it.
    settings: Option<Hash>,
    /// The pods of the last line, without their states.
    rows: BTreeMap<String, (Params, Row)>,
}

/// The part of a line that is parsed where no more is needed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LineSummary {
    at_ms: u64,
    lines: u64,
    writes: u64,
}

/// The part of a line that all versions have.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    #[serde(default)]
    version: u64,
    #[serde(flatten)]
    summary: LineSummary,
    previous: Hash,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordLine {
    version: u64,
    at_ms: u64,
    /// Number of lines up to this one, since the very first.
    lines: u64,
    /// Number of limits written up to this line.
    writes: u64,
    previous: Hash,
    settings: Hash,
    /// Present in the first line of a segment, and where the settings have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settings_text: Option<String>,
    /// Whether `pods` holds all pods, or only those that differ.
    whole: bool,
    allocatable_milli: u64,
    unmanaged_milli: u64,
    held_milli: u64,
    capacity_milli: u64,
    mode: String,
    label: String,
    /// The rung; absent for shares and overload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rung: Option<u64>,
    price_ppm: u64,
    pods: Vec<Row>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<Event>,
}

/// A pod: id, u, s and q (`null` if throttling is not counted), headroom, limit, share, and its state
/// before this clearing where it is new. A list, because field names would be most of the file.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
struct Row(
    String,
    u64,
    Option<(u64, u64)>,
    u64,
    u64,
    u64,
    Option<Box<State>>,
);

/// The state of a pod before a clearing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct State {
    min_milli: u64,
    max_milli: u64,
    weight: u64,
    /// P(1)…P(W).
    peaks: Vec<u64>,
    /// Samples in the present block, its largest use, and that of the block before.
    size: (u64, u64, u64),
    /// Their number, and the last five uses, newest first.
    recent: (u64, [u64; 5]),
    unmet_milli: u64,
}

impl State {
    fn of(bidder: &Bidder) -> Self {
        let Size {
            count,
            present_milli,
            previous_milli,
        } = bidder.size;
        Self {
            min_milli: bidder.params.min_milli,
            max_milli: bidder.params.max_milli,
            weight: bidder.params.weight,
            peaks: bidder.memory.peaks().to_vec(),
            size: (count, present_milli, previous_milli),
            recent: (bidder.recent.count, bidder.recent.used_milli),
            unmet_milli: bidder.unmet_milli,
        }
    }

    fn bidder(&self) -> Option<Bidder> {
        let params = Params {
            min_milli: self.min_milli,
            max_milli: self.max_milli,
            weight: self.weight,
        };
        let ((count, present_milli, previous_milli), recent) = (self.size, self.recent);
        Some(Bidder {
            memory: Memory::of_peaks(self.peaks.clone())?,
            size: Size {
                count,
                present_milli,
                previous_milli,
            },
            recent: Recent {
                count: recent.0,
                used_milli: recent.1,
            },
            unmet_milli: self.unmet_milli,
            ..Bidder::new(params, 0, 1)
        })
    }
}

impl Row {
    fn of(id: &str, input: &Input, share_milli: u64) -> Self {
        let throttled = input.reading.throttled;
        Self(
            id.to_owned(),
            input.reading.used_milli,
            throttled.map(|throttled| (throttled.milli, throttled.permille())),
            input.headroom_permille,
            input.before.limit_milli,
            share_milli,
            None,
        )
    }

    fn reading(&self) -> Reading {
        Reading {
            used_milli: self.1,
            throttled: self.2.map(|(milli, permille)| Throttled {
                milli,
                periods: PERMILLE,
                throttled_periods: permille.min(PERMILLE),
            }),
        }
    }
}

impl Record {
    /// Opens the record in a directory and continues after its last complete line.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let failed = |source| failed("open", &path)(source);
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true);
        let mut file = options.open(&path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |last| last + 1);
        let size = u64::try_from(whole).unwrap_or(u64::MAX);
        file.set_len(size).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut lines = bytes
            .get(..whole)
            .unwrap_or_default()
            .split(|b| *b == b'\n');
        let first = summary(lines.clone().next().unwrap_or_default());
        // The last piece is empty: it follows the last newline.
        let last = match lines.nth_back(1) {
            Some(line) => Some(line.to_vec()),
            None => last_closed(directory)?,
        };
        Ok(Self {
            directory: directory.to_owned(),
            file: Some(file),
            size,
            began_ms: first.map(|first| first.at_ms),
            head: last.as_deref().map_or(NOTHING, sha256),
            last: last.as_deref().and_then(summary),
            settings: None,
            rows: BTreeMap::new(),
        })
    }

    /// The end of the record; `None` before its first line.
    pub fn position(&self) -> Option<Position> {
        self.last.map(|last| Position {
            at_ms: last.at_ms,
            lines: last.lines,
            writes: last.writes,
            head: self.head,
        })
    }

    /// Adds a clearing with its settings, the inputs of its pods, and the events since the last one.
    /// On an error nothing was added, and the next line holds the whole state.
    pub fn add(
        &mut self,
        at_ms: u64,
        rules: &Rules,
        clearing: (&Clearing, &BTreeMap<String, Input>),
        events: Vec<Event>,
    ) -> Result<(), Error> {
        let added = self.append(at_ms, rules, clearing, events);
        if added.is_err() {
            self.rows.clear();
            self.settings = None;
        }
        added
    }

    fn append(
        &mut self,
        at_ms: u64,
        rules: &Rules,
        (clearing, inputs): (&Clearing, &BTreeMap<String, Input>),
        events: Vec<Event>,
    ) -> Result<(), Error> {
        let rows = rows(&clearing.cleared, inputs);
        let mut line = self.line(at_ms, rules, (clearing, inputs), &rows, events);
        let mut bytes = line.bytes();
        let is_old = |began_ms: u64| at_ms.saturating_sub(began_ms) >= SEGMENT_TIME_MS;
        let is_full = self.size.saturating_add(size(&bytes)) > SEGMENT_SIZE;
        if self.size > 0 && (is_full || self.began_ms.is_some_and(is_old)) {
            self.close(at_ms)?;
            // The first line of a segment holds everything.
            line = self.line(at_ms, rules, (clearing, inputs), &rows, line.events);
            bytes = line.bytes();
        }
        if self.size == 0 {
            self.forget(size(&bytes))?;
        }
        self.write(&bytes)?;
        self.began_ms.get_or_insert(at_ms);
        self.head = sha256(bytes.strip_suffix(b"\n").unwrap_or(&bytes));
        self.last = Some(line.summary());
        self.settings = Some(rules.sha256);
        self.rows = rows;
        Ok(())
    }

    fn line(
        &self,
        at_ms: u64,
        rules: &Rules,
        (clearing, inputs): (&Clearing, &BTreeMap<String, Input>),
        rows: &BTreeMap<String, (Params, Row)>,
        events: Vec<Event>,
    ) -> RecordLine {
        let (lines, writes) = self.last.map_or((0, 0), |last| (last.lines, last.writes));
        let is_known = self.settings == Some(rules.sha256);
        let whole = !is_known || self.rows.is_empty();
        let row = |(id, (params, row)): (&String, &(Params, Row))| {
            let known = self.rows.get(id).filter(|_| !whole);
            let is_same = known.is_some_and(|(known, _)| known == params);
            if is_same && known.is_some_and(|(_, known)| known == row) {
                return None;
            }
            let state = || Some(Box::new(State::of(&inputs.get(id)?.before)));
            let mut row = row.clone();
            row.6 = if is_same { None } else { state() };
            Some(row)
        };
        let is_gone = |id: &&String| !rows.contains_key(*id);
        let gone = self.rows.keys().filter(is_gone).cloned();
        let cleared = &clearing.cleared;
        RecordLine {
            version: VERSION,
            at_ms,
            lines: lines.saturating_add(1),
            writes: writes.saturating_add(written(&events)),
            previous: self.head,
            settings: rules.sha256,
            settings_text: (!is_known).then(|| rules.text.clone()),
            whole,
            allocatable_milli: clearing.allocatable_milli,
            unmanaged_milli: clearing.unmanaged_milli,
            held_milli: clearing.held_milli,
            capacity_milli: cleared.capacity_milli,
            mode: cleared.mode.word().to_owned(),
            label: clearing.label.word().to_owned(),
            rung: rung(cleared),
            price_ppm: cleared.price_ppm,
            pods: rows.iter().filter_map(row).collect(),
            gone: if whole { Vec::new() } else { gone.collect() },
            events,
        }
    }

    /// Appends a line to the current segment, which is created if there is none.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let path = self.directory.join(FILE);
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut options = OpenOptions::new();
                let options = options.create(true).truncate(true).write(true);
                none.insert(options.open(&path).map_err(failed("open", &path))?)
            }
        };
        if let Err(error) = file.write_all(bytes) {
            // Half a line would break the chain.
            let _shorter = file.set_len(self.size);
            let _back = file.seek(SeekFrom::Start(self.size));
            return Err(failed("append to", &path)(error));
        }
        self.size = self.size.saturating_add(size(bytes));
        Ok(())
    }

    fn close(&mut self, at_ms: u64) -> Result<(), Error> {
        let path = self.directory.join(FILE);
        let (before, after) = CLOSED;
        // Larger than the last one, even if the clock was set back: the names define the order.
        let last = closed(&self.directory)?
            .pop()
            .and_then(|path| number(&path));
        let number = last.map_or(at_ms, |last| at_ms.max(last.saturating_add(1)));
        let closed = self.directory.join(format!("{before}{number:016}{after}"));
        match fs::rename(&path, &closed) {
            // Somebody else has renamed or removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed.map_err(failed("close", &path))?,
        }
        (self.file, self.size, self.began_ms) = (None, 0, None);
        self.rows.clear();
        self.settings = None;
        Ok(())
    }

    /// Deletes segments over the age or size limit, with room for a new one that begins with a line
    /// of `first_size`.
    fn forget(&self, first_size: u64) -> Result<(), Error> {
        let mut total = SEGMENT_SIZE.max(first_size);
        let mut is_any_gone = false;
        for path in closed(&self.directory)?.into_iter().rev() {
            let metadata = fs::metadata(&path);
            let size = metadata.as_ref().map_or(0, fs::Metadata::len);
            total = total.saturating_add(size);
            let written = metadata.and_then(|metadata| metadata.modified());
            let age = written.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
            // All older ones too, so that no gap remains, even if the clock was set back.
            is_any_gone |= total > TOTAL_SIZE_MAX || age.is_ok_and(|age| age > KEPT_FOR);
            if is_any_gone {
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// The last clearing at or before a time; `None` if the record begins later. Only its segment is
/// replayed, up to that line: the first line of a segment depends on no other. If the clock was set
/// back and the time occurs twice, it is the later one.
pub fn read_at(directory: &Path, at_ms: u64) -> Result<Option<Past>, Error> {
    for (path, file) in files(directory)?.into_iter().rev() {
        let mut lines = LineReader::new(path, file);
        let mut last = None;
        while let Some(line) = lines.next()? {
            if summary(&line).is_some_and(|line| line.at_ms <= at_ms) {
                last = Some(lines.number);
            }
        }
        let Some(last) = last else { continue };
        lines.rewind()?;
        let (mut replay, mut found) = (Replay::default(), None);
        while lines.number < last
            && let Some(line) = lines.next()?
        {
            found = Some(replay.play(&line).map_err(|why| lines.broken(why))?);
        }
        if let Some(replayed) = found.as_mut().and_then(|past| past.replayed.as_mut()) {
            replayed.standings = replay.node.iter().flat_map(Node::standings).collect();
        }
        return Ok(found);
    }
    Ok(None)
}

/// Replays a record, oldest line first, and checks every line: it follows the previous one, its
/// settings match their hash, and repeating the clearing gives the same result. The record may grow
/// meanwhile.
pub fn read(directory: &Path, mut visit: impl FnMut(Past)) -> Result<Verified, Error> {
    let mut verified = Verified::default();
    let mut replay = Replay::default();
    let (mut total, mut largest) = (0_u64, SEGMENT_SIZE);
    for (path, file) in files(directory)? {
        let mut lines = LineReader::new(path, file);
        let mut file_size = 0_u64;
        while let Some(line) = lines.next()? {
            file_size = file_size.saturating_add(size(&line)).saturating_add(1);
            let past = replay.play(&line).map_err(|why| lines.broken(why))?;
            verified.lines += 1;
            verified.to_ms = past.at_ms;
            if verified.lines == 1 {
                verified.from_ms = past.at_ms;
            }
            visit(past);
        }
        total = total.saturating_add(file_size);
        largest = largest.max(file_size);
    }
    // A segment was deleted only if the rest, itself and the next one together were too large.
    verified.is_full = TOTAL_SIZE_MAX < total.saturating_add(largest.saturating_mul(2));
    Ok(verified)
}

/// Makes the present content of a record durable.
pub fn sync(directory: &Path) -> Result<(), Error> {
    for (path, file) in files(directory)? {
        file.sync_data().map_err(failed("sync", &path))?;
    }
    let names = File::open(directory).and_then(|directory| directory.sync_all());
    names.map_err(failed("sync", directory))
}

/// All segments, oldest first. One that is closed or deleted meanwhile appears once or not at all,
/// and none is missing between two others.
fn files(directory: &Path) -> Result<Vec<(PathBuf, File)>, Error> {
    let open = |path: PathBuf| match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(file) => Ok(Some((path, file))),
        Err(source) => Err(failed("read", &path)(source)),
    };
    let identity = |(_, file): &(PathBuf, File)| {
        let metadata = file.metadata().ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    // The current segment comes first: if it is closed now, its new name is found below.
    let mut found = Vec::from_iter(open(directory.join(FILE))?);
    for path in closed(directory)?.into_iter().rev() {
        // The oldest are deleted first, so all before this one are gone too.
        let Some(file) = open(path)? else { break };
        if found.first().and_then(identity) == identity(&file) {
            found.clear();
        }
        found.push(file);
    }
    found.reverse();
    Ok(found)
}

/// Reads the complete lines of a segment.
struct LineReader {
    path: PathBuf,
    file: BufReader<File>,
    /// Number of the line that was read last, from 1.
    number: u64,
}

impl LineReader {
    fn new(path: PathBuf, file: File) -> Self {
        let file = BufReader::new(file);
        Self {
            path,
            file,
            number: 0,
        }
    }

    /// The next line without its newline; `None` at the end, or at an incomplete line.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.number += 1;
        let mut bytes = Vec::new();
        let mut line = self.file.by_ref().take(LINE_SIZE_MAX);
        let read = line.read_until(b'\n', &mut bytes);
        read.map_err(|_| self.broken("it cannot be read"))?;
        Ok((bytes.pop() == Some(b'\n')).then_some(bytes))
    }

    fn rewind(&mut self) -> Result<(), Error> {
        self.number = 0;
        let began = self.file.rewind();
        began.map_err(|_| self.broken("it cannot be read"))
    }

    /// The error of the line that was read last.
    fn broken(&self, why: &'static str) -> Error {
        Error::Record {
            path: self.path.clone(),
            line: self.number,
            why,
        }
    }
}

impl RecordLine {
    fn bytes(&self) -> Vec<u8> {
        // Numbers and strings always serialize.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    const fn summary(&self) -> LineSummary {
        LineSummary {
            at_ms: self.at_ms,
            lines: self.lines,
            writes: self.writes,
        }
    }
}

/// State of a replay after the lines read so far.
#[derive(Default)]
struct Replay {
    /// The last line and its hash.
    last: Option<(LineSummary, Hash)>,
    settings: Option<Hash>,
    run: Option<Run>,
    /// Absent before the first line that can be replayed.
    node: Option<Node>,
    rows: BTreeMap<String, Row>,
}

impl Replay {
    fn play(&mut self, bytes: &[u8]) -> Result<Past, &'static str> {
        let header: Header =
            serde_json::from_slice(bytes).map_err(|_| "it is not a line of a record")?;
        if let Some((_, hash)) = self.last
            && header.previous != hash
        {
            return Err("its hash of the previous line does not match");
        }
        let hash = sha256(bytes);
        let before = self.last.replace((header.summary, hash));
        let replayed = if header.version == VERSION {
            let line: RecordLine =
                serde_json::from_slice(bytes).map_err(|_| "it is not a line of a record")?;
            Some(self.clear(line, before.map(|(last, _)| last))?)
        } else {
            (self.node, self.settings) = (None, None);
            None
        };
        Ok(Past {
            at_ms: header.summary.at_ms,
            line: header.summary.lines,
            hash,
            replayed,
        })
    }

    /// Repeats the clearing of a line.
    fn clear(
        &mut self,
        line: RecordLine,
        before: Option<LineSummary>,
    ) -> Result<Replayed, &'static str> {
        let run = self.follow(&line, before)?;
        let node = self
            .node
            .as_mut()
            .ok_or("it depends on an earlier line that is missing")?;
        for id in &line.gone {
            self.rows.remove(id);
            node.forget(id);
        }
        for mut row in line.pods {
            if let Some(state) = row.6.take() {
                let bidder = state.bidder().ok_or("the state of a pod is not valid")?;
                node.recall(&row.0, bidder);
            }
            self.rows.insert(row.0.clone(), row);
        }
        for row in self.rows.values() {
            node.replay(&row.0, row.reading(), (row.3, row.4));
        }
        // The time stands still, so that recorded headroom is not judged again. Held pods are not part
        // of this node; they take capacity in the same way as unmanaged use.
        let supply = Supply {
            allocatable_milli: line.allocatable_milli,
            unmanaged_milli: Some(line.unmanaged_milli.saturating_add(line.held_milli)),
        };
        node.clear(0, supply);
        let clearing = node.last().ok_or("it cannot be cleared")?;
        let cleared = &clearing.cleared;
        let has_share = |row: &Row| cleared.share(&row.0).map(|share| share.allocated_milli);
        let is_same = cleared.shares.len() == self.rows.len()
            && self.rows.values().all(|row| has_share(row) == Some(row.5));
        let results = (cleared.mode.word(), cleared.price_ppm, rung(cleared));
        if !is_same || results != (line.mode.as_str(), line.price_ppm, line.rung) {
            return Err("clearing it again gives a different result");
        }
        if cleared.capacity_milli != line.capacity_milli {
            return Err("its capacity does not follow from its inputs");
        }
        let label = Mode::ALL.into_iter().find(|mode| mode.word() == line.label);
        Ok(Replayed {
            clearing: Clearing {
                unmanaged_milli: line.unmanaged_milli,
                held_milli: line.held_milli,
                label: label.ok_or("its mode is unknown")?,
                ..clearing
            },
            standings: Vec::new(),
            settings: line.settings,
            run,
            events: line.events,
        })
    }

    /// Checks that a line continues the counts and the settings; a whole line begins a new node.
    fn follow(
        &mut self,
        line: &RecordLine,
        before: Option<LineSummary>,
    ) -> Result<Run, &'static str> {
        if let Some(last) = before {
            let writes = last.writes.saturating_add(written(&line.events));
            let counted = (last.lines.saturating_add(1), writes);
            if (line.lines, line.writes) != counted {
                return Err("its numbers of lines and writes do not continue those before it");
            }
        }
        match &line.settings_text {
            Some(text) if sha256(text.as_bytes()) != line.settings => {
                return Err("its settings do not match their hash");
            }
            Some(text) => self.run = Run::read(text),
            None if self.settings != Some(line.settings) => {
                return Err("its settings are missing");
            }
            None => {}
        }
        self.settings = Some(line.settings);
        let run = self.run.ok_or("its settings are not valid")?;
        if line.whole {
            self.rows.clear();
            self.node = Some(Node::new(run.settings));
        }
        Ok(run)
    }
}

fn rung(cleared: &Cleared) -> Option<u64> {
    cleared
        .step
        .rung()
        .and_then(|rung| u64::try_from(rung).ok())
}

fn rows(cleared: &Cleared, inputs: &BTreeMap<String, Input>) -> BTreeMap<String, (Params, Row)> {
    let row = |(id, input): (&String, &Input)| {
        let share = cleared.share(id)?;
        let row = Row::of(id, input, share.allocated_milli);
        Some((id.clone(), (input.before.params, row)))
    };
    inputs.iter().filter_map(row).collect()
}

/// The closed segments, oldest first.
fn closed(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| failed("list", directory)(source);
    let (before, after) = CLOSED;
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let is_one = |name: &str| name.starts_with(before) && name.ends_with(after);
        if name.to_str().is_some_and(is_one) {
            found.push(directory.join(name));
        }
    }
    found.sort();
    Ok(found)
}

fn number(path: &Path) -> Option<u64> {
    let (before, after) = CLOSED;
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(before)?.strip_suffix(after)?.parse().ok()
}

fn last_closed(directory: &Path) -> Result<Option<Vec<u8>>, Error> {
    let Some(path) = closed(directory)?.pop() else {
        return Ok(None);
    };
    let bytes = fs::read(&path).map_err(failed("read", &path))?;
    let line = bytes.split(|byte| *byte == b'\n').nth_back(1);
    Ok(line.map(<[u8]>::to_vec))
}

fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn summary(line: &[u8]) -> Option<LineSummary> {
    serde_json::from_slice(line).ok()
}

fn written(events: &[Event]) -> u64 {
    let is_write = |event: &&Event| matches!(event, Event::Wrote { .. });
    u64::try_from(events.iter().filter(is_write).count()).unwrap_or(u64::MAX)
}
