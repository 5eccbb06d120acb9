//! Atomic changes of budgets, runs, limits and nodes, with their effects.

use bursar_client::api::cluster::RunSpec;
use bursar_client::api::{
    APPLY_OBJECTS_MAX, ApplyAnswer, Change as ApiChange, ChangeKind, FieldChange,
};
use bursar_client::object::{self, Object};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::booking::decide as booking;
use bursar_engine::cluster::budget::BudgetId;
use bursar_engine::explain::{Changed, Mood, Previous};
use bursar_engine::{
    Answer as EngineAnswer, Change, Command, Event, Node, Reference, State, cluster, spine,
};
use bursar_ledger::intake::Outcome;
use bursar_units::quantity::{format_cpu, format_memory};
use bursar_units::{Instant, ObjectName};

use super::differing::differences;
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
    DropBudget(BudgetId),
}

/// Changes that the caller may make, as one command.
pub(crate) struct Prepared {
    changes: Vec<ObjectChange>,
    references: Vec<Reference>,
    pub(crate) command: Command,
}

impl Prepared {
    /// Checks the caller's rights on each change, and fills in the owners of runs. Only runs may be
    /// changed without the role `operate`.
    pub(crate) fn new(
        caller: &Caller,
        mut changes: Vec<ObjectChange>,
        options: &WriteOptions,
    ) -> Result<Self, Problem> {
        let count = changes.len();
        if count > APPLY_OBJECTS_MAX {
            let detail =
                format!("the request has {count} objects, at most {APPLY_OBJECTS_MAX} are allowed");
            return Err(Problem::new(Code::TooLarge, detail));
        }
        let has_only_runs = changes.iter().all(|change| change.run().is_some());
        if !has_only_runs || changes.is_empty() {
            caller.require_operate("change budgets, limits and nodes")?;
        }
        for (index, change) in changes.iter_mut().enumerate() {
            let path = match count {
                1 => "spec.owner".to_owned(),
                _ => format!("objects[{index}].spec.owner"),
            };
            change.authorize(caller, &path)?;
        }
        let commands = changes.iter().map(ObjectChange::change);
        let commands: Vec<Change> = commands.collect::<Result<_, _>>()?;
        let references: Vec<Reference> = commands.iter().map(Change::declared).collect();
        let expected = changes.iter().zip(&references);
        let expect = expected
            .filter_map(|(change, object)| Some((object.clone(), change.expected(options)?)))
            .collect();
        let command = spine::Command::Change {
            expect,
            changes: commands,
        };
        Ok(Self {
            changes,
            references,
            command: command.into(),
        })
    }
}

impl Service {
    /// Changes declared objects, all or none, and returns the effect of each change.
    pub(crate) async fn change(
        &self,
        caller: &Caller,
        changes: Vec<ObjectChange>,
        options: WriteOptions,
    ) -> Result<Answer<ApplyAnswer>, Problem> {
        let prepared = Prepared::new(caller, changes, &options)?;
        let command = &prepared.command;
        let (outcome, after) = self.carry_out(caller, command, options.mode).await?;
        let (now, record) = (outcome.time, outcome.record);
        self.with_state(after.as_ref(), |state| {
            if options.mode == WriteMode::Real {
                crate::cluster::note_covers(&self.metrics, state, now, command, &outcome.result);
            }
            match &outcome.result {
                Ok(EngineAnswer::Changed(results)) => {
                    let view = Results {
                        state,
                        now,
                        events: &outcome.events,
                        mood: match options.mode {
                            WriteMode::Real => Mood::Did,
                            WriteMode::DryRun => Mood::Would,
                        },
                    };
                    Ok(answer(&prepared, results, record, &view))
                }
                Ok(_) => Err(Problem::new(
                    Code::Internal,
                    "a change was answered as another command",
                )),
                Err(refusal) => Err(of_refusal(state, record, caller, command, refusal)),
            }
        })
    }

    /// Submits a command, or plans it; a plan also returns the state after it.
    pub(crate) async fn carry_out(
        &self,
        caller: &Caller,
        command: &Command,
        mode: WriteMode,
    ) -> Result<(Outcome, Option<State>), Problem> {
        match mode {
            WriteMode::Real => Ok((self.submit_one(caller, command.clone()).await?, None)),
            WriteMode::DryRun => {
                let (outcome, after) = self.plan(command);
                Ok((outcome, Some(after)))
            }
        }
    }

    /// Reads the state after a plan, or the committed one.
    pub(crate) fn with_state<T>(&self, after: Option<&State>, read: impl FnOnce(&State) -> T) -> T {
        match after {
            Some(after) => read(after),
            None => read(&self.ledger.view().read()),
        }
    }
}

/// Facts for the results of changes.
struct Results<'a> {
    state: &'a State,
    now: Instant,
    events: &'a [Event],
    mood: Mood,
}

