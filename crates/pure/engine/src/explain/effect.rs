//! Effect of a change of a limit, for the dry run and for the change itself.

use std::collections::BTreeSet;

use bursar_booking::{Bound, Event as BookingEvent, Limit, LimitUse, Scope};
use bursar_plane::{Node, Reference};
use bursar_units::{BookingId, Dimension, Label, ObjectName};

use super::{fullest, give_back};
use crate::{Change, Event, State, cluster, words};

/// Mood of the verb: a plan or a fact.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mood {
    /// Dry run: `would be granted`.
    Would,
    /// Done: `granted`.
    Did,
}

/// Change of one field of a limit, as texts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldChange {
    /// Name of the field in a file.
    pub field: &'static str,
    /// Value before; `-` for none.
    pub before: String,
    /// Value after; `-` for none.
    pub after: String,
}

/// Effect of a change on one limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Effect {
    /// Fields of the limit that change.
    pub fields: Vec<FieldChange>,
    /// Number of waiting bookings under the limit that are granted.
    pub granted: u64,
    /// Whether further grants follow in the next record (L9).
    pub more: bool,
    /// Class or tenant of the fullest counter, if the limit has one for each.
    pub fullest: Option<Label>,
    /// Use after the change, tightest bound first; empty without bounds.
    pub limits: Vec<LimitUse>,
    /// Amount above the tightest bound.
    pub over: u64,
}

/// A declared object before a change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Previous {
    /// The object was not declared.
    Nothing,
    /// A limit.
    Limit(Limit),
    /// A node.
    Node(Node),
    /// A budget.
    Budget(Box<cluster::budget::Budget>),
    /// A run that has not ended, or that ended and is remembered.
    Run(Box<cluster::Shown>),
}

/// Decided change of one declared object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Changed {
    /// Object before the change.
    pub previous: Previous,
    /// Whether the object has changed; one that was equal already has no event.
    pub is_changed: bool,
    /// Effect; `None` for objects other than limits.
    pub effect: Option<Effect>,
    /// The run as the change left it, if it is one.
    pub run: Option<Box<cluster::Shown>>,
}

impl Previous {
    /// Object of a change, before the change.
    pub fn of(state: &State, change: &Change) -> Self {
        match change.declared() {
            Reference::Limit(name) => {
                let limit = state.bookings.limit(name.as_str());
                limit.map_or(Self::Nothing, |declared| {
                    Self::Limit(declared.limit.clone())
                })
            }
            Reference::Node(name) => {
                let node = state.spine.inventory.get(name.as_str());
                node.map_or(Self::Nothing, |node| Self::Node(node.clone()))
            }
            Reference::Budget(name) => {
                let id = cluster::budget::BudgetId::new(name.as_str()).ok();
                let budget = id.and_then(|id| state.clusters.accounts().budget(&id).cloned());
                budget.map_or(Self::Nothing, |budget| Self::Budget(Box::new(budget)))
            }
            Reference::Run(name) => {
                let run = state.clusters.run_named(&name);
                run.map_or(Self::Nothing, |run| Self::Run(Box::new(run)))
            }
            _ => Self::Nothing,
        }
    }
}

impl Changed {
    /// Result of a change, from the events of its record, their subjects and the state after it.
    pub fn new(
        change: &Change,
        previous: Previous,
        events: &[Event],
        subjects: &BTreeSet<Reference>,
        after: &State,
    ) -> Self {
        let before = match &previous {
            Previous::Limit(limit) => Some(limit),
            Previous::Nothing | Previous::Node(_) | Previous::Budget(_) | Previous::Run(_) => None,
        };
        let effect = match change.declared() {
            Reference::Limit(name) => Some(change_effect(before, events, after, &name)),
            _ => None,
        };
        let object = change.declared();
        let run = match &object {
            Reference::Run(name) => after.clusters.run_named(name).map(Box::new),
            _ => None,
        };
        Self {
            previous,
            is_changed: subjects.contains(&object),
            effect,
            run,
        }
    }
}

impl Effect {
    /// `3 waiting bookings would be granted, 103/120 in use`.
    pub fn text(&self, mood: Mood) -> String {
        let granted = (self.granted > 0).then(|| {
            let more = if self.more { " and more follow" } else { "" };
            let verb = match mood {
                Mood::Would => "would be granted",
                Mood::Did => "granted",
            };
            format!(
                "{} {verb}{more}",
                words::count(self.granted, "waiting booking")
            )
        });
        let parts: Vec<String> = granted.into_iter().chain([self.use_words()]).collect();
        parts.join(", ")
    }

    fn use_words(&self) -> String {
        let Some(tightest) = self.limits.first() else {
            return "nothing is bounded by it".to_owned();
        };
        let whose = self.fullest.as_ref().map(|label| format!("{label} "));
        let whose = whose.unwrap_or_default();
        let in_use = words::value(tightest.dimension, tightest.in_use);
        let value = |value| words::value(tightest.dimension, value);
        match give_back(tightest) {
            _ if tightest.size == 0 => {
                format!("{whose}{in_use} in use: nobody is stopped, no grant until it is raised")
            }
            Some(give_back) => format!(
                "{whose}{in_use} in use, {} over: nobody is stopped, no grant until {} have been given back",
                value(self.over),
                value(give_back)
            ),
            None => format!("{whose}{} in use", words::used(tightest)),
        }
    }
}

