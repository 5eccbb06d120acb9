//! Changes of limits and nodes: all or none, in earnest or not, and what they come to.

use bursar_client::api::{APPLY_OBJECTS_MAX, ApplyAnswer, Change as Told, ChangeKind, FieldChange};
use bursar_client::object::Object;
use bursar_client::{Code, Problem};
use bursar_engine::booking::decide::Change;
use bursar_engine::booking::{Limit, Node};
use bursar_engine::explain::{Mood, change_effect};
use bursar_engine::{Command, Events, State, plan, spine};
use bursar_ledger::intake::Outcome;
use bursar_ledger::view::Published;
use bursar_units::quantity::{format_cpu, format_memory};
use bursar_units::{Amount, ObjectName};
use tokio::sync::broadcast::Receiver;

use super::super::refusal::of_refusal;
use super::super::{Answer, Mode, Service, last_record};
use super::{limit_version, node_version};
use crate::caller::Caller;

/// How a change is made.
#[derive(Clone, Debug)]
pub struct Write {
    /// Whether it is real.
    pub mode: Mode,
    /// The version that the object must have, where the caller wants to be sure; `*` is any.
    pub if_match: Option<String>,
}

/// One object to be changed.
#[derive(Clone, Debug)]
pub enum Asked {
    /// It shall be so.
    Set(Object),
    /// This limit shall be gone.
    DropLimit(ObjectName),
    /// This machine shall be gone.
    DropNode(ObjectName),
}

/// What an object was before.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Before {
    Nothing,
    Limit(Limit),
    Node(Amount),
}

impl Service {
    /// Changes declared objects, all or none, and says what each came to.
    pub async fn change(
        &self,
        caller: &Caller,
        asked: Vec<Asked>,
        write: Write,
    ) -> Result<Answer<ApplyAnswer>, Problem> {
        caller.require_operate("change limits and nodes")?;
        if asked.len() > APPLY_OBJECTS_MAX {
            let detail = format!(
                "{} objects, at most {APPLY_OBJECTS_MAX} are applied at once",
                asked.len()
            );
            return Err(Problem::new(Code::TooLarge, detail));
        }
        let _one_at_a_time = self.declaring.lock().await;
        let before = self.before(&asked, &write)?;
        let changes = asked.iter().map(Asked::change).collect();
        let command = spine::Command::change(changes).into();
        if write.mode == Mode::DryRun {
            let now = self.ledger.now();
            let state = self.ledger.view().read();
            let (result, events, after) = plan(&state, now, &command);
            drop(state);
            let outcome = Outcome {
                record: last_record(&after),
                result,
            };
            return told(
                caller,
                &command,
                (&asked, &before),
                (outcome, &events, &after),
                Mood::Would,
            );
        }
        let mut stream = self.ledger.view().stream();
        let outcome = self.submit_one(caller, command.clone()).await?;
        let is_same = asked
            .iter()
            .zip(&before)
            .all(|(asked, before)| asked.is(before));
        let events = if is_same || outcome.result.is_err() {
            Events::new()
        } else {
            events_of(&mut stream, outcome.record).await
        };
        let state = self.ledger.view().read();
        told(
            caller,
            &command,
            (&asked, &before),
            (outcome, &events, &state),
            Mood::Did,
        )
    }

    /// What the objects are now, if they are as the caller expects.
    fn before(&self, asked: &[Asked], write: &Write) -> Result<Vec<Before>, Problem> {
        let state = self.ledger.view().read();
        asked
            .iter()
            .map(|asked| {
                let before = asked.before(&state);
                let stated = match asked {
                    Asked::Set(Object::Limit {
                        resource_version, ..
                    }) => resource_version.as_ref(),
                    _ => None,
                };
                let expected = write.if_match.as_ref().or(stated);
                check_version(asked, &before, expected, last_record(&state))?;
                Ok(before)
            })
            .collect()
    }
}

impl Asked {
    fn name(&self) -> &ObjectName {
        match self {
            Self::Set(object) => object.name(),
            Self::DropLimit(name) | Self::DropNode(name) => name,
        }
    }

    fn is_limit(&self) -> bool {
        matches!(self, Self::Set(Object::Limit { .. }) | Self::DropLimit(_))
    }

    fn reference(&self) -> String {
        format!(
            "{}/{}",
            if self.is_limit() { "limit" } else { "node" },
            self.name()
        )
    }

    fn before(&self, state: &State) -> Before {
        let name = self.name().as_str();
        let limit = || {
            state
                .bookings
                .limit(name)
                .map(|declared| Before::Limit(declared.limit.clone()))
        };
        let node = || {
            state
                .bookings
                .node(name)
                .map(|capacity| Before::Node(*capacity))
        };
        (if self.is_limit() { limit() } else { node() }).unwrap_or(Before::Nothing)
    }

