//! What a limit says, as checked values (design 40, S1).

use bursar_units::{INTEGER_MAX, Label, Millis, NameError, ObjectName, quantity};

use super::Object;
use crate::api::limit::LimitSpec;
use crate::problem::FieldError;
use crate::shape::{Field, Found, Shape, WHOLE, Wrong, check_whole, join};
use crate::tree::{Kind, Node};

/// The word for one counter per value.
pub const EACH: &str = "each";
/// How many may wait where a limit does not say.
pub const QUEUE_DEFAULT: u64 = 10_000;
/// How long one may wait where a limit does not say.
pub const WAIT_DEFAULT: Millis = Millis::from_hours(24);
/// The longest ttl, and what a limit that does not say allows.
pub const TTL_MAX: Millis = Millis::from_hours(24);
/// The shortest ttl.
pub const TTL_MIN: Millis = Millis::from_secs(1);
/// The share of a tenant whose limit does not say.
pub const WEIGHT_DEFAULT: u64 = 100;
/// The largest share.
pub const WEIGHT_MAX: u64 = 1_000;

/// Which values of a field a limit speaks of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// One counter per value.
    Each,
    /// This value only.
    Named(Label),
}

/// A bound in one dimension.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bound {
    /// This much, in the dimension's unit.
    Exactly(u64),
    /// This many percent of the inventory, 1 to 100.
    Percent(u64),
}

/// A limit, checked, with its defaults filled in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LimitValues {
    /// Which classes; `None` is all of them together.
    pub class: Option<Scope>,
    /// Which tenants; `None` is all of them together.
    pub tenant: Option<Scope>,
    /// Most units of admission.
    pub slots: Option<u64>,
    /// Most CPU, in millicores.
    pub cpu: Option<Bound>,
    /// Most memory, in bytes.
    pub memory: Option<Bound>,
    /// Most whole GPUs.
    pub gpus: Option<u64>,
    /// How many may wait.
    pub queue_max: u64,
    /// How long one may ask to wait.
    pub wait_max: Millis,
    /// The longest ttl one may ask for.
    pub ttl_max: Millis,
    /// The share of a tenant's turn: present iff `tenant` alone is given.
    pub weight: Option<u64>,
}

/// What a limit's document looks like.
pub(crate) const SHAPE: Shape = Shape::Map(&[
    Field::required("apiVersion", Shape::Text(|_| Ok(()))),
    Field::required("kind", Shape::Text(|_| Ok(()))),
    Field::required(
        "metadata",
        Shape::Map(&[
            Field::required("name", Shape::Text(|text| object_name(text).map(drop))),
            Field::optional("resourceVersion", Shape::Text(|_| Ok(()))),
        ]),
    ),
    Field::required(
        "spec",
        Shape::Map(&[
            Field::optional("class", Shape::Text(|text| scope(text).map(drop))),
            Field::optional("tenant", Shape::Text(|text| scope(text).map(drop))),
            Field::optional("slots", WHOLE),
            Field::optional("cpu", Shape::Quantity(|text| cpu(text).map(drop))),
            Field::optional("memory", Shape::Quantity(|text| memory(text).map(drop))),
            Field::optional("gpus", WHOLE),
            Field::optional("maxQueue", WHOLE),
            Field::optional("maxWait", Shape::Text(|text| duration(text).map(drop))),
            Field::optional("maxTTL", Shape::Text(|text| ttl(text).map(drop))),
            Field::optional(
                "weight",
                Shape::Whole {
                    min: 1,
                    max: WEIGHT_MAX,
                },
            ),
        ]),
    ),
    Field::optional("status", Shape::Any),
]);

impl LimitValues {
    /// A limit that bounds nothing, to be filled in.
    pub fn unbounded(class: Option<Scope>, tenant: Option<Scope>) -> Self {
        let weight = (class.is_none() && tenant.is_some()).then_some(WEIGHT_DEFAULT);
        Self {
            class,
            tenant,
            slots: None,
            cpu: None,
            memory: None,
            gpus: None,
            queue_max: QUEUE_DEFAULT,
            wait_max: WAIT_DEFAULT,
            ttl_max: TTL_MAX,
            weight,
        }
    }

