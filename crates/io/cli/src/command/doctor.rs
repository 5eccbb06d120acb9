//! `bursar doctor`: is it set up right (design 80, 2.15).

mod market;

use std::time::Instant;

use bursar_client::Client;
use bursar_client::api::{Health, Identity, LedgerStatus};
use bursar_client::client::Query;
use bursar_engine::words;
use bursar_units::causes::chain;
use serde::Serialize;

use crate::connect::{self, Found};
use crate::failure::{Failure, Stop, exit};
use crate::layout::{Look, Meaning, labelled};
use crate::session::{Reach, Session};
use crate::time::{distance, length};

/// How far the server's clock may be from ours before it is worth a word.
const CLOCK_WARN_MS: u64 = 1_000;
/// How far before times in answers mislead.
const CLOCK_FAIL_MS: u64 = 60_000;

/// How many adopted executions are named.
const ADOPTED_NAMED_MAX: usize = 10;

/// One line.
#[derive(Serialize)]
struct Line {
    verdict: Verdict,
    name: &'static str,
    detail: String,
    #[serde(skip)]
    hint: Option<String>,
}

/// How a thing is.
#[derive(Clone, Copy, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

pub(super) async fn run(session: &mut Session) -> Result<(), Stop> {
    let (lines, code) = examine(session).await;
    let count = |verdict| lines.iter().filter(|line| line.verdict == verdict).count();
    let (failed, warned) = (count(Verdict::Fail), count(Verdict::Warn));
    session.show_unnamed(&lines, |look| {
        lines.iter().map(|line| text(line, look)).collect()
    })?;
    if failed == 0 {
        return Ok(());
    }
    let warnings = match warned {
        0 => String::new(),
        1 => ", 1 warning".to_owned(),
        many => format!(", {many} warnings"),
    };
    let mut failure = Failure::new(code, format!("{failed} failed{warnings}"));
    failure.hint = lines
        .into_iter()
        .find_map(|line| line.hint.filter(|_| line.verdict == Verdict::Fail));
    Err(failure.into())
}

/// The lines, and the exit code if one of them failed.
async fn examine(session: &mut Session) -> (Vec<Line>, u8) {
    let found = match &session.reach {
        Reach::Within(within) => Some((
            within.client.clone(),
            "in this process".to_owned(),
            "scenario".to_owned(),
            Ok(()),
        )),
        Reach::Discover => None,
    };
    let (client, address, because, contact) = match found {
        Some(found) => found,
        None => match find(session).await {
            Ok(found) => found,
            Err((line, code)) => return (vec![*line], code),
        },
    };
    let mut lines = Vec::new();
    let began = Instant::now();
    let health = client.health().await;
    let took = if session.is_virtual() {
        0
    } else {
        began.elapsed().as_millis()
    };
    match &health {
        Ok(health) => lines.push(ok(
            "server",
            format!(
                "{address}, {}, answers in {took} ms ({because})",
                health.version
            ),
        )),
        Err(error) => {
            lines.push(fail(
                "server",
                chain(error),
                Some("start one here with `bursar up`".to_owned()),
            ));
            return (lines, exit::UNAVAILABLE);
        }
    }
    lines.push(identity(
        client.identity().await.map_err(Stop::from),
        &session.look(),
    ));
    lines.push(ledger(
        client.ledger().await.map_err(Stop::from),
        contact,
        &session.look(),
    ));
    lines.extend(health.ok().and_then(|health| clock(&health, session)));
    lines.push(store(&client).await);
    lines.extend(adopted(&client).await);
    lines.extend(market::lines(&client, &session.look()).await);
    (lines, exit::REFUSED)
}

type There = (Client, String, String, Result<(), Stop>);

async fn find(session: &mut Session) -> Result<There, (Box<Line>, u8)> {
    let failed = |stop: Stop| {
        let (line, code) = match stop {
            Stop::Failed(failure) => (
                fail("server", sentence(&failure), failure.hint.clone()),
                failure.exit,
            ),
            Stop::Pipe | Stop::Exit(_) => (
                fail("server", "cannot be asked".to_owned(), None),
                exit::UNAVAILABLE,
            ),
        };
        (Box::new(line), code)
    };
    let found: Found = connect::discover(session).map_err(|failure| failed(failure.into()))?;
    let (client, contact) = session.contact(&found).await.map_err(failed)?;
    Ok((client, found.address.to_string(), found.because, contact))
}

fn sentence(failure: &Failure) -> String {
    let details = failure
        .details
        .iter()
        .map(|(word, text)| format!("; {word} {text}"));
    format!("{}{}", failure.message, details.collect::<String>())
}

