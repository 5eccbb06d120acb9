//! Conversion between budgets in files and budgets of the plane.

use bursar_engine::cluster::budget::spec::{OnExhaustion, Sharing, window_mistakes};
use bursar_engine::cluster::budget::{
    self as plane, AggregateCap, BudgetId, EnvelopeId, Lending, Mistake, Pattern, Renew, calendar,
};
use bursar_units::{Instant, Millis, ObjectName};

use super::limit::{duration, hours, new_label, object_name};
use super::{API_VERSION, KIND, Object, SCOPED_METADATA, scope_of};
use crate::api::cluster::{Budget, BudgetSpec, CapSpec, EnvelopeSpec, LendingSpec, ScopedMetadata};
use crate::api::{self, instant};
use crate::problem::FieldError;
use crate::shape::{Field, Shape, Violation, Wrong};
use crate::tree::Node;

pub(crate) const SHAPE: Shape = Shape::Map(&[
    API_VERSION,
    KIND,
    SCOPED_METADATA,
    Field::required("spec", Shape::Map(BudgetSpec::FIELDS)),
    Field::optional("status", Shape::Any),
]);

/// Declared object of a budget.
pub fn object(budget: &plane::Budget) -> Budget {
    Budget {
        api_version: api::limit::API_VERSION.to_owned(),
        kind: "Budget".to_owned(),
        metadata: ScopedMetadata {
            name: budget.name.clone(),
            namespace: Some(budget.namespace.clone()),
            resource_version: None,
        },
        spec: to_spec(budget),
        status: None,
    }
}

/// The budget of a spec; `None` if the spec has a mistake.
pub fn from_spec(
    namespace: ObjectName,
    name: ObjectName,
    spec: &BudgetSpec,
) -> Option<plane::Budget> {
    let envelopes = spec.envelopes.iter().map(envelope);
    let caps = spec.aggregate_caps.iter();
    let caps = caps.map(|cap| self::cap(&namespace, &name, cap));
    Some(plane::Budget {
        owner: spec.owner.clone(),
        parents: spec.parents.clone(),
        envelopes: envelopes.collect::<Option<_>>()?,
        aggregate_caps: caps.collect::<Option<_>>()?,
        paused: spec.paused.unwrap_or_default(),
        namespace,
        name,
    })
}

/// Spec of a budget, with defaults.
pub fn to_spec(budget: &plane::Budget) -> BudgetSpec {
    BudgetSpec {
        owner: budget.owner.clone(),
        parents: budget.parents.clone(),
        envelopes: budget.envelopes.iter().map(envelope_spec).collect(),
        aggregate_caps: budget
            .aggregate_caps
            .iter()
            .map(|cap| cap_spec(budget, cap))
            .collect(),
        paused: budget.paused.then_some(true),
    }
}

pub(super) fn read(node: &Node) -> Option<Object> {
    let (namespace, name, resource_version) = scope_of(node)?;
    let spec = serde_json::from_value(node.get("spec")?.to_value()).ok()?;
    let budget = Box::new(from_spec(namespace, name, &spec)?);
    Some(Object::Budget {
        resource_version,
        budget,
    })
}

/// A mistake that the plane found, as an entry of a problem.
pub fn field_error(id: &BudgetId, mistake: &Mistake) -> FieldError {
    let wrong = wrong(mistake);
    FieldError {
        suggestion: wrong.suggestion,
        ..FieldError::new(&mistake.path, wrong.message).of(format!("budget/{id}"))
    }
}

/// The mistake of the plane, with advice.
pub(super) fn wrong(mistake: &Mistake) -> Wrong {
    match &mistake.wrong {
        plane::Wrong::Duplicate { .. } => {
            Wrong::with(mistake.wrong.to_string(), "leave one of them out")
        }
        wrong => Wrong::new(wrong.to_string()),
    }
}

pub(crate) const fn label_shape() -> Shape {
    Shape::Text(|text| new_label(text).map(drop))
}

pub(crate) const fn name_shape() -> Shape {
    Shape::Text(|text| object_name(text).map(drop))
}

pub(crate) const fn duration_shape() -> Shape {
    Shape::Text(|text| duration(text).map(drop))
}

pub(crate) const fn instant_shape() -> Shape {
    Shape::Text(|text| {
        let read = instant::parse(text).map(drop);
        read.map_err(|_| Wrong::with("is not an instant", "write it as in 2026-10-01T00:00:00Z"))
    })
}

pub(crate) const fn pattern_shape() -> Shape {
    Shape::Text(|text| {
        let read = Pattern::new(text).map(drop);
        read.map_err(|error| Wrong::with("is not a pattern", error.to_string()))?;
        bursar_units::hidden::check(text).map_err(Wrong::from)
    })
}

/// A member of a cap: an envelope of the same budget by its name, or any by its identity.
pub(crate) const fn member_shape() -> Shape {
    Shape::Text(|text| {
        let is_name = ObjectName::new(text).is_ok();
        let advice = "write the name of an envelope of this budget, or NAMESPACE/BUDGET/ENVELOPE";
        if is_name || EnvelopeId::new(text).is_ok() {
            Ok(())
        } else {
            Err(Wrong::with("is not an envelope", advice))
        }
    })
}

