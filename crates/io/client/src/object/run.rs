//! Conversion between runs in files and runs of the plane.
//!
//! Fields of later versions are refused by name, unless they have their default.

use bursar_engine::cluster::run::{GRACE, Mistake, Wrong as PlaneWrong};
use bursar_engine::cluster::{Funding, Run as PlaneRun, budget::Selector};
use bursar_units::{Label, Millis, ObjectName, ScopedName};

use super::budget::length;
use super::limit::hours;
use super::{API_VERSION, KIND, Object, SCOPED_METADATA, scope_of};
use crate::api;
use crate::api::cluster::{FundingSpec, Run, RunSpec, ScopedMetadata};
use crate::problem::FieldError;
use crate::shape::{Field, Shape, Wrong};
use crate::tree::{Entry, Kind, Node};

pub(crate) const SHAPE: Shape = Shape::Map(&[
    API_VERSION,
    KIND,
    SCOPED_METADATA,
    Field::required("spec", Shape::Both(RunSpec::FIELDS, SPEC_LATER)),
    Field::optional("status", Shape::Any),
]);

/// Fields of a run that later versions bring, with their defaults. The template belongs to executors
/// that start processes.
const SPEC_LATER: &[Field] = &[
    Field::optional("elastic", Shape::Later(&[])),
    Field::optional("sparesPerGroup", Shape::Later(&["0"])),
    Field::optional("follow", Shape::Later(&[])),
    Field::optional("array", Shape::Later(&[])),
    Field::optional("notBefore", Shape::Later(&[])),
    Field::optional("expireAfter", Shape::Later(&[])),
    Field::optional("rejoinWait", Shape::Later(&[])),
    Field::optional("onPreempt", Shape::Later(&["requeue"])),
    Field::optional("sacrificeFirst", Shape::Later(&["false"])),
    Field::optional("paused", Shape::Later(&["false"])),
    Field::optional("template", Shape::Later(&[])),
];

/// Fields of a funding that later versions bring, with their defaults.
pub(crate) const FUNDING_LATER: &[Field] =
    &[Field::optional("allowUnfunded", Shape::Later(&["false"]))];

/// Declared object of a run.
pub fn object(run: &PlaneRun) -> Run {
    object_of(&run.namespace, &run.name, to_spec(run))
}

pub(super) fn object_of(namespace: &ObjectName, name: &ObjectName, spec: RunSpec) -> Run {
    Run {
        api_version: api::limit::API_VERSION.to_owned(),
        kind: "Run".to_owned(),
        metadata: ScopedMetadata {
            name: name.clone(),
            namespace: Some(namespace.clone()),
            resource_version: None,
        },
        spec,
        status: None,
    }
}

/// The run of a spec for an owner; `None` if the spec has a mistake.
pub fn from_spec(
    namespace: ObjectName,
    name: ObjectName,
    owner: Label,
    spec: &RunSpec,
) -> Option<PlaneRun> {
    let funding = spec.funding.as_ref().map(|funding| Funding {
        allow_borrow: funding.allow_borrow,
        borrow_gpus_max: funding.max_borrow_gpus,
        sponsors: funding.sponsors.clone(),
    });
    Some(PlaneRun {
        namespace,
        name,
        owner,
        flavor: spec.flavor.clone(),
        total_gpus: spec.total_gpus,
        pod_gpus: spec.pod_gpus,
        group_gpus: spec.group_gpus,
        spread: spec.spread.unwrap_or_default(),
        location: spec.location.as_ref().map(Into::into).unwrap_or_default(),
        funding: funding.unwrap_or_default(),
        expected_duration: length(spec.expected_duration.as_ref())?,
        max_duration: length(spec.max_duration.as_ref())?,
        priority: spec.priority.unwrap_or_default(),
        grace: length(spec.grace.as_ref())?,
        template: None,
    })
}

/// Spec of a run, with defaults.
pub fn to_spec(run: &PlaneRun) -> RunSpec {
    let funding = (run.funding != Funding::default()).then(|| FundingSpec {
        allow_borrow: run.funding.allow_borrow,
        max_borrow_gpus: run.funding.borrow_gpus_max,
        sponsors: run.funding.sponsors.clone(),
    });
    RunSpec {
        owner: Some(run.owner.clone()),
        flavor: run.flavor.clone(),
        total_gpus: run.total_gpus,
        pod_gpus: Some(run.pod()),
        group_gpus: run.group_gpus,
        spread: run.spread.then_some(true),
        location: (run.location != Selector::default()).then(|| (&run.location).into()),
        funding,
        expected_duration: run.expected_duration.map(hours),
        max_duration: run.max_duration.map(hours),
        priority: (run.priority != 0).then_some(run.priority),
        grace: Some(hours(run.grace.unwrap_or(GRACE))),
    }
}

