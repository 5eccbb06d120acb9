//! `bursar doctor`: checks the setup.

mod market;

use std::time::Instant;

use bursar_client::Client;
use bursar_client::api::{ExecutionState, Health, Identity, LedgerStatus, ListExecutions};
use bursar_client::object::node::capacity;
use bursar_engine::words;
use bursar_units::causes::chain;
use serde::Serialize;

use crate::connect;
use crate::failure::{Failure, Stop, exit};
use crate::layout::{Look, Meaning, labelled};
use crate::session::{Reach, Session};
use crate::time::{distance, length};

/// Difference of the two clocks from which the check warns.
const CLOCK_WARN_MS: u64 = 1_000;
/// Difference from which times in answers are misleading.
const CLOCK_FAIL_MS: u64 = 60_000;
/// Maximum number of adopted executions that are named.
const ADOPTED_NAMED_MAX: usize = 10;

/// Maximum number of nodes without labels that are named.
const UNLABELLED_NAMED_MAX: usize = 10;

/// Result of one check.
#[derive(Serialize)]
struct Finding {
    verdict: Verdict,
    name: &'static str,
    detail: String,
    #[serde(skip)]
    hint: Option<String>,
}

#[derive(Clone, Copy, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

pub(super) async fn run(session: &mut Session) -> Result<(), Stop> {
    let (findings, code) = examine(session).await;
    let with = |verdict| {
        findings
            .iter()
            .filter(move |finding| finding.verdict == verdict)
    };
    let (failed, warned) = (with(Verdict::Fail).count(), with(Verdict::Warn).count());
    session.show_unnamed(&findings, |look| {
        findings.iter().map(|finding| text(finding, look)).collect()
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
    failure.hint = with(Verdict::Fail).find_map(|finding| finding.hint.clone());
    Err(failure.into())
}

/// The findings, and the exit code if one of them failed.
async fn examine(session: &mut Session) -> (Vec<Finding>, u8) {
    let connection = match &session.reach {
        Reach::Within(within) => Ok(Connection {
            client: within.client.clone(),
            address: "in this process".to_owned(),
            because: "scenario".to_owned(),
            key: Ok(()),
        }),
        Reach::Discover => connect(session).await,
    };
    let connection = match connection {
        Ok(connection) => connection,
        Err((finding, code)) => return (vec![*finding], code),
    };
    let client = connection.client;
    let mut findings = Vec::new();
    let began = Instant::now();
    let health = client.health().await;
    let took = if session.is_virtual() {
        0
    } else {
        began.elapsed().as_millis()
    };
    match &health {
        Ok(health) => findings.push(ok(
            "server",
            format!(
                "{}, {}, answers in {took} ms ({})",
                connection.address, health.version, connection.because
            ),
        )),
        Err(error) => {
            let hint = "start one here with `bursar up`";
            findings.push(fail("server", chain(error), Some(hint)));
            return (findings, exit::UNAVAILABLE);
        }
    }
    findings.push(identity(
        client.identity().await.map_err(Stop::from),
        &session.look(),
    ));
    findings.push(ledger(
        client.ledger().await.map_err(Stop::from),
        connection.key,
        &session.look(),
    ));
    findings.extend(health.ok().and_then(|health| clock(&health, session)));
    findings.push(store(&client).await);
    findings.extend(adopted(&client).await);
    findings.extend(unlabelled(&client).await);
    findings.extend(market::findings(&client, &session.look()).await);
    (findings, exit::REFUSED)
}

struct Connection {
    client: Client,
    address: String,
    because: String,
    /// Result of the check of the ledger's key.
    key: Result<(), Stop>,
}

async fn connect(session: &mut Session) -> Result<Connection, (Box<Finding>, u8)> {
    let failed = |stop: Stop| {
        let (finding, code) = match stop {
            Stop::Failed(failure) => (
                fail("server", sentence(&failure), failure.hint.as_deref()),
                failure.exit,
            ),
            Stop::Pipe | Stop::Exit(_) => (
                fail("server", "cannot be queried".to_owned(), None),
                exit::UNAVAILABLE,
            ),
        };
        (Box::new(finding), code)
    };
    let server = connect::discover(session).map_err(|failure| failed(failure.into()))?;
    let (client, key) = session.contact(&server).await.map_err(failed)?;
    Ok(Connection {
        client,
        address: server.address.to_string(),
        because: server.because,
        key,
    })
}

fn sentence(failure: &Failure) -> String {
    let details = failure
        .details
        .iter()
        .map(|(word, text)| format!("; {word} {text}"));
    format!("{}{}", failure.message, details.collect::<String>())
}

fn identity(identity: Result<Identity, Stop>, look: &Look) -> Finding {
    match identity {
        Ok(identity) => {
            let roles: Vec<&str> = identity.roles.iter().map(|role| role.word()).collect();
            let tenants: Vec<String> = identity.tenants.iter().map(ToString::to_string).collect();
            let tenants = match tenants.as_slice() {
                [] => String::new(),
                tenants => format!(" as {}", tenants.join(", ")),
            };
            let expires = identity
                .expires_at
                .map(|at| format!(", expires in {}", distance(at.since(look.now))));
            ok(
                "identity",
                format!(
                    "{}: {}{tenants} ({}{})",
                    identity.name,
                    roles.join(", "),
                    identity.via,
                    expires.unwrap_or_default()
                ),
            )
        }
        Err(stop) => {
            let hint = "an operator makes tokens with `bursar token create`";
            fail("identity", message_of(stop), Some(hint))
        }
    }
}

fn ledger(status: Result<LedgerStatus, Stop>, key: Result<(), Stop>, look: &Look) -> Finding {
    let status = match status {
        Ok(status) => status,
        Err(stop) => return fail("ledger", message_of(stop), None),
    };
    if let Err(stop) = key {
        return fail("ledger", message_of(stop), None);
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

fn clock(health: &Health, session: &Session) -> Option<Finding> {
    let (theirs, ours) = (health.now_ms?, session.now().ms());
    let apart = theirs.abs_diff(ours);
    let detail = format!("{} ms from the server", words::number(apart));
    Some(match apart {
        0..CLOCK_WARN_MS => ok("clock", detail),
        CLOCK_WARN_MS..CLOCK_FAIL_MS => warn("clock", detail),
        _ => {
            let hint = "`timedatectl` shows whether a clock is synchronised; run it on both sides";
            fail("clock", detail, Some(hint))
        }
    })
}

async fn store(client: &Client) -> Finding {
    if let Err(error) = client.ready().await {
        let hint = "`bursar ledger check` shows whether it is damaged";
        return fail("store", chain(&error), Some(hint));
    }
    match client.ledger().await {
        Ok(status) => {
            let bytes = status
                .bytes
                .map(|bytes| format!(", {} MB", words::number(bytes / 1_000_000)));
            ok(
                "store",
                format!(
                    "{}{}, accepts commands",
                    status.store,
                    bytes.unwrap_or_default()
                ),
            )
        }
        Err(_) => ok("store", "accepts commands".to_owned()),
    }
}

/// Nodes with GPUs on which no run is placed, because they lack a label.
async fn unlabelled(client: &Client) -> Vec<Finding> {
    let Ok(nodes) = client.nodes().await else {
        return Vec::new();
    };
    let nodes = nodes.items.iter();
    let skipped = nodes.filter(|node| !node.status.missing_labels.is_empty());
    let mut findings: Vec<Finding> = skipped
        .map(|node| {
            let labels = &node.status.missing_labels;
            let word = if labels.len() == 1 { "label" } else { "labels" };
            let gpus = capacity(node).map(|has| has.gpus).unwrap_or_default();
            let gpus = words::count(gpus, "GPU");
            let name = &node.metadata.name;
            let labels = labels.join(", ");
            let detail = format!("{name} has no {word} {labels}: its {gpus} are skipped");
            warn("nodes", detail)
        })
        .collect();
    if let more @ 1.. = findings.len().saturating_sub(UNLABELLED_NAMED_MAX) {
        findings.truncate(UNLABELLED_NAMED_MAX);
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        let nodes = words::count(more, "more node");
        findings.push(warn("nodes", format!("{nodes} without such labels")));
    }
    findings
}

/// Executions that were found running after a restore and still run. They may exceed limits (X5).
async fn adopted(client: &Client) -> Option<Finding> {
    let status = client.ledger().await.ok()?;
    if status.generation == 0 {
        return None;
    }
    let live = ListExecutions {
        state: Some(
            [
                ExecutionState::Running,
                ExecutionState::Stopping,
                ExecutionState::Stuck,
            ]
            .into(),
        ),
        ..ListExecutions::default()
    };
    let mut executions = match client.all_executions(&live).await {
        Ok(list) => list.items,
        Err(error) => return Some(warn("adopted", chain(&error))),
    };
    executions.retain(|execution| execution.course.adopted);
    let ids = executions.iter().map(|execution| execution.id.as_str());
    let named: Vec<&str> = ids.take(ADOPTED_NAMED_MAX).collect();
    let others = match executions.len() - named.len() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let count = u64::try_from(executions.len()).unwrap_or(u64::MAX);
    Some(match count {
        0 => ok("adopted", "no adopted execution is running".to_owned()),
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

fn message_of(stop: Stop) -> String {
    match stop {
        Stop::Failed(failure) => failure.message,
        Stop::Pipe | Stop::Exit(_) => "cannot be queried".to_owned(),
    }
}

fn ok(name: &'static str, detail: String) -> Finding {
    Finding {
        verdict: Verdict::Ok,
        name,
        detail,
        hint: None,
    }
}

fn warn(name: &'static str, detail: String) -> Finding {
    Finding {
        verdict: Verdict::Warn,
        ..ok(name, detail)
    }
}

fn fail(name: &'static str, detail: String, hint: Option<&str>) -> Finding {
    Finding {
        verdict: Verdict::Fail,
        hint: hint.map(ToOwned::to_owned),
        ..ok(name, detail)
    }
}

fn text(finding: &Finding, look: &Look) -> String {
    let verdict = match finding.verdict {
        Verdict::Ok => look.paint(Meaning::Good, "ok  "),
        Verdict::Warn => look.paint(Meaning::Waiting, "warn"),
        Verdict::Fail => look.paint(Meaning::Bad, "FAIL"),
    };
    // Colour takes no columns, so the verdict is put in front after folding.
    let label = format!("      {:<8}  ", finding.name);
    let lines = labelled(&label, &finding.detail);
    format!("{verdict}{}", lines.strip_prefix("    ").unwrap_or(&lines))
}
