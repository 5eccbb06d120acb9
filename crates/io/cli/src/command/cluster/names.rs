//! Namespaces and names of the cluster's objects on the command line.

use bursar_client::api::query::Parameter as _;
use bursar_engine::{Kind, Reference};
use bursar_units::{DEFAULT_NAMESPACE, Label, ObjectName, ScopedName};

use crate::connect;
use crate::failure::{Failure, Stop};
use crate::grammar::{Scope, ScopedFlags};
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

/// The namespace of a list, `None` for all, with the words that follow `no runs`.
pub(super) fn listed(
    session: &Session,
    flags: &ScopedFlags,
) -> Result<(Option<ObjectName>, String), Stop> {
    if flags.all_namespaces {
        return Ok((None, String::new()));
    }
    let namespace = namespace(session, &flags.scope)?;
    let place = format!(" in namespace {namespace}");
    Ok((Some(namespace), place))
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

/// A budget: `NAME`, `NAMESPACE/NAME` or `budget/…`.
pub(super) fn budget(session: &Session, text: &str, scope: &Scope) -> Result<ScopedName, Stop> {
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
