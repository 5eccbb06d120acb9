//! What went into every clearing and what came out, kept for a day in a chain of hashes (M12).
//!
//! One line of JSON per clearing; each names the SHA-256 of the line before it, so a line that
//! was changed or taken away is found, and that of the settings it was made by. A line tells only
//! the pods that differ from the line before, and the first of a file tells all. [`read`] plays it
//! back: it clears every line again with the very function that the agent calls, and says where
//! anything differs. [`read_at`] does so from the beginning of one file.
//!
//! Bounded: files of [`SEGMENT_SIZE`], or of one line that is larger; at most [`TOTAL_SIZE_MAX`]
//! together, none older than a day.
//! Durable only up to the last [`sync`]: a line that a crash tore off is cut away.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bursar_journal::hash::{HASH_BYTES, Hash, sha256};
use bursar_market::clear::{self, Cleared, Market, Mode, Pod, Policy, Want};
use bursar_market::node::Clearing;
use serde::{Deserialize, Serialize};

use super::Error;
use super::rules::{Rules, Run};

/// How large a file may become before the next one begins; a line is never divided.
pub const SEGMENT_SIZE: u64 = 4 << 20;
/// How large all files together may be.
pub const TOTAL_SIZE_MAX: u64 = 64 << 20;
/// How long a file is kept.
pub const KEPT_FOR: Duration = Duration::from_hours(24);
/// After how long a file is closed, so that what is old can go.
const SEGMENT_TIME_MS: u64 = 3_600_000;
/// The file that is being written.
const FILE: &str = "record.jsonl";
/// How the closed ones begin and end; the time of their last line lies between, so that they sort.
const CLOSED: (&str, &str) = ("record-", ".jsonl");
/// What the first line of all names.
const NOTHING: Hash = Hash([0; HASH_BYTES]);
/// The longest line that is read back: 100,000 pods have less.
const LINE_SIZE_MAX: u64 = 32 << 20;

/// Something that happened besides the clearing itself; an absent limit is none.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    tag = "what",
    rename_all_fields = "camelCase"
)]
pub enum Event {
    /// A limit was written and read back.
    Wrote {
        /// Whose.
        pod: String,
        /// What it was.
        from_milli: Option<u64>,
        /// What it is.
        to_milli: Option<u64>,
    },
    /// A limit was not taken.
    Refused {
        /// Whose.
        pod: String,
        /// What the system said.
        reason: String,
    },
    /// Somebody else changed a limit.
    Conflict {
        /// Whose.
        pod: String,
        /// To what.
        to_milli: Option<u64>,
    },
    /// An original was stored.
    Taken {
        /// Whose.
        pod: String,
        /// What it was.
        milli: Option<u64>,
    },
    /// An original was put back.
    Restored {
        /// Whose.
        pod: String,
        /// What it is again.
        milli: Option<u64>,
    },
}

/// One line played back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Past {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Which line it is, from 1, since the first of all.
    pub line: u64,
    /// Its hash.
    pub hash: Hash,
    /// K.
    pub allocatable_milli: u64,
    /// U.
    pub unmanaged_milli: u64,
    /// What those kept who were held.
    pub held_milli: u64,
    /// What was cleared.
    pub market: Market,
    /// What came of it, calculated anew.
    pub cleared: Cleared,
    /// The mode that people were shown.
    pub label: Mode,
    /// The hash of the settings by which it was.
    pub settings: Hash,
    /// What those say.
    pub run: Run,
    /// What happened besides, since the line before.
    pub events: Vec<Event>,
}

/// How far a record has come, since the first line of all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Position {
    /// When the last line was written, in milliseconds since 1970.
    pub at_ms: u64,
    /// How many lines it has had.
    pub lines: u64,
    /// How many limits they say were written.
    pub writes: u64,
    /// The hash of the last.
    pub head: Hash,
}

/// What was read back without a flaw.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verified {
    /// How many lines.
    pub lines: u64,
    /// When the first was written, in milliseconds since 1970.
    pub from_ms: u64,
    /// When the last was.
    pub to_ms: u64,
    /// Whether there is so much that a file may have been let go before its day was over.
    pub is_full: bool,
}