/// Effect of events on one limit; `before` is the limit before them, `None` if not declared.
pub fn change_effect(
    before: Option<&Limit>,
    events: &[Event],
    state_after: &State,
    name: &ObjectName,
) -> Effect {
    let declared = state_after.bookings.limit(name.as_str());
    let fields = field_changes(before, declared.map(|declared| &declared.limit));
    let granted = events.iter().filter(|event| match event {
        Event::Booking(BookingEvent::Granted { id, .. }) => is_under(state_after, id, name, before),
        _ => false,
    });
    let granted = u64::try_from(granted.count()).unwrap_or(u64::MAX);
    let fullest =
        declared.and_then(|declared| fullest(state_after.bookings.counters_of(declared), declared));
    let (limits, label) = fullest.map_or((Vec::new(), None), |counter| {
        let is_each = |scope: &Option<Scope>| *scope == Some(Scope::Each);
        let limit = declared.map(|declared| &declared.limit);
        let class = counter
            .class
            .filter(|_| limit.is_some_and(|limit| is_each(&limit.class)));
        let tenant = counter
            .tenant
            .filter(|_| limit.is_some_and(|limit| is_each(&limit.tenant)));
        (counter.limits, class.or(tenant).cloned())
    });
    let over = limits
        .first()
        .map_or(0, |of| of.in_use.saturating_sub(of.size));
    let more = state_after.bookings.is_unsettled();
    Effect {
        fields,
        granted,
        more,
        fullest: label,
        limits,
        over,
    }
}

/// Whether a booking counts against the limit, or did before it was removed.
fn is_under(state: &State, id: &BookingId, name: &ObjectName, before: Option<&Limit>) -> bool {
    let Some(request) = state.bookings.request(id) else {
        return false;
    };
    if state.bookings.limit(name.as_str()).is_some() {
        let limits = state.bookings.limits_for(&request);
        return limits.iter().any(|of| of.name == *name);
    }
    let applies_to = |scope: &Option<Scope>, label: &Label| match scope {
        Some(Scope::Named(named)) => named == label,
        Some(Scope::Each) | None => true,
    };
    before.is_some_and(|limit| {
        applies_to(&limit.class, &request.class) && applies_to(&limit.tenant, &request.tenant)
    })
}

/// Fields of a limit by their names in files, each with its text; `-` for none.
pub fn limit_texts(limit: &Limit) -> impl Iterator<Item = (&'static str, String)> {
    FIELDS.into_iter().map(|(field, text)| (field, text(limit)))
}

fn field_changes(before: Option<&Limit>, after: Option<&Limit>) -> Vec<FieldChange> {
    let fields = |limit: Option<&Limit>| {
        FIELDS.map(|(field, text)| (field, limit.map_or_else(absent, text)))
    };
    fields(before)
        .into_iter()
        .zip(fields(after))
        .filter(|((_, before), (_, after))| before != after)
        .map(|((field, before), (_, after))| FieldChange {
            field,
            before,
            after,
        })
        .collect()
}

type Field = (&'static str, fn(&Limit) -> String);

/// Fields of a limit, in the order of files.
const FIELDS: [Field; 11] = [
    ("class", |limit| scope(limit.class.as_ref())),
    ("tenant", |limit| scope(limit.tenant.as_ref())),
    ("slots", |limit| size(Dimension::Slots, limit.slots)),
    ("cpu", |limit| bound(Dimension::Cpu, limit.cpu)),
    ("memory", |limit| bound(Dimension::Memory, limit.memory)),
    ("gpus", |limit| size(Dimension::Gpus, limit.gpus)),
    ("maxQueue", |limit| words::number(limit.queue_max)),
    ("maxQueuePerTenant", |limit| {
        limit.tenant_queue_max.map_or_else(absent, words::number)
    }),
    ("maxWait", |limit| limit.wait_max.to_string()),
    ("maxTTL", |limit| limit.ttl_max.to_string()),
    ("weight", |limit| {
        limit.weight.map_or_else(absent, words::number)
    }),
];

fn scope(scope: Option<&Scope>) -> String {
    match scope {
        None => absent(),
        Some(Scope::Each) => "each".to_owned(),
        Some(Scope::Named(label)) => label.to_string(),
    }
}

fn size(dimension: Dimension, size: Option<u64>) -> String {
    size.map_or_else(absent, |size| words::value(dimension, size))
}

fn bound(dimension: Dimension, bound: Option<Bound>) -> String {
    match bound {
        None => absent(),
        Some(Bound::Exactly(size)) => words::value(dimension, size),
        Some(Bound::Percent(percent)) => format!("{percent}%"),
    }
}

fn absent() -> String {
    "-".to_owned()
}
