//! Submissions of runs over HTTP, with a simulated executor in this process.
//!
//! A submission is one `POST /v1/apply` with one run, durable when answered. The executor keeps a
//! number of runs live: beyond it, it reports that the oldest has started and ended. So a run is
//! three records: submitted, started, exited.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bursar_cluster::Stage;
use bursar_engine::spine::Command;
use bursar_ledger::intake::{Failure, Outcome, Submission};
use bursar_ledger::pipeline::Ledger;
use bursar_units::Label;

use super::super::Scale;
use super::super::http::client::Connection;
use super::super::http::server::Server;
use super::super::http::{SECRET, operator};
use super::super::table::{grouped, per_second};
use super::super::usage::Usage;
use super::super::world::{label, near};
use super::site::{self, H100, NAMESPACE, RUN_GPUS, Site};

/// Number of connections, each with one request outstanding.
pub(super) const CONNECTIONS: u64 = 64;
/// Time limit of the last answers.
const END_MAX: Duration = Duration::from_secs(30);

/// Load on a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) site: Site,
    /// Live runs, waiting ones included. The executor ends the oldest beyond this number.
    pub(super) live: u64,
    pub(super) connections: u64,
}

pub(super) struct Measurement {
    pub(super) per_second: u64,
    /// Live runs at the end: with GPUs, and waiting.
    pub(super) held: u64,
    pub(super) waiting: u64,
    pub(super) near: String,
}

/// The simulated executor, and the numbers of the runs.
struct Executor {
    ledger: Ledger,
    by: Label,
    live_max: usize,
    next: AtomicU64,
    /// Records of live runs, oldest first.
    live: Mutex<VecDeque<u64>>,
    reports: Arc<Reports>,
}

/// Reports of the executor.
#[derive(Default)]
struct Reports {
    counts: Mutex<Counts>,
    answered: Condvar,
}

#[derive(Default)]
struct Counts {
    outstanding: u64,
    refused: u64,
    /// Reason of the first refusal.
    first: Option<String>,
}

/// Serves a new ledger and submits runs over HTTP; the warm-up is not counted.
pub(super) fn measure(directory: &Path, scale: Scale, load: Load) -> anyhow::Result<Measurement> {
    let world = load.site.begin(directory)?;
    world.submit(Command::CreateToken(operator(world.ledger().now())?))?;
    let server = Server::start(&world)?;
    let clients = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let executor = Executor {
        ledger: world.ledger().clone(),
        by: label("executor")?,
        live_max: usize::try_from(load.live)?,
        next: AtomicU64::new(0),
        live: Mutex::default(),
        reports: Arc::default(),
    };
    let run = |runs: u64, time: Duration| {
        clients.block_on(submit(server.address(), &executor, load, runs, time))
    };
    // The measurement begins with all live runs, and with warm caches.
    run(load.live, scale.warm_up)?;
    let (usage, commits) = (Usage::start(), world.commits.so_far());
    let submitted = run(0, scale.measured)?;
    let (used, committed) = (usage.used(), world.commits.so_far().since(commits));
    server.stop()?;
    executor.reports.finish()?;
    let view = world.ledger().view().read();
    let waiting = view.clusters.count(Stage::Waiting);
    let held = [Stage::Starting, Stage::Running, Stage::Ending];
    let held: usize = held.map(|stage| view.clusters.count(stage)).iter().sum();
    drop(view);
    world.stop()?;
    Ok(Measurement {
        per_second: per_second(submitted, used.took),
        held: u64::try_from(held)?,
        waiting: u64::try_from(waiting)?,
        near: near(&used, committed),
    })
}

