//! `bursar limit`: lists, shows and changes limits.

use bursar_client::Code;
use bursar_client::api::{
    ApplyAnswer, Change, ChangeKind, FieldChange, Limit, LimitSpec, LimitStatus,
};
use bursar_client::client::Mode;
use bursar_client::object::limit::{EACH, from_spec};
use bursar_engine::explain::limit_texts;
use bursar_engine::words;
use bursar_units::{Dimension, Label, Millis, ObjectName};

use super::columns::{amount, size_and_use};
use crate::command::{DRY_RUN, watch};
use crate::failure::Stop;
use crate::grammar::{Bound, LimitSet, LimitVerb, ListFlags, Noun};
use crate::layout::{Look, Meaning, REPORT_WORD, details};
use crate::list::Filter;
use crate::session::Session;
use crate::time::distance;

/// Attempts of a change that conflicts with changes of others.
const TRIES: usize = 3;

pub(in crate::command) async fn run(
    session: &mut Session,
    noun: Noun<LimitVerb>,
) -> Result<(), Stop> {
    match noun.verb.unwrap_or(LimitVerb::List(noun.list)) {
        LimitVerb::List(flags) => list(session, &flags).await,
        LimitVerb::Show { name } => show(session, &name).await,
        LimitVerb::Set(arguments) => set(session, &arguments).await,
    }
}

async fn list(session: &mut Session, flags: &ListFlags) -> Result<(), Stop> {
    let filter = Filter::read::<Limit>(flags.filter.as_deref())?;
    let client = session.client().await?;
    let fetch = async || client.limits().await;
    watch::list(session, flags, &filter, fetch, &client).await
}

async fn show(session: &mut Session, name: &ObjectName) -> Result<(), Stop> {
    let client = session.client().await?;
    let limit = client.limit(name).await?;
    session.show(&limit, &format!("limit/{name}"), |look| text(&limit, look))
}

async fn set(session: &mut Session, arguments: &LimitSet) -> Result<(), Stop> {
    let client = session.client().await?;
    let name = &arguments.name;
    let mode = Mode::dry_run_if(arguments.dry_run);
    let mut tries = 0;
    let answer = loop {
        tries += 1;
        let (spec, version) = match client.limit(name).await {
            Ok(limit) => (limit.spec, limit.metadata.resource_version),
            Err(error) if is_code(&error, Code::NotFound) => (LimitSpec::default(), None),
            Err(error) => return Err(error.into()),
        };
        let mut limit = Limit::new(name.clone(), changed(spec, arguments));
        limit.metadata.resource_version = version;
        match client.put_limit(&limit, mode).await {
            // Read again: fields without a flag keep the value of the other change.
            Err(error) if is_code(&error, Code::Conflict) && tries < TRIES => {}
            answer => break answer?,
        }
    };
    session.show(&answer, &format!("limit/{name}"), |look| {
        set_text(name, &answer, look)
    })
}

fn is_code(error: &bursar_client::client::Error, code: Code) -> bool {
    error.problem().is_some_and(|problem| problem.code == code)
}

/// The spec with the values of the given flags.
fn changed(mut spec: LimitSpec, flags: &LimitSet) -> LimitSpec {
    spec.class = flags.class.clone().or(spec.class);
    spec.tenant = flags.tenant.clone().or(spec.tenant);
    spec.slots = flags.slots.map_or(spec.slots, |Bound(slots)| slots);
    spec.gpus = flags.gpus.map_or(spec.gpus, |Bound(gpus)| gpus);
    spec.cpu = quantity(flags.cpu.as_deref(), spec.cpu);
    spec.memory = quantity(flags.memory.as_deref(), spec.memory);
    spec.max_queue = flags.max_queue.or(spec.max_queue);
    // The default, a tenth of the queue, changes with the queue.
    let kept = spec.max_queue_per_tenant;
    let kept = kept.filter(|_| flags.max_queue.is_none());
    spec.max_queue_per_tenant = flags.max_queue_per_tenant.or(kept);
    spec.max_wait = flags
        .max_wait
        .as_ref()
        .map(Millis::to_string)
        .or(spec.max_wait);
    spec.max_ttl = flags
        .max_ttl
        .as_ref()
        .map(Millis::to_string)
        .or(spec.max_ttl);
    spec.weight = flags.weight.or(spec.weight);
    spec
}

fn quantity(text: Option<&str>, present: Option<String>) -> Option<String> {
    match text {
        None => present,
        Some("none") => None,
        Some(text) => Some(text.to_owned()),
    }
}

/// Report of a change: the fields, and the effect on holders and the queue.
fn set_text(name: &ObjectName, answer: &ApplyAnswer, look: &Look) -> String {
    let dry_run = answer.dry_run == Some(true);
    let Some(change) = answer.results.first() else {
        return String::new();
    };
    let subject = look.paint(Meaning::Subject, &format!("limit {name}"));
    let record = words::number(answer.record);
    let first = match (change.change, dry_run) {
        (ChangeKind::Unchanged, _) => format!("{subject} is unchanged\n"),
        (ChangeKind::Created, true) => format!("{subject} would be created\n"),
        (ChangeKind::Changed, true) => format!("{subject} would change\n"),
        (ChangeKind::Deleted, true) => format!("{subject} would be deleted\n"),
        (kind, false) => format!("{subject} {} (record {record})\n", kind.word()),
    };
    let text = first + &details(&change_lines(change), REPORT_WORD);
    if dry_run { text + DRY_RUN } else { text }
}