/// The change of a result: a run that had ended is submitted anew.
pub(crate) fn set_run(changed: &Changed) -> ChangeKind {
    let is_live = match &changed.previous {
        Previous::Run(run) => run.stage != cluster::Stage::Ended,
        _ => false,
    };
    match (is_live, changed.is_changed) {
        (_, false) => ChangeKind::Unchanged,
        (true, true) => ChangeKind::Changed,
        (false, true) => ChangeKind::Created,
    }
}

impl ObjectChange {
    /// The spec of a run.
    fn run(&self) -> Option<&RunSpec> {
        match self {
            Self::Set(Object::Run { spec, .. }) => Some(spec),
            _ => None,
        }
    }

    /// Fills in the owner of a run, as whom the caller must be allowed to act.
    fn authorize(&mut self, caller: &Caller, path: &str) -> Result<(), Problem> {
        if let Self::Set(Object::Run { spec, .. }) = self {
            spec.owner = Some(caller.owner_of_run(spec.owner.take(), path)?);
        }
        Ok(())
    }

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
            Self::DropBudget(budget) => cluster::Change::DropBudget { budget }.into(),
        };
        Ok(change)
    }

    fn result(&self, reference: &Reference, changed: &Changed, view: &Results<'_>) -> ApiChange {
        let Changed {
            previous,
            is_changed,
            effect,
            ..
        } = changed;
        let mood = view.mood;
        let change = match self {
            Self::DropLimit(_) | Self::DropNode(_) | Self::DropBudget(_) => ChangeKind::Deleted,
            Self::Set(Object::Run { .. }) => set_run(changed),
            Self::Set(_) if *previous == Previous::Nothing => ChangeKind::Created,
            Self::Set(_) if *is_changed => ChangeKind::Changed,
            Self::Set(_) => ChangeKind::Unchanged,
        };
        let fields = match effect {
            None => self.fields(previous),
            Some(effect) => {
                let fields = effect.fields.iter().map(|field| FieldChange {
                    path: field.field.to_owned(),
                    from: present(&field.before),
                    to: present(&field.after),
                });
                fields.collect()
            }
        };
        let effect = effect.as_ref().map(|effect| effect.text(mood));
        let effect = effect.or_else(|| self.cluster_effect(changed, &fields, view));
        let effect = effect.filter(|_| change != ChangeKind::Unchanged);
        let effects: Vec<String> = effect.into_iter().chain(self.node_effect(mood)).collect();
        ApiChange {
            object: reference.to_string(),
            change,
            fields,
            effect: (!effects.is_empty()).then(|| effects.join(", ")),
        }
    }

    /// The fields that differ. A new budget or run has none: its object says it all.
    fn fields(&self, previous: &Previous) -> Vec<FieldChange> {
        let (before, after) = match (self, previous) {
            (Self::Set(Object::Budget { budget, .. }), Previous::Budget(before)) => {
                let spec = object::budget::to_spec;
                (
                    serde_json::to_value(spec(before)),
                    serde_json::to_value(spec(budget)),
                )
            }
            (Self::Set(Object::Run { .. }), Previous::Run(before))
                if before.stage != cluster::Stage::Ended =>
            {
                let change = self.change();
                let Ok(Change::Cluster(change)) = &change else {
                    return Vec::new();
                };
                let Some(run) = change.run() else {
                    return Vec::new();
                };
                let spec = object::run::to_spec;
                (
                    serde_json::to_value(spec(&before.run)),
                    serde_json::to_value(spec(run)),
                )
            }
            (Self::Set(Object::Budget { .. } | Object::Run { .. }), _) => return Vec::new(),
            _ => return self.node_fields(previous),
        };
        differences(&before.unwrap_or_default(), &after.unwrap_or_default())
    }

    /// The effect of a change on runs and meters.
    fn cluster_effect(
        &self,
        changed: &Changed,
        fields: &[FieldChange],
        view: &Results<'_>,
    ) -> Option<String> {
        let effects = crate::cluster::effect::Effects {
            state: view.state,
            now: view.now,
            events: view.events,
            mood: view.mood,
        };
        match self {
            Self::Set(Object::Budget { budget, .. }) => effects.of_budget(&budget.id(), fields),
            Self::DropBudget(budget) => effects.of_budget(budget, &[]),
            Self::Set(Object::Run { .. }) => effects.of_run(changed.run.as_deref()?),
            Self::Set(Object::Node(after)) => {
                let Previous::Node(before) = &changed.previous else {
                    return None;
                };
                effects.of_node(before, after)
            }
            _ => None,
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
    prepared: &Prepared,
    results: &[Changed],
    record: u64,
    view: &Results<'_>,
) -> Answer<ApplyAnswer> {
    let changes = prepared.changes.iter().zip(&prepared.references);
    let results: Vec<ApiChange> = changes
        .zip(results)
        .map(|((change, reference), result)| change.result(reference, result, view))
        .collect();
    let is_new = matches!(results.as_slice(), [only] if only.change == ChangeKind::Created);
    let dry_run = (view.mood == Mood::Would).then_some(true);
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
