//! Invocations of the binaries of `bursar-sim`: simulation, fuzzing, benches.

use crate::invocation::Invocation;
use crate::programs::Programs;

/// Steps of the simulation in `cargo xtask test`; CONTRIBUTING.md promises a million.
const TEST_STEPS: u64 = 1_000_000;

/// Seed of the simulation and of the mutations in `cargo xtask test`. Fixed, so that the same tree
/// gives the same result; `cargo xtask simulate` takes other seeds.
const TEST_SEED: u64 = 1;

/// Run time of all fuzz targets together in `cargo xtask test`.
const FUZZ_SECONDS: u64 = 10;

/// Benches that start the program in the profile of packages.
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

/// Runs the corpus of every fuzz target, then seeded mutations of it.
pub fn test_fuzz(programs: &Programs) -> Invocation {
    let (seed, seconds) = (TEST_SEED.to_string(), FUZZ_SECONDS.to_string());
    programs.start("fuzz", &["--seed", &seed, "--seconds", &seconds])
}

/// Profile of packages.
const DIST: [&str; 2] = ["--profile", "dist"];

/// Builds the program in the profile of packages.
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
