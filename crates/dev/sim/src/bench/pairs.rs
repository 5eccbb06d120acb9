//! Durable pairs of reserve and release on one hot limit, in process.

use std::path::Path;

use super::Scale;
use super::chains::Chains;
use super::table::per_second;
use super::usage::Usage;
use super::world::{World, near};

pub(super) struct Measurement {
    pub(super) pairs_per_second: u64,
    pub(super) near: String,
}

/// Runs chains and counts the pairs after a warm-up.
pub(super) fn measure(directory: &Path, scale: Scale) -> anyhow::Result<Measurement> {
    let world = World::begin(directory)?;
    let chains = Chains::start(world.ledger(), 1, u64::MAX)?;
    chains.wait(scale.warm_up);
    let (usage, before, commits) = (Usage::start(), chains.pairs(), world.commits.so_far());
    chains.wait(scale.measured);
    let pairs = chains.pairs() - before;
    let (used, committed) = (usage.used(), world.commits.so_far().since(commits));
    chains.end()?;
    world.stop()?;
    Ok(Measurement {
        pairs_per_second: per_second(pairs, used.took),
        near: near(&used, committed),
    })
}
