//! Start from records alone, as in `bursar up`: opens the store, takes the lead, and reads, hashes,
//! decodes and folds the records.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::chains::Chains;
use super::usage::Usage;
use super::world::World;

/// Time limit for writing the records on a slow disk.
const TIME_MAX: Duration = Duration::from_secs(90);

pub(super) struct Measurement {
    pub(super) took_ms: u64,
    pub(super) near: String,
}

/// Writes records through a running ledger, and restarts from them.
pub(super) fn measure(directory: &Path, records: u64) -> anyhow::Result<Measurement> {
    let world = World::begin(directory)?;
    let first = world.ledger().view().read().spine.head;
    Chains::start(world.ledger(), 4, (records - first) / 2)?.finish(TIME_MAX)?;
    let written = world.ledger().view().read().spine.head;
    world.stop()?;
    World::remove_snapshots(directory)?;
    let (usage, started) = (Usage::start(), Instant::now());
    let world = World::open(directory)?;
    let took = started.elapsed();
    let used = usage.used();
    let recovered = world.data.records;
    world.stop()?;
    // A pair is two records, so an odd number falls short by one.
    if recovered != written || records - written > 1 {
        bail!("{recovered} records were recovered, {written} of {records} were written");
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
