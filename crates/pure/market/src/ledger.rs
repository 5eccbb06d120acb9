//! What the ledger knows of the CPU market of a node (M12).
//!
//! An agent decides and acts on its own and keeps its own record. The ledger gets the few facts
//! that must outlive it: the settings it is run by, the label that people are shown, the limits it
//! found and will put back, and once an hour the head of its record.
//!
//! One rule: [`difference`] compares what is there with what the ledger knows, and one command
//! brings what differs. So nothing is lost by a crash or an absence between the two: the next
//! comparison finds it. A report names the revision of the picture that it was compared with; one
//! that comes late or twice builds on what is past, is refused, and leaves no trace.
//! Deliberately not here: what the agent does. No limit waits for a record.

mod sentence;

use std::collections::BTreeMap;

use bursar_journal::hash::{Hash, sha256};
use bursar_plane::{Decided, Did, Lane, Notice, Plane, Reference};
use bursar_units::{Instant, Millis, ObjectName, PodName, vocabulary, whole};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clear::{self, Policy};

/// How many nodes may have a market on record: ten times the largest clusters.
pub const NODES_MAX: usize = 10_000;
/// How many originals are kept of one node: as many pods as a clearing counts with (design 10).
pub const ORIGINALS_MAX: usize = 100_000;
/// How many originals one report changes; what is left is in the next, as with grants (L9).
pub const CHANGES_MAX: usize = 256;
/// How long the text of settings may be, in bytes; it has a dozen short fields.
pub const SETTINGS_SIZE_MAX: usize = 4_096;
/// How far apart two digests of one node are at least.
pub const DIGEST_EVERY: Millis = Millis::from_hours(1);

vocabulary! {
    /// Whether limits are written.
    pub enum Mode {
        /// It does not look.
        Off = "off",
        /// It looks and writes nothing.
        Observe = "observe",
        /// They are.
        Act = "act",
    }
}

/// How a node is run: `[market]` of its settings.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// Whether limits are written.
    pub mode: Mode,
    /// By which rule what is scarce is divided.
    pub policy: Policy,
    /// All of them, as the agent's own record has them.
    pub text: String,
}

/// What is remembered of settings.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rules {
    /// Whether limits are written.
    pub mode: Mode,
    /// By which rule what is scarce is divided.
    pub policy: Policy,
    /// The hash of their text, which stands in every line of the agent's record.
    pub sha256: Hash,
}

/// The label that people are shown, with the numbers behind it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Labelled {
    /// The label.
    pub label: clear::Mode,
    /// How many take part.
    #[serde(with = "whole")]
    pub pods: u64,
    /// What they need together.
    #[serde(with = "whole")]
    pub need_milli: u64,
    /// What can be shared.
    #[serde(with = "whole")]
    pub capacity_milli: u64,
}

/// The CPU limit that a pod came with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Original {
    /// In millicores; `None` where it had none.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub milli: Option<u64>,
}

/// How far an agent's record has come: all of it, since its first line.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Position {
    /// When its last line was written.
    pub at: Instant,
    /// How many lines it has had.
    #[serde(with = "whole")]
    pub lines: u64,
    /// How many limits they say were written.
    #[serde(with = "whole")]
    pub writes: u64,
    /// The hash of the last line.
    pub head: Hash,
}

/// What happened to a record between two positions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Past {
    /// How long it took, where the first is known.
    pub length: Option<Millis>,
    /// How many lines came.
    pub lines: u64,
    /// How many limits they say were written.
    pub writes: u64,
}

/// A market as its agent has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Present {
    /// How the node is run.
    pub settings: Settings,
    /// What people are shown; `None` before the first clearing.
    pub labelled: Option<Labelled>,
    /// What is to be put back some day.
    pub originals: BTreeMap<PodName, Original>,
    /// How far its record has come; `None` before the first line.
    pub position: Option<Position>,
}

/// A market as the ledger has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Known {
    /// How many events have made it: what a report builds on.
    pub revision: u64,
    /// How the node is run.
    pub rules: Option<Rules>,
    /// What people are shown.
    pub label: clear::Mode,
    /// What is to be put back some day.
    pub originals: BTreeMap<PodName, Original>,
    /// How far the record had come at the last digest.
    pub digest: Option<Position>,
    /// When that was; before the first, when the ledger first heard of this market.
    pub digested: Instant,
}

/// A command to the markets.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Command {
    /// The server says what has changed in the CPU market of a node (M12).
    ReportMarket(Box<Report>),
}

