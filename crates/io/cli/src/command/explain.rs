//! `bursar explain`: prints the explanation of the engine.

mod pod;

use bursar_client::api::{Explanation, When, Who, Why};
use bursar_client::problem::{Holder, LimitUse};
use bursar_client::{Code, nearest};
use bursar_engine::{Kind, Reference, words};
use bursar_units::ScopedName;

use super::booking::columns::amount;
use super::booking::saga;
use super::cluster::{self, names};
use super::read_reference;
use crate::failure::{Failure, Stop};
use crate::grammar::{ExplainArguments, Question};
use crate::layout::{Look, Meaning, escaped_line};
use crate::session::Session;

/// Width of the label before each part.
const LABEL: usize = 8;

pub(super) async fn run(session: &mut Session, arguments: &ExplainArguments) -> Result<(), Stop> {
    let text_of = &arguments.reference;
    if let Some(failure) = not_explained(text_of) {
        return Err(failure.into());
    }
    let reference = match names::kind_of(text_of) {
        // Without a kind it is a run.
        None | Some(Kind::Run) => names::reference(session, Kind::Run, text_of, &arguments.scope)?,
        Some(_) => read_reference(text_of, &[Kind::Run, Kind::Booking, Kind::Limit, Kind::Pod])?,
    };
    if arguments.scope.namespace.is_some() && reference.kind() != Kind::Run {
        let message = format!("`-n` applies to runs only, not to {reference}");
        return Err(Failure::usage(message).into());
    }
    if let Some(question) = arguments.question {
        check_question(question, &reference, arguments.at.is_some())?;
    }
    let client = session.client().await?;
    if let Reference::Pod(pod) = &reference {
        return pod::run(session, &client, pod.as_str(), arguments).await;
    }
    if arguments.at.is_some() {
        let message = format!("`--at` applies to pods only, not to {reference}");
        return Err(Failure::usage(message).into());
    }
    if let Reference::Run(name) = &reference {
        let explanation = match client.explain_run(name).await {
            Ok(explanation) => explanation,
            Err(error) => {
                let stop = names::not_here(error, Kind::Run, name);
                return Err(no_run(stop, name, text_of));
            }
        };
        return session.show(&explanation, &reference.to_string(), |look| {
            cluster::explain::text(&explanation, arguments.question, look)
        });
    }
    let name = reference.name().unwrap_or_default();
    let explanation = client.explain(reference.kind().word(), name).await?;
    session.show(&explanation, &reference.to_string(), |look| {
        text(&explanation, arguments.question, look)
    })
}

/// The failure for a kind that is shown and not explained, with the command that shows it.
fn not_explained(text: &str) -> Option<Failure> {
    let (kind, name) = text.split_once('/')?;
    let (what, hint) = match kind.strip_suffix('s').unwrap_or(kind) {
        "node" => ("a node", format!("`bursar node show {name}`")),
        "budget" => ("a budget", format!("`bursar budget show {name}`")),
        "envelope" => {
            // NAMESPACE/BUDGET/ENVELOPE; the budget shows all of its envelopes.
            let budget = name.rsplit_once('/').map_or("NAME", |(budget, _)| budget);
            let show = format!("`bursar budget show {budget}` shows its envelopes");
            ("an envelope", show)
        }
        _ => return None,
    };
    Some(Failure::usage(format!("{what} is shown, not explained")).hint(hint))
}

/// The failure of a run that was not found, with the kind that its namespace resembles; a bare name
/// may be one of a booking.
fn no_run(stop: Stop, name: &ScopedName, text: &str) -> Stop {
    let Stop::Failed(mut failure) = stop else {
        return stop;
    };
    let problem = failure.problem.as_ref();
    let is_missing = problem.is_some_and(|problem| problem.code == Code::NotFound);
    let kinds = [Kind::Run, Kind::Booking, Kind::Limit, Kind::Pod];
    let is_bare = !text.contains('/') && problem.is_none_or(|one| one.suggestion.is_none());
    let kind = if is_bare {
        Some(Kind::Booking.word())
    } else {
        nearest(name.namespace(), kinds.map(Kind::word))
    };
    if let Some(kind) = kind.filter(|_| is_missing && failure.hint.is_none()) {
        failure.hint = Some(format!(
            "if you mean a {kind}: `bursar explain {kind}/{}`",
            name.name()
        ));
    }
    Stop::Failed(failure)
}

/// Refuses a question that does not apply to the object, and names those that do.
fn check_question(question: Question, reference: &Reference, is_past: bool) -> Result<(), Failure> {
    if reference.kind() == Kind::Run && question == Question::When {
        let message = "`when` is not answered for runs yet: this version makes no forecasts";
        return Err(Failure::usage(message).hint("ask `why` or `who`, or omit the question"));
    }
    let answered: &[Question] = match (reference.kind(), is_past) {
        (Kind::Run, _) => &[Question::Why, Question::Who],
        (Kind::Pod, false) => &[Question::Why, Question::When, Question::How],
        // The past has no next change.
        (Kind::Pod, true) => &[Question::Why, Question::How],
        (Kind::Booking, _) => &[Question::Why, Question::When, Question::Who],
        _ => &[Question::Why],
    };
    if answered.contains(&question) {
        return Ok(());
    }
    let at = if is_past { " in the past" } else { "" };
    let message = format!("`{question}` does not apply to {reference}{at}");
    let words: Vec<String> = answered.iter().map(|one| format!("`{one}`")).collect();
    let words = words.join(" or ");
    Err(Failure::usage(message).hint(format!("ask {words}, or omit the question for all answers")))
}