fn identity(identity: Result<Identity, Stop>, look: &Look) -> Line {
    match identity {
        Ok(identity) => {
            let roles = identity
                .roles
                .iter()
                .map(|role| role.word())
                .collect::<Vec<_>>()
                .join(", ");
            let tenants = identity
                .tenants
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ");
            let tenants = if tenants.is_empty() {
                String::new()
            } else {
                format!(" as {tenants}")
            };
            let expires = identity
                .expires_at
                .map(|at| format!(", expires in {}", distance(at.since(look.now))));
            ok(
                "identity",
                format!(
                    "{}: {roles}{tenants} ({}{})",
                    identity.name,
                    identity.via,
                    expires.unwrap_or_default()
                ),
            )
        }
        Err(stop) => fail(
            "identity",
            words_of(stop),
            Some("an operator makes tokens with `bursar token create`".to_owned()),
        ),
    }
}

fn ledger(status: Result<LedgerStatus, Stop>, contact: Result<(), Stop>, look: &Look) -> Line {
    let status = match status {
        Ok(status) => status,
        Err(stop) => return fail("ledger", words_of(stop), None),
    };
    if let Err(stop) = contact {
        return fail("ledger", words_of(stop), None);
    }
    let since = status
        .leads_since
        .map(|at| format!("leader since {}, ", look.age(at)));
    let last = status
        .last_record_at
        .map(|at| format!(", last record {} ago", length(look.now.since(at))));
    let signed = match &status.checkpoint {
        Some(checkpoint) => format!(", {} signed", words::number(checkpoint.records)),
        None => ", no checkpoint yet".to_owned(),
    };
    ok(
        "ledger",
        format!(
            "{}{}{}{signed}, its key is pinned",
            since.unwrap_or_default(),
            words::count(status.records, "record"),
            last.unwrap_or_default()
        ),
    )
}

fn clock(health: &Health, session: &Session) -> Option<Line> {
    let (theirs, ours) = (health.now_ms?, session.now().ms());
    let apart = theirs.abs_diff(ours);
    let detail = format!("{} ms from the server", words::number(apart));
    Some(match apart {
        0..CLOCK_WARN_MS => ok("clock", detail),
        CLOCK_WARN_MS..CLOCK_FAIL_MS => warn("clock", detail),
        _ => fail(
            "clock",
            detail,
            Some("`timedatectl` says which of the two is right".to_owned()),
        ),
    })
}

async fn store(client: &Client) -> Line {
    if let Err(error) = client.ready().await {
        return fail(
            "store",
            chain(&error),
            Some("`bursar ledger check` says whether it is whole".to_owned()),
        );
    }
    match client.ledger().await {
        Ok(status) => {
            let bytes = status
                .bytes
                .map(|bytes| format!(", {} MB", words::number(bytes / 1_000_000)));
            ok(
                "store",
                format!(
                    "{}{}, takes commands",
                    status.store,
                    bytes.unwrap_or_default()
                ),
            )
        }
        Err(_) => ok("store", "takes commands".to_owned()),
    }
}

/// What was found running after a restore and runs still: it may be above limits, and nobody may
/// know of it (X5).
async fn adopted(client: &Client) -> Option<Line> {
    let status = client.ledger().await.ok()?;
    if status.generation == 0 {
        return None;
    }
    let live = Query::new().with("state", "running,stopping,stuck");
    let mut found = match client.all_executions(&live).await {
        Ok(found) => found.items,
        Err(error) => return Some(warn("adopted", chain(&error))),
    };
    found.retain(|execution| execution.course.adopted);
    let ids = found.iter().map(|execution| execution.id.as_str());
    let named: Vec<&str> = ids.take(ADOPTED_NAMED_MAX).collect();
    let others = found.len() - named.len();
    let others = match others {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
    Some(match count {
        0 => ok(
            "adopted",
            "no execution of the lost records runs".to_owned(),
        ),
        _ => warn(
            "adopted",
            format!(
                "{} found running after the restore: {}{others}",
                words::count(count, "execution"),
                named.join(", ")
            ),
        ),
    })
}

fn words_of(stop: Stop) -> String {
    match stop {
        Stop::Failed(failure) => failure.message,
        Stop::Pipe | Stop::Exit(_) => "cannot be asked".to_owned(),
    }
}

fn ok(name: &'static str, detail: String) -> Line {
    Line {
        verdict: Verdict::Ok,
        name,
        detail,
        hint: None,
    }
}

fn warn(name: &'static str, detail: String) -> Line {
    Line {
        verdict: Verdict::Warn,
        ..ok(name, detail)
    }
}

fn fail(name: &'static str, detail: String, hint: Option<String>) -> Line {
    Line {
        verdict: Verdict::Fail,
        name,
        detail,
        hint,
    }
}

fn text(line: &Line, look: &Look) -> String {
    let verdict = match line.verdict {
        Verdict::Ok => look.paint(Meaning::Good, "ok  "),
        Verdict::Warn => look.paint(Meaning::Waiting, "warn"),
        Verdict::Fail => look.paint(Meaning::Bad, "FAIL"),
    };
    // Colour takes no room, so the verdict goes before what is folded.
    let label = format!("      {:<8}  ", line.name);
    let told = labelled(&label, &line.detail);
    format!("{verdict}{}", told.strip_prefix("    ").unwrap_or(&told))
}
