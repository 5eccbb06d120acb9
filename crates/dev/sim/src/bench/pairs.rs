//! Durable pairs of reserve and release on one hot limit, in process.

use std::path::Path;

use super::Scale;
use super::chains::Chains;
use super::table::per_second;
use super::usage::Usage;
use super::world::{World, near};

/// What was seen.
pub(super) struct Seen {
    pub(super) pairs_per_second: u64,
    pub(super) near: String,
}

/// Runs chains for a while and counts what they did after a warm-up.
pub(super) fn measure(directory: &Path, scale: Scale) -> anyhow::Result<Seen> {
    let world = World::begin(directory)?;
    let chains = Chains::start(world.ledger(), 1, u64::MAX)?;
    chains.wait(scale.warm_up);
    let (usage, before, commits) = (Usage::start(), chains.pairs(), world.commits.so_far());
    chains.wait(scale.measured);
    let pairs = chains.pairs() - before;
    let (used, committed) = (usage.used(), world.commits.so_far().since(commits));
    chains.end()?;
    world.stop()?;
    Ok(Seen {
        pairs_per_second: per_second(pairs, used.took),
        near: near(&used, committed),
    })
}
