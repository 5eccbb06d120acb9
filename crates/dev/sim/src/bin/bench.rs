//! Measures, ours and peers in the same run: `cargo xtask bench bookings`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use bursar_sim::bench::{self, Options, Part, executions};
use clap::{Parser, Subcommand};

/// Measure, ours and peers in the same run
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    plane: Plane,
}

#[derive(Subcommand)]
enum Plane {
    /// Bookings on one hot limit, with peers beside it
    #[command(after_help = "Example: cargo xtask bench bookings --only pairs")]
    Bookings {
        /// Measure only this; may be given several times
        #[arg(long, value_enum, value_name = "PART")]
        only: Vec<Part>,
        /// A tenth of the counts and times: to see that it runs, not to quote
        #[arg(long)]
        quick: bool,
        /// Where data is kept meanwhile; must be on a disk
        #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
        directory: PathBuf,
    },
    /// Executions, from those that run nothing to real processes
    #[command(after_help = "Example: cargo xtask bench executions --only rate")]
    Executions {
        /// Measure only this; may be given several times
        #[arg(long, value_enum, value_name = "PART")]
        only: Vec<executions::Part>,
        /// A tenth of the counts and times: to see that it runs, not to quote
        #[arg(long)]
        quick: bool,
        /// Where data is kept meanwhile; must be on a disk
        #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let interrupted = watch_for_interrupts()?;
    let table = match arguments.plane {
        Plane::Bookings {
            only,
            quick,
            directory,
        } => bench::bookings(
            &Options {
                only,
                quick,
                directory,
            },
            &interrupted,
        ),
        Plane::Executions {
            only,
            quick,
            directory,
        } => executions::measure(
            &executions::Options {
                only,
                quick,
                directory,
            },
            &interrupted,
        ),
    }?;
    std::io::stdout()
        .write_all(table.to_string().as_bytes())
        .context("cannot print the table")?;
    for name in table.not_met() {
        eprintln!("not met: {name}");
    }
    Ok(())
}

/// The first interrupt lets the present part end and cleans up; what is measured is bounded.
fn watch_for_interrupts() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&interrupted);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                if tokio::signal::ctrl_c().await.is_ok() {
                    eprintln!("interrupted: ending after the present part");
                    seen.store(true, Ordering::Relaxed);
                }
            });
        })
        .context("cannot start a thread")?;
    Ok(interrupted)
}