/// What differs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Report {
    /// Which node: a name, whether or not it was declared.
    pub node: ObjectName,
    /// The revision that it was compared with; 0 where nothing is known.
    #[serde(with = "whole")]
    pub basis: u64,
    /// How the node is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// What people are shown.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "label")]
    pub labelled: Option<Labelled>,
    /// Originals that are kept, by pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<Taken>,
    /// Pods whose originals are kept no longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returned: Vec<PodName>,
    /// How far the record has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Position>,
}

/// The original of a pod, in a report.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Taken {
    /// Whose.
    pub pod: PodName,
    /// In millicores; `None` where it had none.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub milli: Option<u64>,
}

/// Something that happened to the market of a node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Event {
    /// It is run by other settings.
    #[serde(rename = "marketSet")]
    Set {
        /// Which node.
        node: ObjectName,
        /// Whether limits are written.
        mode: Mode,
        /// By which rule what is scarce is divided.
        policy: Policy,
        /// The hash of the text.
        sha256: Hash,
        /// The text of its settings.
        text: String,
        /// How it was run before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<Rules>,
    },
    /// People are shown another label.
    #[serde(rename = "marketLabelled")]
    Labelled {
        /// Which node.
        node: ObjectName,
        /// What they are shown.
        label: clear::Mode,
        /// What they were shown before.
        was: clear::Mode,
        /// How many take part.
        #[serde(with = "whole")]
        pods: u64,
        /// What they need together.
        #[serde(with = "whole")]
        need_milli: u64,
        /// What can be shared.
        #[serde(with = "whole")]
        capacity_milli: u64,
    },
    /// The limit that a pod came with is kept.
    #[serde(rename = "originalTaken")]
    Taken {
        /// On which node.
        node: ObjectName,
        /// Whose.
        pod: PodName,
        /// What it was, in millicores; `None` where it had none.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "whole::optional"
        )]
        milli: Option<u64>,
        /// What was kept of the same pod before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<Original>,
    },
    /// The limit that a pod came with is kept no longer: it was put back, or nothing is left to.
    #[serde(rename = "originalReturned")]
    Returned {
        /// On which node.
        node: ObjectName,
        /// Whose.
        pod: PodName,
        /// What it was, in millicores; `None` where it had none.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "whole::optional"
        )]
        milli: Option<u64>,
    },
    /// The head of the agent's record.
    #[serde(rename = "marketDigested")]
    Digested {
        /// Which node.
        node: ObjectName,
        /// How far the record has come.
        digest: Position,
        /// How far it had come at the last digest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<Position>,
    },
}

/// A line of a snapshot that belongs to a market (L12).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Fact {
    /// What is known of the market of a node, but for its originals.
    Market {
        /// Which node.
        node: ObjectName,
        /// How many events have made it.
        #[serde(with = "whole")]
        revision: u64,
        /// How the node is run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rules: Option<Rules>,
        /// What people are shown.
        label: clear::Mode,
        /// How far the record had come at the last digest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Position>,
        /// When that was.
        digested: Instant,
    },
    /// An original of a market; it comes behind its market.
    Original {
        /// On which node.
        node: ObjectName,
        /// Whose.
        pod: PodName,
        /// What it was, in millicores; `None` where it had none.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "whole::optional"
        )]
        milli: Option<u64>,
    },
}

/// Why a report was refused.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Refusal {
    /// It was compared with a picture that is past.
    #[error("the report builds on revision {basis}, the ledger has {revision}")]
    Stale {
        /// What it builds on.
        basis: u64,
        /// What there is.
        revision: u64,
    },
    /// A pod is named twice.
    #[error("the report names the pod {pod} twice")]
    PodTwice {
        /// Which.
        pod: PodName,
    },
    /// There is a bound.
    #[error("there are at most {max} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// The last digest is not old enough.
    #[error("the last digest was made less than an hour ago")]
    DigestEarly {
        /// When the next may be.
        from: Instant,
    },
}

/// A market that must never be seen (M12).
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Broken {
    /// The market of a node is larger than it may be, or has a digest that nobody can have made.
    #[error("the market of node `{node}` has {why}")]
    Market {
        /// Which node.
        node: ObjectName,
        /// What is wrong.
        why: &'static str,
    },
    /// More nodes have a market than may.
    #[error("{count} nodes have a market")]
    Count {
        /// How many.
        count: usize,
    },
}

/// Nothing of a market is declared.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum Change {}

/// The markets of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Markets(BTreeMap<ObjectName, Known>);

