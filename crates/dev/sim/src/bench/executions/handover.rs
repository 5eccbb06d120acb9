//! Time for which a slot stays empty: from the end of one process to the next grant.
//!
//! Every slot is held by a process that reads from its own pipe, and some executions wait. The time
//! runs from before the pipe is closed, so it includes the end of the process, until a listener on
//! the ledger sees the grant.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bursar_booking::{Command, Event as Booked};
use bursar_engine::Event;
use bursar_ledger::view::Published;
use bursar_ledger::writer::Fact;
use bursar_units::BookingId;
use rustix::fs::{CWD, Mode, mkfifoat};
use tokio::sync::broadcast::Receiver;

use super::super::table::{grouped, thousandths};
use super::super::usage::Usage;
use super::super::world::{Ids, near};
use super::Progress;
use super::rig::Rig;
use super::work;

/// Slots, all of them held.
pub(super) const SLOTS: usize = 100;
/// Number of waiting executions.
pub(super) const WAITING: usize = 16;
/// Time limit of each wait.
const TIME_MAX: Duration = Duration::from_secs(30);

pub(super) struct Measurement {
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) near: String,
    pub(super) detail: String,
}

struct Handover<'a> {
    rig: &'a Rig,
    directory: PathBuf,
    ids: Ids,
    stream: Receiver<Published>,
    /// The pipes that keep processes alive.
    pipes: BTreeMap<BookingId, File>,
    /// Running executions, oldest first.
    running: VecDeque<BookingId>,
}

/// Ends processes one after another and measures the time to the next grant.
pub(super) fn measure(directory: &Path, times: u64, program: &Path) -> anyhow::Result<Measurement> {
    let rig = Rig::begin(directory, u64::try_from(SLOTS)?, program)?;
    let pipes = directory.join("pipes");
    std::fs::create_dir(&pipes).context("cannot create a directory for pipes")?;
    let mut handover = Handover {
        stream: rig.ledger().view().stream(),
        rig: &rig,
        directory: pipes,
        ids: Ids::new(13),
        pipes: BTreeMap::new(),
        running: VecDeque::new(),
    };
    let (mut times_us, near) = rig.runtime.block_on(async {
        for _ in 0..SLOTS + WAITING {
            handover.submit().await?;
            handover.catch_up()?;
        }
        while handover.running.len() < SLOTS {
            handover.receive().await?;
        }
        let (usage, commits) = (Usage::start(), rig.world.commits.so_far());
        let times_us = handover.hand_over(times).await?;
        let near = near(&usage.used(), rig.world.commits.so_far().since(commits));
        handover.end().await?;
        anyhow::Ok((times_us, near))
    })?;
    drop(handover);
    rig.end()?;
    times_us.sort_unstable();
    let at = |permille: usize| {
        let last = times_us.len().saturating_sub(1);
        times_us.get(last * permille / 1_000).copied().unwrap_or(0)
    };
    Ok(Measurement {
        p50_us: at(500),
        p99_us: at(990),
        near,
        detail: format!(
            "worst {} ms of {}; the end of the process itself is counted",
            thousandths(at(1_000)),
            grouped(times)
        ),
    })
}

impl Handover<'_> {
    async fn hand_over(&mut self, times: u64) -> anyhow::Result<Vec<u64>> {
        let mut progress = Progress::new("slots handed over", times);
        let mut times_us = Vec::new();
        for time in 1..=times {
            let first = self.running.pop_front().context("no execution runs")?;
            let pipe = self.pipes.remove(&first).context("a process has no pipe")?;
            let began = Instant::now();
            drop(pipe);
            while !self.receive().await? {}
            times_us.push(u64::try_from(began.elapsed().as_micros())?);
            self.submit().await?;
            // Wait until all slots are in use again before the next handover.
            while self.running.len() < SLOTS {
                self.receive().await?;
            }
            progress.at(time);
        }
        Ok(times_us)
    }

    /// Cancels all executions. The last ones may not have opened their pipes yet, so closing the pipes
    /// would not end them.
    async fn end(&mut self) -> anyhow::Result<()> {
        let cancels = self.pipes.keys().cloned().map(|id| Command::Cancel { id });
        self.rig.submit_all(cancels).await?;
        let is_over = |(held, queued, _)| held + queued == 0;
        self.rig.until(TIME_MAX, is_over).await
    }

    /// Submits a process that lives until its pipe is closed.
    async fn submit(&mut self) -> anyhow::Result<()> {
        let now = self.rig.ledger().now().ms();
        let id = self
            .ids
            .next(now)
            .context("the generated id is not valid")?;
        let path = self.directory.join(id.as_str());
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)
            .with_context(|| format!("cannot create a pipe at {}", path.display()))?;
        // Open for reading and writing, so that no open blocks, here or in the process.
        let pipe = File::options().read(true).write(true).open(&path)?;
        self.pipes.insert(id.clone(), pipe);
        let path = path.to_str().context("the path is not UTF-8")?;
        let job = self.rig.job(&work("/bin/cat", &[path]))?;
        self.rig.submit(id, &job).await
    }

    /// Waits for the next published records; returns whether a waiting execution was granted.
    async fn receive(&mut self) -> anyhow::Result<bool> {
        let received = tokio::time::timeout(TIME_MAX, self.stream.recv()).await;
        let facts = received.with_context(|| format!("no record within {TIME_MAX:?}"))??;
        self.take(&facts)
    }

    /// Reads all records that were published so far.
    fn catch_up(&mut self) -> anyhow::Result<()> {
        while let Ok(facts) = self.stream.try_recv() {
            self.take(&facts)?;
        }
        Ok(())
    }

    fn take(&mut self, facts: &[Fact]) -> anyhow::Result<bool> {
        let mut is_granted = false;
        for event in facts.iter().flat_map(|fact| fact.events.iter()) {
            let Event::Booking(event) = event else {
                continue;
            };
            match event {
                Booked::Granted { .. } => is_granted = true,
                Booked::Started { id, .. } => self.running.push_back(id.clone()),
                Booked::Exited { id, .. } if self.pipes.contains_key(id) => {
                    bail!("{id} ended before its pipe was closed");
                }
                _ => {}
            }
        }
        Ok(is_granted)
    }
}
