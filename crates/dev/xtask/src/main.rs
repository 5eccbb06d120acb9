//! `cargo xtask`: runs checks, simulations and benches of the workspace.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use xtask::programs::Programs;
use xtask::suite::{self, Part};
use xtask::{drift, simulator, tree};

/// Development tasks of Bursar
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all checks, or the named parts
    #[command(after_help = "Example: cargo xtask test format lint")]
    Test {
        /// Parts to run; all if none is named
        #[arg(value_name = "PART", value_enum)]
        parts: Vec<Part>,
    },
    /// Run the simulation with one seed; a failing seed is printed as this command
    #[command(after_help = "Example: cargo xtask simulate --seed 7")]
    Simulate {
        /// Seed of the run
        #[arg(long)]
        seed: u64,
        /// Number of steps; the default is that of the simulation
        #[arg(long)]
        steps: Option<u64>,
    },
    /// Measure Bursar and peers in the same run
    #[command(after_help = "Example: cargo xtask bench bookings")]
    Bench {
        /// Name of the bench: bookings, executions, market, market-replay or cluster
        name: String,
        /// Arguments of the bench
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Regenerate the generated files in the tree (see the part `drift`)
    Update,
}

fn main() -> ExitCode {
    match run(&Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> anyhow::Result<ExitCode> {
    let root = tree::root()?;
    match task {
        Task::Test { parts } => {
            let results = suite::run(&root, parts);
            eprintln!();
            std::io::stdout()
                .write_all(suite::summary(&results).as_bytes())
                .context("cannot print the summary")?;
            let failed = suite::failed(&results).join(" ");
            if failed.is_empty() {
                return Ok(ExitCode::SUCCESS);
            }
            eprintln!(
                "error: failed: {failed}\n\nhint: `cargo xtask test {failed}` repeats only these"
            );
            return Ok(ExitCode::FAILURE);
        }
        Task::Simulate { seed, steps } => {
            simulator::simulation(&Programs::build(&root)?, *seed, *steps).run(&root)?;
        }
        Task::Bench { name, arguments } => {
            if simulator::STARTS_THE_PROGRAM.contains(&name.as_str()) {
                simulator::program().run(&root)?;
            }
            simulator::bench(name, arguments).run(&root)?;
        }
        Task::Update => drift::update(&root)?,
    }
    Ok(ExitCode::SUCCESS)
}
