//! `bursar apply`: budgets, runs, limits and nodes from files, all documents or none.

use std::path::{Path, PathBuf};

use bursar_client::api::{
    APPLY_OBJECTS_MAX, ApplyAnswer, ApplyRequest, BODY_BYTES_MAX, Change, ChangeKind, FieldChange,
};
use bursar_client::client::{Error, Mode};
use bursar_client::object::{File, Object, locate, read_files};
use bursar_client::{Code, Problem};
use bursar_engine::words;
use bursar_units::{DEFAULT_NAMESPACE, Instant, ScopedName};

use super::DRY_RUN;
use super::booking::limit::{field_text, telling};
use super::cluster::{names, trace};
use crate::failure::{Failure, Stop, exit};
use crate::grammar::{ApplyArguments, Format};
use crate::layout::labelled;
use crate::session::Session;

/// Files that a refusal names.
const FILES_NAMED_MAX: usize = 3;

pub(super) async fn run(session: &mut Session, arguments: &ApplyArguments) -> Result<(), Stop> {
    let mut files = Vec::new();
    for path in &arguments.files {
        files.extend(read(session, path)?);
    }
    let objects = match read_files(&files) {
        Ok(objects) => objects,
        Err(mistakes) if session.for_programs() => return Err(mistakes.to_problem().into()),
        Err(mistakes) => {
            session.say(&format!("{mistakes}\n"));
            return Err(Stop::Exit(exit::USAGE));
        }
    };
    check_size(&files, &objects)?;
    let client = session.client().await?;
    let answer = client
        .apply(&objects, Mode::dry_run_if(arguments.dry_run))
        .await
        .map_err(|error| refused(session, &files, DEFAULT_NAMESPACE, "applied", error))
        .map_err(trace::refused)?;
    if arguments.dry_run && session.common.output == Format::Yaml {
        // A dry run in YAML prints the objects with their defaults.
        return session.console.data(&Object::to_yaml(&objects));
    }
    print(session, &answer)?;
    for note in notes(&objects, session.now()) {
        session.aside(&format!("note: {note}\n"));
    }
    let created = answer.results.iter();
    let created = created.filter(|change| change.change == ChangeKind::Created);
    let runs = created.filter_map(|change| change.object.strip_prefix("run/"));
    let runs: Vec<ScopedName> = runs.filter_map(|name| ScopedName::new(name).ok()).collect();
    names::note_reuse(session, &client, &runs).await;
    Ok(())
}

/// What is accepted and has no effect.
fn notes(objects: &[Object], now: Instant) -> Vec<String> {
    let mut notes = Vec::new();
    for object in objects {
        let Object::Budget { budget, .. } = object else {
            continue;
        };
        let name = object.reference();
        if budget.envelopes.is_empty() {
            notes.push(format!("{name} has no envelopes: it pays for nothing"));
        }
        for envelope in &budget.envelopes {
            let of = format!("envelope {} of {name}", envelope.name);
            let is_over = envelope.end.is_some_and(|end| end <= now) && envelope.renew.is_none();
            if is_over {
                notes.push(format!("{of} is over: its `end` is past"));
            }
            let lending = envelope.lending.as_ref();
            if lending.is_some_and(|lending| !lending.allow && !lending.to.is_empty()) {
                notes.push(format!("{of} lends nothing without `allow: true`"));
            }
        }
    }
    notes
}

/// Refuses more than the server takes in one request.
fn check_size(files: &[File], objects: &[Object]) -> Result<(), Stop> {
    let values = objects.iter().map(Object::to_value).collect();
    let request = ApplyRequest { objects: values };
    let size = serde_json::to_vec(&request).map_or(0, |body| body.len());
    let count = objects.len();
    if count <= APPLY_OBJECTS_MAX && size <= BODY_BYTES_MAX {
        return Ok(());
    }
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let names = match names.split_at_checked(FILES_NAMED_MAX) {
        Some((first, others @ [_, ..])) => {
            let others = words::count(u64::try_from(others.len()).unwrap_or(u64::MAX), "other");
            format!("{} and {others}", first.join(", "))
        }
        _ => names.join(", "),
    };
    let number = |count: usize| words::number(u64::try_from(count).unwrap_or(u64::MAX));
    let kib = |bytes: usize| number(bytes.div_ceil(1 << 10));
    let message = format!("{names}: too much for one change, nothing was applied");
    Err(Failure::usage(message)
        .detail(
            "objects",
            format!("{}, at most {}", number(count), number(APPLY_OBJECTS_MAX)),
        )
        .detail(
            "size",
            format!("{} KiB as JSON, at most {}", kib(size), kib(BODY_BYTES_MAX)),
        )
        .hint("apply them in parts, with several `-f FILE` or several commands".to_owned())
        .into())
}

