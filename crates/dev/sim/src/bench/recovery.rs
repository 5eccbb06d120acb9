//! A start from records alone, as `bursar up` does it: open, lead, read, hash, decode, fold.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::chains::Chains;
use super::usage::Usage;
use super::world::World;

/// How long writing the records may take on a slow disk.
const TIME_MAX: Duration = Duration::from_secs(90);

/// What was seen.
pub(super) struct Seen {
    pub(super) took_ms: u64,
    pub(super) near: String,
}

/// Writes that many records through a running ledger, and starts again from them.
pub(super) fn measure(directory: &Path, records: u64) -> anyhow::Result<Seen> {
    let world = World::begin(directory)?;
    let first = world.ledger().view().read().spine.head;
    Chains::start(world.ledger(), 4, (records - first) / 2)?.finish(TIME_MAX)?;
    let written = world.ledger().view().read().spine.head;
    world.stop()?;
    let (usage, started) = (Usage::start(), Instant::now());
    let world = World::open(directory)?;
    let took = started.elapsed();
    let used = usage.used();
    let recovered = world.data.records;
    world.stop()?;
    // A pair is two records, so one may be missing to the round number.
    if recovered != written || records - written > 1 {
        bail!("{recovered} records were recovered, {written} of {records} were written");
    }
    let bound = if used.is_busy() {
        "CPU"
    } else {
        "CPU of one thread"
    };
    Ok(Seen {
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        near: format!("{bound}; {}; the file is in the page cache", used.words()),
    })
}