/// Runs all connections on this thread until `runs` are submitted and the time is over.
async fn submit(
    address: SocketAddr,
    executor: &Executor,
    load: Load,
    runs: u64,
    time: Duration,
) -> anyhow::Result<u64> {
    let end = Instant::now() + time;
    let goes_on = || executor.next.load(Ordering::Relaxed) < runs || Instant::now() < end;
    let all = (0..load.connections).map(|_| async {
        let mut connection = Connection::open(address, SECRET).await?;
        let mut submitted = 0;
        while goes_on() {
            let number = executor.next.fetch_add(1, Ordering::Relaxed);
            executor.live(connection.create(&body(number)).await?)?;
            submitted += 1;
        }
        anyhow::Ok(submitted)
    });
    let submitted: Vec<u64> = futures_util::future::try_join_all(all).await?;
    Ok(submitted.into_iter().sum())
}

fn body(number: u64) -> String {
    let owner = site::owner(number);
    format!(
        "{{\"objects\":[{{\"apiVersion\":\"bursar.dev/v1alpha1\",\"kind\":\"Run\",\
         \"metadata\":{{\"namespace\":\"{NAMESPACE}\",\"name\":\"r-{number}\"}},\
         \"spec\":{{\"owner\":\"{owner}\",\"flavor\":\"{H100}\",\"totalGPUs\":{RUN_GPUS}}}}}]}}"
    )
}

impl Executor {
    /// Adds the run that a record submitted, and ends the oldest one beyond the number of live runs.
    fn live(&self, record: u64) -> anyhow::Result<()> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.push_back(record);
        if live.len() <= self.live_max {
            return Ok(());
        }
        let oldest = live.pop_front().map(site::submitted).transpose()?;
        drop(live);
        let Some(uid) = oldest else { return Ok(()) };
        let reports = Arc::clone(&self.reports);
        reports.counts().outstanding += 1;
        let reply = Box::new(move |result| reports.answer(result));
        self.ledger.push(Submission {
            by: self.by.clone(),
            commands: vec![site::started(uid.clone()).into(), site::exited(uid).into()],
            reply,
        });
        Ok(())
    }
}

impl Reports {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, result: Result<Vec<Outcome>, Failure>) {
        let refusal = match result {
            Ok(outcomes) => {
                let mut refusals = outcomes
                    .into_iter()
                    .filter_map(|outcome| outcome.result.err());
                refusals.next().map(|refusal| format!("{refusal:?}"))
            }
            Err(failure) => Some(failure.to_string()),
        };
        let mut counts = self.counts();
        counts.outstanding -= 1;
        counts.refused += u64::from(refusal.is_some());
        counts.first = counts.first.take().or(refusal);
        self.answered.notify_all();
    }

    /// Waits for the last answer; fails after a refusal.
    fn finish(&self) -> anyhow::Result<()> {
        let is_open = |counts: &mut Counts| counts.outstanding > 0;
        let waited = self
            .answered
            .wait_timeout_while(self.counts(), END_MAX, is_open);
        let (counts, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (open, refused) = (counts.outstanding, counts.refused);
        if open > 0 || refused > 0 {
            let first = counts.first.as_deref().unwrap_or_default();
            bail!("{open} reports were not answered and {refused} were refused: {first}");
        }
        Ok(())
    }
}

/// Words for the live runs of a measurement.
pub(super) fn live_words(measured: &Measurement) -> String {
    format!(
        "{} hold GPUs, {} wait",
        grouped(measured.held),
        grouped(measured.waiting)
    )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::time::Duration;

    use super::super::super::Scale;
    use super::{Load, Site, measure};

    fn live(live: u64) -> [u64; 2] {
        let directory = tempfile::tempdir().unwrap();
        let scale = Scale {
            measured: Duration::from_millis(50),
            warm_up: Duration::ZERO,
            records: 0,
            ids: 0,
        };
        let site = Site {
            nodes: 10,
            node_gpus: 8,
        };
        let load = Load {
            site,
            live,
            connections: 2,
        };
        let measured = measure(directory.path(), scale, load).unwrap();
        assert!(measured.per_second > 0);
        [measured.held, measured.waiting]
    }

    #[test]
    fn runs_start_at_once_or_wait_until_the_oldest_end() {
        assert_eq!([live(6), live(30)], [[6, 0], [10, 20]]);
    }
}
