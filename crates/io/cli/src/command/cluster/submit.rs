//! `bursar run submit` and `bursar run plan`.

use bursar_client::Code;
use bursar_client::api::cluster::{CoverRow, PlaceSpec, PutRun, RunAnswer, RunSpec};
use bursar_client::api::{ChangeKind, Explanation, Who};
use bursar_client::client::Mode;
use bursar_client::object::run::{UnstatedPods, unstated_pods};
use bursar_client::object::{File, Object, names_namespace, read_files};
use bursar_engine::cluster::Stage;
use bursar_engine::words;
use bursar_units::{DEFAULT_NAMESPACE, Label, ObjectName, ScopedName};

use super::columns::unfunded;
use super::{names, trace, where_words};
use crate::command::{DRY_RUN, apply};
use crate::failure::{Failure, Stop, exit};
use crate::grammar::PlanArguments;
use crate::layout::{Look, Meaning, REPORT_WORD, details};
use crate::session::Session;

pub(super) async fn run(
    session: &mut Session,
    arguments: &PlanArguments,
    mode: Mode,
) -> Result<(), Stop> {
    if !arguments.program.is_empty() {
        let message = "not yet: programs run on this machine in a later version";
        return Err(Failure::usage(message)
            .hint("`bursar exec -- PROGRAM` runs a program in a slot")
            .into());
    }
    let mut runs = Vec::new();
    for path in &arguments.files {
        for file in apply::read(session, path)? {
            let (name, object) = read(session, arguments, file.clone())?;
            runs.push((name, object, Some(file)));
        }
    }
    if arguments.files.is_empty() {
        let (name, object) = of_flags(session, arguments)?;
        runs.push((name, object, None));
    }
    let client = session.client().await?;
    let options = PutRun {
        now: arguments.now.then_some(true),
    };
    for (name, object, file) in &runs {
        let value = object.to_value();
        let answer = client.put_run(name, &value, &options, mode).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let files = file.as_slice();
                let stop = apply::refused(session, files, name.namespace(), "submitted", error);
                return Err(sponsored(trace::refused(stop), object));
            }
        };
        session.show(&answer, &format!("run/{name}"), |look| {
            text(name, &answer, look)
        })?;
        if answer.change == ChangeKind::Created {
            names::note_reuse(session, &client, std::slice::from_ref(name)).await;
        }
        for note in sponsor_notes(&answer.run.spec, &answer.trace) {
            session.aside(&format!("note: {note}\n"));
        }
        hint(session, name, &answer);
    }
    Ok(())
}

/// The refusal of a run, with notes about its sponsors; a run that nobody pays for and that names no
/// owner has a hint.
fn sponsored(stop: Stop, object: &Object) -> Stop {
    let Object::Run { spec, .. } = object else {
        return stop;
    };
    let Stop::Failed(mut failure) = stop else {
        return stop;
    };
    let Some(problem) = failure.problem.as_deref() else {
        return Stop::Failed(failure);
    };
    if !matches!(problem.code, Code::NeverFits | Code::WouldWait) {
        return Stop::Failed(failure);
    }
    let notes = sponsor_notes(spec, &problem.trace);
    let is_of_nobody = spec.owner.is_none() && problem.trace.is_empty();
    for note in &notes {
        failure.body.extend(["  note: ", note, "\n"]);
    }
    if is_of_nobody {
        let hint = "`--owner OWNER`, or `owner` in a file, names the owner that pays".to_owned();
        failure.hint = Some(hint);
    }
    Stop::Failed(failure)
}

/// What is said about sponsors that cannot lend: `rows` is the walk over the envelopes.
fn sponsor_notes(spec: &RunSpec, rows: &[CoverRow]) -> Vec<String> {
    let Some(funding) = spec.funding.as_ref().filter(|of| !of.sponsors.is_empty()) else {
        return Vec::new();
    };
    if !funding.allow_borrow {
        return vec!["its sponsors lend nothing without `allowBorrow: true`".to_owned()];
    }
    // Without rows there was no walk.
    let has_none =
        |sponsor: &&Label| !rows.is_empty() && rows.iter().all(|row| row.owner != **sponsor);
    let unknown = funding.sponsors.iter().filter(has_none);
    let flavor = &spec.flavor;
    unknown
        .map(|sponsor| format!("sponsor {sponsor} has no envelope of {flavor}"))
        .collect()
}