/// Shows the mistakes that the server found at their places in the files.
pub(super) fn refused(
    session: &mut Session,
    files: &[File],
    namespace: &str,
    undone: &'static str,
    error: Error,
) -> Stop {
    let problem = match error {
        Error::Problem(problem) if problem.code == Code::Invalid && is_located(&problem) => problem,
        other => return other.into(),
    };
    let mut mistakes = locate(files, namespace, &problem.errors);
    mistakes.undone = undone;
    if session.for_programs() {
        return mistakes.to_problem().into();
    }
    session.say(&format!("{mistakes}\n"));
    Stop::Exit(exit::USAGE)
}

fn is_located(problem: &Problem) -> bool {
    problem.errors.iter().any(|error| error.object.is_some())
}

/// Prints each object: its name, the change and its effect; long lists of fields go on below.
pub(super) fn print(session: &mut Session, answer: &ApplyAnswer) -> Result<(), Stop> {
    let names = answer.results.iter().map(|change| change.object.clone());
    let names = names.collect::<Vec<_>>().join("\n");
    session.show(answer, &names, |_| {
        let changes = || answer.results.iter();
        let widths = changes().map(|change| change.object.chars().count());
        let width = widths.max().unwrap_or(0);
        let is_dry = answer.dry_run == Some(true);
        let text: String = changes()
            .map(|change| line(change, width, is_dry))
            .collect();
        if is_dry { text + DRY_RUN } else { text }
    })
}

fn line(change: &Change, width: usize, is_dry: bool) -> String {
    let fields = telling(change).map(field_fact);
    let facts: Vec<String> = fields.chain(change.effect.clone()).collect();
    let facts = facts.join(", ");
    let word = match change.change {
        // The line alone must not look as if the object were deleted.
        ChangeKind::Deleted if is_dry => "would be deleted",
        kind => kind.word(),
    };
    labelled(&format!("{:<width$}  {word:<9}  ", change.object), &facts)
}

/// `envelopes[h100].concurrency 8 → 16`; `envelope w1 added (8 h100, 1,000 GPU-hours)`.
fn field_fact(field: &FieldChange) -> String {
    let (path, from, to) = (&field.path, field.from.as_deref(), field.to.as_deref());
    let listed = path.strip_suffix(']').and_then(|path| path.split_once('['));
    let name = match listed {
        Some(("envelopes", name)) => format!("envelope {name}"),
        Some(("aggregateCaps", name)) => format!("cap {name}"),
        _ if path.ends_with(".lending") => path.clone(),
        _ => return format!("{path} {}", field_text(from, to)),
    };
    match (from, to) {
        (Some(_), None) => format!("{name} removed"),
        (None, Some(to)) => format!("{name} added ({})", brief(to)),
        _ => format!("{path} {}", field_text(from, to)),
    }
}

/// The numbers of a new envelope, cap or loan, whose fields are a text of the server: `concurrency 8,
/// flavor h100, sharing family`.
fn brief(fields: &str) -> String {
    let value = |name: &str| {
        let mut parts = fields.split(", ");
        parts.find_map(|part| part.strip_prefix(name)?.strip_prefix(' '))
    };
    let gpus = value("concurrency").or_else(|| value("maxConcurrency"));
    let flavor = value("flavor").unwrap_or("GPUs");
    let gpus = gpus.map(|gpus| format!("{gpus} {flavor}"));
    let hours = value("maxGPUHours").map(|hours| format!("{hours} GPU-hours"));
    let parts: Vec<String> = gpus.into_iter().chain(hours).collect();
    match parts.as_slice() {
        [] => fields.to_owned(),
        parts => parts.join(", "),
    }
}

/// Reads the files that a path names: one file, stdin, or the YAML files of a directory by name.
pub(super) fn read(session: &Session, path: &Path) -> Result<Vec<File>, Stop> {
    if path == Path::new("-") {
        let bytes = session
            .console
            .read_all()
            .map_err(|error| Failure::file("read", "stdin", &error))?;
        return Ok(vec![File {
            name: "stdin".to_owned(),
            bytes,
        }]);
    }
    let found = session.path(path);
    if !found.is_dir() {
        return Ok(vec![read_one(path, &found)?]);
    }
    let entries =
        std::fs::read_dir(&found).map_err(|error| Failure::file("read", path.display(), &error))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|ending| ending == "yaml" || ending == "yml")
    });
    paths.sort();
    if paths.is_empty() {
        let message = format!("{} contains no *.yaml or *.yml file", path.display());
        return Err(Failure::usage(message).into());
    }
    let named = paths.iter().map(|found| {
        let name = found
            .file_name()
            .map_or_else(|| path.to_owned(), |name| path.join(name));
        read_one(&name, found)
    });
    named.collect()
}

fn read_one(name: &Path, path: &Path) -> Result<File, Stop> {
    let bytes =
        std::fs::read(path).map_err(|error| Failure::file("read", name.display(), &error))?;
    Ok(File {
        name: name.display().to_string(),
        bytes,
    })
}
