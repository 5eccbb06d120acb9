//! Mistakes of a declared budget, each with the path of its field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bursar_units::{Instant, Label, ObjectName};
use thiserror::Error;

use super::{AggregateCap, Budget, EDGES_MAX, Envelope, GPU_HOURS_MAX, GPUS_MAX, PARTS_MAX, Renew};
use crate::accounts::{HORIZON_MAX, HORIZON_MIN};
use crate::id::{CapId, EnvelopeId};

/// A mistake of a declared budget.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mistake {
    /// Path of the field from the object on, as in `spec.envelopes[0].end`.
    pub path: String,
    /// The broken rule.
    pub wrong: Wrong,
}

/// A rule of declared budgets that a field breaks.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Wrong {
    /// A name occurs a second time in a list.
    #[error("`{name}` is given twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A list has too many entries.
    #[error("has {count} entries, at most {max} are allowed")]
    TooMany {
        /// Number of entries.
        count: usize,
        /// The maximum.
        max: usize,
    },
    /// A number is zero.
    #[error("must be at least 1")]
    Zero,
    /// An admission horizon is too short or too long.
    #[error("must be from 1s to 3650d")]
    Horizon,
    /// A number is too large.
    #[error("is {value}, at most {max} is allowed")]
    TooLarge {
        /// The number.
        value: u64,
        /// The maximum.
        max: u64,
    },
    /// A window ends before it starts, or at its start.
    #[error("is not after start")]
    EndNotAfterStart {
        /// The start.
        start: Instant,
        /// The end.
        end: Instant,
    },
    /// A window repeats but has no end.
    #[error("needs an end")]
    RenewWithoutEnd,
    /// An owner is its own parent.
    #[error("is the owner itself")]
    OwnParent,
    /// An owner would be its own ancestor.
    #[error("makes a cycle: {}", Path(.owners))]
    Cycle {
        /// The owners of the cycle, from the owner to the parent that closes it.
        owners: Vec<Label>,
    },
    /// A family has too many levels.
    #[error("makes a family of more than {max} levels")]
    TooDeep {
        /// The maximum.
        max: usize,
    },
    /// A cap names an envelope that is not declared.
    #[error("`{envelope}` is not declared")]
    NoSuchEnvelope {
        /// The envelope.
        envelope: EnvelopeId,
    },
    /// A cap names an envelope of an owner that does not descend from the cap's owner.
    #[error("`{envelope}` belongs to {owner}, which does not descend from {of}")]
    ForeignEnvelope {
        /// The envelope.
        envelope: EnvelopeId,
        /// Its owner.
        owner: Label,
        /// The owner of the cap.
        of: Label,
    },
    /// A cap names an envelope of another flavor.
    #[error("`{envelope}` has the flavor {flavor}")]
    OtherFlavor {
        /// The envelope.
        envelope: EnvelopeId,
        /// Its flavor.
        flavor: Label,
    },
    /// An edit leaves an envelope under a cap of an owner from which its own does not descend.
    #[error("leaves `{envelope}` under the cap {cap}, but {owner} would not descend from {of}")]
    UnderCapOfOwner {
        /// The envelope.
        envelope: EnvelopeId,
        /// The cap.
        cap: CapId,
        /// Owner of the envelope.
        owner: Label,
        /// Owner of the cap.
        of: Label,
    },
    /// An edit leaves an envelope under a cap of another flavor.
    #[error("is {flavor}, but `{envelope}` is under the cap {cap} of another flavor")]
    UnderCapOfFlavor {
        /// The envelope.
        envelope: EnvelopeId,
        /// The cap.
        cap: CapId,
        /// Its new flavor.
        flavor: Label,
    },
    /// A cap bounds nothing.
    #[error("needs maxConcurrency or maxGPUHours")]
    NoBound,
    /// A cap names no envelope.
    #[error("must name an envelope")]
    Empty,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.wrong)
    }
}

impl Budget {
    /// The mistakes that can be seen without any other object, in the order of the fields.
    pub fn mistakes(&self) -> Vec<Mistake> {
        let mut found = Found::default();
        self.check_parents(&mut found);
        let path = "spec.envelopes";
        found.count(path, self.envelopes.len(), PARTS_MAX);
        found.names(path, self.envelopes.iter().map(|envelope| &envelope.name));
        for (number, envelope) in self.envelopes.iter().enumerate() {
            envelope.check(&format!("{path}[{number}]"), &mut found);
        }
        let path = "spec.aggregateCaps";
        found.count(path, self.aggregate_caps.len(), PARTS_MAX);
        found.names(path, self.aggregate_caps.iter().map(|cap| &cap.name));
        for (number, cap) in self.aggregate_caps.iter().enumerate() {
            cap.check(&format!("{path}[{number}]"), &mut found);
        }
        found.0
    }