/// The run of a file, in the namespace of the flags if the file names none.
fn read(
    session: &mut Session,
    arguments: &PlanArguments,
    file: File,
) -> Result<(ScopedName, Object), Stop> {
    let file_name = file.name.clone();
    let is_named = names_namespace(&file);
    let mut objects = match read_files(&[file]) {
        Ok(objects) => objects.into_iter(),
        Err(mistakes) if session.for_programs() => return Err(mistakes.to_problem().into()),
        Err(mut mistakes) => {
            mistakes.undone = "submitted";
            session.say(&format!("{mistakes}\n"));
            return Err(Stop::Exit(exit::USAGE));
        }
    };
    let (Some(object), None) = (objects.next(), objects.next()) else {
        let message = format!("{file_name} must have exactly one run");
        return Err(Failure::usage(message)
            .hint("`bursar apply -f FILE` takes several objects in one file")
            .into());
    };
    let Object::Run {
        resource_version,
        namespace,
        name,
        spec,
    } = object
    else {
        let message = format!("{file_name} has {}, which is not a run", object.reference());
        return Err(Failure::usage(message)
            .hint(format!("`bursar apply -f {file_name}` takes every kind"))
            .into());
    };
    let namespace = if is_named {
        check_namespace(arguments, &file_name, &namespace)?;
        namespace
    } else {
        names::namespace(session, &arguments.scope)?
    };
    let id = ScopedName::of(&namespace, &name);
    let object = Object::Run {
        resource_version,
        namespace,
        name,
        spec,
    };
    Ok((id, object))
}

/// Refuses a file whose namespace is not the one of the flag.
fn check_namespace(
    arguments: &PlanArguments,
    file_name: &str,
    written: &ObjectName,
) -> Result<(), Stop> {
    match &arguments.scope.namespace {
        Some(flag) if flag != written => {
            let message = format!("{file_name} says namespace {written}, and `-n` says {flag}");
            Err(Failure::usage(message).into())
        }
        _ => Ok(()),
    }
}

fn of_flags(
    session: &mut Session,
    arguments: &PlanArguments,
) -> Result<(ScopedName, Object), Stop> {
    let namespace = names::namespace(session, &arguments.scope)?;
    let (Some(gpus), Some(flavor)) = (arguments.gpus, arguments.flavor.clone()) else {
        return Err(
            Failure::usage("`bursar run submit` needs `--gpus N`, or `-f FILE`")
                .hint("`bursar run submit -h` has an example")
                .into(),
        );
    };
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => ObjectName::new(&short_name(session.new_uuid()))
            .map_err(|error| Failure::unavailable(format!("cannot make a name: {error}")))?,
    };
    let spec = RunSpec {
        owner: arguments.owner.clone(),
        flavor,
        total_gpus: gpus,
        pod_gpus: arguments.pod_gpus,
        group_gpus: arguments.group_gpus,
        spread: None,
        location: None,
        funding: None,
        expected_duration: arguments.duration.map(|length| length.to_string()),
        max_duration: None,
        priority: None,
        grace: None,
    };
    if let Some(UnstatedPods { group, usual, fits }) = unstated_pods(&spec) {
        let message = format!(
            "{group} GPUs are no whole number of pods of {usual} (the default): say --pod-gpus {fits}"
        );
        return Err(Failure::usage(message).into());
    }
    let id = ScopedName::of(&namespace, &name);
    let object = Object::Run {
        resource_version: None,
        namespace,
        name,
        spec: Box::new(spec),
    };
    Ok((id, object))
}

/// `run-` with eight letters of base 32: the random end of the id.
fn short_name(id: uuid::Uuid) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let letter = |at: u32| {
        let five = (id.as_u128() >> (5 * at)) & 31;
        let letter = usize::try_from(five).ok().and_then(|at| LETTERS.get(at));
        letter.copied().map_or('a', char::from)
    };
    let letters: String = (0..8).rev().map(letter).collect();
    format!("run-{letters}")
}

fn text(name: &ScopedName, answer: &RunAnswer, look: &Look) -> String {
    let is_dry = answer.dry_run == Some(true);
    let subject = look.paint(Meaning::Subject, &format!("run {name}"));
    let spec = &answer.run.spec;
    let mut lines = vec![("needs".to_owned(), needs(spec))];
    let mut add = |word: &str, text: String| {
        if !text.is_empty() {
            lines.push((word.to_owned(), text));
        }
    };
    add("paid by", payers(answer));
    let status = answer.run.status.as_deref();
    add("where", status.map(where_words).unwrap_or_default());
    let is_waiting = status.is_some_and(|status| status.state == Stage::Waiting);
    if is_waiting {
        add("because", because(&answer.explanation));
    }
    let state = state(answer, is_dry);
    let text = format!("{subject} {state}\n{}", details(&lines, REPORT_WORD));
    if is_dry { text + DRY_RUN } else { text }
}

