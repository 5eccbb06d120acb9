//! Memory of remembered bookings: the growth of this process over a million of them, in working
//! state and view, with the overhead of allocator and store.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;

use super::chains::Chains;
use super::table::grouped;
use super::usage::resident_bytes;
use super::world::World;

/// Pairs before the first measurement, which fill buffers and caches.
const FIRST: u64 = 5_000;
/// Time limit of a million pairs on a slow disk.
const TIME_MAX: Duration = Duration::from_secs(90);

pub(super) struct Measurement {
    pub(super) mib_per_million: u64,
    pub(super) near: String,
}

/// Ends `ids` bookings in a running ledger and measures the growth of this process.
pub(super) fn measure(directory: &Path, ids: u64) -> anyhow::Result<Measurement> {
    let world = World::begin(directory)?;
    Chains::start(world.ledger(), 2, FIRST)?.finish(TIME_MAX)?;
    let before = resident_bytes();
    Chains::start(world.ledger(), 3, ids - FIRST)?.finish(TIME_MAX)?;
    let grown = resident_bytes().saturating_sub(before);
    let (_, _, ended) = world.ledger().view().read().bookings.counts();
    world.stop()?;
    if u64::try_from(ended).ok() != Some(ids) {
        bail!("{ended} bookings are remembered, {ids} were expected");
    }
    let per_id = grown / (ids - FIRST);
    Ok(Measurement {
        mib_per_million: (per_id * 1_000_000) >> 20,
        near: format!(
            "{} bytes an id, in working state and view; {} remembered",
            grouped(per_id),
            grouped(ids)
        ),
    })
}
