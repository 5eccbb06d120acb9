//! State folded again from the events, compared with snapshots and the live state.

use std::collections::BTreeMap;

use bursar_engine::codec::{self, Record, encode};
use bursar_engine::market::Position;
use bursar_engine::tally::Tally;
use bursar_engine::{Event, Events, LEVEL, State, dated, decide, snapshot, spine};
use bursar_journal::checkpoint::VerifierKey;
use bursar_journal::hash::{Hash, sha256};
use bursar_units::ObjectName;
use bursar_units::causes::chain;
use bursar_units::words::{count, number};

use super::{Asked, Check};
use crate::store::{Error, Kept, Reader};

pub(super) struct Fold {
    start: Start,
    state: State,
    tally: Tally,
    redecide: bool,
    /// Second state, on which commands are decided again once their level is that of this program.
    redecided: Option<State>,
    decided: u64,
    /// The first record that is decided differently now.
    otherwise: Option<String>,
    /// The first record that cannot be read, with the cause.
    problem: Option<(u64, String)>,
    /// Known hashes of the state, by head.
    expected: BTreeMap<u64, Vec<(Claim, Hash)>>,
    met: Vec<Claim>,
    /// The first claim that the folded state does not equal.
    unmet: Option<String>,
    blank: std::ops::Range<u64>,
    has_payload: bool,
    /// End of the pruned records according to the records.
    pruned_below: u64,
    pub(super) announced: Vec<(u64, VerifierKey)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Claim {
    Snapshot,
    Live,
}

enum Start {
    /// Record 0.
    Beginning,
    /// An anchored snapshot; `is_recorded` once the record with its hash was read.
    Anchor {
        head: u64,
        sha256: Hash,
        is_recorded: bool,
    },
    /// None: the records are an excerpt without a state before them.
    Nowhere,
}

impl Fold {
    pub(super) fn start(
        reader: &dyn Reader,
        first: u64,
        head: u64,
        asked: &Asked<'_>,
    ) -> Result<Self, Error> {
        let (start, state, unmet) = find_start(reader, first, head)?;
        let mut expected: BTreeMap<u64, Vec<(Claim, Hash)>> = BTreeMap::new();
        for loaded in asked.snapshots {
            let claim = (Claim::Snapshot, loaded.header.sha256);
            expected.entry(loaded.header.head).or_default().push(claim);
        }
        if let Some((head, hash)) = asked.live {
            expected.entry(head).or_default().push((Claim::Live, hash));
        }
        let mut fold = Self {
            tally: Tally::of(&state),
            redecide: asked.redecide,
            redecided: None,
            decided: 0,
            start,
            state,
            otherwise: None,
            problem: None,
            expected,
            met: Vec::new(),
            unmet,
            blank: first..first,
            has_payload: false,
            pruned_below: 0,
            announced: Vec::new(),
        };
        fold.announced.extend(
            fold.state
                .spine
                .keys
                .iter()
                .filter_map(|(_, key)| Some((0, key.parse().ok()?))),
        );
        fold.meet();
        Ok(fold)
    }

    /// Folds the next record, if the fold has begun and no record had a problem.
    pub(super) fn take(&mut self, reader: &dyn Reader, kept: &Kept) {
        if self.problem.is_some() {
            return;
        }
        let Some(bytes) = kept.bytes.as_deref() else {
            // Payloads are pruned from the first record on, without a gap (L13).
            if self.has_payload {
                let seq = number(kept.seq);
                let why = format!("record {seq} has no payload, but records before it have one");
                self.problem = Some((kept.seq, why));
            }
            self.blank.end = kept.seq + 1;
            return;
        };
        self.has_payload = true;
        let blob = |sha256: &Hash| reader.blob(sha256).ok().flatten();
        let record = match codec::decode(kept.seq, bytes, blob) {
            Ok(record) => record,
            Err(error) => {
                self.problem = Some((kept.seq, chain(&error)));
                return;
            }
        };
        self.note_announcements(&record);
        if kept.seq == self.state.spine.head && !matches!(self.start, Start::Nowhere) {
            self.redecide(&record, bytes);
            for (at, event) in dated(record.time, &record.events) {
                self.state.apply(at, event);
                self.tally.take(kept.seq, at, event);
            }
            self.tally.end_record(kept.seq);
            self.state.spine.head += 1;
            self.meet();
        }
    }

    pub(super) fn level(&self) -> u64 {
        self.state.spine.level
    }

