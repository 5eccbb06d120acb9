//! A load with a fixed number of outstanding executions: each end is followed by a new submission.

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

/// Number of principals: the ledger bounds the waiting commands of each.
const PRINCIPALS: u64 = 4;
/// Time without a new record after which the run fails.
const STILL_MAX: Duration = Duration::from_secs(30);

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
    /// A load of copies of one job, for an otherwise empty ledger; ids follow from the seed.
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

    /// Keeps up the load for a time.
    pub(super) async fn run_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.fill();
            self.update().await?;
        }
        Ok(())
    }

    /// Waits until all executions have ended.
    pub(super) async fn finish(&mut self) -> anyhow::Result<()> {
        while self.ended < self.submitted {
            self.update().await?;
        }
        Ok(())
    }

    /// Submits a new execution for each that has ended, in few submissions.
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

    /// Waits for the next records and counts the ended executions.
    async fn update(&mut self) -> anyhow::Result<()> {
        let changed = tokio::time::timeout(STILL_MAX, self.head.changed()).await;
        changed.with_context(|| format!("no record within {STILL_MAX:?}"))??;
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
            bail!(
                "{held} executions are held, {queued} are queued, {completed} of {ended} completed"
            );
        }
        Ok(())
    }
}
