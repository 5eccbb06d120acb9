//! A trace of requests through the HTTP API, ten thousand times as fast as it was.
//!
//! The server is ours on loopback with a real client; executions run nothing and take as long as
//! the trace says. Each request is sent when it is due, whatever became of the earlier ones. What
//! is said about slots and waits comes from the ledger's records.

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
use super::records::{self, Said};
use super::trace::{Request, Trace};
use super::{Progress, runtime};

/// The limit of the one class.
pub(super) const SLOTS: u64 = 12;
/// How many times as fast as the trace.
pub(super) const TIMES_AS_FAST: u64 = 10_000;
const CLASS: &str = "lora";
/// The trace's groups share so many tenants: group n is of tenant n modulo this.
const TENANTS: u64 = 50;
/// Tenants that are told one by one: those who asked most.
const TOLD: usize = 10;
/// How long the last may take to end.
const END_MAX: Duration = Duration::from_mins(1);

/// What was seen.
pub(super) struct Seen {
    pub(super) requests: u64,
    /// Slots that are held at the end, and executions that did not end exactly once.
    pub(super) leaked: u64,
    /// Slots beyond the limit that were ever held.
    pub(super) over: u64,
    pub(super) near: String,
    pub(super) detail: String,
    /// How long each tenant waited, as lines.
    pub(super) waits: String,
}

/// How long some executions waited.
struct Waits(Vec<u64>);

/// Replays it.
pub(super) fn measure(directory: &Path, trace: &Trace) -> anyhow::Result<Seen> {
    let world = World::open(directory)?;
    let changes = vec![limit(CLASS, SLOTS)?, tenants(SLOTS)];
    world.ask(Command::change(changes))?;
    let token = operator(world.ledger().now())?;
    world.ask(Command::CreateToken(token))?;
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
    let said = records::read((world.data.readers())()?.as_ref())?;
    drop(runtime);
    world.stop()?;
    check(&said, &trace.requests)?;
    Ok(Seen {
        requests: u64::try_from(trace.requests.len())?,
        leaked: said.leaked(),
        over: said.held_max.saturating_sub(SLOTS),
        near,
        detail: format!(
            "at most {} held at any record; {} completed, {} failed as in the trace",
            said.held_max,
            grouped(said.ended(Verdict::Completed)),
            grouped(said.ended(Verdict::Failed)),
        ),
        waits: waits(&said, &trace.source),
    })
}

/// Sends each when it is due.
async fn send_all(client: &Client, requests: &[Request]) -> anyhow::Result<()> {
    let count = u64::try_from(requests.len())?;
    let mut progress = Progress::new("requests", count);
    let mut sending = JoinSet::new();
    let began = Instant::now();
    for (number, request) in (0..).zip(requests) {
        let due = began + Duration::from_secs(request.at_s) / u32::try_from(TIMES_AS_FAST)?;
        tokio::time::sleep_until(due.into()).await;
        let (client, id, asked) = (client.clone(), id(number)?, asked(*request)?);
        sending.spawn(async move { client.submit(&id, &asked, Mode::Do).await });
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

/// Waits until nothing holds or waits.
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
    waited.with_context(|| format!("{} still hold or wait", live()))?
}

fn asked(request: Request) -> anyhow::Result<ExecutionRequest> {
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

/// Each request is on record and came out as in the trace.
fn check(said: &Said, requests: &[Request]) -> anyhow::Result<()> {
    if said.executions.len() != requests.len() {
        let found = said.executions.len();
        bail!("{found} of {} requests are on record", requests.len());
    }
    for (number, request) in (0..).zip(requests) {
        let id = id(number)?;
        let expected = if request.is_failed {
            Verdict::Failed
        } else {
            Verdict::Completed
        };
        let found = said.executions.get(&id).and_then(|told| told.verdict);
        if found != Some(expected) {
            bail!("{id} came out as {found:?}, not as {expected:?}");
        }
    }
    Ok(())
}

/// The waits of those who asked most, of all others, and of everybody.
fn waits(said: &Said, source: &str) -> String {
    let mut by_tenant: BTreeMap<&Label, Vec<u64>> = BTreeMap::new();
    for told in said.executions.values() {
        let waited = told
            .granted
            .map(|granted| granted.since(told.submitted).ms());
        by_tenant.entry(&told.tenant).or_default().extend(waited);
    }
    let mut tenants: Vec<(&Label, Vec<u64>)> = by_tenant.into_iter().collect();
    tenants.sort_by_key(|(tenant, waits)| (std::cmp::Reverse(waits.len()), *tenant));
    let rest = tenants.split_off(TOLD.min(tenants.len()));
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
            // Long nights have nothing to show.
            request.at_s /= 8;
        }
        let seen = measure(directory.path(), &trace).unwrap();
        assert_eq!((seen.leaked, seen.over), (0, 0), "{}", seen.detail);
        assert!(
            seen.waits.contains("everybody          300"),
            "{}",
            seen.waits
        );
        assert!(
            seen.detail.starts_with("at most"),
            "{} of {SLOTS}",
            seen.detail
        );
    }
}