    pub(super) fn problem_at(&self) -> Option<u64> {
        self.problem.as_ref().map(|(seq, _)| *seq)
    }

    /// Lines about missing payloads without a record of the prune, or without an anchored snapshot
    /// (L13).
    pub(super) fn unexplained_blanks(&self) -> Vec<Check> {
        if self.blank.is_empty() || self.problem.is_some() {
            return Vec::new();
        }
        let (first, last) = (number(self.blank.start), number(self.blank.end - 1));
        let what = if first == last {
            format!("the payload of record {first} is missing")
        } else {
            format!("the payloads of records {first} to {last} are missing")
        };
        let is_recorded = self.blank.end <= self.pruned_below;
        let is_anchored = matches!(self.start, Start::Anchor { .. });
        let gaps = [
            (is_recorded, "no record says that they were pruned"),
            (is_anchored, "no anchored snapshot stands for them"),
        ];
        let gaps = gaps.into_iter().filter(|(is_explained, _)| !is_explained);
        gaps.map(|(_, why)| Check::failed("signed", format!("{what}, and {why}")))
            .collect()
    }

    pub(super) fn into_state(self) -> Result<State, String> {
        match self.problem {
            Some((_, why)) => Err(why),
            None => Ok(self.state),
        }
    }

    pub(super) fn digests(&self) -> Vec<(ObjectName, Position)> {
        let markets = self.state.markets.iter();
        markets
            .filter_map(|(node, known)| Some((node.clone(), known.digest?)))
            .collect()
    }

    /// Line about the state; `damaged_at` is the first record that the hashes show to be damaged.
    pub(super) fn state_check(&self, damaged_at: Option<u64>) -> Check {
        // Records after the damage are expected to be unreadable.
        let is_new = |seq: u64| damaged_at.is_none_or(|damaged_at| seq < damaged_at);
        if let Some((_, why)) = self.problem.as_ref().filter(|(seq, _)| is_new(*seq)) {
            return Check::failed("state", why.clone());
        }
        match damaged_at {
            Some(0) => Check::failed("state", "no record is good".to_owned()),
            Some(seq) => {
                let (first, last) = (number(self.begin()), number(seq - 1));
                Check::passed("state", format!("records {first} to {last} re-fold"))
            }
            None => match self.unmet.clone().or_else(|| self.unrecorded()) {
                Some(detail) => Check::failed("state", detail),
                None => Check::passed("state", self.summary()),
            },
        }
    }

    /// Lines that apply only if every record is good.
    pub(super) fn further_checks(&self) -> Vec<Check> {
        if matches!(self.start, Start::Nowhere) {
            return Vec::new();
        }
        let mut checks = Vec::new();
        if self.redecide {
            let decided = count(self.decided, "command");
            let older = self.state.spine.head - self.begin() - self.decided;
            let older = match older {
                0 => String::new(),
                _ => format!(", {} up to the record `level` folded only", number(older)),
            };
            let again = format!("{decided} decided again, byte for byte{older}");
            let otherwise = self.otherwise.clone();
            checks.push(
                otherwise.map_or(Check::passed("decisions", again), |detail| {
                    Check::failed("decisions", detail)
                }),
            );
        }
        let findings = self.tally.findings(&self.state);
        checks.extend(findings.into_iter().map(|finding| {
            if finding.is_good {
                Check::passed(finding.name, finding.detail)
            } else {
                Check::failed(finding.name, finding.detail)
            }
        }));
        checks
    }

    /// Decides a command again on the second state, and compares the bytes of the record. Records of
    /// an earlier level were decided by other rules and are only folded (L7).
    fn redecide(&mut self, record: &Record, bytes: &[u8]) {
        if !self.redecide || self.otherwise.is_some() || self.state.spine.level != LEVEL {
            return;
        }
        let state = self.redecided.get_or_insert_with(|| self.state.clone());
        self.decided += 1;
        let mut events = Events::new();
        let decided = decide(state, record.time, &record.command, &mut events);
        state.spine.head += 1;
        let seq = number(record.seq);
        let again = Record {
            events,
            ..record.clone()
        };
        self.otherwise = match (decided, encode(&again)) {
            (Err(refusal), _) => Some(format!("record {seq} would be refused now: {refusal}")),
            (Ok(_), Ok(encoded)) if encoded.bytes == bytes => None,
            _ => Some(format!(
                "record {seq} has other events when it is decided again"
            )),
        };
    }

