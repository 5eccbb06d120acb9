//! Measures, ours and peers in the same run: `cargo xtask bench bookings`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use bursar_sim::bench::{self, Options, Part, executions, market, market_replay};
use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;

/// The allocator of the program that is measured.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
        /// The program that users have, for real processes; the one built beside this
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// The trace to replay; without it, the public one where it is present, else one from a seed
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
    },
    /// One clearing of a node, beside the seeds' own loops, and what an agent costs
    #[command(after_help = "Example: cargo xtask bench market --only clear")]
    Market {
        /// Measure only this; may be given several times
        #[arg(long, value_enum, value_name = "PART")]
        only: Vec<market::Part>,
        /// A tenth of the time: to see that it runs, not to quote
        #[arg(long)]
        quick: bool,
        /// The program that users have, for the agent; the one built beside this
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// A day of 64 pods on one node, beside other ways to set limits
    #[command(
        after_help = "Example: cargo xtask bench market-replay --picture docs/market-replay.svg"
    )]
    MarketReplay {
        /// A tenth of the day: to see that it runs, not to quote
        #[arg(long)]
        quick: bool,
        /// The trace to replay; without it, the public one where it is present, else one from a seed
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Where the picture goes
        #[arg(long, value_name = "FILE", default_value = "target/market-replay.svg")]
        picture: PathBuf,
    },
}

/// Where the public traces are, if they are.
const TRACE: &str = "../shared/traces/lora_requests.csv.gz";
const DAY: &str = "../shared/traces/planetlab_20110303.csv.gz";

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
            program,
            trace,
        } => executions::measure(
            &executions::Options {
                only,
                quick,
                directory,
                program: program.map_or_else(beside, Ok)?,
                trace: trace.or_else(|| Some(PathBuf::from(TRACE)).filter(|path| path.is_file())),
            },
            &interrupted,
        ),
        Plane::Market {
            only,
            quick,
            program,
        } => market::measure(
            &market::Options {
                only,
                quick,
                program: program.map_or_else(beside, Ok)?,
            },
            &interrupted,
        ),
        Plane::MarketReplay {
            quick,
            trace,
            picture,
        } => market_replay::measure(
            &market_replay::Options {
                trace: trace.or_else(|| Some(PathBuf::from(DAY)).filter(|path| path.is_file())),
                picture,
                quick,
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

/// The program that was built with this one.
fn beside() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    Ok(own.with_file_name("bursar"))
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
