//! Rate of executions through engine, journal and runner, with the null executor.
//!
//! Each is three durable records: submitted and granted, started, exited.

use std::path::Path;
use std::sync::Arc;

use bursar_node::executor::Executor;
use bursar_node::null::Null;
use bursar_server::runner::Runner;

use super::super::Scale;
use super::super::table::{grouped, per_second, tenths};
use super::super::usage::Usage;
use super::super::world::{CLASS, TENANT, World, near};
use super::load::Load;
use super::{Job, runtime, work};

/// Number of outstanding executions.
pub(super) const OUTSTANDING: u64 = 1_024;

pub(super) struct Measurement {
    pub(super) per_second: u64,
    pub(super) near: String,
}

/// Runs the load and counts the ended executions after a warm-up.
pub(super) fn measure(directory: &Path, scale: Scale) -> anyhow::Result<Measurement> {
    let world = World::begin(directory)?;
    let runtime = runtime("runner")?;
    let executor: Arc<dyn Executor> = Arc::new(Null::default());
    let work = executor.keep(&work("true", &[]))?;
    let runner = Runner::new(world.ledger().clone(), executor, Arc::default());
    let runner = runtime.spawn(runner.run());
    let job = Job::new(TENANT, CLASS, work)?;
    let head = world.ledger().view().head();
    let first = *head.borrow();
    let mut load = Load::new(world.ledger(), job, 11, OUTSTANDING)?;
    runtime.block_on(load.run_for(scale.warm_up))?;
    let (usage, before, commits) = (Usage::start(), load.ended, world.commits.so_far());
    runtime.block_on(load.run_for(scale.measured))?;
    let ended = load.ended - before;
    let (used, committed) = (usage.used(), world.commits.so_far().since(commits));
    runtime.block_on(load.finish())?;
    runner.abort();
    load.check()?;
    let records = *head.borrow() - first;
    drop(runtime);
    world.stop()?;
    Ok(Measurement {
        per_second: per_second(ended, used.took),
        near: format!(
            "{}; {} executions, {} records each",
            near(&used, committed),
            grouped(load.ended),
            tenths(records * 10 / load.ended.max(1))
        ),
    })
}
