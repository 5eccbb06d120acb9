//! What a remembered booking costs: the growth of this process over a million of them, in the
//! working state and the view, with everything that the allocator and the store keep besides.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;

use super::chains::Chains;
use super::table::grouped;
use super::usage::resident_bytes;
use super::world::World;

/// Pairs before the first look, so that threads, buffers and caches are there already.
const FIRST: u64 = 5_000;
/// How long a million pairs may take on a slow disk.
const TIME_MAX: Duration = Duration::from_secs(90);

/// What was seen.
pub(super) struct Seen {
    pub(super) mib_per_million: u64,
    pub(super) near: String,
}

/// Ends that many bookings through a running ledger and looks at the process before and after.
pub(super) fn measure(directory: &Path, ids: u64) -> anyhow::Result<Seen> {
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
    Ok(Seen {
        mib_per_million: (per_id * 1_000_000) >> 20,
        near: format!(
            "{} bytes an id, in working state and view; {} remembered",
            grouped(per_id),
            grouped(ids)
        ),
    })
}
