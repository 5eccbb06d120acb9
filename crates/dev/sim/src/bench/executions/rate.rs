//! Executions through engine, journal and runner, with an executor that runs nothing.
//!
//! So many are outstanding at any time. Each is three durable records: submitted and granted,
//! started, exited.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bursar_booking::Request;
use bursar_booking::decide::Reply;
use bursar_booking::execution::Verdict;
use bursar_engine::{Answer, Command};
use bursar_ledger::intake::{Failure, Outcome, Submission};
use bursar_ledger::pipeline::Ledger;
use bursar_node::executor::Executor;
use bursar_node::null::Null;
use bursar_server::runner::Runner;
use bursar_units::Label;
use tokio::sync::watch;

use super::super::Scale;
use super::super::table::{grouped, per_second, tenths};
use super::super::usage::Usage;
use super::super::world::{CLASS, Ids, TENANT, World, label, near};
use super::{order, runtime, work};

/// Executions outstanding at any time.
pub(super) const OUTSTANDING: u64 = 1_024;
/// They are spread over so many principals, since the ledger bounds what waits for one.
const PRINCIPALS: u64 = 4;
/// How long nothing may happen.
const STILL_MAX: Duration = Duration::from_secs(30);

/// What was seen.
pub(super) struct Seen {
    pub(super) per_second: u64,
    pub(super) near: String,
}

/// Whoever submits.
struct Load {
    ledger: Ledger,
    ids: Ids,
    request: Request,
    principals: Vec<Label>,
    head: watch::Receiver<u64>,
    submitted: u64,
    ended: u64,
    refused: Arc<AtomicU64>,
}

/// Submits for a while and counts what ended after a warm-up.
pub(super) fn measure(directory: &Path, scale: Scale) -> anyhow::Result<Seen> {
    let world = World::begin(directory)?;
    let runtime = runtime("runner")?;
    let executor: Arc<dyn Executor> = Arc::new(Null::new());
    let work = executor.keep(&work("true", &[]))?;
    let runner = Runner::new(world.ledger().clone(), executor, Arc::default());
    let runner = runtime.spawn(runner.run());
    let principals = (0..PRINCIPALS).map(|number| label(&format!("caller-{number}")));
    let mut load = Load {
        ledger: world.ledger().clone(),
        ids: Ids::new(11),
        request: order(TENANT, CLASS, work)?,
        principals: principals.collect::<anyhow::Result<_>>()?,
        head: world.ledger().view().head(),
        submitted: 0,
        ended: 0,
        refused: Arc::default(),
    };
    let first = *load.head.borrow();
    runtime.block_on(load.run_for(scale.warm_up))?;
    let (usage, before, commits) = (Usage::start(), load.ended, world.commits.so_far());
    runtime.block_on(load.run_for(scale.measured))?;
    let ended = load.ended - before;
    let (used, committed) = (usage.used(), world.commits.so_far().since(commits));
    runtime.block_on(load.finish())?;
    runner.abort();
    load.check()?;
    let records = *load.head.borrow() - first;
    drop(runtime);
    world.stop()?;
    Ok(Seen {
        per_second: per_second(ended, used.took),
        near: format!(
            "{}; {} executions, {} records each",
            near(&used, committed),
            grouped(load.ended),
            tenths(records * 10 / load.ended.max(1))
        ),
    })
}

impl Load {
    async fn run_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.fill();
            self.look().await?;
        }
        Ok(())
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        while self.ended < self.submitted {
            self.look().await?;
        }
        Ok(())
    }

    /// Submits one for each that has ended, all in one go.
    fn fill(&mut self) {
        let mut missing = OUTSTANDING.saturating_sub(self.submitted - self.ended);
        while 0 < missing {
            let count = missing.min(OUTSTANDING / PRINCIPALS);
            self.submit(count);
            missing -= count;
        }
    }

    fn submit(&mut self, count: u64) {
        let now_ms = self.ledger.now().ms();
        let ids = (0..count).filter_map(|_| self.ids.next(now_ms));
        let commands: Vec<Command> = ids
            .map(|id| Command::Reserve {
                id,
                request: self.request.clone(),
            })
            .collect();
        self.principals.rotate_left(1);
        let Some(by) = self.principals.first().cloned() else {
            return;
        };
        self.submitted += count;
        let refused = Arc::clone(&self.refused);
        let reply = Box::new(move |result: Result<Vec<Outcome>, Failure>| {
            let is_good = |outcome: &Outcome| {
                matches!(
                    outcome.result,
                    Ok(Answer::Booking(Reply::Granted(_) | Reply::Queued))
                )
            };
            let good = result.map_or(0, |all| all.iter().filter(|one| is_good(one)).count());
            let good = u64::try_from(good).unwrap_or(0);
            refused.fetch_add(count.saturating_sub(good), Ordering::Relaxed);
        });
        self.ledger.push(Submission {
            by,
            commands,
            reply,
        });
    }

    /// Waits for the next records and counts what has ended.
    async fn look(&mut self) -> anyhow::Result<()> {
        let changed = tokio::time::timeout(STILL_MAX, self.head.changed()).await;
        changed.context("nothing happens any more")??;
        self.head.borrow_and_update();
        let (_, _, ended) = self.ledger.view().read().bookings.counts();
        self.ended = u64::try_from(ended)?;
        match self.refused.load(Ordering::Relaxed) {
            0 => Ok(()),
            refused => bail!("{refused} executions were refused"),
        }
    }

    /// Fails unless all have completed and nothing is held.
    fn check(&self) -> anyhow::Result<()> {
        let state = self.ledger.view().read();
        let (held, queued, ended) = state.bookings.counts();
        let completed = state
            .bookings
            .ended()
            .filter_map(|ended| ended.course())
            .filter(|course| course.verdict == Verdict::Completed)
            .count();
        if (held, queued) != (0, 0) || completed != ended {
            bail!("{held} hold, {queued} wait and {completed} of {ended} have completed");
        }
        Ok(())
    }
}