/// `accepted, waiting for room`; `started`; `would start`.
fn state(answer: &RunAnswer, is_dry: bool) -> String {
    let status = answer.run.status.as_deref();
    let stage = status.map(|status| status.state);
    let waits = status.and_then(|status| status.waits_for).map_or_else(
        || "waiting".to_owned(),
        |cause| format!("waiting for {}", cause.word()),
    );
    match (answer.change, stage, is_dry) {
        (ChangeKind::Created, Some(Stage::Waiting), false) => format!("accepted, {waits}"),
        (ChangeKind::Created, Some(Stage::Waiting), true) => {
            format!("would be accepted, {waits}")
        }
        (ChangeKind::Created, _, false) => "started".to_owned(),
        (ChangeKind::Created, _, true) => "would start".to_owned(),
        (change, stage, _) => {
            let stage = match stage {
                Some(Stage::Waiting) | None => waits,
                Some(stage) => stage.word().to_owned(),
            };
            match (change, is_dry) {
                (ChangeKind::Changed, true) => format!("would change, {stage}"),
                (ChangeKind::Changed, false) => format!("changed, {stage}"),
                _ => format!("is unchanged, {stage}"),
            }
        }
    }
}

/// The headline without the name of the run, which the first line has.
fn because(explanation: &Explanation) -> String {
    explanation
        .headline
        .split_once(": ")
        .map(|(_, reason)| reason.to_owned())
        .unwrap_or_default()
}

/// `24 h100 in rack-a, 3 groups of 8`.
pub(super) fn needs(spec: &RunSpec) -> String {
    let place = spec.location.as_ref().map(place_words);
    let place = place.filter(|place| !place.is_empty());
    let place = place
        .map(|place| format!(" in {place}"))
        .unwrap_or_default();
    let groups = spec.group_gpus.filter(|group| *group < spec.total_gpus);
    let groups = groups.map(|group| {
        let count = spec.total_gpus.checked_div(group).unwrap_or(1);
        format!(", {} of {group}", words::count(count, "group"))
    });
    let groups = groups.unwrap_or_default();
    format!(
        "{} {}{place}{groups}",
        words::number(spec.total_gpus),
        spec.flavor
    )
}

/// `us-west/west-1/rack-a`, without the parts that are not stated.
pub(super) fn place_words(place: &PlaceSpec) -> String {
    let parts = [&place.region, &place.cluster, &place.domain];
    let parts = parts.into_iter().flatten().map(ToString::to_string);
    parts.collect::<Vec<_>>().join("/")
}

/// Payers, with the hours that they hold ahead for a run that states its length.
fn payers(answer: &RunAnswer) -> String {
    let spec = &answer.run.spec;
    let is_stated = spec.expected_duration.is_some() || spec.max_duration.is_some();
    let held_by = |envelope: &str| {
        let of_payer = answer.explanation.who.iter().filter_map(|who| match who {
            Who::Pays {
                envelope: Some(payer),
                held_gpu_ms,
                ..
            } if payer == envelope => *held_gpu_ms,
            _ => None,
        });
        of_payer.reduce(u64::saturating_add).filter(|_| is_stated)
    };
    let payer = |take: &bursar_engine::cluster::budget::Take, count: usize| {
        let gpus = match count {
            1 => String::new(),
            _ => format!("{} ", words::number(take.gpus)),
        };
        let hours = held_by(&take.envelope.to_string());
        let hours = hours.map(|ms| format!(", up to {}", words::gpu_hours(ms)));
        format!("{gpus}{}{}", take.envelope, hours.unwrap_or_default())
    };
    let status = answer.run.status.as_deref();
    let nobody = status.map_or(0, |status| unfunded(&status.claims));
    let count = answer.takes.len() + usize::from(nobody > 0);
    let payers = answer.takes.iter().map(|take| payer(take, count));
    let nobody = (nobody > 0).then(|| format!("{} nobody", words::number(nobody)));
    payers.chain(nobody).collect::<Vec<_>>().join("; ")
}

fn hint(session: &mut Session, name: &ScopedName, answer: &RunAnswer) {
    let status = answer.run.status.as_deref();
    let is_waiting = status.is_some_and(|status| status.state == Stage::Waiting);
    if !is_waiting || answer.dry_run == Some(true) || session.for_programs() {
        return;
    }
    let shows = match status.and_then(|status| status.waits_for) {
        Some(bursar_engine::explain::WaitsFor::Room) => "shows who holds the GPUs",
        _ => "shows why it waits",
    };
    let (namespace, name) = (name.namespace(), name.name());
    let scope = if namespace == DEFAULT_NAMESPACE {
        String::new()
    } else {
        format!(" -n {namespace}")
    };
    session.aside(&format!("\nhint: `bursar explain {name}{scope}` {shows}\n"));
}
