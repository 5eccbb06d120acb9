//! Replay of a trace of requests through the HTTP API, ten thousand times as fast as recorded.
//!
//! The real server runs on loopback with a real client; the null executor takes as long as the trace
//! says. Each request is sent when it is due, independent of earlier ones. Slots and waits are counted
//! from the ledger's records.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bursar_booking::execution::Verdict;
use bursar_client::Client;
use bursar_client::api::ExecutionRequest;
use bursar_client::client::{Address, BearerToken, Mode, Options, Transport};
use bursar_engine::spine::Command;
use bursar_node::executor::Executor;
use bursar_node::null::Null;
use bursar_server::runner::Runner;
use bursar_units::{BookingId, Label};
use tokio::task::JoinSet;

use super::super::http::server::Server;
use super::super::http::{SECRET, operator};
use super::super::table::grouped;
use super::super::usage::Usage;
use super::super::world::{World, limit, near, tenants};
use super::records::{self, LedgerHistory};
use super::trace::{Request, Trace};
use super::{Progress, runtime};

/// The limit of the class.
pub(super) const SLOTS: u64 = 12;
/// Speed relative to the trace.
pub(super) const TIMES_AS_FAST: u64 = 10_000;
const CLASS: &str = "lora";
/// Number of tenants: group n of the trace belongs to tenant n modulo this.
const TENANTS: u64 = 50;
/// Number of tenants that are listed one by one: those with most requests.
const LISTED: usize = 10;
/// Time limit of the last executions.
const END_MAX: Duration = Duration::from_mins(1);

pub(super) struct Measurement {
    pub(super) requests: u64,
    /// Slots held at the end, and executions that did not end exactly once.
    pub(super) leaked: u64,
    /// Maximum number of slots held beyond the limit.
    pub(super) over: u64,
    pub(super) near: String,
    pub(super) detail: String,
    /// Table of the waits of each tenant.
    pub(super) waits: String,
}

/// Sorted waits of some executions, in milliseconds.
struct Waits(Vec<u64>);

pub(super) fn measure(directory: &Path, trace: &Trace) -> anyhow::Result<Measurement> {
    let world = World::open(directory)?;
    let changes = vec![limit(CLASS, SLOTS)?, tenants(SLOTS)];
    world.submit(Command::change(changes))?;
    let token = operator(world.ledger().now())?;
    world.submit(Command::CreateToken(token))?;
    let executor: Arc<dyn Executor> = Arc::new(Null::default());
    let server = Server::executing(&world, Arc::clone(&executor))?;
    let runtime = runtime("replay")?;
    let runner = Runner::new(world.ledger().clone(), executor, Arc::default());
    let runner = runtime.spawn(runner.run());
    let address = Address::Tcp {
        host: server.address().ip().to_string(),
        port: server.address().port(),
    };
    let options = Options {
        token: BearerToken::new(SECRET),
        ..Options::usual()
    };
    let client = Client::new(Transport::to(address), options);
    let (usage, commits) = (Usage::start(), world.commits.so_far());
    runtime.block_on(async {
        send_all(&client, &trace.requests).await?;
        drain(&world).await
    })?;
    let near = near(&usage.used(), world.commits.so_far().since(commits));
    runner.abort();
    server.stop()?;
    let history = records::read((world.data.readers())()?.as_ref())?;
    drop(runtime);
    world.stop()?;
    check(&history, &trace.requests)?;
    Ok(Measurement {
        requests: u64::try_from(trace.requests.len())?,
        leaked: history.leaked(),
        over: history.held_max.saturating_sub(SLOTS),
        near,
        detail: format!(
            "at most {} held at any record; {} completed, {} failed as in the trace",
            history.held_max,
            grouped(history.ended(Verdict::Completed)),
            grouped(history.ended(Verdict::Failed)),
        ),
        waits: waits(&history, &trace.source),
    })
}

/// Sends each request when it is due.
async fn send_all(client: &Client, requests: &[Request]) -> anyhow::Result<()> {
    let count = u64::try_from(requests.len())?;
    let mut progress = Progress::new("requests", count);
    let mut sending = JoinSet::new();
    let began = Instant::now();
    for (number, request) in (0..).zip(requests) {
        let due = began + Duration::from_secs(request.at_s) / u32::try_from(TIMES_AS_FAST)?;
        tokio::time::sleep_until(due.into()).await;
        let (client, id, body) = (client.clone(), id(number)?, body(*request)?);
        sending.spawn(async move { client.submit(&id, &body, Mode::Do).await });
        while let Some(sent) = sending.try_join_next() {
            sent.context("a request panicked")??;
        }
        progress.at(number + 1);
    }
    while let Some(sent) = sending.join_next().await {
        sent.context("a request panicked")??;
    }
    Ok(())
}

/// Waits until no execution is held or queued.
async fn drain(world: &World) -> anyhow::Result<()> {
    let live = || {
        let (held, queued, _) = world.ledger().view().read().bookings.counts();
        held + queued
    };
    let mut records = world.ledger().view().head();
    let waiting = async {
        while 0 < live() {
            records.changed().await?;
        }
        anyhow::Ok(())
    };
    let waited = tokio::time::timeout(END_MAX, waiting).await;
    waited.with_context(|| format!("{} executions are still held or queued", live()))?
}