    fn note_announcements(&mut self, record: &Record) {
        for event in &record.events {
            let Event::Spine(event) = event else { continue };
            match event {
                spine::Event::KeyRotated { key } => {
                    self.announced
                        .extend(key.parse().ok().map(|key| (record.seq, key)));
                }
                spine::Event::Pruned { below } => self.pruned_below = self.pruned_below.max(*below),
                spine::Event::Anchored {
                    record: last,
                    sha256: stated,
                } => {
                    if let Start::Anchor {
                        head,
                        sha256,
                        is_recorded,
                    } = &mut self.start
                    {
                        *is_recorded |= *last + 1 == *head && stated == sha256;
                    }
                }
                _ => {}
            }
        }
    }

    fn meet(&mut self) {
        let Some(claims) = self.expected.get(&self.state.spine.head) else {
            return;
        };
        let hash = snapshot::hash(&self.state).ok();
        for (claim, expected) in claims {
            if hash == Some(*expected) {
                self.met.push(*claim);
            } else {
                let head = number(self.state.spine.head);
                let what = match claim {
                    Claim::Snapshot => format!("the snapshot over {head} records"),
                    Claim::Live => format!("the live state after {head} records"),
                };
                self.unmet
                    .get_or_insert(format!("{what} is not what they fold to"));
            }
        }
    }

    fn unrecorded(&self) -> Option<String> {
        match &self.start {
            Start::Anchor {
                head,
                is_recorded: false,
                ..
            } => {
                let head = number(*head);
                Some(format!(
                    "no record states the hash of the anchored snapshot over {head} records"
                ))
            }
            _ => None,
        }
    }

    fn begin(&self) -> u64 {
        match self.start {
            Start::Anchor { head, .. } => head,
            _ => 0,
        }
    }

    fn summary(&self) -> String {
        let from = match self.start {
            Start::Beginning => "re-folded from record 0".to_owned(),
            Start::Anchor { head, .. } => {
                format!(
                    "re-folded from the anchored snapshot over {} records",
                    number(head)
                )
            }
            Start::Nowhere => return "every record reads well, none to fold them onto".to_owned(),
        };
        let met = |claim| self.met.iter().filter(|met| **met == claim).count();
        let snapshots = u64::try_from(met(Claim::Snapshot)).unwrap_or(u64::MAX);
        match (snapshots, met(Claim::Live)) {
            (0, 0) => from,
            (0, _) => format!("{from}, equals the live state"),
            (_, 0) => format!("{from}, equals {}", count(snapshots, "snapshot")),
            _ => format!(
                "{from}, equals {} and the live state",
                count(snapshots, "snapshot")
            ),
        }
    }
}

/// Start of a fold of the records `first` to `head`: record 0, or the oldest anchored snapshot that
/// is not older than the first payload.
fn find_start(
    reader: &dyn Reader,
    first: u64,
    head: u64,
) -> Result<(Start, State, Option<String>), Error> {
    let payload = first_payload(reader, first, head);
    if payload == 0 {
        return Ok((Start::Beginning, State::default(), None));
    }
    let mut anchors = reader.anchors()?.into_iter();
    let Some(anchor) = anchors.find(|anchor| payload <= *anchor && *anchor <= head) else {
        return Ok((Start::Nowhere, State::blank(), None));
    };
    let lines = reader
        .anchor(anchor)?
        .map(|(_, lines)| lines)
        .unwrap_or_default();
    match snapshot::read(&lines) {
        Ok(state) if state.spine.head == anchor => {
            let sha256 = sha256(lines.as_bytes());
            Ok((
                Start::Anchor {
                    head: anchor,
                    sha256,
                    is_recorded: false,
                },
                state,
                None,
            ))
        }
        _ => {
            let what = format!(
                "the anchored snapshot over {} records is damaged",
                number(anchor)
            );
            Ok((Start::Nowhere, State::blank(), Some(what)))
        }
    }
}

/// The first record that has its payload. Pruned records come first, so bisection finds it.
fn first_payload(reader: &dyn Reader, first: u64, head: u64) -> u64 {
    let (mut low, mut high) = (first, head);
    while low < high {
        // Most ledgers were never pruned, so the first record is tried first.
        let middle = if low == first {
            low
        } else {
            low + (high - low) / 2
        };
        match reader.records(middle, 1).ok().as_deref() {
            Some([Kept { bytes: None, .. }]) => low = middle + 1,
            _ => high = middle,
        }
    }
    low
}
