//! What a change of a limit does: the same for the dry run and for the change (transcript 2.4).

use bursar_booking::{Bound, Event as BookingEvent, Limit, LimitUse, Scope};
use bursar_plane::{Node, Reference};
use bursar_units::{BookingId, Dimension, Label, ObjectName};

use super::{fullest, give_back};
use crate::{Change, Event, State, words};

/// Whether a change is told as a plan or as a fact.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mood {
    /// A dry run: `would be granted`.
    Would,
    /// It was done: `granted`.
    Did,
}

/// One field of a limit that changes, both sides as people write them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldChange {
    /// Its name in a file.
    pub field: &'static str,
    /// What it was; `-` where there was none.
    pub before: String,
    /// What it is; `-` where there is none.
    pub after: String,
}

/// What a change comes to for one limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Effect {
    /// What changes in the limit itself; empty where nothing does.
    pub fields: Vec<FieldChange>,
    /// How many waiting bookings under the limit are granted by it.
    pub granted: u64,
    /// Whether further grants follow in the next record (L9).
    pub more: bool,
    /// The class or tenant of the fullest counter, where the limit has one for each.
    pub fullest: Option<Label>,
    /// What is in use afterwards, tightest bound first; empty where nothing is bounded.
    pub limits: Vec<LimitUse>,
    /// How much of the tightest is above its bound.
    pub over: u64,
}

/// A declared object before a change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Previous {
    /// It was not declared.
    Nothing,
    /// A limit.
    Limit(Limit),
    /// A node.
    Node(Node),
}

/// The change of one declared object, as it was decided.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Changed {
    /// The object before.
    pub previous: Previous,
    /// Whether it is another one now; an object that was so already has no event.
    pub is_changed: bool,
    /// What it comes to; `None` for a node.
    pub effect: Option<Effect>,
}

impl Previous {
    /// The object that a change is about, before the change.
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
            _ => Self::Nothing,
        }
    }
}

impl Changed {
    /// What a change came to, with the events and the state that it left.
    pub fn new(change: &Change, previous: Previous, events: &[Event], after: &State) -> Self {
        let before = match &previous {
            Previous::Limit(limit) => Some(limit),
            Previous::Nothing | Previous::Node(_) => None,
        };
        let effect = match change.declared() {
            Reference::Limit(name) => Some(change_effect(before, events, after, &name)),
            _ => None,
        };
        let object = change.declared();
        let is_changed = events
            .iter()
            .any(|event| event.subjects().contains(&object));
        Self {
            previous,
            is_changed,
            effect,
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

/// What some events did, or would do, to one limit: `before` is the limit as it was, `None` if
/// it was not declared.
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
    let speaks_of = |scope: &Option<Scope>, label: &Label| match scope {
        Some(Scope::Named(named)) => named == label,
        Some(Scope::Each) | None => true,
    };
    before.is_some_and(|limit| {
        speaks_of(&limit.class, &request.class) && speaks_of(&limit.tenant, &request.tenant)
    })
}

/// The fields of a limit by their names in files, each with its text; `-` where it says nothing.
pub fn limit_texts(limit: &Limit) -> impl Iterator<Item = (&'static str, String)> {
    FIELDS.into_iter().map(|(field, text)| (field, text(limit)))
}

fn field_changes(before: Option<&Limit>, after: Option<&Limit>) -> Vec<FieldChange> {
    let none = || FIELDS.map(|(field, _)| (field, "-".to_owned()));
    let fields = |limit: Option<&Limit>| {
        limit.map_or_else(none, |limit| {
            FIELDS.map(|(field, text)| (field, text(limit)))
        })
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

/// The name of a field in files, and its text.
type Field = (&'static str, fn(&Limit) -> String);

/// The fields of a limit in the order in which files write them.
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
