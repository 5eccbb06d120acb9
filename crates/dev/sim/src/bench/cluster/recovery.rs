//! Start from records alone, as in `bursar up`, of a ledger of lease events.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::super::usage::Usage;
use super::super::world::World;
use super::chains::{Chains, Fate, OUTSTANDING};
use super::site::{RUN_GPUS, Site};

/// GPUs of a node: the most that are leased.
const NODE_GPUS: u64 = 1_024;
/// Time limit for writing the records on a slow disk.
const TIME_MAX: Duration = Duration::from_mins(3);

pub(super) struct Measurement {
    pub(super) took_ms: u64,
    pub(super) near: String,
}

/// Opens and closes the leases of `events / 2` runs through a running ledger, and restarts from its
/// records. The leases of a run open in one event and close in one.
pub(super) fn measure(directory: &Path, events: u64) -> anyhow::Result<Measurement> {
    let site = Site {
        nodes: OUTSTANDING.saturating_mul(RUN_GPUS).div_ceil(NODE_GPUS),
        node_gpus: NODE_GPUS,
    };
    let world = site.begin(directory)?;
    Chains::run(world.ledger(), 0..events / 2, Fate::End, TIME_MAX)?;
    let written = world.ledger().view().read().spine.head;
    world.stop()?;
    World::remove_snapshots(directory)?;
    let (usage, started) = (Usage::start(), Instant::now());
    let world = World::open(directory)?;
    let took = started.elapsed();
    let used = usage.used();
    let recovered = world.data.records;
    world.stop()?;
    if recovered != written || written < events {
        bail!("{recovered} of {written} records were recovered, with {events} lease events");
    }
    let bound = if used.is_busy() {
        "CPU"
    } else {
        "CPU of one thread"
    };
    Ok(Measurement {
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        near: format!("{bound}; {}; the file is in the page cache", used.words()),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    #[test]
    fn every_record_of_the_leases_is_recovered() {
        let directory = tempfile::tempdir().unwrap();
        super::measure(directory.path(), 40).unwrap();
    }
}
