//! `cargo xtask`: one command for everything that is checked, simulated or measured here.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use xtask::programs::Programs;
use xtask::suite::{self, Part};
use xtask::{drift, simulator, tree};

/// The project's own chores
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check everything, or the named parts
    #[command(after_help = "Example: cargo xtask test format lint")]
    Test {
        /// Which parts; all of them if none is named
        #[arg(value_name = "PART", value_enum)]
        parts: Vec<Part>,
    },
    /// Run the simulation with one seed; a failing seed is printed as this command
    #[command(after_help = "Example: cargo xtask simulate --seed 7")]
    Simulate {
        /// What the whole run follows from
        #[arg(long)]
        seed: u64,
        /// How far to go; the simulation's own default if not given
        #[arg(long)]
        steps: Option<u64>,
    },
    /// Measure, ours and peers in the same run
    #[command(after_help = "Example: cargo xtask bench bookings")]
    Bench {
        /// Which bench: bookings, executions, market or market-replay
        name: String,
        /// Handed to the bench as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Write the generated files in the tree anew (see the part `drift`)
    Update,
}

fn main() -> ExitCode {
    match run(&Arguments::parse().chore) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: &Chore) -> anyhow::Result<ExitCode> {
    let root = tree::root()?;
    match chore {
        Chore::Test { parts } => {
            let outcomes = suite::run(&root, parts);
            eprintln!();
            std::io::stdout()
                .write_all(suite::summary(&outcomes).as_bytes())
                .context("cannot print the summary")?;
            let failed = suite::failed(&outcomes).join(" ");
            if failed.is_empty() {
                return Ok(ExitCode::SUCCESS);
            }
            eprintln!(
                "error: failed: {failed}\n\nhint: `cargo xtask test {failed}` repeats only that"
            );
            return Ok(ExitCode::FAILURE);
        }
        Chore::Simulate { seed, steps } => {
            simulator::simulation(&Programs::build(&root)?, *seed, *steps).run(&root)?;
        }
        Chore::Bench { name, arguments } => {
            if simulator::STARTS_THE_PROGRAM.contains(&name.as_str()) {
                simulator::program().run(&root)?;
            }
            simulator::bench(name, arguments).run(&root)?;
        }
        Chore::Update => drift::update(&root)?,
    }
    Ok(ExitCode::SUCCESS)
}