/// The record of one agent.
#[derive(Debug)]
pub struct Record {
    directory: PathBuf,
    /// The file that is being written; `None` once it was closed, until the next could be opened.
    file: Option<File>,
    size: u64,
    began_ms: Option<u64>,
    head: Hash,
    /// Where its last line stands, if it has one.
    last: Option<Place>,
    /// The settings of its last line, if that is ours.
    settings: Option<Hash>,
    rows: BTreeMap<String, Row>,
}

/// Where a line stands: what is read of it where no more is wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Place {
    at_ms: u64,
    lines: u64,
    writes: u64,
}

/// A line as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    at_ms: u64,
    /// How many lines there are with this one, since the first of all.
    lines: u64,
    /// How many limits they say were written.
    writes: u64,
    previous: Hash,
    /// The hash of the settings.
    settings: Hash,
    /// The settings themselves, where they are others than in the line before, and in the first of
    /// a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settings_text: Option<String>,
    /// Whether all pods are here; else only those that differ.
    whole: bool,
    allocatable_milli: u64,
    unmanaged_milli: u64,
    held_milli: u64,
    capacity_milli: u64,
    policy: String,
    quantum_milli: u64,
    mode: String,
    label: String,
    price_ppm: u64,
    pods: Vec<Row>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<Event>,
}

/// A pod: id, floor, ceiling, weight, want, headroom, present limit, cooling, share. A list, since
/// names of fields would be most of the file.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
struct Row(
    String,
    u64,
    u64,
    u64,
    Wanted,
    u64,
    Option<u64>,
    bool,
    Option<u64>,
);

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Wanted {
    DemandPpm(u64),
    NeedMilli(u64),
}

