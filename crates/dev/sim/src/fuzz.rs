//! Fuzzing of every parser: replays a corpus, then seeded mutations of it.
//!
//! A target is a plain function: it takes any bytes and must neither panic nor take long. Inputs
//! depend on the seed alone; the clock only ends the run. `fuzz/` contains the corpus and the same
//! targets for `cargo fuzz`.

pub mod corpus;
pub mod http;
pub mod market;
pub mod mutation;
pub mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bursar_journal::hash::sha256;
use thiserror::Error;

use self::corpus::Corpus;
use self::targets::Target;
use crate::rng::Rng;

/// Time limit of one input: a slower parser could be used to stop a server.
const INPUT_WITHIN: Duration = Duration::from_secs(5);
/// Run time of one target before the next one runs.
const TURN: Duration = Duration::from_millis(20);

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Inputs of the corpus.
    pub replayed: u64,
    /// Inputs made by mutation.
    pub mutated: u64,
}

/// An input on which a target failed.
#[derive(Clone, Debug, Error)]
#[error("target `{target}`: {cause}")]
pub struct Failure {
    /// Name of the target.
    pub target: &'static str,
    /// Message of the panic, or the time it took.
    pub cause: String,
    /// The input.
    pub input: Vec<u8>,
}

impl Failure {
    /// Name of the file in which the input is kept.
    pub fn file_name(&self) -> String {
        let hash = sha256(&self.input).to_string();
        let short: String = hash.chars().take(16).collect();
        format!("{}-{short}", self.target)
    }
}

/// Gives one input to a target.
pub fn run_one(target: &Target, input: &[u8]) -> Result<(), Box<Failure>> {
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let cause = match result {
        Err(panic) => crate::panic_message(panic.as_ref()),
        Ok(()) if start.elapsed() > INPUT_WITHIN => format!("took {:?}", start.elapsed()),
        Ok(()) => return Ok(()),
    };
    Err(Box::new(Failure {
        target: target.name,
        cause,
        input: input.to_vec(),
    }))
}

/// Replays the corpus, then mutates it until the time is over.
pub fn run(
    targets: &[&Target],
    corpora: &[Corpus],
    seed: u64,
    length: Duration,
) -> Result<Report, Box<Failure>> {
    let mut report = Report::default();
    for (target, corpus) in targets.iter().zip(corpora) {
        for input in corpus.inputs() {
            run_one(target, input)?;
            report.replayed += 1;
        }
    }
    let mut rngs: Vec<Rng> = targets.iter().map(|target| rng_of(seed, target)).collect();
    let start = Instant::now();
    while start.elapsed() < length {
        for ((target, corpus), rng) in targets.iter().zip(corpora).zip(&mut rngs) {
            let turn = Instant::now();
            while turn.elapsed() < TURN {
                run_one(target, &mutation::mutated(rng, corpus))?;
                report.mutated += 1;
            }
        }
    }
    Ok(report)
}

/// Generator of a target. Each target has its own, so that a new target changes nothing for the others.
fn rng_of(seed: u64, target: &Target) -> Rng {
    let name = target.name.bytes();
    let mixed = name.fold(seed, |mixed, byte| {
        (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    Rng::new(mixed)
}