/// `acme 61, zeta 30, 7 others 9`; `nobody`.
pub(super) fn holders(holders: &[Holder]) -> String {
    let named = holders.iter().any(|holder| holder.tenant.is_some());
    let parts = holders.iter().map(|holder| {
        let slots = words::number(holder.slots);
        match (&holder.tenant, holder.others) {
            (Some(tenant), _) => format!("{tenant} {slots}"),
            (None, Some(others)) if named => format!("{} {slots}", words::count(others, "other")),
            (None, _) => format!("others {slots}"),
        }
    });
    let text = parts.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        "nobody".to_owned()
    } else {
        text
    }
}

fn text(explanation: &Explanation, question: Option<Question>, look: &Look) -> String {
    let is_asked = |one: Question| question.is_none_or(|question| question == one);
    let mut parts = Vec::new();
    if let Some(why) = explanation.why.as_ref().filter(|_| is_asked(Question::Why)) {
        parts.push(("WHY", why_lines(why)));
    }
    if let Some(when) = explanation
        .when
        .as_ref()
        .filter(|_| is_asked(Question::When))
    {
        parts.push(("WHEN", when_lines(when, look)));
    }
    if is_asked(Question::Who) {
        parts.push(("WHO", explanation.who.iter().map(who_line).collect()));
    }
    if question.is_none() {
        parts.push(("SOONER", explanation.changes.clone()));
        parts.push(("NOTE", explanation.note.iter().cloned().collect()));
    }
    let headline = look.paint(Meaning::Subject, &explanation.headline);
    let mut text = format!("{headline}\n");
    if let Some(saga) = explanation.saga.as_ref().filter(|_| question.is_none()) {
        text.push_str(&saga::lines(&saga.steps, &saga.compensations));
    }
    let mut is_first = true;
    for (label, lines) in parts {
        for (at, line) in lines.iter().enumerate() {
            if is_first {
                text.push('\n');
                is_first = false;
            }
            let label = if at == 0 { label } else { "" };
            let line = escaped_line(line);
            text.push_str(format!("{label:<LABEL$}{line}").trim_end());
            text.push('\n');
        }
    }
    text
}

fn why_lines(why: &Why) -> Vec<String> {
    let mut lines: Vec<String> = why.limits.iter().map(limit_line).collect();
    if !why.holders.is_empty() {
        lines.push(format!("held by {}", holders(&why.holders)));
    }
    lines.extend(why.ahead.map(|ahead| match ahead {
        0 => "nobody of its class comes before it".to_owned(),
        1 => "1 of its class comes before it".to_owned(),
        ahead => format!("{} of its class come before it", words::number(ahead)),
    }));
    lines
}

fn limit_line(limit: &LimitUse) -> String {
    let value = |value| amount(limit.dimension, value);
    let waiting = match limit.waiting {
        0 => String::new(),
        waiting => format!(", waiting {}", words::number(waiting)),
    };
    format!(
        "limit {}: {}/{} {} in use{waiting}",
        limit.name,
        value(limit.in_use),
        value(limit.size),
        limit.dimension.word()
    )
}

fn when_lines(when: &When, look: &Look) -> Vec<String> {
    let basis: Vec<String> = when
        .rests_on
        .iter()
        .map(|basis| match &basis.object {
            Some(object) => format!("{object}: {}", basis.basis),
            None => basis.basis.clone(),
        })
        .collect();
    let basis = basis.join("; ");
    let mut lines = Vec::new();
    match when.at {
        Some(at) if basis.is_empty() => lines.push(look.moment(at)),
        Some(at) => lines.push(format!("{}, rests on the {basis}", look.moment(at))),
        None if when.latest.is_none() => lines.push(format!("unknown ({basis})")),
        None => {}
    }
    lines.extend(
        when.latest
            .map(|latest| format!("{} at the latest", look.moment(latest))),
    );
    lines
}

fn who_line(who: &Who) -> String {
    match who {
        Who::Counted {
            tenant,
            slots,
            limits,
        } => {
            let slots = words::count(*slots, "slot");
            let limits: Vec<String> = limits.iter().map(ToString::to_string).collect();
            match limits.as_slice() {
                [] => format!("{tenant} with {slots}"),
                limits => format!("{tenant} with {slots}, counted in {}", limits.join(", ")),
            }
        }
        Who::Pays {
            envelope,
            gpus,
            class,
            ..
        } => {
            let payer = envelope.as_deref().unwrap_or("nobody");
            let gpus = words::count(*gpus, "GPU");
            format!("{payer} pays for {gpus} ({class})")
        }
    }
}