impl Record {
    /// Opens the record in a directory and goes on behind its last whole line.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let failed = |source| Error::Path {
            doing: "open",
            path: path.clone(),
            source,
        };
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
        let first = place(lines.clone().next().unwrap_or_default());
        // The last piece is what follows the last newline: nothing.
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
            last: last.as_deref().and_then(place),
            settings: None,
            rows: BTreeMap::new(),
        })
    }

    /// How far it has come; `None` before its first line.
    pub fn position(&self) -> Option<Position> {
        self.last.map(|last| Position {
            at_ms: last.at_ms,
            lines: last.lines,
            writes: last.writes,
            head: self.head,
        })
    }

    /// Adds a clearing, by which settings it was, and what happened since the last one. Where that
    /// fails nothing was added.
    pub fn add(
        &mut self,
        at_ms: u64,
        rules: &Rules,
        clearing: &Clearing,
        events: Vec<Event>,
    ) -> Result<(), Error> {
        let rows = rows(clearing);
        let mut line = self.line(at_ms, rules, clearing, &rows, events);
        let mut bytes = line.bytes();
        let is_old = |began_ms: u64| at_ms.saturating_sub(began_ms) >= SEGMENT_TIME_MS;
        let is_full = self.size.saturating_add(size(&bytes)) > SEGMENT_SIZE;
        if self.size > 0 && (is_full || self.began_ms.is_some_and(is_old)) {
            self.close(at_ms)?;
            // The first line of a file tells everything.
            line = self.line(at_ms, rules, clearing, &rows, line.events);
            bytes = line.bytes();
        }
        if self.size == 0 {
            self.forget(size(&bytes))?;
        }
        self.write(&bytes)?;
        self.began_ms.get_or_insert(at_ms);
        self.head = sha256(bytes.strip_suffix(b"\n").unwrap_or(&bytes));
        self.last = Some(line.place());
        self.settings = Some(rules.sha256);
        self.rows = rows;
        Ok(())
    }

    fn line(
        &self,
        at_ms: u64,
        rules: &Rules,
        clearing: &Clearing,
        rows: &BTreeMap<String, Row>,
        events: Vec<Event>,
    ) -> Line {
        let (lines, writes) = self.last.map_or((0, 0), |last| (last.lines, last.writes));
        let is_told = self.settings == Some(rules.sha256);
        let whole = self.rows.is_empty();
        let is_new = |row: &&Row| self.rows.get(&row.0) != Some(row);
        let pods = rows.values().filter(is_new).cloned().collect();
        let is_gone = |id: &&String| !rows.contains_key(*id);
        let gone = self.rows.keys().filter(is_gone).cloned().collect();
        Line {
            at_ms,
            lines: lines.saturating_add(1),
            writes: writes.saturating_add(written(&events)),
            previous: self.head,
            settings: rules.sha256,
            settings_text: (!is_told).then(|| rules.text.clone()),
            whole,
            allocatable_milli: clearing.allocatable_milli,
            unmanaged_milli: clearing.unmanaged_milli,
            held_milli: clearing.held_milli,
            capacity_milli: clearing.market.capacity_milli,
            policy: clearing.market.policy.word().to_owned(),
            quantum_milli: clearing.market.quantum_milli,
            mode: clearing.cleared.mode.word().to_owned(),
            label: clearing.label.word().to_owned(),
            price_ppm: clearing.cleared.price_ppm,
            pods,
            gone,
            events,
        }
    }

    /// Adds the bytes of a line to the file, which is made if there is none.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let path = self.directory.join(FILE);
        let failed = |doing| {
            let path = path.clone();
            move |source| Error::Path {
                doing,
                path,
                source,
            }
        };
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut options = OpenOptions::new();
                let options = options.create(true).truncate(true).write(true);
                none.insert(options.open(&path).map_err(failed("open"))?)
            }
        };
        if let Err(error) = file.write_all(bytes) {
            // Half a line would break the chain.
            let _shorter = file.set_len(self.size);
            let _back = file.seek(SeekFrom::Start(self.size));
            return Err(failed("add to")(error));
        }
        self.size = self.size.saturating_add(size(bytes));
        Ok(())
    }

    /// Closes the file; the next line begins another.
    fn close(&mut self, at_ms: u64) -> Result<(), Error> {
        let path = self.directory.join(FILE);
        let (before, after) = CLOSED;
        // After the last one, whatever the clock did: they are read in the order of their names.
        let last = closed(&self.directory)?
            .pop()
            .and_then(|path| number(&path));
        let number = last.map_or(at_ms, |last| at_ms.max(last.saturating_add(1)));
        let closed = self.directory.join(format!("{before}{number:016}{after}"));
        match fs::rename(&path, &closed) {
            // Somebody else has closed it, or taken it away: there is nothing to close any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed.map_err(|source| Error::Path {
                doing: "close",
                path,
                source,
            })?,
        }
        (self.file, self.size, self.began_ms) = (None, 0, None);
        self.rows.clear();
        self.settings = None;
        Ok(())
    }

    /// Lets go what is too old, or too much beside a new file that begins with a line of that size.
    fn forget(&self, first_size: u64) -> Result<(), Error> {
        let mut total = SEGMENT_SIZE.max(first_size);
        let mut is_any_gone = false;
        for path in closed(&self.directory)?.into_iter().rev() {
            let metadata = fs::metadata(&path);
            let size = metadata.as_ref().map_or(0, fs::Metadata::len);
            total = total.saturating_add(size);
            let written = metadata.and_then(|metadata| metadata.modified());
            let age = written.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
            // What is left is without a gap, whatever the clock did.
            is_any_gone |= total > TOTAL_SIZE_MAX || age.is_ok_and(|age| age > KEPT_FOR);
            if is_any_gone {
                fs::remove_file(&path).map_err(|source| Error::Path {
                    doing: "remove",
                    path,
                    source,
                })?;
            }
        }
        Ok(())
    }
}

/// The last clearing at or before a time; `None` if the record begins later. Only the file that
/// holds it is played back, up to there: the first line of each file builds on no other. Where a
/// clock was set back and showed the time twice, it is the later one.
pub fn read_at(directory: &Path, at_ms: u64) -> Result<Option<Past>, Error> {
    for (path, file) in files(directory)?.into_iter().rev() {
        let mut lines = Lines::new(path, file);
        let mut last = None;
        while let Some(line) = lines.next()? {
            if place(&line).is_some_and(|place| place.at_ms <= at_ms) {
                last = Some(lines.number);
            }
        }
        let Some(last) = last else { continue };
        lines.rewind()?;
        let (mut before, mut found) = (Before::default(), None);
        while lines.number < last
            && let Some(line) = lines.next()?
        {
            found = Some(before.play(&line).map_err(|why| lines.broken(why))?);
        }
        return Ok(found);
    }
    Ok(None)
}

