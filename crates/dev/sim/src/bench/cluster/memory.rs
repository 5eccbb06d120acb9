//! Memory of live GPUs and of remembered runs: the growth of this process, in working state and view,
//! with the overhead of allocator and store.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use bursar_cluster::Stage;

use super::super::usage::resident_bytes;
use super::chains::{Chains, Fate, OUTSTANDING};
use super::site::{RUN_GPUS, Site};

/// Runs before the first measurement, which fill buffers and caches.
const FIRST: u64 = 5_000;
/// GPUs of a node: the most that are leased.
const NODE_GPUS: u64 = 1_024;
/// Time limit of each step on a slow disk.
const TIME_MAX: Duration = Duration::from_secs(90);

pub(super) struct Measurement {
    pub(super) live_gpus: u64,
    pub(super) bytes_per_gpu: u64,
    pub(super) remembered: u64,
    pub(super) bytes_per_run: u64,
}

/// Leases GPUs to runs that go on, then ends other runs, and measures the growth of this process.
pub(super) fn measure(directory: &Path, live: u64, remembered: u64) -> anyhow::Result<Measurement> {
    let first = FIRST.min(remembered / 2);
    let site = Site {
        nodes: (live + OUTSTANDING)
            .saturating_mul(RUN_GPUS)
            .div_ceil(NODE_GPUS),
        node_gpus: NODE_GPUS,
    };
    let world = site.begin(directory)?;
    let run = |from: u64, count: u64, fate: Fate| {
        let before = resident_bytes();
        Chains::run(world.ledger(), from..from + count, fate, TIME_MAX)?;
        anyhow::Ok(resident_bytes().saturating_sub(before))
    };
    run(0, first, Fate::End)?;
    let grown_live = run(first, live, Fate::GoOn)?;
    let grown_ended = run(first + live, remembered - first, Fate::End)?;
    let view = world.ledger().view().read();
    let counts = [
        view.clusters.count(Stage::Starting),
        view.clusters.count(Stage::Ended),
    ];
    drop(view);
    world.stop()?;
    if counts.map(|count| u64::try_from(count).unwrap_or(0)) != [live, remembered] {
        bail!("{counts:?} runs are live and remembered, {live} and {remembered} were expected");
    }
    let live_gpus = live * RUN_GPUS;
    Ok(Measurement {
        live_gpus,
        bytes_per_gpu: grown_live / live_gpus.max(1),
        remembered,
        bytes_per_run: grown_ended / (remembered - first).max(1),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    #[test]
    fn all_live_and_all_ended_runs_are_in_the_state() {
        let directory = tempfile::tempdir().unwrap();
        let measured = super::measure(directory.path(), 20, 30).unwrap();
        assert_eq!([160, 30], [measured.live_gpus, measured.remembered]);
    }
}
