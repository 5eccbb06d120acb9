//! `cargo xtask bench`: measures Bursar and peers in the same run.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use bursar_sim::bench::{self, Options, Part, cluster, executions, market, market_replay};
use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;

/// The allocator of the program that is measured.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Measure Bursar and peers in the same run
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    plane: Plane,
}

#[derive(Subcommand)]
enum Plane {
    /// Bookings on one hot limit, compared with peers
    #[command(after_help = "Example: cargo xtask bench bookings --only pairs")]
    Bookings {
        /// Measure only this part; can be repeated
        #[arg(long, value_enum, value_name = "PART")]
        only: Vec<Part>,
        /// Run a tenth of the work, as a smoke test
        #[arg(long)]
        quick: bool,
        /// Directory for temporary data; must be on a disk
        #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
        directory: PathBuf,
    },
    /// Executions, with a null executor and with real processes
    #[command(after_help = "Example: cargo xtask bench executions --only rate")]
    Executions {
        /// Measure only this part; can be repeated
        #[arg(long, value_enum, value_name = "PART")]
        only: Vec<executions::Part>,
        /// Run a tenth of the work, as a smoke test
        #[arg(long)]
        quick: bool,
        /// Directory for temporary data; must be on a disk
        #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
        directory: PathBuf,
        /// The `bursar` binary for real processes; by default the one built beside this program
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// Trace to replay; by default the public trace if it exists, else one generated from a seed
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
    },
    /// One clearing of a node, compared with two prototypes, and the cost of an agent
    #[command(after_help = "Example: cargo xtask bench market --only clear")]
    Market {
        /// Measure only this part; can be repeated
        #[arg(long, value_enum, value_name = "PART")]
        only: Vec<market::Part>,
        /// Run a tenth of the time, as a smoke test
        #[arg(long)]
        quick: bool,
        /// The `bursar` binary for the agent; by default the one built beside this program
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// A day of 64 pods on one node, compared with other ways to set limits
    #[command(
        after_help = "Example: cargo xtask bench market-replay --picture docs/market-replay.svg"
    )]
    MarketReplay {
        /// Replay a tenth of the day, as a smoke test
        #[arg(long)]
        quick: bool,
        /// Trace to replay; by default the public trace if it exists, else one generated from a seed
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Output file of the picture
        #[arg(long, value_name = "FILE", default_value = "target/market-replay.svg")]
        picture: PathBuf,
        /// Replay two sets of machines, too, that were not used to choose the rule
        #[arg(long)]
        held_out: bool,
    },
    /// Budgets and runs: covers, compared with a scan, lease events, submissions, memory, recovery
    #[command(after_help = "Example: cargo xtask bench cluster --only cover")]
    Cluster {
        /// Measure only this part; can be repeated
        #[arg(long, value_enum, value_name = "PART")]
        only: Vec<cluster::Part>,
        /// Run a tenth of the work, as a smoke test
        #[arg(long)]
        quick: bool,
        /// Directory for temporary data; must be on a disk
        #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
        directory: PathBuf,
    },
}

/// Paths of the public traces, which may be absent.
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
            held_out,
        } => market_replay::measure(
            &market_replay::Options {
                trace: trace.or_else(|| Some(PathBuf::from(DAY)).filter(|path| path.is_file())),
                picture,
                held_out,
                quick,
            },
            &interrupted,
        ),
        Plane::Cluster {
            only,
            quick,
            directory,
        } => cluster::measure(
            &cluster::Options {
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

/// Path of the `bursar` binary that was built with this one.
fn beside() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    Ok(own.with_file_name("bursar"))
}

/// After an interrupt the current part ends and cleans up; every part has a bounded run time.
fn watch_for_interrupts() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                if tokio::signal::ctrl_c().await.is_ok() {
                    eprintln!("interrupted: ending after the current part");
                    flag.store(true, Ordering::Relaxed);
                }
            });
        })
        .context("cannot start a thread")?;
    Ok(interrupted)
}
