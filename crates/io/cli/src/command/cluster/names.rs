//! Namespaces and names of the cluster's objects on the command line.

use bursar_client::Client;
use bursar_client::api::cluster::{ListRuns, Run};
use bursar_client::api::query::Parameter as _;
use bursar_client::api::{ListAnswer, Since, Words};
use bursar_engine::cluster::Stage;
use bursar_engine::{Kind, Reference, words};
use bursar_units::{DEFAULT_NAMESPACE, Instant, Label, ObjectName, ScopedName};

use crate::connect;
use crate::failure::{Failure, Stop};
use crate::grammar::{Scope, ScopedFlags};
use crate::list::{Listed as _, Place};
use crate::session::Session;

/// The namespace of names without one: the flag, the environment, the context, or `default`.
pub(in crate::command) fn namespace(session: &Session, scope: &Scope) -> Result<ObjectName, Stop> {
    if let Some(namespace) = &scope.namespace {
        return Ok(namespace.clone());
    }
    let variable = session.environment.namespace.clone();
    let of_variable = variable.map(|text| ("BURSAR_NAMESPACE", text));
    let named =
        of_variable.or_else(|| Some(("the namespace of the context", of_context(session)?)));
    match named {
        None => Ok(ObjectName::known(DEFAULT_NAMESPACE)),
        Some((source, text)) => ObjectName::new(&text)
            .map_err(|error| Failure::usage(format!("{source} is not valid: it {error}")).into()),
    }
}

/// The namespace of the context. Without a server there is none; the command itself then says why.
fn of_context(session: &Session) -> Option<String> {
    if session.is_virtual() {
        return None;
    }
    connect::discover(session).ok()?.namespace
}

/// The namespace of a list, `None` for all.
pub(super) fn listed(
    session: &Session,
    flags: &ScopedFlags,
) -> Result<(Option<ObjectName>, Place), Stop> {
    if flags.all_namespaces {
        return Ok((None, Place::default()));
    }
    let namespace = namespace(session, &flags.scope)?;
    let place = Place {
        words: format!(" in namespace {namespace}"),
        ..Place::default()
    };
    Ok((Some(namespace), place))
}

/// Notes in `place` how many objects a list has in other namespaces, if it has none in its own.
/// Without an answer there is no hint.
pub(super) async fn note_elsewhere<T, E>(
    place: &Place,
    is_empty: bool,
    noun: &str,
    all: impl Future<Output = Result<ListAnswer<T>, E>>,
) {
    if !is_empty || place.words.is_empty() {
        return;
    }
    let count = all.await.map_or(0, |answer| answer.items.len());
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    *place.hint.borrow_mut() = match count {
        0 => None,
        1 => Some(format!(
            "`bursar {noun}s -A` shows 1 {noun} in another namespace"
        )),
        count => Some(format!(
            "`bursar {noun}s -A` shows {} in other namespaces",
            words::count(count, noun)
        )),
    };
}

/// Notes that new runs have the names of runs that ended: a repeated submission of those is a new run.
pub(in crate::command) async fn note_reuse(
    session: &mut Session,
    client: &Client,
    names: &[ScopedName],
) {
    if names.is_empty() || session.for_programs() {
        return;
    }
    let ended = ListRuns {
        state: Some(Words::from([Stage::Ended])),
        since: Some(Since::At(Instant::from_ms(0))),
        ..ListRuns::default()
    };
    // Without an answer there is no note.
    let Ok(ended) = client.runs(&ended).await else {
        return;
    };
    for name in names {
        let is_it = |run: &&Run| run.name() == name.to_string();
        let runs = ended.items.iter().filter(is_it);
        let ends = runs.filter_map(|run| run.status.as_ref()?.ended_at);
        if let Some(at) = ends.max() {
            let at = session.look().absolute(at);
            session.aside(&format!(
                "note: a run {name} ended {at}; this is a new one\n"
            ));
        }
    }
}