pub(super) fn read(node: &Node) -> Option<Object> {
    let (namespace, name, resource_version) = scope_of(node)?;
    let spec = serde_json::from_value(without_later(node.get("spec")?).to_value()).ok()?;
    Some(Object::Run {
        resource_version,
        namespace,
        name,
        spec: Box::new(spec),
    })
}

/// The mistakes of a run that do not need its owner.
pub(super) fn mistakes(namespace: &ObjectName, name: &ObjectName, spec: &RunSpec) -> Vec<Mistake> {
    // Any owner will do, and only the server knows the longest grace.
    let owner = spec.owner.clone().unwrap_or_else(|| spec.flavor.clone());
    let run = from_spec(namespace.clone(), name.clone(), owner, spec);
    run.map(|run| run.mistakes(Millis::ZERO))
        .unwrap_or_default()
}

/// Pods that a run must state, because the default does not divide its groups.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnstatedPods {
    /// GPUs of a group.
    pub group: u64,
    /// GPUs of a pod by default.
    pub usual: u64,
    /// The most GPUs of a pod, up to the default, that divide a group.
    pub fits: u64,
}

/// The pods that a spec must state.
pub fn unstated_pods(spec: &RunSpec) -> Option<UnstatedPods> {
    let group = spec.group_gpus.unwrap_or(spec.total_gpus);
    // Names and owner do not matter.
    let name = ObjectName::known("run");
    let usual = from_spec(name.clone(), name, spec.flavor.clone(), spec)?.pod();
    let divides = |size: &u64| group.checked_rem(*size) == Some(0);
    if spec.pod_gpus.is_some() || group == 0 || usual == 0 || divides(&usual) {
        return None;
    }
    let fits = (1..=usual).rev().find(divides)?;
    Some(UnstatedPods { group, usual, fits })
}

/// A mistake in a spec, with its path. One in the default of a field is at the field that is written.
pub(super) fn written(spec: &RunSpec, mistake: &Mistake) -> (String, Wrong) {
    let pods = unstated_pods(spec).filter(|_| mistake.path == "spec.podGPUs");
    let Some(UnstatedPods { group, usual, fits }) = pods else {
        return (mistake.path.clone(), wrong(mistake));
    };
    let field = if spec.group_gpus.is_some() {
        "groupGPUs"
    } else {
        "totalGPUs"
    };
    let message = format!("is {group}, no whole number of pods of {usual} (the default)");
    let wrong = Wrong::with(message, format!("add `podGPUs: {fits}`"));
    (format!("spec.{field}"), wrong)
}

/// A mistake that the plane found, as an entry of a problem.
pub fn field_error(run: &ScopedName, mistake: &Mistake) -> FieldError {
    let wrong = wrong(mistake);
    FieldError {
        suggestion: wrong.suggestion,
        ..FieldError::new(&mistake.path, wrong.message).of(format!("run/{run}"))
    }
}

/// The mistake of the plane, with advice.
pub(super) fn wrong(mistake: &Mistake) -> Wrong {
    match &mistake.wrong {
        PlaneWrong::Duplicate { .. } => {
            Wrong::with(mistake.wrong.to_string(), "leave one of them out")
        }
        wrong => Wrong::new(wrong.to_string()),
    }
}

/// The spec without the fields of later versions, which have their defaults.
fn without_later(spec: &Node) -> Node {
    let strip = |node: &Node, later: &[Field]| {
        let is_now = |entry: &&Entry| later.iter().all(|field| field.name != entry.key);
        node.entries()
            .iter()
            .filter(is_now)
            .cloned()
            .collect::<Vec<_>>()
    };
    let mut entries = strip(spec, SPEC_LATER);
    for entry in entries.iter_mut().filter(|entry| entry.key == "funding") {
        if matches!(entry.value.kind, Kind::Map(_)) {
            entry.value.kind = Kind::Map(strip(&entry.value, FUNDING_LATER));
        }
    }
    Node {
        position: spec.position,
        kind: Kind::Map(entries),
    }
}