impl Settings {
    /// What is remembered of them.
    pub fn rules(&self) -> Rules {
        Rules {
            mode: self.mode,
            policy: self.policy,
            sha256: sha256(self.text.as_bytes()),
        }
    }
}

impl Known {
    /// A market of which nothing is known yet.
    fn new(at: Instant) -> Self {
        Self {
            revision: 0,
            rules: None,
            label: clear::Mode::default(),
            originals: BTreeMap::new(),
            digest: None,
            digested: at,
        }
    }

    fn apply(&mut self, at: Instant, event: &Event) {
        self.revision += 1;
        match event {
            Event::Set {
                mode,
                policy,
                sha256,
                ..
            } => {
                self.rules = Some(Rules {
                    mode: *mode,
                    policy: *policy,
                    sha256: *sha256,
                });
            }
            Event::Labelled { label, .. } => self.label = *label,
            Event::Taken { pod, milli, .. } => {
                let milli = *milli;
                self.originals.insert(pod.clone(), Original { milli });
            }
            Event::Returned { pod, .. } => {
                self.originals.remove(pod);
            }
            Event::Digested { digest, .. } => {
                self.digest = Some(*digest);
                self.digested = at;
            }
        }
    }
}

impl Position {
    /// What happened to a record since an earlier position; all of it where there is none, or
    /// where the record began anew.
    pub fn since(&self, was: Option<&Self>) -> Past {
        match was {
            Some(was) if was.lines <= self.lines && was.writes <= self.writes => Past {
                length: Some(self.at.since(was.at)),
                lines: self.lines - was.lines,
                writes: self.writes - was.writes,
            },
            _ => Past {
                length: None,
                lines: self.lines,
                writes: self.writes,
            },
        }
    }
}

impl Report {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        let Self {
            node: _,
            basis: _,
            settings,
            labelled,
            taken,
            returned,
            digest,
        } = self;
        let is_same = settings.is_none() && labelled.is_none() && digest.is_none();
        is_same && taken.is_empty() && returned.is_empty()
    }

    /// What is kept of each pod that the report names; `None` where that is nothing any longer.
    fn originals(&self) -> Result<BTreeMap<&PodName, Option<Original>>, Refusal> {
        let taken = self.taken.iter();
        let taken = taken.map(|Taken { pod, milli }| (pod, Some(Original { milli: *milli })));
        let returned = self.returned.iter().map(|pod| (pod, None));
        let mut originals = BTreeMap::new();
        for (pod, original) in taken.chain(returned) {
            if originals.insert(pod, original).is_some() {
                return Err(Refusal::PodTwice { pod: pod.clone() });
            }
        }
        Ok(originals)
    }
}

impl Event {
    /// The node it happened on.
    pub fn node(&self) -> &ObjectName {
        match self {
            Self::Set { node, .. }
            | Self::Labelled { node, .. }
            | Self::Taken { node, .. }
            | Self::Returned { node, .. }
            | Self::Digested { node, .. } => node,
        }
    }

    /// The pod it happened to, if it is about one.
    pub fn pod(&self) -> Option<&PodName> {
        match self {
            Self::Taken { pod, .. } | Self::Returned { pod, .. } => Some(pod),
            Self::Set { .. } | Self::Labelled { .. } | Self::Digested { .. } => None,
        }
    }
}

impl Markets {
    /// What is known of a node.
    pub fn get(&self, node: &str) -> Option<&Known> {
        self.0.get(node)
    }

    /// All of them, by node.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectName, &Known)> {
        self.0.iter()
    }

    /// How many nodes have one.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no node has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn fold(&mut self, at: Instant, event: &Event) {
        let known = self.0.entry(event.node().clone());
        known.or_insert_with(|| Known::new(at)).apply(at, event);
    }

    fn all_facts(&self) -> impl Iterator<Item = Fact> {
        self.0.iter().flat_map(|(node, known)| {
            let market = Fact::Market {
                node: node.clone(),
                revision: known.revision,
                rules: known.rules,
                label: known.label,
                digest: known.digest,
                digested: known.digested,
            };
            let originals = known.originals.iter();
            let originals = originals.map(|(pod, original)| Fact::Original {
                node: node.clone(),
                pod: pod.clone(),
                milli: original.milli,
            });
            std::iter::once(market).chain(originals)
        })
    }

    fn take_fact(&mut self, fact: Fact) {
        match fact {
            Fact::Market {
                node,
                revision,
                rules,
                label,
                digest,
                digested,
            } => {
                let known = Known {
                    revision,
                    rules,
                    label,
                    originals: BTreeMap::new(),
                    digest,
                    digested,
                };
                self.0.insert(node, known);
            }
            Fact::Original { node, pod, milli } => {
                if let Some(known) = self.0.get_mut(&node) {
                    known.originals.insert(pod, Original { milli });
                }
            }
        }
    }
}

