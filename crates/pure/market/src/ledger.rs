//! The ledger's state of the CPU market of a node (M12).
//!
//! An agent decides and acts on its own and keeps its own record. The ledger gets the few facts that
//! must outlive it: its settings, the displayed label, the original limits, and once an hour the head
//! of its record.
//!
//! [`difference`] compares the agent's state with the ledger's, and one command reports the
//! difference. So a crash or an absence loses nothing: the next comparison finds it. A report names
//! the revision that it was compared with; a late or repeated report is refused and leaves no record.
//! Deliberately absent: the work of the agent. No limit waits for a record.

mod sentence;

use std::collections::BTreeMap;

use bursar_journal::hash::{Hash, sha256};
use bursar_plane::{Decided, Did, Lane, Notice, Plane, Reference};
use bursar_units::{Instant, Millis, ObjectName, PodName, vocabulary, whole};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clear::{self, Policy};

/// Maximum number of nodes with a market: ten times the largest clusters.
pub const NODES_MAX: usize = 10_000;
/// Maximum number of originals of one node: the number of pods that a clearing supports.
pub const ORIGINALS_MAX: usize = 100_000;
/// Maximum number of originals in one report; the next report has the rest, as with grants (L9).
pub const CHANGES_MAX: usize = 256;
/// Maximum size of the text of settings, in bytes; it has a dozen short fields.
pub const SETTINGS_SIZE_MAX: usize = 4_096;
/// Minimum time between two digests of one node.
pub const DIGEST_EVERY: Millis = Millis::from_hours(1);

vocabulary! {
    /// Whether limits are written.
    pub enum Mode {
        /// There is no agent.
        Off = "off",
        /// The agent only observes.
        Observe = "observe",
        /// The agent writes limits.
        Act = "act",
    }
}

/// Settings of a node: `[market]` of its configuration.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// Whether limits are written.
    pub mode: Mode,
    /// The rule that divides scarce CPU.
    pub policy: Policy,
    /// All settings, in the form of the agent's record.
    pub text: String,
}

/// The settings that the ledger remembers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rules {
    /// Whether limits are written.
    pub mode: Mode,
    /// The rule that divides scarce CPU.
    pub policy: Policy,
    /// The hash of their text, which every line of the agent's record holds.
    pub sha256: Hash,
}

/// The displayed label with its numbers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Labelled {
    /// The label.
    pub label: clear::Mode,
    /// Number of pods.
    #[serde(with = "whole")]
    pub pods: u64,
    /// The sum of their needs.
    #[serde(with = "whole")]
    pub need_milli: u64,
    /// The shared capacity.
    #[serde(with = "whole")]
    pub capacity_milli: u64,
}

/// The original CPU limit of a pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Original {
    /// In millicores; `None` for no limit.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub milli: Option<u64>,
}

/// End of an agent's record, counted from its very first line.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Position {
    /// Time of the last line.
    pub at: Instant,
    /// Number of lines.
    #[serde(with = "whole")]
    pub lines: u64,
    /// Number of limits written.
    #[serde(with = "whole")]
    pub writes: u64,
    /// The hash of the last line.
    pub head: Hash,
}

/// Growth of a record between two positions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Past {
    /// Elapsed time, if the first position is known.
    pub length: Option<Millis>,
    /// Number of new lines.
    pub lines: u64,
    /// Number of limits written.
    pub writes: u64,
}

/// The agent's state of a market.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Present {
    /// The settings of the node.
    pub settings: Settings,
    /// The displayed label; `None` before the first clearing.
    pub labelled: Option<Labelled>,
    /// The originals that are not restored yet.
    pub originals: BTreeMap<PodName, Original>,
    /// The end of its record; `None` before the first line.
    pub position: Option<Position>,
}

/// The ledger's state of a market.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Known {
    /// Number of its events; a report names it.
    pub revision: u64,
    /// The settings of the node.
    pub rules: Option<Rules>,
    /// The displayed label.
    pub label: clear::Mode,
    /// The originals that are not restored yet.
    pub originals: BTreeMap<PodName, Original>,
    /// The end of the record at the last digest.
    pub digest: Option<Position>,
    /// Time of the last digest; before the first, of the first report.
    pub digested: Instant,
}

/// Command of the markets.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Command {
    /// The server reports changes in the CPU market of a node (M12).
    ReportMarket(Box<Report>),
}

/// Differences between the agent's and the ledger's state.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Report {
    /// The node's name, whether or not it was declared.
    pub node: ObjectName,
    /// The revision that it was compared with; 0 for an unknown node.
    #[serde(with = "whole")]
    pub basis: u64,
    /// The settings of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// The displayed label.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "label")]
    pub labelled: Option<Labelled>,
    /// New or changed originals, by pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<Taken>,
    /// Pods whose originals are no longer kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returned: Vec<PodName>,
    /// The end of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Position>,
}

/// The original of a pod, in a report.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Taken {
    /// The pod.
    pub pod: PodName,
    /// In millicores; `None` for no limit.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub milli: Option<u64>,
}