fn body(request: Request) -> anyhow::Result<ExecutionRequest> {
    let took = Duration::from_secs(request.took_s) / u32::try_from(TIMES_AS_FAST)?;
    let seconds = format!("{}.{:09}", took.as_secs(), took.subsec_nanos());
    let (command, args) = if request.is_failed {
        ("false", Vec::new())
    } else {
        ("sleep", vec![seconds])
    };
    Ok(ExecutionRequest {
        class: Label::new(CLASS)?,
        tenant: Some(Label::new(&format!(
            "tenant-{:02}",
            request.group % TENANTS
        ))?),
        slots: 1,
        command: command.to_owned(),
        args,
        env: BTreeMap::new(),
        directory: None,
        allow_privilege_escalation: false,
        cpu_milli: None,
        memory_bytes: None,
        gpus: None,
        cpu_limit_milli: None,
        memory_limit_bytes: None,
        pids: None,
        priority: None,
        wait_ms: Some(3_600_000),
        start_timeout_ms: None,
        max_time_ms: None,
        grace_ms: None,
        retry_of: None,
    })
}

/// Checks that each request is recorded with the verdict of the trace.
fn check(history: &LedgerHistory, requests: &[Request]) -> anyhow::Result<()> {
    if history.executions.len() != requests.len() {
        let found = history.executions.len();
        bail!("{found} of {} requests are recorded", requests.len());
    }
    for (number, request) in (0..).zip(requests) {
        let id = id(number)?;
        let expected = if request.is_failed {
            Verdict::Failed
        } else {
            Verdict::Completed
        };
        let found = history
            .executions
            .get(&id)
            .and_then(|execution| execution.verdict);
        if found != Some(expected) {
            bail!("{id} ended as {found:?}, not as {expected:?}");
        }
    }
    Ok(())
}

/// Table of waits: tenants with most requests, the others, and everybody.
fn waits(history: &LedgerHistory, source: &str) -> String {
    let mut by_tenant: BTreeMap<&Label, Vec<u64>> = BTreeMap::new();
    for execution in history.executions.values() {
        let waited = execution
            .granted
            .map(|granted| granted.since(execution.submitted).ms());
        by_tenant
            .entry(&execution.tenant)
            .or_default()
            .extend(waited);
    }
    let mut tenants: Vec<(&Label, Vec<u64>)> = by_tenant.into_iter().collect();
    tenants.sort_by_key(|(tenant, waits)| (std::cmp::Reverse(waits.len()), *tenant));
    let rest = tenants.split_off(LISTED.min(tenants.len()));
    let all: Vec<u64> = tenants
        .iter()
        .chain(&rest)
        .flat_map(|(_, waits)| waits.clone())
        .collect();
    let mut out = format!(
        "Waits per tenant at limit {SLOTS}, {}× as fast ({source}; group n is of tenant n mod \
         {TENANTS}):\n\n{:<12}{:>10}{:>12}{:>12}{:>12}\n",
        grouped(TIMES_AS_FAST),
        "TENANT",
        "REQUESTS",
        "P50 MS",
        "P99 MS",
        "MAX MS"
    );
    let others = format!("{} others", rest.len());
    let mut line = |name: &str, waits: Vec<u64>| {
        let waits = Waits::new(waits);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{name:<12}{:>10}{:>12}{:>12}{:>12}",
            grouped(u64::try_from(waits.0.len()).unwrap_or(0)),
            grouped(waits.at(500)),
            grouped(waits.at(990)),
            grouped(waits.at(1_000))
        );
    };
    for (tenant, waits) in tenants {
        line(tenant.as_str(), waits);
    }
    line(
        &others,
        rest.into_iter().flat_map(|(_, waits)| waits).collect(),
    );
    line("everybody", all);
    out
}

impl Waits {
    fn new(mut waits: Vec<u64>) -> Self {
        waits.sort_unstable();
        Self(waits)
    }

    fn at(&self, permille: usize) -> u64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * permille / 1_000).copied().unwrap_or(0)
    }
}

fn id(number: u64) -> anyhow::Result<BookingId> {
    Ok(BookingId::new(&format!("request-{number}"))?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::{SLOTS, Trace, measure};

    #[test]
    fn a_small_trace_over_http_leaves_no_holder_and_admits_no_more_than_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let mut trace = Trace::make(300, 1);
        for request in &mut trace.requests {
            // Shorter pauses, so that the test is quick.
            request.at_s /= 8;
        }
        let measured = measure(directory.path(), &trace).unwrap();
        assert_eq!(
            (measured.leaked, measured.over),
            (0, 0),
            "{}",
            measured.detail
        );
        assert!(
            measured.waits.contains("everybody          300"),
            "{}",
            measured.waits
        );
        assert!(
            measured.detail.starts_with("at most"),
            "{} of {SLOTS}",
            measured.detail
        );
    }
}