    /// Checks a spec; paths begin `spec`.
    pub fn from_spec(spec: &LimitSpec) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let class = take(&mut errors, "class", spec.class.as_deref(), scope);
        let tenant = take(&mut errors, "tenant", spec.tenant.as_deref(), scope);
        let mut values = Self::unbounded(class, tenant);
        values.slots = take(&mut errors, "slots", spec.slots, |slots| {
            whole(slots, 0, INTEGER_MAX)
        });
        values.cpu = take(&mut errors, "cpu", spec.cpu.as_deref(), cpu);
        values.memory = take(&mut errors, "memory", spec.memory.as_deref(), memory);
        values.gpus = take(&mut errors, "gpus", spec.gpus, |gpus| {
            whole(gpus, 0, INTEGER_MAX)
        });
        let queue_max = take(&mut errors, "maxQueue", spec.max_queue, |max| {
            whole(max, 0, INTEGER_MAX)
        });
        values.queue_max = queue_max.unwrap_or(values.queue_max);
        let wait_max = take(&mut errors, "maxWait", spec.max_wait.as_deref(), duration);
        values.wait_max = wait_max.unwrap_or(values.wait_max);
        let ttl_max = take(&mut errors, "maxTTL", spec.max_ttl.as_deref(), ttl);
        values.ttl_max = ttl_max.unwrap_or(values.ttl_max);
        let weight = take(&mut errors, "weight", spec.weight, |max| {
            whole(max, 1, WEIGHT_MAX)
        });
        values.weight = weight.or(values.weight);
        if spec.weight.is_some() && (spec.class.is_some() || spec.tenant.is_none()) {
            errors.push(field_error("weight", weight_alone()));
        }
        if errors.is_empty() {
            Ok(values)
        } else {
            Err(errors)
        }
    }

    /// The spec people would write, with defaults shown.
    pub fn to_spec(&self) -> LimitSpec {
        LimitSpec {
            class: self.class.as_ref().map(Scope::to_string),
            tenant: self.tenant.as_ref().map(Scope::to_string),
            slots: self.slots,
            cpu: self.cpu.map(|bound| bound.text(quantity::format_cpu)),
            memory: self.memory.map(|bound| bound.text(quantity::format_memory)),
            gpus: self.gpus,
            max_queue: Some(self.queue_max),
            max_wait: Some(hours(self.wait_max)),
            max_ttl: Some(hours(self.ttl_max)),
            weight: self.weight,
        }
    }
}

impl Bound {
    /// The bound as people write it, given how its dimension is written.
    pub fn text(self, format: impl Fn(u64) -> String) -> String {
        match self {
            Self::Exactly(value) => format(value),
            Self::Percent(percent) => format!("{percent}%"),
        }
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Each => f.pad(EACH),
            Self::Named(label) => f.pad(label.as_str()),
        }
    }
}

/// Reads a document that has the shape; one that has not gets what can be said beyond it.
pub(super) fn read(node: &Node, path: &str) -> Result<Object, Vec<Found>> {
    let spec_path = join(path, "spec");
    let metadata = node.get("metadata");
    let name = metadata
        .and_then(|node| node.get("name"))
        .and_then(Node::text);
    let version = metadata
        .and_then(|node| node.get("resourceVersion"))
        .and_then(Node::text);
    let nothing = Node {
        place: node.place,
        kind: Kind::Map(Vec::new()),
    };
    let spec = node.get("spec").unwrap_or(&nothing);
    let has = |field: &str| {
        spec.get(field)
            .is_some_and(|node| !matches!(node.kind, Kind::Null))
    };
    if has("weight") && (has("class") || !has("tenant")) {
        let place = spec
            .get("weight")
            .map(|node| node.place)
            .unwrap_or_default();
        return Err(vec![Found {
            place,
            path: join(&spec_path, "weight"),
            wrong: weight_alone(),
        }]);
    }
    let (Some(name), Ok(spec)) = (
        name.and_then(|name| object_name(name).ok()),
        serde_json::from_value(spec.to_value()),
    ) else {
        return Err(Vec::new());
    };
    let values = LimitValues::from_spec(&spec).map_err(|_| Vec::new())?;
    Ok(Object::Limit {
        name,
        resource_version: version.map(str::to_owned),
        values,
    })
}

