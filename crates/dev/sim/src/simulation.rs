//! Worlds, one after another, until there were enough steps.

use std::panic::{AssertUnwindSafe, catch_unwind};

use thiserror::Error;

use crate::rng::Rng;
use crate::summary::Tally;
use crate::trace::Trace;
use crate::violation::Violation;
use crate::world::World;

/// How far a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// It ends with the world in which this many steps are reached.
    pub steps: u64,
    /// It ends after this many worlds.
    pub worlds: u64,
    /// How many actions a failure shows.
    pub shown: usize,
}

/// What a run saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many worlds there were.
    pub worlds: u64,
    /// What happened in them.
    pub tally: Tally,
    /// A hash over every word of every trace.
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
    /// Which step.
    pub step: u64,
    /// Which promise, or what a panic said.
    pub cause: String,
    /// The last actions, one a line.
    pub tail: String,
}

/// Runs worlds that all follow from `seed`.
pub fn run(seed: u64, extent: Extent) -> Result<Report, Box<Failure>> {
    let mut seeds = Rng::new(seed);
    let mut report = Report::default();
    let mut world_seed = seed;
    while report.worlds < extent.worlds && report.tally.count("steps") < extent.steps {
        let trace = run_world(world_seed, extent.shown, &mut report.tally)?;
        report.trace_hash = report.trace_hash.rotate_left(1) ^ trace.hash();
        report.worlds += 1;
        // The first world is that of the seed itself, so that one world can be asked for.
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
        Ok(Err(violation)) => words(&violation),
        Err(panic) => format!("a panic: {}", crate::panic_words(panic.as_ref())),
    };
    Err(Box::new(Failure {
        seed,
        step: trace.steps(),
        cause,
        tail: trace.tail(),
    }))
}

fn words(violation: &Violation) -> String {
    format!("{}\n  seen: {}", violation.promise, violation.seen)
}
