//! The JSON shapes of markets, and their way there and back (M12).

use std::collections::BTreeMap;

use bursar_journal::hash::Hash;
use bursar_market::clear::{Mode as Label, Policy};
use bursar_units::{Instant, ObjectName, PodName};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::convert::same_words;
use super::shapes::EventShape;
use super::whole::Whole;
use crate::market::{Event, Known, Labelled, Mode, Original, Position, Report, Rules, Settings};

/// What a server says of the market of a node.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MarketReportShape {
    node: ObjectName,
    basis: Whole,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settings: Option<SettingsShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<LabelledShape>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    taken: Vec<TakenShape>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    returned: Vec<PodName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<PositionShape>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MarketSetShape {
    node: ObjectName,
    mode: ModeShape,
    policy: PolicyShape,
    sha256: Hash,
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<RulesShape>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MarketLabelledShape {
    node: ObjectName,
    label: LabelShape,
    was: LabelShape,
    pods: Whole,
    need_milli: Whole,
    capacity_milli: Whole,
}

/// Without a number there was no limit.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OriginalTakenShape {
    node: ObjectName,
    pod: PodName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    milli: Option<Whole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<OriginalShape>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OriginalReturnedShape {
    node: ObjectName,
    pod: PodName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    milli: Option<Whole>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MarketDigestedShape {
    node: ObjectName,
    digest: PositionShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<PositionShape>,
}

/// What is known of a market, in a snapshot; its originals have lines of their own.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MarketShape {
    node: ObjectName,
    revision: Whole,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<RulesShape>,
    label: LabelShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<PositionShape>,
    digested: Instant,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SettingsShape {
    mode: ModeShape,
    policy: PolicyShape,
    text: String,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RulesShape {
    mode: ModeShape,
    policy: PolicyShape,
    sha256: Hash,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LabelledShape {
    label: LabelShape,
    pods: Whole,
    need_milli: Whole,
    capacity_milli: Whole,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TakenShape {
    pod: PodName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    milli: Option<Whole>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OriginalShape {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    milli: Option<Whole>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PositionShape {
    at: Instant,
    lines: Whole,
    writes: Whole,
    head: Hash,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeShape {
    Off,
    Observe,
    Act,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PolicyShape {
    Proportional,
    WeightedNash,
    FullCapacity,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LabelShape {
    Uncongested,
    Congested,
    Overloaded,
}

impl MarketReportShape {
    pub(super) fn new(node: ObjectName, report: Report) -> Self {
        let (mut taken, mut returned) = (Vec::new(), Vec::new());
        for (pod, original) in report.originals {
            match original {
                None => returned.push(pod),
                Some(Original(milli)) => taken.push(TakenShape {
                    pod,
                    milli: milli.map(Into::into),
                }),
            }
        }
        Self {
            node,
            basis: report.basis.into(),
            settings: report.settings.map(|settings| SettingsShape {
                mode: settings.mode.into(),
                policy: settings.policy.into(),
                text: settings.text,
            }),
            label: report.labelled.map(|labelled| LabelledShape {
                label: labelled.label.into(),
                pods: labelled.pods.into(),
                need_milli: labelled.need_milli.into(),
                capacity_milli: labelled.capacity_milli.into(),
            }),
            taken,
            returned,
            digest: report.digest.map(Into::into),
        }
    }

    pub(super) fn into_parts(self) -> Result<(ObjectName, Report), serde_json::Error> {
        let count = self.taken.len() + self.returned.len();
        let taken = self.taken.into_iter();
        let taken = taken.map(|taken| (taken.pod, Some(original(taken.milli))));
        let returned = self.returned.into_iter().map(|pod| (pod, None));
        let originals: BTreeMap<PodName, Option<Original>> = taken.chain(returned).collect();
        if originals.len() < count {
            return Err(serde_json::Error::custom("a report names a pod twice"));
        }
        let report = Report {
            basis: self.basis.into(),
            settings: self.settings.map(|settings| Settings {
                mode: settings.mode.into(),
                policy: settings.policy.into(),
                text: settings.text,
            }),
            labelled: self.label.map(|shape| Labelled {
                label: shape.label.into(),
                pods: shape.pods.into(),
                need_milli: shape.need_milli.into(),
                capacity_milli: shape.capacity_milli.into(),
            }),
            originals,
            digest: self.digest.map(Into::into),
        };
        Ok((self.node, report))
    }
}

impl MarketShape {
    pub(super) fn new(node: ObjectName, known: &Known) -> Self {
        Self {
            node,
            revision: known.revision.into(),
            rules: known.rules.map(Into::into),
            label: known.label.into(),
            digest: known.digest.map(Into::into),
            digested: known.digested,
        }
    }

    pub(super) fn into_parts(self) -> (ObjectName, Known) {
        let known = Known {
            revision: self.revision.into(),
            rules: self.rules.map(Into::into),
            label: self.label.into(),
            originals: BTreeMap::new(),
            digest: self.digest.map(Into::into),
            digested: self.digested,
        };
        (self.node, known)
    }
}

impl From<Event> for EventShape {
    fn from(event: Event) -> Self {
        match event {
            Event::Set {
                node,
                rules,
                text,
                was,
            } => Self::MarketSet(MarketSetShape {
                node,
                mode: rules.mode.into(),
                policy: rules.policy.into(),
                sha256: rules.sha256,
                text,
                was: was.map(Into::into),
            }),
            Event::Labelled {
                node,
                labelled,
                was,
            } => Self::MarketLabelled(MarketLabelledShape {
                node,
                label: labelled.label.into(),
                was: was.into(),
                pods: labelled.pods.into(),
                need_milli: labelled.need_milli.into(),
                capacity_milli: labelled.capacity_milli.into(),
            }),
            Event::Taken {
                node,
                pod,
                original: Original(milli),
                was,
            } => Self::OriginalTaken(OriginalTakenShape {
                node,
                pod,
                milli: milli.map(Into::into),
                was: was.map(|Original(milli)| OriginalShape {
                    milli: milli.map(Into::into),
                }),
            }),
            Event::Returned {
                node,
                pod,
                original: Original(milli),
            } => Self::OriginalReturned(OriginalReturnedShape {
                node,
                pod,
                milli: milli.map(Into::into),
            }),
            Event::Digested { node, digest, was } => Self::MarketDigested(MarketDigestedShape {
                node,
                digest: digest.into(),
                was: was.map(Into::into),
            }),
        }
    }
}

impl From<MarketSetShape> for Event {
    fn from(shape: MarketSetShape) -> Self {
        Self::Set {
            node: shape.node,
            rules: Rules {
                mode: shape.mode.into(),
                policy: shape.policy.into(),
                sha256: shape.sha256,
            },
            text: shape.text,
            was: shape.was.map(Into::into),
        }
    }
}

impl From<MarketLabelledShape> for Event {
    fn from(shape: MarketLabelledShape) -> Self {
        Self::Labelled {
            node: shape.node,
            labelled: Labelled {
                label: shape.label.into(),
                pods: shape.pods.into(),
                need_milli: shape.need_milli.into(),
                capacity_milli: shape.capacity_milli.into(),
            },
            was: shape.was.into(),
        }
    }
}

impl From<OriginalTakenShape> for Event {
    fn from(shape: OriginalTakenShape) -> Self {
        Self::Taken {
            node: shape.node,
            pod: shape.pod,
            original: original(shape.milli),
            was: shape.was.map(|was| original(was.milli)),
        }
    }
}

impl From<OriginalReturnedShape> for Event {
    fn from(shape: OriginalReturnedShape) -> Self {
        Self::Returned {
            node: shape.node,
            pod: shape.pod,
            original: original(shape.milli),
        }
    }
}

impl From<MarketDigestedShape> for Event {
    fn from(shape: MarketDigestedShape) -> Self {
        Self::Digested {
            node: shape.node,
            digest: shape.digest.into(),
            was: shape.was.map(Into::into),
        }
    }
}

impl From<Rules> for RulesShape {
    fn from(rules: Rules) -> Self {
        Self {
            mode: rules.mode.into(),
            policy: rules.policy.into(),
            sha256: rules.sha256,
        }
    }
}

impl From<RulesShape> for Rules {
    fn from(shape: RulesShape) -> Self {
        Self {
            mode: shape.mode.into(),
            policy: shape.policy.into(),
            sha256: shape.sha256,
        }
    }
}

impl From<Position> for PositionShape {
    fn from(position: Position) -> Self {
        Self {
            at: position.at,
            lines: position.lines.into(),
            writes: position.writes.into(),
            head: position.head,
        }
    }
}

impl From<PositionShape> for Position {
    fn from(shape: PositionShape) -> Self {
        Self {
            at: shape.at,
            lines: shape.lines.into(),
            writes: shape.writes.into(),
            head: shape.head,
        }
    }
}

same_words!(Mode, ModeShape, Off, Observe, Act);
same_words!(
    Policy,
    PolicyShape,
    Proportional,
    WeightedNash,
    FullCapacity
);
same_words!(Label, LabelShape, Uncongested, Congested, Overloaded);

pub(super) fn original(milli: Option<Whole>) -> Original {
    Original(milli.map(Into::into))
}
