//! Runs worlds one after another until enough steps are done.

use std::panic::{AssertUnwindSafe, catch_unwind};

use thiserror::Error;

use crate::rng::Rng;
use crate::summary::Tally;
use crate::trace::Trace;
use crate::violation::Violation;
use crate::world::World;

/// Length of a run.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The run ends with the world in which this many steps are reached.
    pub steps: u64,
    /// The run ends after this many worlds.
    pub worlds: u64,
    /// Number of last actions that a failure shows.
    pub shown: usize,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of worlds.
    pub worlds: u64,
    /// Counts of events in them.
    pub tally: Tally,
    /// Hash over the text of all traces.
    pub trace_hash: u64,
}

/// A world in which a promise was broken.
#[derive(Clone, Debug, Error)]
#[error(
    "step {step} of a world broke a promise\n\n  {cause}\n\nthe last actions:\n{tail}\n\
     repeat it: cargo xtask simulate --seed {seed}"
)]
pub struct Failure {
    /// The seed of the world; a run with it begins with that world.
    pub seed: u64,
    /// Step number, from 1.
    pub step: u64,
    /// Broken promise, or message of a panic.
    pub cause: String,
    /// Last actions, one per line.
    pub tail: String,
}

/// Runs worlds that are determined by `seed`.
pub fn run(seed: u64, extent: Extent) -> Result<Report, Box<Failure>> {
    let mut seeds = Rng::new(seed);
    let mut report = Report::default();
    let mut world_seed = seed;
    while report.worlds < extent.worlds && report.tally.count("steps") < extent.steps {
        let trace = run_world(world_seed, extent.shown, &mut report.tally)?;
        report.trace_hash = report.trace_hash.rotate_left(1) ^ trace.hash();
        report.worlds += 1;
        // The first world has the seed itself, so that a failing world can be repeated alone.
        world_seed = seeds.number();
    }
    Ok(report)
}

fn run_world(seed: u64, shown: usize, tally: &mut Tally) -> Result<Trace, Box<Failure>> {
    let mut trace = Trace::new(shown);
    let result = catch_unwind(AssertUnwindSafe(|| {
        World::new(seed, tally, &mut trace)?.run()
    }));
    let cause = match result {
        Ok(Ok(())) => return Ok(trace),
        Ok(Err(Violation { promise, seen })) => format!("{promise}\n  seen: {seen}"),
        Err(panic) => format!("a panic: {}", crate::panic_message(panic.as_ref())),
    };
    Err(Box::new(Failure {
        seed,
        step: trace.steps(),
        cause,
        tail: trace.tail(),
    }))
}
