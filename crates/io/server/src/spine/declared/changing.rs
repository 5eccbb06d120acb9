//! Atomic changes of budgets, runs, limits and nodes, with their effects.

use bursar_client::api::{
    APPLY_OBJECTS_MAX, ApplyAnswer, Change as ApiChange, ChangeKind, FieldChange,
};
use bursar_client::object::{self, Object};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::booking::decide as booking;
use bursar_engine::explain::{Changed, Mood, Previous};
use bursar_engine::{Answer as EngineAnswer, Change, Command, Node, Reference, cluster, spine};
use bursar_units::ObjectName;
use bursar_units::quantity::{format_cpu, format_memory};

use crate::caller::Caller;
use crate::service::refusal::of_refusal;
use crate::service::{Answer, Service, WriteMode};

#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) mode: WriteMode,
    /// Version that the object must have; `*` is any.
    pub(crate) if_match: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum ObjectChange {
    Set(Object),
    DropLimit(ObjectName),
    DropNode(ObjectName),
}

impl Service {
    /// Changes declared objects, all or none, and returns the effect of each change.
    pub(crate) async fn change(
        &self,
        caller: &Caller,
        changes: Vec<ObjectChange>,
        options: WriteOptions,
    ) -> Result<Answer<ApplyAnswer>, Problem> {
        caller.require_operate("change budgets, runs, limits and nodes")?;
        let count = changes.len();
        if count > APPLY_OBJECTS_MAX {
            let detail =
                format!("the request has {count} objects, at most {APPLY_OBJECTS_MAX} are allowed");
            return Err(Problem::new(Code::TooLarge, detail));
        }
        let commands = changes.iter().map(ObjectChange::change);
        let commands: Vec<Change> = commands.collect::<Result<_, _>>()?;
        let references: Vec<Reference> = commands.iter().map(Change::declared).collect();
        let command: Command = spine::Command::Change {
            expect: changes
                .iter()
                .zip(&commands)
                .filter_map(|(change, command)| {
                    Some((command.declared(), change.expected(&options)?))
                })
                .collect(),
            changes: commands,
        }
        .into();
        let (outcome, mood) = match options.mode {
            WriteMode::Real => (self.submit_one(caller, command.clone()).await?, Mood::Did),
            WriteMode::DryRun => (self.plan(&command).0, Mood::Would),
        };
        let record = outcome.record;
        match outcome.result {
            Ok(EngineAnswer::Changed(results)) => {
                Ok(answer(&changes, &references, &results, record, mood))
            }
            Ok(_) => Err(Problem::new(
                Code::Internal,
                "a change was answered as another command",
            )),
            Err(refusal) => {
                let state = self.ledger.view().read();
                Err(of_refusal(&state, record, caller, &command, &refusal))
            }
        }
    }
}

impl ObjectChange {
    /// The version that the object must have, from `If-Match` or from the object itself.
    fn expected(&self, options: &WriteOptions) -> Option<String> {
        let stated = match self {
            Self::Set(
                Object::Budget {
                    resource_version, ..
                }
                | Object::Run {
                    resource_version, ..
                }
                | Object::Limit {
                    resource_version, ..
                },
            ) => resource_version.as_ref(),
            _ => None,
        };
        options.if_match.as_ref().or(stated).cloned()
    }

    fn change(&self) -> Result<Change, Problem> {
        let change = match self.clone() {
            Self::Set(Object::Budget { budget, .. }) => cluster::Change::SetBudget(*budget).into(),
            Self::Set(Object::Run {
                namespace,
                name,
                spec,
                ..
            }) => {
                let Some(owner) = spec.owner.clone() else {
                    let path = "spec.owner";
                    return Err(Problem::invalid(vec![FieldError::new(path, "is missing")]));
                };
                let run = object::run::from_spec(namespace, name, owner, &spec);
                // The spec was checked when it was read.
                let run = run.ok_or_else(|| Problem::new(Code::Internal, "a run was not read"))?;
                cluster::Change::SetRun(run).into()
            }
            Self::Set(Object::Limit { limit, .. }) => booking::Change::SetLimit(limit).into(),
            Self::Set(Object::Node(node)) => spine::Change::SetNode(node).into(),
            Self::DropLimit(name) => booking::Change::DropLimit { name }.into(),
            Self::DropNode(name) => spine::Change::DropNode { name }.into(),
        };
        Ok(change)
    }