/// Plays a record back, oldest line first, and checks every line: that it follows the one before,
/// that its settings are those whose hash it names, and that clearing it again gives what it says.
/// It may be written meanwhile.
pub fn read(directory: &Path, mut visit: impl FnMut(Past)) -> Result<Verified, Error> {
    let mut verified = Verified::default();
    let mut before = Before::default();
    let (mut total, mut largest) = (0_u64, SEGMENT_SIZE);
    for (path, file) in files(directory)? {
        let mut lines = Lines::new(path, file);
        let mut file_size = 0_u64;
        while let Some(line) = lines.next()? {
            file_size = file_size.saturating_add(size(&line)).saturating_add(1);
            let past = before.play(&line).map_err(|why| lines.broken(why))?;
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
    // When a file was let go there had to be room for it and for the next besides what is left.
    verified.is_full = TOTAL_SIZE_MAX < total.saturating_add(largest.saturating_mul(2));
    Ok(verified)
}

/// Sees to it that what is in a record by now outlives a power cut.
pub fn sync(directory: &Path) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Path {
            doing: "make durable",
            path,
            source,
        }
    };
    for (path, file) in files(directory)? {
        file.sync_data().map_err(failed(&path))?;
    }
    let names = File::open(directory).and_then(|directory| directory.sync_all());
    names.map_err(failed(directory))
}

/// All files of a record, oldest first. One that is closed or let go meanwhile is there once or not
/// at all, and none is missing between two others.
fn files(directory: &Path) -> Result<Vec<(PathBuf, File)>, Error> {
    let open = |path: PathBuf| match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(file) => Ok(Some((path, file))),
        Err(source) => Err(Error::Path {
            doing: "read",
            path,
            source,
        }),
    };
    let identity = |(_, file): &(PathBuf, File)| {
        let metadata = file.metadata().ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    // The one that is written comes first: if it is closed now it is found again by its new name.
    let mut found = Vec::from_iter(open(directory.join(FILE))?);
    for path in closed(directory)?.into_iter().rev() {
        // The oldest are let go first, so that all before this one are gone, too.
        let Some(file) = open(path)? else { break };
        if found.first().and_then(identity) == identity(&file) {
            found.clear();
        }
        found.push(file);
    }
    found.reverse();
    Ok(found)
}

/// The whole lines of a file, one after another.
struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    /// Which one was read last, from 1.
    number: u64,
}

impl Lines {
    fn new(path: PathBuf, file: File) -> Self {
        let file = BufReader::new(file);
        Self {
            path,
            file,
            number: 0,
        }
    }

    /// The next line without its end; `None` at the end of the file, or where one is being written.
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

    /// The line that was read last is not as it should be.
    fn broken(&self, why: &'static str) -> Error {
        Error::Record {
            path: self.path.clone(),
            line: self.number,
            why,
        }
    }
}

impl Line {
    /// As it is stored, with the end of the line.
    fn bytes(&self) -> Vec<u8> {
        // Numbers and words can always be written.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    const fn place(&self) -> Place {
        Place {
            at_ms: self.at_ms,
            lines: self.lines,
            writes: self.writes,
        }
    }
}

/// What the lines before one say.
#[derive(Default)]
struct Before {
    /// Where the last one stands, and its hash.
    last: Option<(Place, Hash)>,
    settings: Option<Hash>,
    /// What those say.
    run: Option<Run>,
    rows: BTreeMap<String, Row>,
}

