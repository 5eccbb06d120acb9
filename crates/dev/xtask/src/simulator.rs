//! How the binaries of `bursar-sim` are started: simulation, fuzzing, benches.

use crate::invocation::Invocation;
use crate::programs::Programs;

/// Steps of the simulation in `cargo xtask test`; the promise is at least a million.
const TEST_STEPS: u64 = 1_000_000;

/// The seed of the simulation and of the mutations in `cargo xtask test`. Fixed, so that the same tree
/// gives the same verdict; other seeds are for `cargo xtask simulate`.
const TEST_SEED: u64 = 1;

/// How long the fuzz targets run in `cargo xtask test`, over all of them together.
const FUZZ_SECONDS: u64 = 10;

/// The benches that start the program as users have it.
pub const STARTS_THE_PROGRAM: [&str; 2] = ["executions", "market"];

/// The simulation that `cargo xtask test` runs.
pub fn test_simulation(programs: &Programs) -> Invocation {
    simulation(programs, TEST_SEED, Some(TEST_STEPS))
}

/// One simulation; the same seed and steps give the same trace.
pub fn simulation(programs: &Programs, seed: u64, steps: Option<u64>) -> Invocation {
    let invocation = programs.start("simulate", &["--seed", &seed.to_string()]);
    match steps {
        Some(steps) => invocation.with(["--steps".to_owned(), steps.to_string()]),
        None => invocation,
    }
}

/// The corpus of every fuzz target, then seeded mutations of it.
pub fn test_fuzz(programs: &Programs) -> Invocation {
    let (seed, seconds) = (TEST_SEED.to_string(), FUZZ_SECONDS.to_string());
    programs.start("fuzz", &["--seed", &seed, "--seconds", &seconds])
}

/// The profile of packages.
const DIST: [&str; 2] = ["--profile", "dist"];

/// Builds the program that packages ship, which some benches start.
pub fn program() -> Invocation {
    Invocation::cargo(&["build", "--locked", "--package", "bursar"]).with(DIST)
}

/// One bench, in the profile of packages.
pub fn bench(name: &str, arguments: &[String]) -> Invocation {
    Invocation::cargo(&["run", "--locked", "--package", "bursar-sim"])
        .with(DIST)
        .with(["--bin", "bench", "--", name])
        .with(arguments.iter().cloned())
}
