//! Real processes through ledger, runner, shim and cgroup, compared with a plain loop that only starts
//! them and waits, in the same run and with as many at a time.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::super::Scale;
use super::super::table::per_second;
use super::super::usage::Usage;
use super::super::world::near;
use super::load::Load;
use super::rig::Rig;
use super::work;

/// Number of processes at a time.
pub(super) const AT_A_TIME: u64 = 16;
const PROGRAM: &str = "/bin/true";

pub(super) struct Measurement {
    pub(super) per_second: u64,
    pub(super) near: String,
}

/// Measures our executions: as many slots as processes at a time, and always a waiting execution.
pub(super) fn measure(
    directory: &Path,
    scale: Scale,
    program: &Path,
) -> anyhow::Result<Measurement> {
    let rig = Rig::begin(directory, AT_A_TIME, program)?;
    let job = rig.job(&work(PROGRAM, &[]))?;
    let mut load = Load::new(rig.ledger(), job, 12, 2 * AT_A_TIME)?;
    rig.runtime.block_on(load.run_for(scale.warm_up))?;
    let (usage, before, commits) = (Usage::start(), load.ended, rig.world.commits.so_far());
    rig.runtime.block_on(load.run_for(scale.measured))?;
    let ended = load.ended - before;
    let (used, committed) = (usage.used(), rig.world.commits.so_far().since(commits));
    rig.runtime.block_on(load.finish())?;
    load.check()?;
    rig.end()?;
    Ok(Measurement {
        per_second: per_second(ended, used.took),
        near: near(&used, committed),
    })
}

/// Measures the plain loop.
pub(super) fn measure_plain(scale: Scale) -> anyhow::Result<Measurement> {
    run_plain(scale.warm_up)?;
    let usage = Usage::start();
    let ended = run_plain(scale.measured)?;
    let used = usage.used();
    let bound = if used.is_busy() { "CPU" } else { "the kernel" };
    Ok(Measurement {
        per_second: per_second(ended, used.took),
        near: format!("{bound}; {}", used.words()),
    })
}

fn run_plain(time: Duration) -> anyhow::Result<u64> {
    let (ended, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            let thread = std::thread::Builder::new().name("plain".to_owned());
            let started = thread.spawn_scoped(scope, || {
                while Instant::now() < end {
                    let count = if run_once() { &ended } else { &failed };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
            started.context("cannot start a thread")?;
        }
        anyhow::Ok(())
    })?;
    match failed.into_inner() {
        0 => Ok(ended.into_inner()),
        failed => bail!("{PROGRAM} failed {failed} times"),
    }
}

fn run_once() -> bool {
    let status = Command::new(PROGRAM)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
