//! `cargo xtask simulate`: simulates the whole system on virtual time, with faults, from one seed.

use std::io::Write as _;
use std::process::ExitCode;

use bursar_sim::simulation::{Extent, Report, run};
use bursar_sim::trace::SHOWN_DEFAULT;
use clap::Parser;

/// Default number of steps. A run of at least this many must contain all required events.
const STEPS_DEFAULT: u64 = 1_000_000;

/// Run the whole system on virtual time, with injected faults
#[derive(Parser)]
struct Arguments {
    /// Seed of the run
    #[arg(long)]
    seed: u64,
    /// Stop at the end of the world in which this many steps are reached
    #[arg(long, default_value_t = STEPS_DEFAULT)]
    steps: u64,
    /// Stop after this many worlds
    #[arg(long, default_value_t = u64::MAX)]
    worlds: u64,
    /// Number of last actions that a failure shows
    #[arg(long, default_value_t = SHOWN_DEFAULT)]
    actions: usize,
}

fn main() -> ExitCode {
    let Arguments {
        seed,
        steps,
        worlds,
        actions,
    } = Arguments::parse();
    match run(
        seed,
        Extent {
            steps,
            worlds,
            shown: actions,
        },
    ) {
        Ok(report) => finish(&report),
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn finish(report: &Report) -> ExitCode {
    let table = format!(
        "{} worlds, trace {:016x}\n{}",
        report.worlds,
        report.trace_hash,
        report.tally.table()
    );
    // A closed pipe is not an error.
    let _closed = std::io::stdout().write_all(table.as_bytes());
    let unmet = report.tally.unmet();
    if report.tally.count("steps") < STEPS_DEFAULT || unmet.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "error: the simulation tests too little; these events never occurred: {}",
        unmet.join(", ")
    );
    ExitCode::FAILURE
}
