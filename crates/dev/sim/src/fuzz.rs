//! Bytes at every parser: a corpus that is replayed, and seeded mutations of it.
//!
//! A target is a plain function: it takes any bytes and must neither panic nor take long. What an
//! input is depends on the seed alone; the clock only says when to stop. `fuzz/` holds the corpus
//! and the same targets for those who have `cargo fuzz`.

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

/// How long one input may take: a parser that needs more can be used to stop a server.
const INPUT_WITHIN: Duration = Duration::from_secs(5);
/// How long one target is at work before the next has its turn.
const TURN: Duration = Duration::from_millis(20);

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Inputs of the corpus.
    pub replayed: u64,
    /// Inputs made by mutation.
    pub mutated: u64,
}

/// An input that a target could not take.
#[derive(Clone, Debug, Error)]
#[error("target `{target}`: {what}")]
pub struct Failure {
    /// The target's name.
    pub target: &'static str,
    /// What it did.
    pub what: String,
    /// The input.
    pub input: Vec<u8>,
}

impl Failure {
    /// A name for the file that keeps the input.
    pub fn file_name(&self) -> String {
        let hash = sha256(&self.input).to_string();
        let short: String = hash.chars().take(16).collect();
        format!("{}-{short}", self.target)
    }
}

/// Gives one input to a target.
pub fn run_one(target: &Target, input: &[u8]) -> Result<(), Box<Failure>> {
    let start = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let what = match outcome {
        Err(panic) => crate::panic_words(panic.as_ref()),
        Ok(()) if start.elapsed() > INPUT_WITHIN => format!("took {:?}", start.elapsed()),
        Ok(()) => return Ok(()),
    };
    Err(Box::new(Failure {
        target: target.name,
        what,
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

/// Each target has its own chance, so that one more target changes nothing for the others.
fn rng_of(seed: u64, target: &Target) -> Rng {
    let name = target.name.bytes();
    let mixed = name.fold(seed, |mixed, byte| {
        (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    Rng::new(mixed)
}