    fn check_parents(&self, found: &mut Found) {
        found.count("spec.parents", self.parents.len(), EDGES_MAX);
        let mut seen = BTreeSet::new();
        for (number, parent) in self.parents.iter().enumerate() {
            let path = || format!("spec.parents[{number}]");
            if *parent == self.owner {
                found.add(path(), Wrong::OwnParent);
            }
            if !seen.insert(parent) {
                let name = parent.to_string();
                found.add(path(), Wrong::Duplicate { name });
            }
        }
    }
}

impl Envelope {
    fn check(&self, path: &str, found: &mut Found) {
        found.gpus(&format!("{path}.concurrency"), Some(self.concurrency));
        found.hours(&format!("{path}.maxGPUHours"), self.gpu_hours_max);
        found.window(path, self.start, self.end, self.renew);
        if let Some(lending) = &self.lending {
            let path = format!("{path}.lending");
            found.count(&format!("{path}.to"), lending.to.len(), EDGES_MAX);
            let mut seen = BTreeSet::new();
            for (number, pattern) in lending.to.iter().enumerate() {
                if !seen.insert(pattern) {
                    let name = pattern.to_string();
                    found.add(format!("{path}.to[{number}]"), Wrong::Duplicate { name });
                }
            }
            found.gpus(&format!("{path}.maxConcurrency"), lending.concurrency_max);
            found.hours(&format!("{path}.maxGPUHours"), lending.gpu_hours_max);
        }
        let horizons = HORIZON_MIN..=HORIZON_MAX;
        if self
            .admission_horizon
            .is_some_and(|horizon| !horizons.contains(&horizon))
        {
            found.add(format!("{path}.admissionHorizon"), Wrong::Horizon);
        }
    }
}

impl AggregateCap {
    fn check(&self, path: &str, found: &mut Found) {
        let list = format!("{path}.envelopes");
        found.count(&list, self.envelopes.len(), PARTS_MAX);
        if self.envelopes.is_empty() {
            found.add(list.clone(), Wrong::Empty);
        }
        let mut seen = BTreeSet::new();
        for (number, envelope) in self.envelopes.iter().enumerate() {
            if !seen.insert(envelope) {
                let name = envelope.to_string();
                found.add(format!("{list}[{number}]"), Wrong::Duplicate { name });
            }
        }
        if self.concurrency_max.is_none() && self.gpu_hours_max.is_none() {
            found.add(path.into(), Wrong::NoBound);
        }
        found.gpus(&format!("{path}.maxConcurrency"), self.concurrency_max);
        found.hours(&format!("{path}.maxGPUHours"), self.gpu_hours_max);
        found.window(path, self.start, self.end, self.renew);
    }
}

/// The mistakes found so far.
#[derive(Default)]
pub(crate) struct Found(pub(crate) Vec<Mistake>);

impl Found {
    pub(crate) fn add(&mut self, path: String, wrong: Wrong) {
        self.0.push(Mistake { path, wrong });
    }

    fn count(&mut self, path: &str, count: usize, max: usize) {
        if max < count {
            self.add(path.into(), Wrong::TooMany { count, max });
        }
    }

    fn names<'a>(&mut self, path: &str, names: impl Iterator<Item = &'a ObjectName>) {
        let mut seen = BTreeMap::new();
        for (number, name) in names.enumerate() {
            if seen.insert(name, number).is_some() {
                let name = name.to_string();
                self.add(format!("{path}[{number}].name"), Wrong::Duplicate { name });
            }
        }
    }

    fn gpus(&mut self, path: &str, gpus: Option<u64>) {
        match gpus {
            Some(0) => self.add(path.into(), Wrong::Zero),
            Some(value) if GPUS_MAX < value => {
                let max = GPUS_MAX;
                self.add(path.into(), Wrong::TooLarge { value, max });
            }
            _ => {}
        }
    }

    fn hours(&mut self, path: &str, hours: Option<u64>) {
        if let Some(value) = hours.filter(|value| GPU_HOURS_MAX < *value) {
            let max = GPU_HOURS_MAX;
            self.add(path.into(), Wrong::TooLarge { value, max });
        }
    }

    fn window(
        &mut self,
        path: &str,
        start: Option<Instant>,
        end: Option<Instant>,
        renew: Option<Renew>,
    ) {
        for (field, wrong) in window_mistakes(start, end, renew) {
            self.add(format!("{path}.{field}"), wrong);
        }
    }
}

/// The mistakes of a declared window, each with its field.
pub fn window_mistakes(
    start: Option<Instant>,
    end: Option<Instant>,
    renew: Option<Renew>,
) -> impl Iterator<Item = (&'static str, Wrong)> {
    let endless = (renew.is_some() && end.is_none()).then_some(("renew", Wrong::RenewWithoutEnd));
    let both = start.zip(end).filter(|(start, end)| end <= start);
    let order = both.map(|(start, end)| ("end", Wrong::EndNotAfterStart { start, end }));
    endless.into_iter().chain(order)
}

struct Path<'a>(&'a [Label]);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, owner) in self.0.iter().enumerate() {
            let arrow = if number == 0 { "" } else { " → " };
            write!(f, "{arrow}{owner}")?;
        }
        Ok(())
    }
}
