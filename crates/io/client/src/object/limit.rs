//! Conversion between limits in files and limits of the plane of bookings (S1).

use bursar_booking::limit::{Kind, WEIGHT_DEFAULT};
use bursar_booking::{Bound, Limit, Scope, TTL_MAX, TTL_MIN};
use bursar_units::{Label, Millis, ObjectName, hidden, quantity};

use super::{API_VERSION, KIND, Object, name_of};
use crate::api::{self, limit::LimitSpec};
use crate::shape::{Field, Shape, Violation, Wrong};
use crate::tree::Node;

/// Value of `class` or `tenant` for one counter per value.
pub const EACH: &str = "each";
pub(crate) const SHAPE: Shape = Shape::Map(&[
    API_VERSION,
    KIND,
    Field::required(
        "metadata",
        Shape::Map(&[
            Field::required("name", Shape::Text(|text| object_name(text).map(drop))),
            Field::optional("resourceVersion", Shape::Text(|_| Ok(()))),
        ]),
    ),
    Field::required(
        "spec",
        Shape::Ruled(&Shape::Map(LimitSpec::FIELDS), weight_rule),
    ),
    Field::optional("status", Shape::Any),
]);

/// The limit of a spec, with defaults; `None` if the spec has a mistake.
pub fn from_spec(name: ObjectName, spec: &LimitSpec) -> Option<Limit> {
    let mut limit = Limit::unbounded(name, None, None);
    spec.put(&mut limit)?;
    let default = Limit::tenant_queue_default_ceil(limit.queue_max);
    limit.tenant_queue_max = limit.tenant_queue_max.or(Some(default));
    if limit.kind() == Kind::Tenant {
        limit.weight = limit.weight.or(Some(WEIGHT_DEFAULT));
    }
    Some(limit)
}

/// Declared object of a limit.
pub fn object(limit: &Limit) -> api::Limit {
    api::Limit::new(limit.name.clone(), to_spec(limit))
}

/// Spec of a limit, with defaults.
pub fn to_spec(limit: &Limit) -> LimitSpec {
    LimitSpec::of(limit)
}

/// Text of a bound, with the format of its dimension.
pub(crate) fn bound_text(bound: Bound, format: impl Fn(u64) -> String) -> String {
    match bound {
        Bound::Exactly(value) => format(value),
        Bound::Percent(percent) => format!("{percent}%"),
    }
}

pub(crate) fn scope_text(scope: &Scope) -> String {
    match scope {
        Scope::Each => EACH.to_owned(),
        Scope::Named(label) => label.to_string(),
    }
}

pub(super) fn read(node: &Node) -> Option<Object> {
    let metadata = node.get("metadata")?;
    let version = metadata.get("resourceVersion").and_then(Node::text);
    let spec = serde_json::from_value(node.get("spec")?.to_value()).ok()?;
    let name = object_name(name_of(node)?.text()?).ok()?;
    Some(Object::Limit {
        resource_version: version.map(str::to_owned),
        limit: from_spec(name, &spec)?,
    })
}

/// A weight is allowed only with `tenant` and without `class`.
fn weight_rule(spec: &Node) -> Vec<Violation> {
    let has = |field| spec.given(field).is_some();
    let wrong = || {
        Wrong::with(
            "is for limits of tenants alone",
            "leave it out, or give `tenant` and no `class`",
        )
    };
    let is_broken = has("weight") && (has("class") || !has("tenant"));
    is_broken.then(|| ("weight", wrong())).into_iter().collect()
}

pub(super) fn object_name(text: &str) -> Result<ObjectName, Wrong> {
    ObjectName::new(text).map_err(Wrong::from)
}

pub(crate) fn scope(text: &str) -> Result<Scope, Wrong> {
    if text == EACH {
        return Ok(Scope::Each);
    }
    new_label(text).map(Scope::Named)
}

/// Reads a class or tenant of a request, which must not have invisible characters.
pub(crate) fn new_label(text: &str) -> Result<Label, Wrong> {
    let label = Label::new(text)?;
    hidden::check(text)?;
    Ok(label)
}

pub(crate) fn cpu(text: &str) -> Result<Bound, Wrong> {
    bound(text, quantity::cpu_milli)
}

pub(crate) fn memory(text: &str) -> Result<Bound, Wrong> {
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

pub(crate) fn duration(text: &str) -> Result<Millis, Wrong> {
    text.parse().map_err(|error| match error {
        bursar_units::duration::Error::Form(_) => Wrong::with(
            "is not a duration",
            "write a whole number and a unit, as in 500ms, 10s, 5m, 36h or 7d",
        ),
        bursar_units::duration::Error::TooLong(_) => Wrong::new("is too long a duration"),
    })
}

pub(crate) fn ttl(text: &str) -> Result<Millis, Wrong> {
    match duration(text)? {
        ttl if (TTL_MIN..=TTL_MAX).contains(&ttl) => Ok(ttl),
        _ => Err(Wrong::new("must be between 1s and 24h")),
    }
}

/// Text of a duration in hours, `24h` and not `1d`, so that the default is shown as documented.
pub(crate) fn hours(length: Millis) -> String {
    const HOUR_MS: u64 = 3_600_000;
    let ms = length.ms();
    if ms > 0 && ms.is_multiple_of(HOUR_MS) {
        format!("{}h", ms / HOUR_MS)
    } else {
        length.to_string()
    }
}
