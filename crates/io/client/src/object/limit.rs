//! What a limit says, as people write it and as the plane of bookings has it (design 40, S1).

use bursar_booking::limit::{WEIGHT_DEFAULT, WEIGHT_MAX};
use bursar_booking::{Bound, Limit, Scope, TTL_MAX, TTL_MIN};
use bursar_units::{INTEGER_MAX, Label, Millis, NameError, ObjectName, hidden, quantity};

use super::{API_VERSION, KIND, Object, name_of};
use crate::api::{self, limit::LimitSpec};
use crate::problem::FieldError;
use crate::shape::{Broken, Field, Shape, WHOLE, Wrong, check_whole, join};
use crate::tree::Node;

/// The word for one counter per value.
pub const EACH: &str = "each";
/// What a limit's document looks like.
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
        Shape::Ruled(
            &Shape::Map(&[
                Field::optional("class", Shape::Text(|text| scope(text).map(drop))),
                Field::optional("tenant", Shape::Text(|text| scope(text).map(drop))),
                Field::optional("slots", WHOLE),
                Field::optional("cpu", Shape::Quantity(|text| cpu(text).map(drop))),
                Field::optional("memory", Shape::Quantity(|text| memory(text).map(drop))),
                Field::optional("gpus", WHOLE),
                Field::optional("maxQueue", WHOLE),
                Field::optional("maxQueuePerTenant", WHOLE),
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
            weight_rule,
        ),
    ),
    Field::optional("status", Shape::Any),
]);

/// Checks a spec and fills in its defaults; paths begin `spec`.
pub fn from_spec(name: ObjectName, spec: &LimitSpec) -> Result<Limit, Vec<FieldError>> {
    let mut errors = Vec::new();
    let class = take(&mut errors, "class", spec.class.as_deref(), scope);
    let tenant = take(&mut errors, "tenant", spec.tenant.as_deref(), scope);
    let is_tenant_alone = class.is_none() && tenant.is_some();
    let mut limit = Limit::unbounded(name, class, tenant);
    limit.slots = take(&mut errors, "slots", spec.slots, |slots| {
        whole(slots, 0, INTEGER_MAX)
    });
    limit.cpu = take(&mut errors, "cpu", spec.cpu.as_deref(), cpu);
    limit.memory = take(&mut errors, "memory", spec.memory.as_deref(), memory);
    limit.gpus = take(&mut errors, "gpus", spec.gpus, |gpus| {
        whole(gpus, 0, INTEGER_MAX)
    });
    let queue_max = |max| whole(max, 0, INTEGER_MAX);
    let queue_max = take(&mut errors, "maxQueue", spec.max_queue, queue_max);
    limit.queue_max = queue_max.unwrap_or(limit.queue_max);
    let of_tenant = take(
        &mut errors,
        "maxQueuePerTenant",
        spec.max_queue_per_tenant,
        |max| whole(max, 0, INTEGER_MAX),
    );
    let default = Limit::tenant_queue_default_ceil(limit.queue_max);
    limit.tenant_queue_max = Some(of_tenant.unwrap_or(default));
    let wait_max = take(&mut errors, "maxWait", spec.max_wait.as_deref(), duration);
    limit.wait_max = wait_max.unwrap_or(limit.wait_max);
    let ttl_max = take(&mut errors, "maxTTL", spec.max_ttl.as_deref(), ttl);
    limit.ttl_max = ttl_max.unwrap_or(limit.ttl_max);
    let weight = take(&mut errors, "weight", spec.weight, |weight| {
        whole(weight, 1, WEIGHT_MAX)
    });
    limit.weight = weight.or(is_tenant_alone.then_some(WEIGHT_DEFAULT));
    if spec.weight.is_some() && (spec.class.is_some() || spec.tenant.is_none()) {
        errors.push(field_error("weight", weight_alone()));
    }
    if errors.is_empty() {
        Ok(limit)
    } else {
        Err(errors)
    }
}

/// The object people would write for a limit.
pub fn object(limit: &Limit) -> api::Limit {
    api::Limit::new(limit.name.clone(), to_spec(limit))
}

/// The spec people would write, with defaults shown.
pub fn to_spec(limit: &Limit) -> LimitSpec {
    LimitSpec {
        class: limit.class.as_ref().map(scope_text),
        tenant: limit.tenant.as_ref().map(scope_text),
        slots: limit.slots,
        cpu: limit
            .cpu
            .map(|bound| bound_text(bound, quantity::format_cpu)),
        memory: limit
            .memory
            .map(|bound| bound_text(bound, quantity::format_memory)),
        gpus: limit.gpus,
        max_queue: Some(limit.queue_max),
        max_queue_per_tenant: limit.tenant_queue_max,
        max_wait: Some(hours(limit.wait_max)),
        max_ttl: Some(hours(limit.ttl_max)),
        weight: limit.weight,
    }
}

/// The bound as people write it, given how its dimension is written.
fn bound_text(bound: Bound, format: impl Fn(u64) -> String) -> String {
    match bound {
        Bound::Exactly(value) => format(value),
        Bound::Percent(percent) => format!("{percent}%"),
    }
}

fn scope_text(scope: &Scope) -> String {
    match scope {
        Scope::Each => EACH.to_owned(),
        Scope::Named(label) => label.to_string(),
    }
}

/// Reads a document that has the shape.
pub(super) fn read(node: &Node) -> Option<Object> {
    let metadata = node.get("metadata")?;
    let version = metadata.get("resourceVersion").and_then(Node::text);
    let spec = serde_json::from_value(node.get("spec")?.to_value()).ok()?;
    let name = object_name(name_of(node)?.text()?).ok()?;
    Some(Object::Limit {
        resource_version: version.map(str::to_owned),
        limit: from_spec(name, &spec).ok()?,
    })
}

/// What cannot be said of one field of a spec alone.
fn weight_rule(spec: &Node) -> Vec<Broken> {
    let has = |field| spec.given(field).is_some();
    let is_broken = has("weight") && (has("class") || !has("tenant"));
    is_broken
        .then(|| ("weight", weight_alone()))
        .into_iter()
        .collect()
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
    new_label(text).map(Scope::Named)
}

/// A class or tenant of a request: one that a reader sees whole.
pub(crate) fn new_label(text: &str) -> Result<Label, Wrong> {
    let label = Label::new(text).map_err(|error| name_error(&error))?;
    hidden::check(text).map_err(|error| Wrong::new(error.to_string()))?;
    Ok(label)
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