    /// Whether it would change nothing.
    fn is(&self, before: &Before) -> bool {
        match (self, before) {
            (Self::Set(Object::Limit { limit, .. }), Before::Limit(before)) => *limit == *before,
            (Self::Set(Object::Node { capacity, .. }), Before::Node(before)) => capacity == before,
            _ => false,
        }
    }

    fn change(&self) -> Change {
        match self.clone() {
            Self::Set(Object::Limit { limit, .. }) => Change::SetLimit(limit),
            Self::Set(Object::Node { name, capacity }) => {
                Change::SetNode(Node::new(name, &capacity))
            }
            Self::DropLimit(name) => Change::DropLimit { name },
            Self::DropNode(name) => Change::DropNode { name },
        }
    }

    fn told(&self, before: &Before, events: &Events, after: &State, mood: Mood) -> Told {
        let change = match self {
            Self::DropLimit(_) | Self::DropNode(_) => ChangeKind::Deleted,
            Self::Set(_) if *before == Before::Nothing => ChangeKind::Created,
            Self::Set(_) if self.is(before) => ChangeKind::Unchanged,
            Self::Set(_) => ChangeKind::Changed,
        };
        let was = match before {
            Before::Limit(limit) => Some(limit),
            _ => None,
        };
        let (fields, effect) = if self.is_limit() {
            let effect = change_effect(was, events, after, self.name());
            let fields = effect.fields.iter().map(|field| FieldChange {
                path: field.field.to_owned(),
                from: present(&field.before),
                to: present(&field.after),
            });
            (fields.collect(), Some(effect.text(mood)))
        } else {
            (self.node_fields(before), None)
        };
        let effect = effect.filter(|_| change != ChangeKind::Unchanged);
        Told {
            object: self.reference(),
            change,
            fields,
            effect,
        }
    }

    fn node_fields(&self, before: &Before) -> Vec<FieldChange> {
        let was = match before {
            Before::Node(amount) => Some(amount),
            _ => None,
        };
        let is = match self {
            Self::Set(Object::Node { capacity, .. }) => Some(capacity),
            _ => None,
        };
        let text: [NodeField; 3] = [
            ("cpu", |amount| format_cpu(amount.cpu_milli)),
            ("memory", |amount| format_memory(amount.memory_bytes)),
            ("nvidia.com/gpu", |amount| amount.gpus.to_string()),
        ];
        text.into_iter()
            .map(|(path, text)| FieldChange {
                path: path.to_owned(),
                from: was.map(text),
                to: is.map(text),
            })
            .filter(|field| field.from != field.to)
            .collect()
    }
}

/// What a change came to, object by object.
fn told(
    caller: &Caller,
    command: &Command,
    (asked, before): (&[Asked], &[Before]),
    (outcome, events, after): (Outcome, &Events, &State),
    mood: Mood,
) -> Result<Answer<ApplyAnswer>, Problem> {
    let Outcome { record, result } = outcome;
    if let Err(refusal) = result {
        return Err(of_refusal(after, caller, command, &refusal));
    }
    let results: Vec<Told> = asked
        .iter()
        .zip(before)
        .map(|(asked, before)| asked.told(before, events, after, mood))
        .collect();
    let is_new = matches!(results.as_slice(), [only] if only.change == ChangeKind::Created);
    let dry_run = (mood == Mood::Would).then_some(true);
    let body = ApplyAnswer {
        results,
        record,
        dry_run,
    };
    Ok(Answer {
        status: if is_new { 201 } else { 200 },
        record,
        body,
    })
}

/// The name of a resource in files, and its text.
type NodeField = (&'static str, fn(&Amount) -> String);

/// The engine writes a dash where there is nothing.
fn present(text: &str) -> Option<String> {
    (text != "-").then(|| text.to_owned())
}

fn check_version(
    asked: &Asked,
    before: &Before,
    expected: Option<&String>,
    record: u64,
) -> Result<(), Problem> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let present = match before {
        Before::Nothing => None,
        Before::Limit(limit) => Some(limit_version(limit)),
        Before::Node(capacity) => Some(node_version(capacity)),
    };
    let is_any = expected == "*" && present.is_some();
    if is_any || present.as_ref() == Some(expected) {
        return Ok(());
    }
    let reference = asked.reference();
    let detail = match &present {
        Some(present) => format!("{reference} has version {present}, not {expected}"),
        None => format!("{reference} is not there, version {expected} was expected"),
    };
    Err(Problem {
        resource_version: present,
        record: Some(record),
        changes: vec!["read it again and send the change with its version".to_owned()],
        ..Problem::new(Code::Conflict, detail)
    })
}

/// What followed in a record, as it is published. A subscriber that was overtaken by a thousand
/// batches learns nothing, and the effect is told without the grants.
async fn events_of(stream: &mut Receiver<Published>, record: u64) -> Events {
    while let Ok(published) = stream.recv().await {
        if let Some(fact) = published.iter().find(|fact| fact.seq == record) {
            return fact.events.clone();
        }
        if published.iter().any(|fact| fact.seq > record) {
            break;
        }
    }
    Events::new()
}
