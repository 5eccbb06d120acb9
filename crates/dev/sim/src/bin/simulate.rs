//! `cargo xtask simulate`: the whole system on virtual time, with faults, from one seed.

use std::io::Write as _;
use std::process::ExitCode;

use bursar_sim::simulation::{Extent, Report, run};
use bursar_sim::trace::SHOWN_DEFAULT;
use clap::Parser;

/// The steps of a run that names none, and from which on a run must have met everything.
const STEPS_DEFAULT: u64 = 1_000_000;

/// Run the whole system on virtual time, with injected faults
#[derive(Parser)]
struct Arguments {
    /// What the whole run follows from
    #[arg(long)]
    seed: u64,
    /// Go on until there were this many steps
    #[arg(long, default_value_t = STEPS_DEFAULT)]
    steps: u64,
    /// Stop after this many worlds
    #[arg(long, default_value_t = u64::MAX)]
    worlds: u64,
    /// How many of the last actions a failure shows
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
    // A reader that went away needs no table.
    let _gone = std::io::stdout().write_all(table.as_bytes());
    let unmet = report.tally.unmet();
    if report.tally.count("steps") < STEPS_DEFAULT || unmet.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "error: the simulation has become tame, it never met: {}",
        unmet.join(", ")
    );
    ExitCode::FAILURE
}