fn weight_alone() -> Wrong {
    Wrong::with(
        "is for limits of tenants alone",
        "leave it out, or give `tenant` and no `class`",
    )
}

pub(super) fn object_name(text: &str) -> Result<ObjectName, Wrong> {
    ObjectName::new(text).map_err(|error| name_error(&error))
}

fn name_error(error: &NameError) -> Wrong {
    Wrong::new(error.to_string())
}

fn scope(text: &str) -> Result<Scope, Wrong> {
    if text == EACH {
        return Ok(Scope::Each);
    }
    Label::new(text)
        .map(Scope::Named)
        .map_err(|error| name_error(&error))
}

fn cpu(text: &str) -> Result<Bound, Wrong> {
    bound(text, quantity::cpu_milli)
}

fn memory(text: &str) -> Result<Bound, Wrong> {
    bound(text, quantity::memory_bytes)
}

fn bound(text: &str, read: fn(&str) -> Result<u64, quantity::Error>) -> Result<Bound, Wrong> {
    match text.strip_suffix('%') {
        Some(percent) => match percent.parse::<u64>() {
            Ok(percent @ 1..=100) => Ok(Bound::Percent(percent)),
            _ => Err(Wrong::with(
                "must be a whole percentage",
                "1% to 100% is allowed",
            )),
        },
        None => read(text)
            .map(Bound::Exactly)
            .map_err(|error| quantity_error(&error)),
    }
}

pub(super) fn quantity_error(error: &quantity::Error) -> Wrong {
    match error {
        quantity::Error::Form(_) => Wrong::with(
            "is not a quantity",
            "write it as in 500m, 2, 1.5, 256Mi or 4Gi",
        ),
        quantity::Error::Negative(_) => Wrong::new("must not be negative"),
        quantity::Error::TooLarge(_) => Wrong::new("is too large"),
        quantity::Error::TooPrecise(_) => Wrong::new("has more than 18 significant digits"),
    }
}

fn duration(text: &str) -> Result<Millis, Wrong> {
    text.parse().map_err(|error| match error {
        bursar_units::duration::Error::Form(_) => Wrong::with(
            "is not a duration",
            "write a whole number and a unit, as in 500ms, 10s, 5m, 36h or 7d",
        ),
        bursar_units::duration::Error::TooLong(_) => Wrong::new("is too long a duration"),
    })
}

fn ttl(text: &str) -> Result<Millis, Wrong> {
    match duration(text)? {
        ttl if (TTL_MIN..=TTL_MAX).contains(&ttl) => Ok(ttl),
        _ => Err(Wrong::new("must be between 1s and 24h")),
    }
}

fn whole(value: u64, min: u64, max: u64) -> Result<u64, Wrong> {
    check_whole(&value.to_string(), min, max).map(|()| value)
}

fn take<T, V>(
    errors: &mut Vec<FieldError>,
    field: &str,
    value: Option<T>,
    read: impl Fn(T) -> Result<V, Wrong>,
) -> Option<V> {
    match read(value?) {
        Ok(value) => Some(value),
        Err(wrong) => {
            errors.push(field_error(field, wrong));
            None
        }
    }
}

fn field_error(field: &str, wrong: Wrong) -> FieldError {
    let suggestion = wrong.suggestion;
    FieldError {
        suggestion,
        ..FieldError::new(join("spec", field), wrong.message)
    }
}

/// A duration as people write limits: `24h`, not `1d`, so that the default reads as documented.
fn hours(length: Millis) -> String {
    const HOUR_MS: u64 = 3_600_000;
    let ms = length.ms();
    if ms > 0 && ms.is_multiple_of(HOUR_MS) {
        format!("{}h", ms / HOUR_MS)
    } else {
        length.to_string()
    }
}