fn change_lines(change: &Change) -> Vec<(String, String)> {
    let fields = telling(change).map(|field| {
        let text = field_text(field.from.as_deref(), field.to.as_deref());
        (field.path.clone(), text)
    });
    let effect = change
        .effect
        .iter()
        .map(|effect| ("effect".to_owned(), effect.clone()));
    fields.chain(effect).collect()
}

/// The fields to show: for a new object without its defaults, for a deleted one none.
pub(in crate::command) fn telling(change: &Change) -> impl Iterator<Item = &FieldChange> {
    let defaults = defaults();
    change
        .fields
        .iter()
        .filter(move |field| match change.change {
            ChangeKind::Created => field.to.as_ref().is_some_and(|to| {
                let is_default = |(path, text): &(&str, String)| *path == field.path && text == to;
                !defaults.iter().any(is_default)
            }),
            ChangeKind::Changed => true,
            ChangeKind::Unchanged | ChangeKind::Deleted => false,
        })
}

/// Default fields of a limit, as an answer has them.
fn defaults() -> Vec<(&'static str, String)> {
    let of_tenants = LimitSpec {
        tenant: Some(EACH.to_owned()),
        ..LimitSpec::default()
    };
    let limit = from_spec(ObjectName::known("default"), &of_tenants);
    let texts = limit.iter().flat_map(limit_texts);
    texts.filter(|(path, _)| *path != "tenant").collect()
}

/// `100 → 120`; a missing value is `none`.
pub(in crate::command) fn field_text(from: Option<&str>, to: Option<&str>) -> String {
    let shown = |value: Option<&str>| {
        let value = value.unwrap_or("none");
        let number = value.parse().map(words::number);
        number.unwrap_or_else(|_| value.to_owned())
    };
    match from {
        None if to.is_some() => shown(to),
        _ => format!("{} → {}", shown(from), shown(to)),
    }
}

fn text(limit: &Limit, look: &Look) -> String {
    let spec = &limit.spec;
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut add = |word: &str, value: Option<String>| {
        lines.extend(value.map(|value| (word.to_owned(), value)));
    };
    add("class", spec.class.clone());
    add("tenant", spec.tenant.clone());
    if let Some(status) = &limit.status {
        for dimension in Dimension::ALL {
            add(dimension.word(), used(status, dimension));
        }
        let is_waiting = status.waiting > 0;
        add("waiting", is_waiting.then(|| waiting(status, look)));
    }
    add("weight", spec.weight.map(words::number));
    add("at most", Some(at_most(spec)));
    let status = limit.status.as_ref();
    if let Some(status) = status.filter(|status| 1 < status.counters.len()) {
        let counters = status.counters.iter().map(|counter| {
            let names = counter.class.iter().chain(&counter.tenant);
            let names: Vec<&str> = names.map(Label::as_str).collect();
            let slots = words::number(counter.in_use.slots);
            format!("{} {slots}", names.join(" × "))
        });
        let left_out = (status.counters_left_out > 0)
            .then(|| format!("{} more", words::number(status.counters_left_out)));
        let counters: Vec<String> = counters.chain(left_out).collect();
        add("in use", Some(counters.join(", ")));
    }
    let subject = look.paint(Meaning::Subject, &format!("limit {}", limit.metadata.name));
    format!("{subject}\n{}", details(&lines, REPORT_WORD))
}

fn used(status: &LimitStatus, dimension: Dimension) -> Option<String> {
    let (size, used) = size_and_use(status, dimension);
    let (size, used) = (amount(dimension, size?), amount(dimension, used));
    if 1 < status.counters.len() {
        return Some(format!("{size} each, {used} in use together"));
    }
    Some(format!("{used}/{size} in use"))
}

fn waiting(status: &LimitStatus, look: &Look) -> String {
    let longest = status.waiting_since.map(|since| look.now.since(since));
    let longest = longest.map(|time| format!(", the longest for {}", distance(time)));
    words::number(status.waiting) + &longest.unwrap_or_default()
}

fn at_most(spec: &LimitSpec) -> String {
    let queue = spec.max_queue.unwrap_or(10_000);
    let wait = spec.max_wait.as_deref().unwrap_or("24h");
    let ttl = spec.max_ttl.as_deref().unwrap_or("24h");
    let of_tenant = spec
        .max_queue_per_tenant
        .map(|max| format!(" ({} of one tenant)", words::number(max)));
    format!(
        "{}{} may wait, for {wait}; a grant lasts {ttl} without renewal",
        words::number(queue),
        of_tenant.unwrap_or_default()
    )
}