    fn result(&self, reference: &Reference, changed: &Changed, mood: Mood) -> ApiChange {
        let Changed {
            previous,
            is_changed,
            effect,
            ..
        } = changed;
        let change = match self {
            Self::DropLimit(_) | Self::DropNode(_) => ChangeKind::Deleted,
            Self::Set(_) if *previous == Previous::Nothing => ChangeKind::Created,
            Self::Set(_) if *is_changed => ChangeKind::Changed,
            Self::Set(_) => ChangeKind::Unchanged,
        };
        let fields = match effect {
            None => self.node_fields(previous),
            Some(effect) => {
                let fields = effect.fields.iter().map(|field| FieldChange {
                    path: field.field.to_owned(),
                    from: present(&field.before),
                    to: present(&field.after),
                });
                fields.collect()
            }
        };
        let effect = effect.as_ref().filter(|_| change != ChangeKind::Unchanged);
        ApiChange {
            object: reference.to_string(),
            change,
            fields,
            effect: effect
                .map(|effect| effect.text(mood))
                .or_else(|| self.node_effect(mood)),
        }
    }

    fn node_fields(&self, previous: &Previous) -> Vec<FieldChange> {
        let was = match previous {
            Previous::Node(node) => Some(node),
            _ => None,
        };
        let is = match self {
            Self::Set(Object::Node(node)) => Some(node),
            _ => None,
        };
        NODE_FIELDS
            .into_iter()
            .map(|(path, text)| FieldChange {
                path: path.to_owned(),
                from: was.and_then(text),
                to: is.and_then(text),
            })
            .filter(|field| field.from != field.to)
            .collect()
    }

    /// The labels that a node lacks, without which no run is placed on it.
    fn node_effect(&self, mood: Mood) -> Option<String> {
        let Self::Set(Object::Node(node)) = self else {
            return None;
        };
        let missing: Vec<&str> = node.missing_labels().collect();
        let is = match mood {
            Mood::Did => "is",
            Mood::Would => "would be",
        };
        let labels = missing.join(", ");
        (!missing.is_empty()).then(|| format!("no run {is} placed here without {labels}"))
    }
}

fn answer(
    changes: &[ObjectChange],
    references: &[Reference],
    results: &[Changed],
    record: u64,
    mood: Mood,
) -> Answer<ApplyAnswer> {
    let results: Vec<ApiChange> = changes
        .iter()
        .zip(references)
        .zip(results)
        .map(|((change, reference), result)| change.result(reference, result, mood))
        .collect();
    let is_new = matches!(results.as_slice(), [only] if only.change == ChangeKind::Created);
    let dry_run = (mood == Mood::Would).then_some(true);
    let body = ApplyAnswer {
        results,
        record,
        dry_run,
    };
    Answer {
        status: if is_new { 201 } else { 200 },
        record,
        body,
    }
}

/// The path of a field of a node in answers, and its text.
type NodeField = (&'static str, fn(&Node) -> Option<String>);

const NODE_FIELDS: [NodeField; 8] = [
    ("cpu", |node| Some(format_cpu(node.cpu_milli))),
    ("memory", |node| Some(format_memory(node.memory_bytes))),
    ("nvidia.com/gpu", |node| Some(node.gpus.to_string())),
    ("region", |node| node.region().map(ToOwned::to_owned)),
    ("cluster", |node| node.cluster().map(ToOwned::to_owned)),
    ("domain", |node| node.domain().map(ToOwned::to_owned)),
    ("flavor", |node| node.flavor().map(ToOwned::to_owned)),
    ("unschedulable", |node| {
        node.unschedulable.then(|| "true".to_owned())
    }),
];

/// The engine writes a dash for an absent value.
fn present(text: &str) -> Option<String> {
    (text != "-").then(|| text.to_owned())
}