/// Event of the market of a node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Event {
    /// Its settings have changed.
    #[serde(rename = "marketSet")]
    Set {
        /// The node.
        node: ObjectName,
        /// Whether limits are written.
        mode: Mode,
        /// The rule that divides scarce CPU.
        policy: Policy,
        /// The hash of the text.
        sha256: Hash,
        /// The text of its settings.
        text: String,
        /// The settings before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<Rules>,
    },
    /// Its displayed label has changed.
    #[serde(rename = "marketLabelled")]
    Labelled {
        /// The node.
        node: ObjectName,
        /// The new label.
        label: clear::Mode,
        /// The label before.
        was: clear::Mode,
        /// Number of pods.
        #[serde(with = "whole")]
        pods: u64,
        /// The sum of their needs.
        #[serde(with = "whole")]
        need_milli: u64,
        /// The shared capacity.
        #[serde(with = "whole")]
        capacity_milli: u64,
    },
    /// The original limit of a pod is kept.
    #[serde(rename = "originalTaken")]
    Taken {
        /// The node.
        node: ObjectName,
        /// The pod.
        pod: PodName,
        /// In millicores; `None` for no limit.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "whole::optional"
        )]
        milli: Option<u64>,
        /// The kept original before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<Original>,
    },
    /// The original limit of a pod is no longer kept: it was restored, or the pod is gone.
    #[serde(rename = "originalReturned")]
    Returned {
        /// The node.
        node: ObjectName,
        /// The pod.
        pod: PodName,
        /// In millicores; `None` for no limit.
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
        /// The node.
        node: ObjectName,
        /// The end of the record.
        digest: Position,
        /// The end at the last digest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<Position>,
    },
}

/// Snapshot line of a market (L12).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Fact {
    /// The market of a node without its originals.
    Market {
        /// The node.
        node: ObjectName,
        /// Number of its events.
        #[serde(with = "whole")]
        revision: u64,
        /// The settings of the node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rules: Option<Rules>,
        /// The displayed label.
        label: clear::Mode,
        /// The end of the record at the last digest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Position>,
        /// Time of the last digest.
        digested: Instant,
    },
    /// An original of a market; it follows its market.
    Original {
        /// The node.
        node: ObjectName,
        /// The pod.
        pod: PodName,
        /// In millicores; `None` for no limit.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "whole::optional"
        )]
        milli: Option<u64>,
    },
}

/// Refusal of a report.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Refusal {
    /// It was compared with an older revision.
    #[error("the report was compared with revision {basis}, the ledger has {revision}")]
    Stale {
        /// The revision in the report.
        basis: u64,
        /// The revision in the ledger.
        revision: u64,
    },
    /// It names a pod twice.
    #[error("the report names the pod {pod} twice")]
    PodTwice {
        /// The pod.
        pod: PodName,
    },
    /// It exceeds a limit.
    #[error("there are at most {max} {what}")]
    TooMany {
        /// The limited things.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The last digest is not old enough.
    #[error("the last digest was made less than an hour ago")]
    DigestEarly {
        /// Earliest time of the next digest.
        from: Instant,
    },
}

/// Violated invariant of a market (M12).
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Broken {
    /// The market of a node is too large, or has an impossible digest.
    #[error("the market of node `{node}` has {why}")]
    Market {
        /// The node.
        node: ObjectName,
        /// The violation.
        why: &'static str,
    },
    /// Too many nodes have a market.
    #[error("{count} nodes have a market, more than allowed")]
    Count {
        /// Their number.
        count: usize,
    },
}

/// Declared objects of markets: there are none.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum Change {}

/// The markets of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Markets(BTreeMap<ObjectName, Known>);

impl Settings {
    /// The part that the ledger remembers.
    pub fn rules(&self) -> Rules {
        Rules {
            mode: self.mode,
            policy: self.policy,
            sha256: sha256(self.text.as_bytes()),
        }
    }
}

impl Known {
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
    /// The growth since an earlier position; the whole record if there is none or if the record
    /// started over.
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

    /// The original of each pod that the report names; `None` if it is no longer kept.
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
    /// The node of the event.
    pub fn node(&self) -> &ObjectName {
        match self {
            Self::Set { node, .. }
            | Self::Labelled { node, .. }
            | Self::Taken { node, .. }
            | Self::Returned { node, .. }
            | Self::Digested { node, .. } => node,
        }
    }

    /// The pod of the event, if it has one.
    pub fn pod(&self) -> Option<&PodName> {
        match self {
            Self::Taken { pod, .. } | Self::Returned { pod, .. } => Some(pod),
            Self::Set { .. } | Self::Labelled { .. } | Self::Digested { .. } => None,
        }
    }
}

impl Markets {
    /// The market of a node.
    pub fn get(&self, node: &str) -> Option<&Known> {
        self.0.get(node)
    }

    /// All of them, by node.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectName, &Known)> {
        self.0.iter()
    }

    /// Number of nodes with a market.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no node has a market.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn fold(&mut self, at: Instant, event: &Event) {
        let known = self.0.entry(event.node().clone());
        known.or_insert_with(|| Known::new(at)).apply(at, event);
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

    const STREAMS: &'static [&'static str] = &[
        "node.marketChanged",
        "node.uncongested",
        "node.congested",
        "node.overloaded",
        "node.marketDigested",
        "pod.originalTaken",
        "pod.originalReturned",
    ];

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

    fn restore(&mut self, fact: Fact) {
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

    /// The limit on nodes needs all markets.
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

/// The report of the differences, or `None` if both states agree. Repeating report and comparison
/// ends in agreement: after one report, or after several if more than [`CHANGES_MAX`] originals
/// differ.
///
/// Example: the ledger has the originals `a` and `b`, the agent keeps `b` and `c`: the report returns
/// `a` and takes `c`.
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

/// The events of a valid report; facts that the ledger has already give none.
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

/// The originals that differ, taken and returned: at most [`CHANGES_MAX`], and after returns made room
/// at most [`ORIGINALS_MAX`] of one node.
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