/// The rule of windows (B3), over the fields that can be read.
pub(crate) fn window_rule(node: &Node) -> Vec<Violation> {
    let at = |field| instant::parse(node.given(field)?.text()?).ok();
    let renew = node.given("renew").and_then(Node::text);
    let renew = renew.and_then(Renew::from_word);
    // An end that is given and cannot be read has its own mistake.
    let is_endless = node.given("end").is_none();
    let found = window_mistakes(at("start"), at("end"), renew);
    let found = found.filter(|(field, _)| *field != "renew" || is_endless);
    found
        .map(|(field, wrong)| (field, window_wrong(&wrong, renew)))
        .collect()
}

fn window_wrong(wrong: &plane::Wrong, renew: Option<Renew>) -> Wrong {
    match wrong {
        plane::Wrong::EndNotAfterStart { start, end } => {
            let message = if end < start {
                "is before start"
            } else {
                "is the same as start"
            };
            let later = format!("must be later than {}", day_text(*start));
            let unit = renew.map(|renew| {
                let end = day_text(calendar::plus(*start, renew, 1));
                format!("; {end} would be one {renew}")
            });
            Wrong::with(message, format!("{later}{}", unit.unwrap_or_default()))
        }
        wrong => Wrong::new(wrong.to_string()),
    }
}

/// The date of a midnight in UTC, or the whole instant.
fn day_text(at: Instant) -> String {
    let text = instant::format(at);
    match text.strip_suffix("T00:00:00.000Z") {
        Some(date) => date.to_owned(),
        None => text,
    }
}

fn envelope(spec: &EnvelopeSpec) -> Option<plane::Envelope> {
    let lending = spec.lending.as_ref().map(lending);
    Some(plane::Envelope {
        name: spec.name.clone(),
        flavor: spec.flavor.clone(),
        selector: spec.selector.as_ref().map(Into::into).unwrap_or_default(),
        concurrency: spec.concurrency,
        gpu_hours_max: spec.max_gpu_hours,
        start: spec.start,
        end: spec.end,
        renew: spec.renew,
        sharing: spec.sharing.unwrap_or(Sharing::Family),
        lending: match lending {
            Some(lending) => Some(lending?),
            None => None,
        },
        on_exhaustion: spec.on_exhaustion.unwrap_or(OnExhaustion::Demote),
        admission_horizon: length(spec.admission_horizon.as_ref())?,
    })
}

fn envelope_spec(envelope: &plane::Envelope) -> EnvelopeSpec {
    let place =
        (envelope.selector != plane::Selector::default()).then(|| (&envelope.selector).into());
    EnvelopeSpec {
        name: envelope.name.clone(),
        flavor: envelope.flavor.clone(),
        selector: place,
        concurrency: envelope.concurrency,
        max_gpu_hours: envelope.gpu_hours_max,
        start: envelope.start,
        end: envelope.end,
        renew: envelope.renew,
        sharing: Some(envelope.sharing),
        lending: envelope.lending.as_ref().map(|lending| LendingSpec {
            allow: lending.allow,
            to: lending.to.iter().map(ToString::to_string).collect(),
            max_concurrency: lending.concurrency_max,
            max_gpu_hours: lending.gpu_hours_max,
        }),
        on_exhaustion: Some(envelope.on_exhaustion),
        admission_horizon: envelope.admission_horizon.map(hours),
    }
}

fn lending(spec: &LendingSpec) -> Option<Lending> {
    let to = spec.to.iter().map(|text| Pattern::new(text).ok());
    Some(Lending {
        allow: spec.allow,
        to: to.collect::<Option<_>>()?,
        concurrency_max: spec.max_concurrency,
        gpu_hours_max: spec.max_gpu_hours,
    })
}

fn cap(namespace: &ObjectName, budget: &ObjectName, spec: &CapSpec) -> Option<AggregateCap> {
    let member = |text: &String| {
        if text.contains('/') {
            EnvelopeId::new(text).ok()
        } else {
            EnvelopeId::new(&format!("{namespace}/{budget}/{text}")).ok()
        }
    };
    Some(AggregateCap {
        name: spec.name.clone(),
        flavor: spec.flavor.clone(),
        envelopes: spec.envelopes.iter().map(member).collect::<Option<_>>()?,
        concurrency_max: spec.max_concurrency,
        gpu_hours_max: spec.max_gpu_hours,
        start: spec.start,
        end: spec.end,
        renew: spec.renew,
    })
}

fn cap_spec(budget: &plane::Budget, cap: &AggregateCap) -> CapSpec {
    let own = format!("{}/", budget.id());
    let member = |id: &EnvelopeId| {
        let text = id.as_str();
        text.strip_prefix(&own).unwrap_or(text).to_owned()
    };
    CapSpec {
        name: cap.name.clone(),
        flavor: cap.flavor.clone(),
        envelopes: cap.envelopes.iter().map(member).collect(),
        max_concurrency: cap.concurrency_max,
        max_gpu_hours: cap.gpu_hours_max,
        start: cap.start,
        end: cap.end,
        renew: cap.renew,
    }
}

/// A length that may be absent; `None` if it cannot be read.
#[expect(clippy::option_option, reason = "absent and unreadable differ")]
pub(super) fn length(text: Option<&String>) -> Option<Option<Millis>> {
    match text {
        Some(text) => duration(text).ok().map(Some),
        None => Some(None),
    }
}