impl Before {
    /// Takes the next line in.
    fn play(&mut self, bytes: &[u8]) -> Result<Past, &'static str> {
        let line: Line = serde_json::from_slice(bytes).map_err(|_| "it makes no sense")?;
        self.follow(&line)?;
        let hash = sha256(bytes);
        self.last = Some((line.place(), hash));
        for id in &line.gone {
            self.rows.remove(id);
        }
        for row in line.pods {
            self.rows.insert(row.0.clone(), row);
        }
        let rows = &self.rows;
        let market = Market {
            capacity_milli: line.capacity_milli,
            policy: Policy::from_word(&line.policy).ok_or("it names no policy")?,
            quantum_milli: line.quantum_milli,
            pods: rows.values().map(pod).collect(),
        };
        let cleared = clear::clear(&market);
        let shares = shares(&cleared);
        let is_same = rows
            .values()
            .all(|row| shares.get(row.0.as_str()).copied() == row.8);
        let is_same = is_same && cleared.mode.word() == line.mode;
        if !is_same || cleared.price_ppm != line.price_ppm {
            return Err("clearing it again gives something else");
        }
        let label = Mode::ALL.into_iter().find(|mode| mode.word() == line.label);
        Ok(Past {
            at_ms: line.at_ms,
            line: line.lines,
            hash,
            allocatable_milli: line.allocatable_milli,
            unmanaged_milli: line.unmanaged_milli,
            held_milli: line.held_milli,
            market,
            cleared,
            label: label.ok_or("it names no mode")?,
            settings: line.settings,
            run: self.run.ok_or("its settings are nowhere told")?,
            events: line.events,
        })
    }

    /// Whether a line follows those before it: in the chain, in its counts, and in its settings.
    fn follow(&mut self, line: &Line) -> Result<(), &'static str> {
        match self.last {
            Some((_, hash)) if line.previous != hash => {
                return Err("it does not follow the line before");
            }
            Some((last, _)) => {
                let writes = last.writes.saturating_add(written(&line.events));
                let counted = (last.lines.saturating_add(1), writes);
                if (line.lines, line.writes) != counted {
                    return Err("it counts other lines or writes than there are");
                }
            }
            None if !line.whole => return Err("it builds on a line that is not there"),
            None => {}
        }
        if line.whole {
            self.rows.clear();
        }
        match &line.settings_text {
            Some(text) if sha256(text.as_bytes()) != line.settings => {
                return Err("its settings have another hash");
            }
            Some(text) => self.run = Run::read(text),
            None if self.settings != Some(line.settings) => {
                return Err("its settings are nowhere told");
            }
            None => {}
        }
        let is_by_them = |run: Run| {
            let settings = run.settings;
            (settings.policy.word(), settings.quantum_milli) == (&line.policy, line.quantum_milli)
        };
        if !self.run.is_some_and(is_by_them) {
            return Err("it was not cleared by its settings");
        }
        self.settings = Some(line.settings);
        Ok(())
    }
}

fn rows(clearing: &Clearing) -> BTreeMap<String, Row> {
    let shares = shares(&clearing.cleared);
    let row = |pod: &Pod| {
        let want = match pod.want {
            Want::Demand(ppm) => Wanted::DemandPpm(ppm),
            Want::Need(milli) => Wanted::NeedMilli(milli),
        };
        Row(
            pod.id.to_string(),
            pod.min_milli,
            pod.max_milli,
            pod.weight,
            want,
            pod.headroom_permille,
            pod.current_milli,
            pod.cooling,
            shares.get(&*pod.id).copied(),
        )
    };
    let pods = clearing.market.pods.iter();
    pods.map(|pod| (pod.id.to_string(), row(pod))).collect()
}

fn shares(cleared: &Cleared) -> BTreeMap<&str, u64> {
    let shares = cleared.shares.iter();
    shares
        .map(|share| (&*share.id, share.allocated_milli))
        .collect()
}

fn pod(row: &Row) -> Pod {
    let Row(id, min_milli, max_milli, weight, want, headroom_permille, current_milli, cooling, _) =
        row;
    Pod {
        id: id.as_str().into(),
        min_milli: *min_milli,
        max_milli: *max_milli,
        weight: *weight,
        want: match want {
            Wanted::DemandPpm(ppm) => Want::Demand(*ppm),
            Wanted::NeedMilli(milli) => Want::Need(*milli),
        },
        headroom_permille: *headroom_permille,
        current_milli: *current_milli,
        cooling: *cooling,
    }
}

/// The closed files, oldest first.
fn closed(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Path {
        doing: "look into",
        path: directory.to_owned(),
        source,
    };
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

/// The number in the name of a closed file.
fn number(path: &Path) -> Option<u64> {
    let (before, after) = CLOSED;
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(before)?.strip_suffix(after)?.parse().ok()
}

/// The last line of the last closed file.
fn last_closed(directory: &Path) -> Result<Option<Vec<u8>>, Error> {
    let Some(path) = closed(directory)?.pop() else {
        return Ok(None);
    };
    let bytes = fs::read(&path).map_err(|source| Error::Path {
        doing: "read",
        path,
        source,
    })?;
    let line = bytes.split(|byte| *byte == b'\n').nth_back(1);
    Ok(line.map(<[u8]>::to_vec))
}

fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Where a line stands, if it makes sense.
fn place(line: &[u8]) -> Option<Place> {
    serde_json::from_slice(line).ok()
}

/// How many limits were written.
fn written(events: &[Event]) -> u64 {
    let is_write = |event: &&Event| matches!(event, Event::Wrote { .. });
    u64::try_from(events.iter().filter(is_write).count()).unwrap_or(u64::MAX)
}