impl Plane for Markets {
    type Command = Command;
    type Event = Event;
    type Change = Change;
    type Fact = Fact;
    type Reply = Did;
    type Refusal = Refusal;
    type Broken = Broken;
    type Data = Box<Event>;

    const STREAMS: &'static [&'static str] = &["node", "pod"];

    fn lane(command: &Command) -> Lane {
        match command {
            Command::ReportMarket(_) => Lane::Control,
        }
    }

    fn is_result(command: &Command) -> bool {
        match command {
            Command::ReportMarket(_) => false,
        }
    }

    fn decide(
        &mut self,
        now: Instant,
        command: &Command,
        out: &mut Decided<Event>,
    ) -> Result<Did, Refusal> {
        let Command::ReportMarket(report) = command;
        let events = decide(self, now, report)?;
        let did = if events.is_empty() {
            Did::Unchanged
        } else {
            Did::Done
        };
        for event in events {
            self.fold(now, &event);
            out.push(event);
        }
        Ok(did)
    }

    fn apply(&mut self, at: Instant, event: &Event) {
        self.fold(at, event);
    }

    fn change(&mut self, _: Instant, change: &Change, _: &mut Decided<Event>) {
        match *change {}
    }

    fn facts(&self, _level: u64) -> impl Iterator<Item = Fact> {
        self.all_facts()
    }

    fn restore(&mut self, fact: Fact) {
        self.take_fact(fact);
    }

    fn check(&self, now: Instant) -> Result<(), Broken> {
        let count = self.len();
        if count > NODES_MAX {
            return Err(Broken::Count { count });
        }
        for (node, known) in self.iter() {
            let facts = known.originals.len() + usize::from(known.rules.is_some());
            let why = if known.originals.len() > ORIGINALS_MAX {
                "too many originals"
            } else if known.digested > now {
                "a digest of the future"
            } else if known.revision < u64::try_from(facts).unwrap_or(u64::MAX) {
                "more facts than events"
            } else {
                continue;
            };
            let node = node.clone();
            return Err(Broken::Market { node, why });
        }
        Ok(())
    }

    /// A report is refused by the number of nodes as well: all of them are needed.
    fn sketch(&self, commands: &[&Command]) -> Self {
        if commands.is_empty() {
            Self::default()
        } else {
            self.clone()
        }
    }

    fn notice(_: Instant, event: &Event, _: &[&Event]) -> Notice<Box<Event>> {
        sentence::notice(event)
    }

    fn subjects(event: &Event) -> impl Iterator<Item = Reference> {
        let pod = event.pod().cloned().map(Reference::Pod);
        std::iter::once(Reference::Node(event.node().clone())).chain(pod)
    }

    fn declared(change: &Change) -> Reference {
        match *change {}
    }
}

/// What the ledger does not know yet of a market, or knows otherwise; nothing where both agree.
/// Applying the events of a report and comparing again ends in agreement: after one report, or,
/// where more than [`CHANGES_MAX`] originals differ, after as many as those take.
///
/// Example: the ledger knows `a` and `b`, the agent keeps `b` and `c`: the report says that `a` is
/// kept no longer and `c` is.
pub fn difference(
    node: &ObjectName,
    known: Option<&Known>,
    present: &Present,
    now: Instant,
) -> Option<Report> {
    let rules = known.and_then(|known| known.rules);
    let label = known.map_or_else(clear::Mode::default, |known| known.label);
    let (taken, returned) = changed(known, &present.originals);
    let report = Report {
        node: node.clone(),
        basis: known.map_or(0, |known| known.revision),
        settings: (rules != Some(present.settings.rules())).then(|| present.settings.clone()),
        labelled: present.labelled.filter(|labelled| label != labelled.label),
        taken,
        returned,
        digest: known.and_then(|known| {
            let is_new = |position: &Position| Some(*position) != known.digest;
            let is_due = known.digested.after(DIGEST_EVERY) <= now;
            present
                .position
                .filter(|position| is_due && is_new(position))
        }),
    };
    (!report.is_empty()).then_some(report)
}

