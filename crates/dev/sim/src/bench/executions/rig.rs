//! A ledger on disk, a runner and the local executor in this process; the shims are the `bursar`
//! binary.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bursar_booking::Command;
use bursar_ledger::pipeline::Ledger;
use bursar_node::executor::{Executor as _, Left, Work};
use bursar_node::local::{Local, Options};
use bursar_server::runner::Runner;
use bursar_units::BookingId;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::super::world::{CLASS, TENANT, World, label};
use super::residue::Residue;
use super::{Job, runtime};

/// Time limit for the last process and cgroup to disappear.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// Pause between two checks.
const CHECK_EVERY: Duration = Duration::from_millis(20);

pub(super) struct Rig {
    pub(super) world: World,
    pub(super) runtime: Runtime,
    machine: Machine,
    runner: JoinHandle<()>,
    ledger: String,
}

/// The executor. All executions that are left on drop are ended and removed.
struct Machine(Arc<Local>);

impl Rig {
    /// Starts a new ledger with that many slots.
    pub(super) fn begin(directory: &Path, slots: u64, program: &Path) -> anyhow::Result<Self> {
        let world = World::begin_with(&directory.join("data"), slots)?;
        let ledger = world.ledger().view().read().spine.ledger.clone();
        let local = Local::open(Options {
            directory: directory.join("executions"),
            ledger: ledger.clone(),
            shim: program.to_owned(),
            require_isolation: true,
            process: "/proc/self".into(),
        })?;
        let local = Arc::new(local);
        let runtime = runtime("runner")?;
        let executor = Arc::<Local>::clone(&local);
        let runner = Runner::new(world.ledger().clone(), executor, Arc::default());
        let runner = runtime.spawn(runner.run());
        Ok(Self {
            world,
            runtime,
            machine: Machine(local),
            runner,
            ledger,
        })
    }

    pub(super) fn ledger(&self) -> &Ledger {
        self.world.ledger()
    }

    /// A job that runs this work.
    pub(super) fn job(&self, work: &Work) -> anyhow::Result<Job> {
        Job::new(TENANT, CLASS, self.machine.0.keep(work)?)
    }

    /// Submits an execution and waits until it is durable.
    pub(super) async fn submit(&self, id: BookingId, job: &Job) -> anyhow::Result<()> {
        self.submit_all([Command::Submit(job.submission(id))]).await
    }

    /// Submits commands and waits for the answers; fails after a refusal.
    pub(super) async fn submit_all(
        &self,
        commands: impl IntoIterator<Item = Command>,
    ) -> anyhow::Result<()> {
        let commands = commands.into_iter().map(Into::into).collect();
        for outcome in self.ledger().submit(label("caller")?, commands).await? {
            outcome.result?;
        }
        Ok(())
    }

    /// Waits until the counts (held, queued, ended) are as wanted.
    pub(super) async fn until(
        &self,
        within: Duration,
        is_wanted: impl Fn((usize, usize, usize)) -> bool,
    ) -> anyhow::Result<()> {
        let mut head = self.ledger().view().head();
        let counts = || self.ledger().view().read().bookings.counts();
        let waiting = async {
            while !is_wanted(counts()) {
                head.changed().await?;
            }
            anyhow::Ok(())
        };
        let waited = tokio::time::timeout(within, waiting).await;
        waited.with_context(|| format!("still (held, queued, ended) = {:?}", counts()))?
    }

    /// Stops everything; fails if a slot is held or a process or cgroup is left.
    pub(super) fn end(self) -> anyhow::Result<()> {
        let (held, queued, _) = self.ledger().view().read().bookings.counts();
        if (held, queued) != (0, 0) {
            bail!("{held} executions are held and {queued} queued at the end");
        }
        let (ledger, own) = (self.ledger.clone(), std::process::id());
        self.runtime.block_on(async {
            // A shim writes its result before it exits.
            let until = tokio::time::Instant::now() + GONE_WITHIN;
            while Residue::of(&ledger, own)? != Residue::default()
                && tokio::time::Instant::now() < until
            {
                tokio::time::sleep(CHECK_EVERY).await;
            }
            Residue::of(&ledger, own)?.check()
        })?;
        self.runner.abort();
        drop(self.runtime);
        self.world.stop()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let left = self.0.list().unwrap_or_default();
        for id in left {
            if let Err(error) = self.0.clean(&id, Left::Nothing) {
                eprintln!("could not end {id}: {error}");
            }
        }
    }
}