/// The failure of an object that was not found, with the namespaces that have one of its name.
pub(in crate::command) fn not_here(
    error: bursar_client::client::Error,
    kind: Kind,
    name: &ScopedName,
) -> Stop {
    let mut stop = Stop::from(error);
    let Stop::Failed(failure) = &mut stop else {
        return stop;
    };
    let namespaces = failure.problem.as_ref().map(|problem| &problem.namespaces);
    let namespaces: &[String] = namespaces.map_or(&[], Vec::as_slice);
    if let Some(first) = namespaces.first() {
        let bare = name.name();
        let have = match namespaces.len() {
            1 => format!("namespace {first} has"),
            _ => format!("namespaces {} have", namespaces.join(", ")),
        };
        failure.hint = Some(format!("{have} a {kind} {bare}, as in `-n {first}`"));
    }
    stop
}

/// The label of a filter.
pub(super) fn label(key: &str, text: Option<&str>) -> Result<Option<Label>, Stop> {
    match text {
        Some(text) => Ok(Some(Label::read(key, text)?)),
        None => Ok(None),
    }
}

/// A run: `NAME`, `NAMESPACE/NAME` or `run/…`.
pub(super) fn run(session: &Session, text: &str, scope: &Scope) -> Result<ScopedName, Stop> {
    scoped(session, Kind::Run, text, scope)
}

/// A budget: `NAME`, `NAMESPACE/NAME` or `budget/…`; that of an envelope as lists name it.
pub(super) fn budget(session: &Session, text: &str, scope: &Scope) -> Result<ScopedName, Stop> {
    let envelope = text
        .split_once('/')
        .filter(|(word, _)| matches!(*word, "envelope" | "envelopes"));
    let of_envelope = envelope.and_then(|(_, name)| name.rsplit_once('/'));
    let text = of_envelope.map_or(text, |(budget, _)| budget);
    scoped(session, Kind::Budget, text, scope)
}

/// An object of a kind with namespaces, by its name with or without kind and namespace.
pub(in crate::command) fn scoped(
    session: &Session,
    kind: Kind,
    text: &str,
    scope: &Scope,
) -> Result<ScopedName, Stop> {
    let bare = text.split_once('/').filter(|(word, _)| is_kind(word, kind));
    let bare = bare.map_or(text, |(_, name)| name);
    let full = if bare.contains('/') {
        bare.to_owned()
    } else {
        format!("{}/{bare}", namespace(session, scope)?)
    };
    let name = ScopedName::new(&full)
        .map_err(|error| Failure::usage(format!("the name of a {kind} {error}")))?;
    check_namespace(scope, &name, text)?;
    Ok(name)
}

/// Refuses a name whose namespace is not the one of the flag.
fn check_namespace(scope: &Scope, name: &ScopedName, text: &str) -> Result<(), Stop> {
    match &scope.namespace {
        Some(flag) if flag.as_str() != name.namespace() => {
            let found = name.namespace();
            let message = format!("`{text}` is in namespace {found}, and `-n` says {flag}");
            Err(Failure::usage(message).into())
        }
        _ => Ok(()),
    }
}

/// The kind that the first part of a reference names, also in the plural.
pub(in crate::command) fn kind_of(text: &str) -> Option<Kind> {
    let (word, _) = text.split_once('/')?;
    Kind::ALL.into_iter().find(|kind| is_kind(word, *kind))
}

fn is_kind(word: &str, kind: Kind) -> bool {
    word.strip_prefix(kind.word())
        .is_some_and(|rest| matches!(rest, "" | "s"))
}

/// A reference of a kind with namespaces, completed by the flag.
pub(in crate::command) fn reference(
    session: &Session,
    kind: Kind,
    text: &str,
    scope: &Scope,
) -> Result<Reference, Stop> {
    let name = scoped(session, kind, text, scope)?;
    Ok(match kind {
        Kind::Budget => Reference::Budget(name),
        _ => Reference::Run(name),
    })
}

#[cfg(test)]
mod tests {
    use bursar_engine::Kind;

    use super::kind_of;

    #[test]
    fn a_reference_without_a_kind_is_a_run() {
        for (text, expected) in [
            ("asr-xl", None),
            ("speech/asr-xl", None),
            ("run/asr-xl", Some(Kind::Run)),
            ("runs/speech/asr-xl", Some(Kind::Run)),
            ("booking/job-1", Some(Kind::Booking)),
            ("bookin/job-1", None),
            ("budgets/rai/q4", Some(Kind::Budget)),
        ] {
            assert_eq!(kind_of(text), expected, "{text}");
        }
    }
}