/// What follows from a report; it has been checked then, and nothing of it is known already.
fn decide(markets: &Markets, now: Instant, report: &Report) -> Result<Vec<Event>, Refusal> {
    let new = Known::new(now);
    let node = &report.node;
    let known = markets.get(node.as_str()).unwrap_or(&new);
    let originals = report.originals()?;
    check(markets, known, now, report, &originals)?;
    let settings = report.settings.as_ref();
    let settings = settings.filter(|settings| known.rules != Some(settings.rules()));
    let set = settings.map(|settings| Event::Set {
        node: node.clone(),
        mode: settings.mode,
        policy: settings.policy,
        sha256: settings.rules().sha256,
        text: settings.text.clone(),
        was: known.rules,
    });
    let labelled = report.labelled;
    let labelled = labelled.filter(|labelled| known.label != labelled.label);
    let labelled = labelled.map(|labelled| Event::Labelled {
        node: node.clone(),
        label: labelled.label,
        was: known.label,
        pods: labelled.pods,
        need_milli: labelled.need_milli,
        capacity_milli: labelled.capacity_milli,
    });
    let originals = originals.into_iter().filter_map(|(pod, original)| {
        let (node, pod) = (node.clone(), pod.clone());
        match (known.originals.get(&pod).copied(), original) {
            (was, Some(original)) if was != Some(original) => Some(Event::Taken {
                node,
                pod,
                milli: original.milli,
                was,
            }),
            (Some(Original { milli }), None) => Some(Event::Returned { node, pod, milli }),
            _ => None,
        }
    });
    let digest = report.digest.map(|digest| Event::Digested {
        node: node.clone(),
        digest,
        was: known.digest,
    });
    let first = set.into_iter().chain(labelled);
    Ok(first.chain(originals).chain(digest).collect())
}

fn check(
    markets: &Markets,
    known: &Known,
    now: Instant,
    report: &Report,
    originals: &BTreeMap<&PodName, Option<Original>>,
) -> Result<(), Refusal> {
    let too_many = |what, max| Err(Refusal::TooMany { what, max });
    if report.basis != known.revision {
        return Err(Refusal::Stale {
            basis: report.basis,
            revision: known.revision,
        });
    }
    if known.revision == 0 && NODES_MAX <= markets.len() {
        return too_many("nodes with a market", NODES_MAX);
    }
    let text = report.settings.as_ref().map(|settings| &settings.text);
    if text.is_some_and(|text| SETTINGS_SIZE_MAX < text.len()) {
        return too_many("bytes of settings", SETTINGS_SIZE_MAX);
    }
    if CHANGES_MAX < originals.len() {
        return too_many("originals in one report", CHANGES_MAX);
    }
    if ORIGINALS_MAX < kept_after(known, originals) {
        return too_many("originals of one node", ORIGINALS_MAX);
    }
    let from = known.digested.after(DIGEST_EVERY);
    if report.digest.is_some() && now < from {
        return Err(Refusal::DigestEarly { from });
    }
    Ok(())
}

/// How many originals are kept once a report is taken.
fn kept_after(known: &Known, originals: &BTreeMap<&PodName, Option<Original>>) -> usize {
    let is_known = |pod: &PodName| known.originals.contains_key(pod);
    let (mut more, mut fewer) = (0, 0);
    for (pod, original) in originals {
        match (is_known(pod), original) {
            (false, Some(_)) => more += 1,
            (true, None) => fewer += 1,
            _ => {}
        }
    }
    known.originals.len() + more - fewer
}

/// The originals that differ, kept and kept no longer: at most so many as one report may change, and
/// never more than are kept of one node, since those that are kept no longer make room for the others.
fn changed(
    known: Option<&Known>,
    present: &BTreeMap<PodName, Original>,
) -> (Vec<Taken>, Vec<PodName>) {
    let nothing = BTreeMap::new();
    let known = known.map_or(&nothing, |known| &known.originals);
    let gone = known.keys().filter(|pod| !present.contains_key(*pod));
    let returned: Vec<PodName> = gone.take(CHANGES_MAX).cloned().collect();
    let mut room = ORIGINALS_MAX.saturating_sub(known.len() - returned.len());
    let mut taken = Vec::new();
    for (pod, original) in present {
        if CHANGES_MAX <= taken.len() + returned.len() {
            break;
        }
        match known.get(pod) {
            Some(known) if known == original => continue,
            Some(_) => {}
            None if room > 0 => room -= 1,
            None => continue,
        }
        taken.push(Taken {
            pod: pod.clone(),
            milli: original.milli,
        });
    }
    (taken, returned)
}
