//! Whoever submits: so many executions are outstanding at any time, one goes in for each that ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bursar_booking::Command as BookingCommand;
use bursar_booking::decide::Reply;
use bursar_booking::execution::Verdict;
use bursar_engine::{Answer, Command};
use bursar_ledger::intake::{Failure, Outcome, Submission};
use bursar_ledger::pipeline::Ledger;
use bursar_units::Label;
use tokio::sync::watch;

use super::super::world::{Ids, label};
use super::Job;

/// They are spread over so many principals, since the ledger bounds what waits for one.
const PRINCIPALS: u64 = 4;
/// How long nothing may happen.
const STILL_MAX: Duration = Duration::from_secs(30);

/// Whoever submits.
pub(super) struct Load {
    ledger: Ledger,
    ids: Ids,
    job: Job,
    principals: Vec<Label>,
    head: watch::Receiver<u64>,
    outstanding: u64,
    submitted: u64,
    pub(super) ended: u64,
    refused: Arc<AtomicU64>,
}

impl Load {
    /// Submits the same again and again into a ledger that has seen nothing else; ids follow from
    /// the seed.
    pub(super) fn new(
        ledger: &Ledger,
        job: Job,
        seed: u64,
        outstanding: u64,
    ) -> anyhow::Result<Self> {
        let principals = (0..PRINCIPALS).map(|number| label(&format!("caller-{number}")));
        Ok(Self {
            ledger: ledger.clone(),
            ids: Ids::new(seed),
            job,
            principals: principals.collect::<anyhow::Result<_>>()?,
            head: ledger.view().head(),
            outstanding,
            submitted: 0,
            ended: 0,
            refused: Arc::default(),
        })
    }

    /// Submits for a while.
    pub(super) async fn run_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.fill();
            self.look().await?;
        }
        Ok(())
    }

    /// Waits for the last.
    pub(super) async fn finish(&mut self) -> anyhow::Result<()> {
        while self.ended < self.submitted {
            self.look().await?;
        }
        Ok(())
    }

    /// Submits one for each that has ended, all in one go.
    fn fill(&mut self) {
        let mut missing = self.outstanding.saturating_sub(self.submitted - self.ended);
        while 0 < missing {
            let count = missing.min(self.outstanding.div_ceil(PRINCIPALS));
            self.submit(count);
            missing -= count;
        }
    }

    fn submit(&mut self, count: u64) {
        let now_ms = self.ledger.now().ms();
        let ids = (0..count).filter_map(|_| self.ids.next(now_ms));
        let commands: Vec<Command> = ids
            .map(|id| BookingCommand::Submit(self.job.submission(id)).into())
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
    pub(super) fn check(&self) -> anyhow::Result<()> {
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
